package main

import (
	"io"
	"testing"

	"sluice/jobs"
)

// TestJoinFiles: the files that are joined hold the rows that the joins are checked by.
func TestJoinFiles(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	o, err := parseJoins([]string{"-rows", "3000"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	files, err := joinFiles(t.Context(), o, out)
	if err != nil {
		t.Fatal(err)
	}
	for table, rows := range map[string]int64{"events": 3000, "users": 300} {
		r, err := jobs.Verify(t.Context(), out+"/"+table)
		if err != nil || !r.OK() || r.Manifest.Totals[0].Rows != rows || len(files[table]) != 1 {
			t.Errorf("%s: Got %d files, %v, %v, want %d rows in one", table, len(files[table]), err, r.Err(), rows)
		}
	}
	for _, args := range [][]string{{"-rows", "10"}, {"-rows", "1005"}, {"-rounds", "0"}, {"more"}} {
		if _, err := parseJoins(args, io.Discard); err == nil {
			t.Errorf("%q: got no error", args)
		}
	}
}
