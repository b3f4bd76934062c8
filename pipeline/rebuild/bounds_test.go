package rebuild_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/store"
	"sluice/store/memstore"
)

// widest is a store that notes how much is counted at most by one commit of a rebuild.
type widest struct {
	*memstore.Store
	bytes, commits atomic.Int64
}

func (e *widest) Apply(ctx context.Context, b *store.Batch) error {
	if len(b.Advances) == 1 && !b.Advances[0].Source.OfPipeline() {
		n := int64(0)
		for i := range b.Counters {
			n += int64(len(b.Counters[i].Row) + len(b.Counters[i].Qualifier))
		}
		e.commits.Add(1)
		e.bytes.Store(max(e.bytes.Load(), n))
	}
	return e.Store.Apply(ctx, b)
}

// Records of arrays become hundreds of counters each: a commit of a rebuild is bounded by
// what they take, not by the records alone.
func TestRebuildCommitsAreBounded(t *testing.T) {
	t.Parallel()
	s, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	e := &widest{Store: s}
	w := newWorld(t, e)
	w.rules = func(s *mapping.Spec) {
		s.Rules = []mapping.RuleSpec{{
			ForEach: []string{"tag in tags"}, Table: "counts", Row: "page + tag",
			Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"n"`}},
		}}
	}
	const records, tags, long = 30, 50, 30_000 // 22 MB a partition
	messages := make([]kafka.Message, records)
	for i := range messages {
		all := make([]string, tags)
		for k := range all {
			all[k] = fmt.Sprintf(`"/%d/%d"`, i, k)
		}
		messages[i] = kafka.Message{Value: fmt.Appendf(nil, `{"page": %q, "tags": [%s]}`, strings.Repeat("p", long), strings.Join(all, ",")), Partition: int32(i % 2)}
	}
	w.ok(w.out.Produce(t.Context(), "pages", messages...))
	w.sent += records
	w.ingest()
	r := w.open()
	w.ok(r.Count(t.Context()))
	got, err := r.Compare(t.Context())
	w.ok(err)
	if len(got) != 1 || !got[0].Same() || got[0].Equal != records*tags {
		t.Errorf("compared: %+v", got)
	}
	if bytes, most := e.bytes.Load(), int64(16<<20+tags*(long+20)); bytes > most {
		t.Errorf("Got %d commits with rows of %d bytes in one, want %d at most", e.commits.Load(), bytes, most)
	}
	w.ok(r.Discard(t.Context()))
}
