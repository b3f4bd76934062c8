package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/target/targettest"
)

// TestBackupRestore backs a store up, with a daemon and without, to a directory and
// to a bucket, damages and restores.
func TestBackupRestore(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a", "b", "d")
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	s3 := targettest.NewFakeS3(t)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(string(content)+"s3: {endpoint: '"+s3.URL()+"', access_key: access, secret_key: hidden}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	backups := filepath.Join(dir, "backups")
	for i, to := range []string{backups, backups, "s3://bucket/backups"} {
		if i == 1 {
			withEngine(t, c, func(e config.Engine) {
				m := cell.Mutation{Table: "views", Row: []byte("e")}
				m.Put("e", []byte("n"), 1, []byte("9"))
				if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
					t.Fatal(err)
				}
			})
			daemon(t, file)
		}
		stdout, stderr, status := export(t, "backup", "-c", file, "--json", to)
		var m jobs.BackupManifest
		if err := json.Unmarshal([]byte(stdout), &m); err != nil || status != 0 || len(m.Files) == 0 {
			t.Fatalf("backup %d: Got status %d, %v, %s%s", i, status, err, stdout, stderr)
		}
		for _, e := range events(t, stderr) {
			if e["event"] != "progress" {
				t.Errorf("backup %d: Got %v", i, e)
			}
		}
		stdout, stderr, status = export(t, "verify", "-c", file, to)
		if status != 0 || !strings.Contains(stdout, "backup "+m.BackupID) || strings.Contains(stdout, "rows") {
			t.Errorf("verify %d: Got status %d, %s%s", i, status, stdout, stderr)
		}
		data := filepath.Join(dir, "restored"+string(rune('0'+i)))
		stdout, stderr, status = export(t, "restore", "-c", file, "--json", to, data)
		var r restored
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != 0 || r.BackupID != m.BackupID || r.StoreID == m.StoreID || r.Sequence != m.Sequence {
			t.Fatalf("restore %d: Got status %d, %v, %s%s", i, status, err, stdout, stderr)
		}
		copied := filepath.Join(dir, "copy.yaml")
		if err := os.WriteFile(copied, []byte("store: {dir: '"+data+"', cache: 1MiB, mem_table: 1MiB, min_free: 0}\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		want := "3 rows"
		if i > 0 {
			want = "4 rows"
		}
		if stdout, stderr, status = export(t, "count", "-c", copied, "views"); status != 0 || !strings.Contains(stdout, "all        "+want) {
			t.Errorf("count %d: Got status %d, %s%s", i, status, stdout, stderr)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(c.Store.Dir, "checkpoints")); err != nil || len(entries) != 0 {
		t.Errorf("checkpoints are left: %v (%v)", entries, err)
	}
	if stdout, stderr, status := export(t, "backup", "-c", file, backups); status != 0 || !strings.Contains(stdout, "backup=") {
		t.Errorf("without --json: Got status %d, %s%s", status, stdout, stderr)
	}
	if stdout, stderr, status := export(t, "restore", backups, filepath.Join(dir, "again")); status != 0 || !strings.Contains(stdout, "is store") {
		t.Errorf("without --json: Got status %d, %s%s", status, stdout, stderr)
	}
	stdout, stderr, status := export(t, "backup", "-c", file, "--keep-runs", "2", backups)
	if status != 0 || strings.Count(stdout, "removed backup=") != 2 || !strings.Contains(stdout, "beyond the newest 2 runs") {
		t.Errorf("--keep-runs: Got status %d, %s%s", status, stdout, stderr)
	}
	if left, err := filepath.Glob(filepath.Join(backups, "backup=*")); err != nil || len(left) != 2 {
		t.Errorf("Got %q, %v left of four backups, want two", left, err)
	}
	stdout, stderr, status = export(t, "backup", "-c", file, "--keep-runs", "1", "s3://bucket/backups")
	if status != 0 || strings.Count(stdout, "removed backup=") != 1 || !strings.Contains(stdout, "beyond the newest 1 runs") {
		t.Errorf("--keep-runs in a bucket: Got status %d, %s%s", status, stdout, stderr)
	}
	if stdout, stderr, status = export(t, "verify", "-c", file, "s3://bucket/backups"); status != 0 {
		t.Errorf("verify what was kept in a bucket: Got status %d, %s%s", status, stdout, stderr)
	}
	r, err := jobs.VerifyBackup(t.Context(), backups)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.Dir, r.Files[0].Path), []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"verify", backups}, cli.StatusFailed, "it has 1 bytes"},
		{[]string{"verify", "--json", backups}, cli.StatusFailed, "it has 1 bytes"},
		{[]string{"restore", backups, filepath.Join(dir, "damaged")}, cli.StatusFailed, "corrupt data: " + r.Files[0].Path},
		{[]string{"restore", backups, filepath.Join(dir, "again")}, cli.StatusFailed, "exists"},
		{[]string{"restore", dir, filepath.Join(dir, "none")}, cli.StatusFailed, "there is no _backup.json"},
		{[]string{"restore", filepath.Join(dir, "nothing"), filepath.Join(dir, "none")}, cli.StatusFailed, "no such file"},
		{[]string{"restore", "s3://bucket/backups", filepath.Join(dir, "none")}, cli.StatusUsage, "-c FILE"},
		{[]string{"backup", backups}, cli.StatusUsage, "--config"},
		{[]string{"backup", "-c", file, "--keep-runs=-1", backups}, cli.StatusUsage, "negative"},
		{[]string{"backup", "-c", file, "--resume", backups}, cli.StatusFailed, "was cut off there: begin one without --resume"},
	} {
		if stdout, stderr, status := export(t, test.args...); status != test.status || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: Got status %d and %s%s, want %d and %q", test.args, status, stdout, stderr, test.status, test.want)
		}
	}
	for _, none := range []string{"damaged", "none"} {
		if _, err := os.Stat(filepath.Join(dir, none)); !os.IsNotExist(err) {
			t.Errorf("%s was made: %v", none, err)
		}
	}
}
