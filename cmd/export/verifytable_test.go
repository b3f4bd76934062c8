package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/cmd/internal/cli"
	"sluice/config"
)

// TestVerifyTable compares a table with that of a restored backup, before and after a
// row was changed, without a daemon and beside one.
func TestVerifyTable(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a", "b", "d")
	dir := t.TempDir()
	restored := filepath.Join(dir, "restored")
	for _, args := range [][]string{{"backup", "-c", file, dir}, {"restore", dir, restored}} {
		if _, stderr, status := export(t, args...); status != 0 {
			t.Fatalf("%v: Got status %d, %s", args, status, stderr)
		}
	}
	stdout, stderr, status := export(t, "verify-table", "-c", file, "--in", restored, "views")
	if status != 0 || !strings.Contains(stdout, "all        3 rows are the same  0 different") {
		t.Errorf("Got status %d, %s%s", status, stdout, stderr)
	}
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	withEngine(t, c, func(e config.Engine) {
		m := cell.Mutation{Table: "views", Row: []byte("b\x00")}
		m.Put("e", []byte("n"), 1, []byte("8"))
		if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
			t.Fatal(err)
		}
	})
	daemon(t, file)
	stdout, stderr, status = export(t, "verify-table", "-c", file, "--in", restored, "views")
	if status != cli.StatusFailed || !strings.Contains(stdout, `row b\x00: e:n at 1, Put, "8", and nothing on the right`) || !strings.Contains(stderr, "the tables differ") {
		t.Errorf("Got status %d, %s%s", status, stdout, stderr)
	}
	stdout, stderr, status = export(t, "verify-table", "-c", file, "--in", restored, "--json", "views", "views")
	var r compared
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != cli.StatusFailed {
		t.Fatalf("Got status %d, %v, %s%s", status, err, stdout, stderr)
	}
	if r.Equal || r.OnlyLeft != 1 || r.Same != 3 || len(r.Ranges) != 2 || r.Ranges[0].LeftSHA256 == r.Ranges[0].RightSHA256 || r.Ranges[1].LeftSHA256 != r.Ranges[1].RightSHA256 {
		t.Errorf("Got %+v", r)
	}
	if len(r.Differences) != 1 || r.Differences[0].Row != `b\x00` || r.Differences[0].Left.Value != "8" || r.Differences[0].Right != nil {
		t.Errorf("Got %+v", r.Differences)
	}
	if stdout, stderr, status := export(t, "verify-table", "-c", file, "--in", restored, "--start-row", "c", "views"); status != 0 {
		t.Errorf("the rest: Got status %d, %s%s", status, stdout, stderr)
	}
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"views"}, cli.StatusUsage, "--in"},
		{[]string{"views", "none"}, cli.StatusFailed, "no such table"},
		{[]string{"--differences", "0", "views", "views"}, cli.StatusUsage, "--differences is 0"},
	} {
		if _, stderr, status := export(t, append([]string{"verify-table", "-c", file}, test.args...)...); status != test.status || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: Got status %d and %s, want %d and %q", test.args, status, stderr, test.status, test.want)
		}
	}
}
