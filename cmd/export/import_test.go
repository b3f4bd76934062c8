package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/store"
)

// TestImport exports a table and imports it into another, without a daemon and beside
// one.
func TestImport(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a", "b", "d")
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	withEngine(t, c, func(e config.Engine) {
		for _, name := range []string{"copy", "copydaemon"} {
			if err := e.CreateTable(t.Context(), &store.TableDescriptor{Name: name, Families: []store.FamilyDescriptor{store.NewFamily("e")}}, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
	if stdout, stderr, status := export(t, "run", "-c", file, "--time", "1970-01-01T00:00:00.001Z", "views"); status != 0 {
		t.Fatalf("run: Got status %d, %s%s", status, stdout, stderr)
	}
	run := filepath.Join(out, "views")
	for _, with := range []string{"", "daemon"} {
		if with != "" {
			daemon(t, file)
		}
		stdout, stderr, status := export(t, "import", "-c", file, "--json", "--format", "arrow", run, "copy"+with)
		var done imported
		if err := json.Unmarshal([]byte(stdout), &done); err != nil || status != 0 || done.Rows != 3 || done.Cells != 3 || done.Job != "views" {
			t.Fatalf("Got status %d, %v, %s%s", status, err, stdout, stderr)
		}
		if stdout, stderr, status := export(t, "import", "-c", file, run, "copy"+with); status != 0 || !strings.Contains(stdout, "3 rows, 3 cells") {
			t.Errorf("again: Got status %d, %s%s", status, stdout, stderr)
		}
		if stdout, stderr, status := export(t, "verify-table", "-c", file, "views", "copy"+with); status != 0 {
			t.Errorf("verify-table: Got status %d, %s%s", status, stdout, stderr)
		}
	}
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{run}, cli.StatusUsage, "table"},
		{[]string{"--format", "csv", run, "copy"}, cli.StatusUsage, "csv"},
		{[]string{run, "none"}, cli.StatusFailed, "no such table"},
		{[]string{out, "copy"}, cli.StatusFailed, "no _latest.json"},
		{[]string{filepath.Join(out, "none"), "copy"}, cli.StatusFailed, "no such file"},
	} {
		if _, stderr, status := export(t, append([]string{"import", "-c", file}, test.args...)...); status != test.status || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: Got status %d and %s, want %d and %q", test.args, status, stderr, test.status, test.want)
		}
	}
}

// TestImportFilesOfOthers imports files without their manifest, by the columns of a job.
func TestImportFilesOfOthers(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a", "b", "d")
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	withEngine(t, c, func(e config.Engine) {
		for _, name := range []string{"copy", "keys", "one"} {
			if err := e.CreateTable(t.Context(), &store.TableDescriptor{Name: name, Families: []store.FamilyDescriptor{store.NewFamily("e")}}, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
	if stdout, stderr, status := export(t, "run", "-c", file, "views"); status != 0 {
		t.Fatalf("run: Got status %d, %s%s", status, stdout, stderr)
	}
	files, err := filepath.Glob(filepath.Join(out, "views", "run=*", "*.arrow"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	dir := filepath.Dir(files[0])
	at := "1970-01-01T00:00:00.001Z"
	stdout, stderr, status := export(t, "import", "-c", file, "--as", "views", "--time", at, "--format", "parquet", "--json", dir, "copy")
	var done imported
	if err := json.Unmarshal([]byte(stdout), &done); err != nil || status != 0 || done.Rows != 3 || done.Cells != 3 {
		t.Fatalf("Got status %d, %v, %s%s", status, err, stdout, stderr)
	}
	if stdout, stderr, status := export(t, "verify-table", "-c", file, "views", "copy"); status != 0 {
		t.Errorf("verify-table: Got status %d, %s%s", status, stdout, stderr)
	}
	if stdout, stderr, status := export(t, "import", "-c", file, "--as", "views", "--time", at, files[0], "one"); status != 0 || !strings.Contains(stdout, "2 rows, 2 cells") {
		t.Errorf("one file: Got status %d, %s%s", status, stdout, stderr)
	}
	named := filepath.Join(t.TempDir(), "views.parquet") // as Spark names its directories
	if err := os.CopyFS(named, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, status := export(t, "import", "-c", file, "--as", "views", "--time", at, "--format", "parquet", named, "one"); status != 0 || !strings.Contains(stdout, "3 rows, 3 cells") {
		t.Errorf("a directory that is named like a file: Got status %d, %s%s", status, stdout, stderr)
	}
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--row", "key", dir, "keys"}, cli.StatusUsage, "--as"},
		{[]string{"--as", "views", "--time", at, "--row", "key", "--between", "|", dir, "keys"}, cli.StatusUsage, "--between"},
		{[]string{"--as", "none", "--time", at, dir, "keys"}, cli.StatusUsage, "none"},
		{[]string{"--as", "views", dir, "keys"}, cli.StatusFailed, "no column comes from $timestamp"},
		{[]string{"--as", "views", "--time", at, "--row", "key", dir, "keys"}, cli.StatusFailed, "a column comes from $row, which is the row key: name no others for it (--row)"},
		{[]string{"--as", "views", "--time", at, filepath.Join(dir, "none.arrow"), "keys"}, cli.StatusFailed, "not found"},
		{[]string{"--as", "views", "--time", at, out, "keys"}, cli.StatusFailed, "which is not named COLUMN=VALUE"},
		{[]string{"--as", "views", "--time", at, file, "keys"}, cli.StatusUsage, file + " ends in neither .parquet nor .arrow"},
	} {
		if _, stderr, status := export(t, append([]string{"import", "-c", file}, test.args...)...); status != test.status || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: Got status %d and %s, want %d and %q", test.args, status, stderr, test.status, test.want)
		}
	}
}
