package jobs

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/store"
)

// TestCompleteToIsOfPipelines: a rebuild of counters stands where it ended, whatever its
// pipeline applies afterwards, and says nothing of the data.
func TestCompleteToIsOfPipelines(t *testing.T) {
	t.Parallel()
	mem, job, out := confirmed(t)
	var b store.Batch
	for name, next := range map[string]int64{"p": 12, "p~1": 7, "q": 9} {
		b.Advance(store.Source{Pipeline: name, Topic: "t"}, 0, store.Absent, store.Progress{Next: next, LastOffset: next - 1, Applied: next})
	}
	if err := mem.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	snap, err := mem.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	m, err := Run(t.Context(), &RunOptions{Job: job, Source: snap, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, o := range m.Offsets {
		got[o.Pipeline] = o.Next
	}
	if d := cmp.Diff(map[string]int64{"p": 12, "q": 9}, got); d != "" {
		t.Error(d)
	}
}
