package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/fenced"
)

// fileOf is the name of the file that a block is: it stands alone before it.
var fileOf = regexp.MustCompile("^`([\\w.-]+)`:$")

// alike compares what a page shows with what was printed: … stands for any text of a line.
func alike(want, got string) bool {
	var parts []string
	for _, part := range strings.Split(want, "…") {
		parts = append(parts, regexp.QuoteMeta(part))
	}
	return regexp.MustCompile("^" + strings.Join(parts, "[^\n]*") + "$").MatchString(got)
}

// TestPages does what the pages say, literally, in a directory with nothing but the programs in
// bin and the examples: a block behind the name of a file is that file, one of language sh is given to a shell,
// and prints what the block of language output behind it has.
func TestPages(t *testing.T) {
	t.Parallel()
	binaries := Binaries(t)
	// How many commands and outputs each page has at least: one that lost them would pass.
	pages := map[string][2]int{"docs/joins.md": {1, 1}, "docs/mapping.md": {2, 2}, "docs/data-model.md": {1, 1}, "docs/filters.md": {1, 1}, "docs/formats.md": {1, 1}, "docs/export.md": {3, 3}, "docs/schedules.md": {1, 1}, "docs/tables.md": {1, 1}, "docs/change-data.md": {1, 1}}
	all, err := filepath.Glob(filepath.Join(ModuleRoot(t), "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range all {
		page = "docs/" + filepath.Base(page)
		blocks := fenced.Blocks(t, filepath.Join(ModuleRoot(t), page))
		if _, ok := pages[page]; !ok && !slices.ContainsFunc(blocks, func(b fenced.Block) bool { return b.Language == "sh" }) {
			continue
		}
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, to := range map[string]string{"bin": binaries, "examples": filepath.Join(ModuleRoot(t), "examples")} {
				if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			commands, outputs := 0, 0
			for i, b := range blocks {
				if m := fileOf.FindStringSubmatch(b.Before); m != nil {
					if err := os.WriteFile(filepath.Join(dir, m[1]), []byte(b.Text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if b.Language != "sh" {
					continue
				}
				commands++
				cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", b.Text)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "TZ=UTC")
				var problems strings.Builder
				cmd.Stderr = &problems
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("%s:%d: %v\n%s%s", page, b.Line, err, out, problems.String())
				}
				if i+1 == len(blocks) || blocks[i+1].Language != "output" {
					continue
				}
				outputs++
				if want := blocks[i+1].Text; !alike(want, string(out)) {
					t.Errorf("%s:%d: other output (-page +got):\n%s%s", page, blocks[i+1].Line, cmp.Diff(want, string(out)), problems.String())
				}
			}
			if least := pages[page]; commands < least[0] || outputs < least[1] {
				t.Errorf("Got %d commands and %d outputs in %s, want %v or more", commands, outputs, page, least)
			}
		})
	}
}
