package jobs

import (
	"context"
	"errors"
	"testing"

	"sluice/jobs/columnar"
	"sluice/jobs/join"
	"sluice/jobs/schedule"
	"sluice/store"
	"sluice/store/memstore"
)

// TestRunConfirm: a run whose schedule is lost is not published, and what is written of
// it can be gone on with.
func TestRunConfirm(t *testing.T) {
	t.Parallel()
	mem, job, out := confirmed(t)
	snap, err := mem.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	lost := schedule.ErrLost
	for _, want := range []error{lost, nil} {
		_, err := Run(t.Context(), &RunOptions{Job: job, Source: snap, Out: out, Confirm: func(context.Context) error { return want }})
		if !errors.Is(err, want) {
			t.Errorf("Got %v, want %v", err, want)
		}
		runs, lerr := List(t.Context(), out)
		if lerr != nil || (len(runs) == 1) != (want == nil) {
			t.Errorf("Got %d runs and %v after %v", len(runs), lerr, err)
		}
	}
}

// TestJoinConfirm is TestRunConfirm of a join.
func TestJoinConfirm(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	for _, want := range []error{schedule.ErrLost, nil} {
		_, err := RunJoin(t.Context(), &JoinOptions{
			Join: mustCompileJoin(t, joinSpec(join.Inner, join.Hash)), Source: joinSource(50), Out: out, Confirm: func(context.Context) error { return want },
		})
		if !errors.Is(err, want) {
			t.Errorf("Got %v, want %v", err, want)
		}
		runs, lerr := List(t.Context(), out)
		if lerr != nil || (len(runs) == 1) != (want == nil) {
			t.Errorf("Got %d runs and %v after %v", len(runs), lerr, err)
		}
	}
}

func confirmed(t *testing.T) (*memstore.Store, *Job, string) {
	t.Helper()
	mem, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	if err := mem.CreateTable(t.Context(), d, nil); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	job, err := Compile("j", &Spec{Table: "t", Out: out, Columns: []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "bytes"}}}, d)
	if err != nil {
		t.Fatal(err)
	}
	return mem, job, out
}
