package jobs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/jobs/target"
)

// exported returns the directory of a fresh run of the access log.
func exported(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	if _, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "access_log", accessLog(), nil), Source: accessLogSource(100), Out: out}); err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(filepath.Join(out, "access_log", "run=*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("Got %v, %v", dirs, err)
	}
	return dirs[0]
}

// edit changes a file.
func edit(t *testing.T, name string, change func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, change(b), 0o666); err != nil {
		t.Fatal(err)
	}
}

// swap replaces the first old in the manifest.
func swap(t *testing.T, dir, old, new string) {
	t.Helper()
	edit(t, filepath.Join(dir, ManifestName), func(b []byte) []byte {
		if !bytes.Contains(b, []byte(old)) {
			t.Fatalf("%q is not in the manifest", old)
		}
		return bytes.Replace(b, []byte(old), []byte(new), 1)
	})
}

// TestVerifyFinds damages a run in many ways, each of which must be found and
// named.
func TestVerifyFinds(t *testing.T) {
	t.Parallel()
	const part = "part-000000-0000.parquet"
	for name, tt := range map[string]struct {
		damage func(t *testing.T, dir string)
		want   string
		job    bool // verify the job's directory
	}{
		"flipped byte": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, part), func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
		}, part + ": its sha256 is", false},
		"truncated": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, part), func(b []byte) []byte { return b[:len(b)-1] })
		}, "the manifest says", false},
		"missing": {func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, part)); err != nil {
				t.Fatal(err)
			}
		}, part + ": the file is missing", false},
		"unlisted": {func(t *testing.T, dir string) {
			if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "sub", "x"), nil, 0o666); err != nil {
				t.Fatal(err)
			}
		}, "sub/x is not in the manifest", false},
		"column name": {
			func(t *testing.T, dir string) { swap(t, dir, `"name": "status"`, `"name": "code"`) },
			"column 3 is status int64 (nullable true), the manifest says code int64", false,
		},
		"key range": {
			func(t *testing.T, dir string) { swap(t, dir, `"max_row": "r000049\\x00"`, `"max_row": "r000049"`) },
			`its rows are r000000\x00 to r000049\x00, the manifest says r000000\x00 to r000049`, false,
		},
		"other run": {func(t *testing.T, dir string) {
			m, err := DecodeManifest(read(t, filepath.Join(dir, ManifestName)))
			if err != nil {
				t.Fatal(err)
			}
			swap(t, dir, m.RunID, "0123456789ab")
		}, "it is of run", false},
		"commit": {
			func(t *testing.T, dir string) { swap(t, dir, `"sequence": `, `"sequence": 1`) },
			`says that sluice.sequence is "`, false,
		},
		"table": {
			func(t *testing.T, dir string) { swap(t, dir, `"table": "access_log"`, `"table": "access_log2"`) },
			`says that sluice.table is "access_log", the manifest "access_log2"`, false,
		},
		"version": {
			func(t *testing.T, dir string) { swap(t, dir, `"sluice_version": "`, `"sluice_version": "9`) },
			`says that sluice.version is "`, false,
		},
		"logical time": {
			func(t *testing.T, dir string) { swap(t, dir, `"logical_time": "2`, `"logical_time": "3`) },
			"and job access_log has run ", false,
		},
		"latest": {func(t *testing.T, dir string) { swap(t, dir, `"engine": ""`, `"engine": "x"`) }, "_latest.json names run", true},
		"time of the latest": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(filepath.Dir(dir), LatestName), func(b []byte) []byte {
				return bytes.Replace(b, []byte(`"logical_time": "2`), []byte(`"logical_time": "3`), 1)
			})
		}, "_latest.json says that the run is for 3", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := exported(t)
			tt.damage(t, dir)
			at := dir
			if tt.job {
				at = filepath.Dir(dir)
			}
			r, err := Verify(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Err(); r.OK() || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Got %v, want %q", err, tt.want)
			}
		})
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestVerifyFormatsDiffer gives a run the Arrow files of another table of equal
// size.
func TestVerifyFormatsDiffer(t *testing.T) {
	t.Parallel()
	dir := exported(t)
	src := accessLogSource(100)
	src.Tables["access_log"].Rows[1].Cells[3].Value = []byte("404")
	m, err := DecodeManifest(read(t, filepath.Join(dir, ManifestName)))
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	other, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "access_log", accessLog(), nil), Source: src, Out: out, LogicalTime: m.LogicalTime})
	if err != nil {
		t.Fatal(err)
	}
	name := "part-000000-0000.arrow"
	from := filepath.Join(out, "access_log", filepath.Base(dir), name)
	edit(t, filepath.Join(dir, name), func([]byte) []byte { return read(t, from) })
	swap(t, dir, m.Files[0].SHA256, other.Files[0].SHA256)
	r, err := Verify(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err == nil || err.Error() != "column status has other values in parquet than in arrow" {
		t.Errorf("Got %v", err)
	}
}

func TestVerifyErrors(t *testing.T) {
	t.Parallel()
	dir := exported(t)
	if _, err := Verify(t.Context(), filepath.Join(dir, "nothing")); err == nil {
		t.Error("Got no error for a missing directory")
	}
	if _, err := Verify(t.Context(), filepath.Dir(filepath.Dir(dir))); err == nil || !strings.Contains(err.Error(), "name the directory of a job or of a run") {
		t.Errorf("Got %v for the directory of all jobs", err)
	}
	edit(t, filepath.Join(dir, ManifestName), func([]byte) []byte { return []byte("{") })
	if _, err := Verify(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "invalid manifest") {
		t.Errorf("Got %v", err)
	}
	runs, err := List(t.Context(), filepath.Dir(filepath.Dir(dir)))
	if err != nil || len(runs) != 1 || runs[0].Err == nil {
		t.Errorf("Got %+v, %v, want one run that cannot be read", runs, err)
	}
	if _, err := List(t.Context(), filepath.Join(dir, "nothing")); err == nil || !strings.Contains(err.Error(), target.ErrNotFound.Error()) {
		t.Errorf("Got %v", err)
	}
}

// TestLatestGone: where the run or the backup is gone that _latest.json names, the error says
// so, and not that there is no _latest.json.
func TestLatestGone(t *testing.T) {
	t.Parallel()
	gone := func(kind, dir string, verify func(at string) error) {
		t.Helper()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		err := verify(filepath.Dir(dir))
		want := LatestName + " names " + kind + " " + dir[strings.LastIndex(dir, "-")+1:] + ", whose " + filepath.Base(dir) + "/"
		if !errors.Is(err, target.ErrNotFound) || !strings.Contains(err.Error(), want) {
			t.Errorf("Got %v, want %q in it", err, want)
		}
	}
	run := func(at string) error { _, err := Verify(t.Context(), at); return err }
	gone("run", exported(t), run)

	_, cp := backupStore(t)
	out := t.TempDir()
	to, err := target.OpenLocal(out)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if _, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: to}); err != nil {
		t.Fatal(err)
	}
	if err := run(out); !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), "is the manifest of a backup") {
		t.Errorf("a backup as a run: Got %v", err)
	}
	dirs, err := filepath.Glob(filepath.Join(out, "backup=*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("Got %v, %v", dirs, err)
	}
	gone("backup", dirs[0], func(at string) error { _, err := VerifyBackup(t.Context(), at); return err })
	gone("backup", dirs[0], run) // what export verify asks then
}
