package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/config"
	"sluice/jobs"
)

// The third run by hand is an increment, and a verified one: the store has learned
// from the first that it should keep what changes.
func TestIncrementalRuns(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a", "b", "c")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(content), "      - {name: n, from", "      - {name: op, from: $op, type: string}\n      - {name: n, from", 1)
	text = strings.Replace(text, "    keep: {runs: 1}\n", "    incremental: {full_every: 3}\n", 1)
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		number int
		rows   int64
	}{{0, 3}, {0, 3}, {1, 1}, {2, 0}, {0, 2}} {
		if i == 2 {
			withEngine(t, c, func(e config.Engine) {
				m := cell.Mutation{Table: "views", Row: []byte("b")}
				m.DeleteRow(cell.Latest)
				if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
					t.Fatal(err)
				}
			})
		}
		if _, errs, status := export(t, "run", "-c", file, "-q", "views"); status != 0 {
			t.Fatalf("run %d: %s", i, errs)
		}
		m, _, err := jobs.ReadRun(t.Context(), filepath.Join(out, "views"))
		if err != nil || m.Incremental == nil || m.Incremental.Number != want.number || m.Totals[0].Rows != want.rows {
			t.Fatalf("run %d: got %+v with %+v, %v. Want number %d with %d rows", i, m.Incremental, m.Totals, err, want.number, want.rows)
		}
	}
	if _, errs, status := export(t, "verify", filepath.Join(out, "views")); status != 0 {
		t.Errorf("verify: %s", errs)
	}
}
