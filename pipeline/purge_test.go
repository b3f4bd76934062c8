package pipeline

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/buffer"
	"sluice/store"
)

// auditHolds checks the audit equation against the outbox.
func auditHolds(t *testing.T, e store.Engine) (sum Audit) {
	t.Helper()
	audits, err := RunAudit(t.Context(), &AuditOptions{Store: e})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range audits {
		if len(a.Problems) > 0 {
			t.Errorf("Got problems %q in partition %d", a.Problems, a.Partition)
		}
		sum.Letters += a.Letters
		sum.Redriven += a.Redriven
		sum.Purged += a.Purged
	}
	return sum
}

func TestPurge(t *testing.T) {
	t.Parallel()
	for name, open := range bothEngines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, b := open(t), newFakeBroker(2)
			b.produce(0, "bad:a", "bad:skip", "bad", "bad", "huge", "a", "bad", "bad")
			b.produce(1, "bad:b", "huge", "bad")
			for range 600 { // more than a commit
				b.produce(1, "long")
			}
			ingest(t, e, b)
			if n, err := redriveWith(t.Context(), e, &RedriveOptions{}); err != nil || n.Applied != 2 || n.Filtered != 1 {
				t.Fatalf("Got %+v, %v", n, err)
			}
			one := func(p Place) LetterFilter { return LetterFilter{Places: []Place{p}} }
			for _, c := range []struct {
				what   string
				filter LetterFilter
				keep   bool
				want   PurgeCounts
				left   Audit
			}{
				{"of another topic", LetterFilter{Topic: "u"}, false, PurgeCounts{}, Audit{Letters: 610, Redriven: 3}},
				{"unrelayed", LetterFilter{State: DeadLetters}, true, PurgeCounts{Unrelayed: 607}, Audit{Letters: 610, Redriven: 3}},
				{"offsets", LetterFilter{FromOffset: 2, ToOffset: 4, Partitions: []int32{0}}, false, PurgeCounts{Purged: 2}, Audit{Letters: 608, Redriven: 3, Purged: 2}},
				{"before", LetterFilter{Before: 1005, State: DeadLetters, Partitions: []int32{0}}, false, PurgeCounts{Purged: 1}, Audit{Letters: 607, Redriven: 3, Purged: 3}},
				{"since", LetterFilter{Since: 1007, Partitions: []int32{0}}, false, PurgeCounts{Purged: 1}, Audit{Letters: 606, Redriven: 3, Purged: 4}},
				{"a place", one(Place{"t", 0, 6}), false, PurgeCounts{Purged: 1}, Audit{Letters: 605, Redriven: 3, Purged: 5}},
				{"it again", one(Place{"t", 0, 6}), false, PurgeCounts{}, Audit{Letters: 605, Redriven: 3, Purged: 5}},
				{"class", LetterFilter{Class: "cell_too_large"}, false, PurgeCounts{Purged: 601}, Audit{Letters: 4, Redriven: 3, Purged: 606}},
				{"redriven", LetterFilter{State: RedrivenOnly, Partitions: []int32{0}}, false, PurgeCounts{Purged: 2}, Audit{Letters: 2, Redriven: 3, Purged: 608}},
				{"all", LetterFilter{}, false, PurgeCounts{Purged: 2}, Audit{Redriven: 3, Purged: 610}},
			} {
				c.filter.Pipeline = "p"
				got, err := Purge(t.Context(), &PurgeOptions{Engine: e, Filter: c.filter, KeepUnrelayed: c.keep})
				if err != nil || got != c.want {
					t.Errorf("%s: got %+v, %v, want %+v", c.what, got, err, c.want)
				}
				if left := auditHolds(t, e); left.Letters != c.left.Letters || left.Redriven != c.left.Redriven || left.Purged != c.left.Purged {
					t.Errorf("%s: got %d letters, %d redriven, %d purged, want %+v", c.what, left.Letters, left.Redriven, left.Purged, c.left)
				}
			}
			want := buffer.Redriven{Applied: 2, Filtered: 1, PurgedDead: 607, PurgedApplied: 2, PurgedFiltered: 1}
			if d := cmp.Diff(want, redrivenOf(t, e)); d != "" {
				t.Errorf("Got other counts (-want +got):\n%s", d)
			}
			if n, err := redriveWith(t.Context(), e, &RedriveOptions{}); err != nil || n != (RedriveCounts{}) {
				t.Errorf("Got %+v, %v from a redrive of nothing", n, err)
			}
			want2 := wantMended(b)
			want2.Letters = map[string]string{}
			if d := cmp.Diff(want2, readContents(t, e)); d != "" {
				t.Errorf("Got other contents than the mended log has (-want +got):\n%s", d)
			}
		})
	}
}

// between runs f before a batch of records is applied.
type between struct {
	store.Engine
	f func()
}

func (e *between) Apply(ctx context.Context, b *store.Batch) error {
	if len(b.Records) > 0 && e.f != nil {
		f := e.f
		e.f = nil
		f()
	}
	return e.Engine.Apply(ctx, b)
}

// Whoever comes second changes nothing: no letter is applied that was purged, purged
// that was applied, or comes back as a mark of the relay.
func TestPurgeBesideOthers(t *testing.T) {
	t.Parallel()
	for name, open := range bothEngines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := func() (store.Engine, func(store.Engine, PurgeCounts), func(store.Engine, RedriveCounts)) {
				e, b := open(t), newFakeBroker(1)
				b.produce(0, "bad:a", "bad:bad", "bad:skip")
				ingest(t, e, b)
				return e, func(e store.Engine, want PurgeCounts) {
						if n, err := Purge(t.Context(), &PurgeOptions{Engine: e, Filter: LetterFilter{Pipeline: "p", State: DeadLetters}}); err != nil || n != want {
							t.Errorf("Got %+v, %v from the purge, want %+v", n, err, want)
						}
					}, func(e store.Engine, want RedriveCounts) {
						if n, err := redriveWith(t.Context(), e, &RedriveOptions{}); err != nil || n != want {
							t.Errorf("Got %+v, %v from the redrive, want %+v", n, err, want)
						}
					}
			}
			check := func(e store.Engine, want map[string]int64, letters, purged int64) {
				t.Helper()
				a := auditHolds(t, e)
				if d := cmp.Diff(want, readContents(t, e).Counts); d != "" || a.Letters != letters || a.Purged != purged {
					t.Errorf("Got %d letters, %d purged, want %d and %d; counts (-want +got):\n%s", a.Letters, a.Purged, letters, purged, d)
				}
			}

			e, purge, redrive := begin() // the purge is first
			redrive(&between{e, func() { purge(e, PurgeCounts{Purged: 3}) }}, RedriveCounts{Overtaken: 3})
			check(e, map[string]int64{}, 0, 3)

			e, purge, redrive = begin() // the redrive is first
			purge(&between{e, func() { redrive(e, RedriveCounts{Applied: 1, Filtered: 1, Refused: 1}) }}, PurgeCounts{Purged: 1, Overtaken: 2})
			check(e, map[string]int64{"a": 1}, 2, 1)

			e, purge, _ = begin() // two purges
			purge(&between{e, func() { purge(e, PurgeCounts{Purged: 3}) }}, PurgeCounts{Overtaken: 3})
			check(e, map[string]int64{}, 0, 3)

			e, purge, _ = begin() // a relay that has sent them
			p := newTest(t, &between{e, func() { purge(e, PurgeCounts{Purged: 3}) }}, newFakeBroker(1))
			stop := startRelaying(p, &fakeTopic{})
			waitFor(t, func() bool { return p.Metrics().Relayed == 3 })
			stop()
			check(e, map[string]int64{}, 0, 3)
		})
	}
}

func TestPurgeRefusesWhatIsNotExact(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	for _, o := range []*PurgeOptions{nil, {}, {Engine: e}} {
		if _, err := Purge(t.Context(), o); !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("Got %v for %+v, want ErrInvalidArgument", err, o)
		}
	}
	o := &PurgeOptions{Engine: rowEngine{e}, Filter: LetterFilter{Pipeline: "p"}}
	if _, err := Purge(t.Context(), o); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("Got %v on an engine that commits by row, want ErrUnsupported", err)
	}
	generation := store.NewFamily("c" + GenerationMark + "p" + GenerationMark + "1")
	if err := e.(store.Admin).CreateTable(t.Context(), &store.TableDescriptor{Name: "x", Families: []store.FamilyDescriptor{generation}}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Purge(t.Context(), &PurgeOptions{Engine: e, Filter: LetterFilter{Pipeline: "p"}}); !errors.Is(err, ErrRebuilding) {
		t.Errorf("Got %v amid a rebuild, want ErrRebuilding", err)
	}
}
