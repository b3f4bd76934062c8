package fenced

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBlocks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page.md")
	page := "# Page\n\ntext\n`a.yaml`:\n\n```yaml\n# no heading\na: 1\n\n```\n```sh\nb\n```\n\n## One\n\n### Two\n\nc:\n\n```\nd\n```\n"
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []Block{
		{Heading: "Page", Before: "`a.yaml`:", Language: "yaml", Text: "# no heading\na: 1\n\n", Line: 6},
		{Heading: "Page", Language: "sh", Text: "b\n", Line: 11},
		{Section: "One", Heading: "Two", Before: "c:", Text: "d\n", Line: 21},
	}
	if d := cmp.Diff(want, Blocks(t, path)); d != "" {
		t.Error(d)
	}
}
