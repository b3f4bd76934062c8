package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
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

// TestIncrementSnapshots: an increment is a snapshot that goes on from the one before; where the
// table is not the run before, the next run is full, and says why.
func TestIncrementSnapshots(t *testing.T) {
	out := t.TempDir()
	s := newIncremental(t, out, 10)
	tg, err := target.OpenLocal(out)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	run := func(number int, runs string, why string) *Manifest {
		t.Helper()
		s.log.Reset()
		m := s.run(t, RunOptions{})
		if m.Incremental.Number != number || why != "" && !strings.Contains(s.log.String(), why) {
			t.Fatalf("Got increment %d, want %d (%s): %s", m.Incremental.Number, number, why, s.log.String())
		}
		if !s.job.spec.Iceberg {
			return m
		}
		hint, err := os.ReadFile(filepath.Join(out, "j", "metadata", "version-hint.text"))
		if err != nil {
			t.Fatal(err)
		}
		got := tableRuns(t, out, "j", string(hint))
		if last := got[len(got)-1]; last != m.RunID+" "+runs {
			t.Errorf("The table is %s, want %s %s", last, m.RunID, runs)
		}
		return m
	}
	s.put("a", "1", 1)
	s.put("b", "1", 1)
	run(0, "", "")
	// A table that begins in the middle of a chain would be of its changes alone.
	s.job.spec.Iceberg = true
	s.put("c", "1", 1)
	run(0, "3", "the Iceberg table is not the run before")
	s.put("a", "2", 2)
	run(1, "4", "")
	run(2, "4", "")
	// Somebody has begun the table anew.
	if err := os.RemoveAll(filepath.Join(out, "j", "metadata")); err != nil {
		t.Fatal(err)
	}
	s.put("a", "3", 3)
	run(0, "3", "the Iceberg table is not the run before")
	s.put("b", "3", 3)
	run(1, "4", "")
	s.put("b", "4", 4)
	last := run(2, "5", "")

	// Of a job whose runs are no snapshots any more, the table stays, with what it goes on from.
	s.job.spec.Iceberg = false
	s.job.spec.Incremental.FullEvery = 2
	run(0, "", "")
	garbage, err := Collect(t.Context(), &CollectOptions{Target: tg, Keep: map[string]Keep{"j": {Runs: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	stays := map[string]int{}
	for _, g := range garbage {
		if g.Stays {
			stays[g.Reason]++
		}
	}
	if d := cmp.Diff(map[string]int{
		"the Iceberg table is this run: what comes later is no snapshot of it": 1, "the Iceberg table goes on from this run: what comes later is no snapshot of it": 2,
	}, stays); d != "" || len(garbage) != 7 {
		t.Errorf("%s of %d: %v", d, len(garbage), garbage)
	}
	if before, err := snapshotsOf(t.Context(), tg, "j", filepath.Base(runDir("j", last.LogicalTime))); err != nil || len(before) != 3 {
		t.Errorf("The table is made of %v, %v", before, err)
	}
}

// TestSnapshotOfDamagedManifest: an increment that says nothing of its row keys is an error.
func TestSnapshotOfDamagedManifest(t *testing.T) {
	m := &Manifest{RunID: "r", Incremental: &IncrementInfo{Number: 1, BaseRunID: "b"}, Columns: []Column{{Name: "key", From: "$row", Type: "string"}}}
	if _, err := snapshotOf("j/run", m); !errors.Is(err, ErrManifest) {
		t.Errorf("Got %v", err)
	}
}

// newIcebergIncremental is newIncremental of a job with a table, and where it publishes.
func newIcebergIncremental(t *testing.T) (*incrementalStore, *target.Local) {
	t.Helper()
	s := newIncremental(t, t.TempDir(), 10)
	s.job.spec.Iceberg = true
	tg, err := target.OpenLocal(s.out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tg.Close() })
	return s, tg
}

// runInto makes the next run, an hour later, into tg, and returns what Run does.
func (s *incrementalStore) runInto(t *testing.T, tg target.Target) (*Manifest, error) {
	t.Helper()
	s.at = s.at.Add(time.Hour)
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	return Run(t.Context(), &RunOptions{
		Job: s.job, Source: snapshot, Target: tg, Holder: s, StoreID: "s", LogicalTime: s.at, Now: func() time.Time { return s.at },
	})
}

// TestIncrementSnapshotFails: an increment whose process was killed before the table had it is
// made a snapshot by whoever points at it.
func TestIncrementSnapshotFails(t *testing.T) {
	s, tg := newIcebergIncremental(t)
	out := s.out
	s.put("a", "1", 1)
	s.put("b", "1", 1)
	first := s.run(t, RunOptions{})
	m := cell.Mutation{Table: "t", Row: []byte("a")}
	m.DeleteFamily("f", cell.Latest)
	s.mutate(&m)
	published, err := s.runInto(t, unwritable{tg})
	if published == nil || published.Incremental.Number != 1 || !errors.Is(err, errUnwritable) {
		t.Fatalf("Got %+v, %v", published, err)
	}
	if _, err := FinishPublished(t.Context(), tg, "j", s.at); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{first.RunID + " 2", published.RunID + " 3"}, tableRuns(t, out, "j", "2")); d != "" {
		t.Error(d)
	}
	file := published.Files[slices.IndexFunc(published.Files, func(f File) bool { return f.Format == Parquet && f.Rows > 0 })]
	gone, err := goneIn(t.Context(), tg, filepath.Join(runDir("j", s.at), file.Path), "op")
	if d := cmp.Diff([]uint64{1}, gone); d != "" || err != nil {
		t.Errorf("%s, %v", d, err)
	}
}

// unpointed is a target whose _latest.json cannot be replaced.
type unpointed struct{ *target.Local }

func (u unpointed) Update(ctx context.Context, name string, change func([]byte) ([]byte, error)) error {
	if name == "j/"+LatestName {
		return errUnwritable
	}
	return u.Local.Update(ctx, name, change)
}

// TestTableAhead: where a process was killed after it had made its run a snapshot, and before it
// pointed at it, the next run does not go on from the run before that, which the table is not.
func TestTableAhead(t *testing.T) {
	s, tg := newIcebergIncremental(t)
	s.put("a", "1", 1)
	s.run(t, RunOptions{})
	s.put("a", "2", 2)
	ahead, err := s.runInto(t, unpointed{tg})
	if ahead == nil || ahead.Incremental.Number != 1 || !errors.Is(err, errUnwritable) {
		t.Fatalf("Got %+v, %v", ahead, err)
	}
	if is, err := isTable(t.Context(), tg, ahead); !is || err != nil {
		t.Fatalf("The table is the run: %t, %v", is, err)
	}
	s.log.Reset()
	next := s.run(t, RunOptions{})
	if next.Incremental.Number != 0 || !strings.Contains(s.log.String(), "the Iceberg table is not the run before") {
		t.Errorf("Got increment %d: %s", next.Incremental.Number, s.log.String())
	}
	if is, err := isTable(t.Context(), tg, next); !is || err != nil {
		t.Errorf("The table is the run: %t, %v", is, err)
	}
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

// TestIncrementsTogether: of two increments of one run the second is no snapshot of the table
// that the first has become, and is not published.
func TestIncrementsTogether(t *testing.T) {
	s, tg := newIcebergIncremental(t)
	out := s.out
	s.put("a", "1", 1)
	base := s.run(t, RunOptions{})
	s.put("a", "2", 2)
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	var first *Manifest
	second := &RunOptions{
		Job: s.job, Source: snapshot, Target: tg, Holder: s, StoreID: "s", LogicalTime: s.at.Add(90 * time.Minute), Now: func() time.Time { return s.at },
		Confirm: func(context.Context) error {
			first = s.run(t, RunOptions{})
			return nil
		},
	}
	if m, err := Run(t.Context(), second); m != nil || err == nil || !strings.Contains(err.Error(), "became another one meanwhile; run it again") {
		t.Errorf("Got %v, %v", m, err)
	}
	if first.Incremental.BaseRunID != base.RunID {
		t.Errorf("Got %+v", first.Incremental)
	}
	if d := cmp.Diff([]string{base.RunID + " 1", first.RunID + " 2"}, tableRuns(t, out, "j", "2")); d != "" {
		t.Error(d)
	}
	if runs, err := List(t.Context(), out); err != nil || len(runs) != 2 {
		t.Errorf("Got %v, %v", runs, err)
	}
}

// TestSnapshotOfMissingFile: a published increment of which a file is missing is not taken for
// one that is finished.
func TestSnapshotOfMissingFile(t *testing.T) {
	s, tg := newIcebergIncremental(t)
	out := s.out
	s.put("a", "1", 1)
	s.run(t, RunOptions{})
	s.put("a", "2", 2)
	m, err := s.runInto(t, unwritable{tg})
	if m == nil || !errors.Is(err, errUnwritable) {
		t.Fatalf("Got %v, %v", m, err)
	}
	file := m.Files[slices.IndexFunc(m.Files, func(f File) bool { return f.Format == Parquet && f.Rows > 0 })]
	if err := os.Remove(filepath.Join(out, runDir("j", s.at), file.Path)); err != nil {
		t.Fatal(err)
	}
	if _, err := FinishPublished(t.Context(), tg, "j", s.at); err == nil || errors.Is(err, target.ErrNotFound) || !strings.Contains(err.Error(), file.Path) {
		t.Errorf("Got %v", err)
	}
}

// TestSnapshotMadeAgain: an increment goes on from the run that the table is, and not from one
// for the same time that took its place.
func TestSnapshotMadeAgain(t *testing.T) {
	s, tg := newIcebergIncremental(t)
	out := s.out
	s.put("a", "1", 1)
	first := s.run(t, RunOptions{})
	again := func(tg target.Target) error {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(out, runDir("j", first.LogicalTime))); err != nil {
			t.Fatal(err)
		}
		snapshot, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer snapshot.Close()
		_, err = Run(t.Context(), &RunOptions{
			Job: s.job, Source: snapshot, Target: tg, Holder: s, StoreID: "s", LogicalTime: first.LogicalTime, Full: true, Now: func() time.Time { return s.at.Add(time.Minute) },
		})
		return err
	}
	s.put("b", "1", 1)
	if err := again(tg); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{first.RunID + " 2"}, tableRuns(t, out, "j", "2")); d != "" {
		t.Error(d)
	}
	s.put("c", "1", 1)
	if err := again(unwritable{tg}); !errors.Is(err, errUnwritable) {
		t.Fatalf("Got %v", err)
	}
	s.put("d", "1", 1)
	m := s.run(t, RunOptions{})
	if m.Incremental.Number != 0 {
		t.Errorf("Got %+v", m.Incremental)
	}
	if d := cmp.Diff([]string{first.RunID + " 2", m.RunID + " 4"}, tableRuns(t, out, "j", "3")); d != "" {
		t.Error(d)
	}
}
