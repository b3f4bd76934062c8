package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/internal/roomy"
)

// childMain, in the environment, makes the test binary the program.
const childMain = "SLUICE_EXPORT_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(childMain) != "" {
		main()
		return
	}
	roomy.Use()
	os.Exit(m.Run())
}

// slowJobs have tables of which a batch is some forty rows, and are read slowly.
const slowJobs = `
tables:
  views: {families: {e: {}}}
jobs:
  slow:
    table: views
    formats: [parquet, arrow]
    columns: [{name: key, from: $row, type: string}, {name: v, from: "e:v", type: bytes}]
    rows_per_second: 60
    out: OUT
joins:
  slowly:
    left: {job: slow}
    right: {job: slow}
    on: [{left: key}]
    columns: [{name: key, from: key.key}, {name: v, from: left.v}]
    formats: [arrow]
    out: OUT
`

// TestInterrupted: Ctrl-C in the middle of a file, of an export and of a join, ends the
// program with its status, and leaves nothing: no run, no file, no checkpoint.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"run", "slow"}, {"join", "slowly"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file, out := filepath.Join(dir, "sluice.yaml"), filepath.Join(dir, "out")
			content := "store: {dir: '" + filepath.Join(dir, "data") + "', cache: 1MiB, mem_table: 8MiB, min_free: 0}\n" + strings.ReplaceAll(slowJobs, "OUT", "'"+out+"'")
			withTables(t, file, content, func(e config.Engine) {
				random := rand.NewChaCha8([32]byte{1})
				for i := range 250 {
					value := make([]byte, 100<<10)
					_, _ = random.Read(value) // never fails
					m := cell.Mutation{Table: "views", Row: []byte{byte('a' + i/26), byte('a' + i%26)}}
					m.Put("e", []byte("v"), 1, value)
					if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
						t.Fatal(err)
					}
				}
			})
			child := exec.CommandContext(t.Context(), os.Args[0], args[0], "-c", file, "--json", args[1])
			child.Env = append(os.Environ(), childMain+"=1")
			stderr, err := child.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stderr)
			rows := 0.0
			for rows == 0 && lines.Scan() {
				var e map[string]any
				if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e["event"] != "progress" {
					t.Fatalf("Got %s, %v", lines.Text(), err)
				}
				rows, _ = e["rows"].(float64)
			}
			if rows == 0 || rows >= 250 {
				t.Fatalf("Got %v rows before the program was stopped", rows)
			}
			if begun := filesBelow(t, out); len(begun) == 0 {
				t.Error("no file was begun")
			}
			if len(checkpoints(t, dir)) == 0 {
				t.Error("there is no checkpoint")
			}
			if err := child.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			last := ""
			for lines.Scan() {
				last = lines.Text()
			}
			exit := (*exec.ExitError)(nil)
			if err := child.Wait(); !errors.As(err, &exit) || exit.ExitCode() != cli.StatusInterrupted {
				t.Errorf("Got %v, want status %d; %s", err, cli.StatusInterrupted, last)
			}
			if !strings.Contains(last, `"status":130`) || !strings.Contains(last, "interrupted") {
				t.Errorf("Got %s in the end", last)
			}
			if left := filesBelow(t, out); len(left) > 0 {
				t.Errorf("Got %q after Ctrl-C", left)
			}
			if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
				t.Errorf("Got %v, %v in the directory", left, err)
			}
			if left := checkpoints(t, dir); len(left) > 0 {
				t.Errorf("Got %q left of a checkpoint", left)
			}
		})
	}
}

// checkpoints returns the files of the checkpoints of the store in dir.
func checkpoints(t *testing.T, dir string) []string {
	t.Helper()
	return slices.DeleteFunc(filesBelow(t, dir), func(name string) bool { return !strings.Contains(name, "checkpoint") || filepath.Ext(name) != ".sst" })
}

// filesBelow returns the files below dir, none where there is no such directory.
func filesBelow(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return files
}
