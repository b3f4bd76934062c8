package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs/target"
)

// tableRuns returns the runs that the newest version of a job's Iceberg table has.
func tableRuns(t *testing.T, out, job string, version string) (runs []string) {
	t.Helper()
	dir := filepath.Join(out, job, "metadata")
	hint, err := os.ReadFile(filepath.Join(dir, "version-hint.text"))
	if err != nil || string(hint) != version {
		t.Fatalf("the hint is %q, %v; want %s", hint, err, version)
	}
	data, err := os.ReadFile(filepath.Join(dir, "v"+version+".metadata.json"))
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Snapshots []struct {
			Summary map[string]string `json:"summary"`
		} `json:"snapshots"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	for _, s := range m.Snapshots {
		runs = append(runs, s.Summary["sluice.run-id"]+" "+s.Summary["total-records"])
	}
	return runs
}

// icebergAt publishes a run of an access log's job with an Iceberg table, for a day of
// January.
func icebergAt(t *testing.T, tg target.Target, day, rows int) (*Manifest, error) {
	t.Helper()
	spec := accessLog()
	spec.Iceberg = true
	return Run(t.Context(), &RunOptions{
		Job: mustCompile(t, "j", spec, nil), Source: accessLogSource(rows), Target: tg, LogicalTime: time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC),
		Now: func() time.Time { return time.Date(2026, 1, day, 1, 0, 0, 0, time.UTC) },
	})
}

// TestSnapshots: each run is a snapshot of the job's table; one that keep lets go is none
// any more, and one that the table is stays.
func TestSnapshots(t *testing.T) {
	out := t.TempDir()
	tg, err := target.CreateLocal(out)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	var want []string
	for day := 1; day <= 3; day++ {
		m, err := icebergAt(t, tg, day, 10*day)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, m.RunID+" "+string(rune('0'+day))+"0")
	}
	if d := cmp.Diff(want, tableRuns(t, out, "j", "3")); d != "" {
		t.Error(d)
	}
	// Of a job whose runs are no snapshots any more, the table is the last that was one.
	if _, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "j", accessLog(), nil), Source: accessLogSource(5), Target: tg}); err != nil {
		t.Fatal(err)
	}
	collect := func(dry bool) (found []string) {
		t.Helper()
		garbage, err := Collect(t.Context(), &CollectOptions{Target: tg, Keep: map[string]Keep{"j": {Runs: 1}}, DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range garbage {
			found = append(found, filepath.Base(g.Name)[:12]+" "+g.Reason[:19])
			if g.Stays != strings.HasPrefix(g.Reason, "the Iceberg table") {
				t.Errorf("Got %+v", g)
			}
		}
		return found
	}
	goes := []string{"run=20260103 the Iceberg table i", "run=20260102 beyond the newest 1", "run=20260101 beyond the newest 1"}
	for i := range goes {
		goes[i] = goes[i][:32]
	}
	if d := cmp.Diff(goes, collect(true)); d != "" {
		t.Errorf("dry: %s", d)
	}
	if d := cmp.Diff(want, tableRuns(t, out, "j", "3")); d != "" {
		t.Errorf("dry: %s", d)
	}
	if d := cmp.Diff(goes, collect(false)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(want[2:], tableRuns(t, out, "j", "4")); d != "" {
		t.Error(d)
	}
	if runs, err := List(t.Context(), out); err != nil || len(runs) != 2 {
		t.Errorf("Got %v, %v", runs, err)
	}
}

// unwritable is a target whose tables cannot be committed to.
type unwritable struct{ *target.Local }

var errUnwritable = errors.New("no metadata")

func (u unwritable) Update(ctx context.Context, name string, change func([]byte) ([]byte, error)) error {
	if strings.HasPrefix(name, "j/metadata/v") {
		return errUnwritable
	}
	return u.Local.Update(ctx, name, change)
}

// TestSnapshotFails: a run whose snapshot is not made is published and not pointed at;
// who points at it makes up for that.
func TestSnapshotFails(t *testing.T) {
	out := t.TempDir()
	tg, err := target.CreateLocal(out)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	m, err := icebergAt(t, unwritable{tg}, 1, 10)
	if m == nil || !errors.Is(err, errUnwritable) || !strings.Contains(err.Error(), "iceberg table in j") {
		t.Fatalf("Got %v, %v", m, err)
	}
	if _, err := readLatest(t.Context(), tg, "j"); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("Got %v", err)
	}
	if _, err := FinishPublished(t.Context(), tg, "j", m.LogicalTime); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{m.RunID + " 10"}, tableRuns(t, out, "j", "1")); d != "" {
		t.Error(d)
	}
	if _, err := icebergAt(t, tg, 1, 10); !errors.Is(err, target.ErrExists) {
		t.Errorf("Got %v", err)
	}
	tableRuns(t, out, "j", "1")
}

// TestSnapshotPlace: a run whose table nobody could open is not published at all.
func TestSnapshotPlace(t *testing.T) {
	out := filepath.Join(t.TempDir(), "a#b")
	tg, err := target.CreateLocal(out)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	if m, err := icebergAt(t, tg, 1, 10); m != nil || err == nil || !strings.Contains(err.Error(), "write to another directory") {
		t.Errorf("Got %v, %v", m, err)
	}
	if runs, err := List(t.Context(), out); err != nil || len(runs) > 0 {
		t.Errorf("Got %v, %v, want nothing published", runs, err)
	}
}
