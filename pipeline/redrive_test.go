package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/pipeline/buffer"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// mendedMapper is testMapper after its rules were corrected: "bad:x" is x now,
// "bad:skip" is filtered, "bad:bad" stays bad.
type mendedMapper struct{ testMapper }

func (m *mendedMapper) Map(r *mapping.Record) (*mapping.Output, error) {
	mended := *r
	mended.Value = []byte(strings.TrimPrefix(string(r.Value), "bad:"))
	return m.testMapper.Map(&mended)
}

func redriveWith(ctx context.Context, e store.Engine, o *RedriveOptions) (RedriveCounts, error) {
	o.Engine, o.Filter.Pipeline = e, "p"
	return newRedrive(o, newMended, "v2").run(ctx)
}

// wantMended is want of b after all dead letters were redriven.
func wantMended(b *fakeBroker) contents {
	b.mu.Lock()
	logs := b.logs
	mended := map[int32]*fakeLog{}
	dead := int64(0)
	became := map[string]string{}
	for n, l := range logs {
		c := *l
		c.records = nil
		for _, r := range l.records {
			if v, ok := strings.CutPrefix(string(r.Value), "bad:"); ok {
				dead++
				if !strings.HasPrefix(v, "bad") && !strings.HasPrefix(v, "huge") {
					became[fmt.Sprintf("t/%d/%d", n, r.Offset)] = buffer.Applied
					if v == "skip" {
						became[fmt.Sprintf("t/%d/%d", n, r.Offset)] = buffer.Filtered
					}
				}
				c.records = append(c.records, kafka.Record{Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: []byte(v)})
				continue
			}
			c.records = append(c.records, r)
		}
		mended[n] = &c
	}
	b.mu.Unlock()
	c := want(&fakeBroker{logs: mended})
	// The counts of the offsets say what was so when it was their turn.
	first := want(b)
	c.Progress = first.Progress
	maps.Copy(c.Letters, became)
	return c
}

func redrivenOf(t testing.TB, e store.Reader) (n buffer.Redriven) {
	t.Helper()
	all, err := AllRedriven(t.Context(), e, "p")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		n.Applied += r.Applied
		n.Filtered += r.Filtered
		n.PurgedDead += r.PurgedDead
		n.PurgedApplied += r.PurgedApplied
		n.PurgedFiltered += r.PurgedFiltered
	}
	return n
}

func TestRedriveAppliesOnce(t *testing.T) {
	t.Parallel()
	for name, open := range bothEngines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, b := open(t), newFakeBroker(2)
			b.produce(0, "a", "bad:a", "bad:b", "skip", "bad:skip", "-", "bad:bad")
			b.produce(1, "bad:a", "bad:huge", "bad:a", "b")
			ingest(t, e, b)

			got, err := redriveWith(t.Context(), e, &RedriveOptions{DryRun: true})
			if want := (RedriveCounts{Applied: 5, Filtered: 1, Refused: 1}); err != nil || got != want {
				t.Errorf("Got %+v, %v from a dry run, want %+v", got, err, want) // what only the store refuses does not show
			}
			checkContents(t, e, b)

			got, err = redriveWith(t.Context(), e, &RedriveOptions{})
			if want := (RedriveCounts{Applied: 4, Filtered: 1, Refused: 2}); err != nil || got != want {
				t.Errorf("Got %+v, %v, want %+v", got, err, want)
			}
			wanted := wantMended(b)
			if d := cmp.Diff(wanted, readContents(t, e)); d != "" {
				t.Errorf("Got other contents than the mended log has (-want +got):\n%s", d)
			}
			got, err = redriveWith(t.Context(), e, &RedriveOptions{})
			if want := (RedriveCounts{Refused: 2}); err != nil || got != want {
				t.Errorf("Got %+v, %v the second time, want %+v", got, err, want)
			}
			if d := cmp.Diff(wanted, readContents(t, e)); d != "" {
				t.Errorf("Got other contents after the second time (-want +got):\n%s", d)
			}
			if n := redrivenOf(t, e); n.Applied != 4 || n.Filtered != 1 {
				t.Errorf("Got counts %+v, want 4 applied and 1 filtered", n)
			}
			for d, err := range ScanLetters(t.Context(), e, &LetterFilter{Places: []Place{{"t", 1, 1}}}) {
				if err != nil {
					t.Fatal(err)
				}
				if d.Stage != "store" || d.Class != "cell_too_large" || d.Attempts != 3 || d.MappingVersion != "v2" || string(d.Value) != "bad:huge" {
					t.Errorf("Got %+v, want the new reason after three attempts and the record as it was", d)
				}
			}
			// The partitions go on as if nothing had been.
			b.produce(0, "a", "bad:c")
			ingest(t, e, b)
			if _, err := redriveWith(t.Context(), e, &RedriveOptions{}); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(wantMended(b), readContents(t, e)); d != "" {
				t.Errorf("Got other contents after more records (-want +got):\n%s", d)
			}
		})
	}
}

// flaky fails some of its batches, before or after they are applied.
type flaky struct {
	store.Engine
	mu  sync.Mutex
	rng *rand.Rand
}

func (e *flaky) Apply(ctx context.Context, b *store.Batch) error {
	e.mu.Lock()
	n := e.rng.IntN(3)
	e.mu.Unlock()
	if n == 0 {
		return store.ErrTransient
	}
	if err := e.Engine.Apply(ctx, b); err != nil {
		return err
	}
	if n == 1 {
		return errors.New("connection reset")
	}
	return nil
}

// Three redrives run at once beside the partitions, and each is cut off again and
// again, before a commit and after it.
func TestRedriveKilledAndBesideOthers(t *testing.T) {
	t.Parallel()
	for name, open := range bothEngines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, b := open(t), newFakeBroker(2)
			values := []string{"a", "bad:a", "bad:b", "bad:skip", "skip", "-", "bad:c"}
			load := func() {
				for i := range 300 {
					b.produce(int32(i%2), values[i*i%len(values)])
				}
			}
			load()
			ingest(t, e, b)
			r := start(t, newTest(t, e, b), 0, 1)
			var wg sync.WaitGroup
			for i := range uint64(3) {
				wg.Go(func() {
					f := &flaky{Engine: e, rng: rand.New(rand.NewPCG(i, 1))}
					for range 20 {
						_, _ = redriveWith(t.Context(), f, &RedriveOptions{Limit: 30})
					}
				})
			}
			load()
			r.caughtUp(b)
			wg.Wait()
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			if _, err := redriveWith(t.Context(), e, &RedriveOptions{}); err != nil {
				t.Fatal(err)
			}
			wanted := wantMended(b)
			if d := cmp.Diff(wanted, readContents(t, e)); d != "" {
				t.Errorf("Got other contents than the mended log has (-want +got):\n%s", d)
			}
			n := redrivenOf(t, e)
			if n.Applied+n.Filtered != wanted.Progress.Dead {
				t.Errorf("Got %+v redriven of %d", n, wanted.Progress.Dead)
			}
		})
	}
}

// dying is the engine of a process that dies at one of its steps, before it reaches the
// store or after: nothing of it arrives from then on.
type dying struct {
	store.Engine
	after bool
	left  int // steps, the last of which it dies at
	steps int
}

var errDied = errors.New("killed")

// step is asked before and after each call.
func (e *dying) step(after bool) error {
	if !after {
		e.steps++
		e.left--
	}
	if e.left < 0 || e.left == 0 && after == e.after {
		return errDied
	}
	return nil
}

func (e *dying) Apply(ctx context.Context, b *store.Batch) error {
	if err := e.step(false); err != nil {
		return err
	}
	if err := e.Engine.Apply(ctx, b); err != nil {
		return err
	}
	return e.step(true)
}

func (e *dying) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	if e.step(false) != nil {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(errDied)
		return e.Engine.Scan(ctx, s)
	}
	return e.Engine.Scan(ctx, s)
}

// A redrive is killed at each of its steps in turn, before it and, where it writes,
// after it. The next one does what is left, each record once.
func TestRedriveKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	const letters = redriveLetters + 10 // two commits
	for name, open := range bothEngines() {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after %v", name, after), func(t *testing.T) {
				t.Parallel()
				left := map[int64]bool{} // what redrives that were killed had done
				for step, killed := 1, true; killed; step++ {
					e, b := open(t), newFakeBroker(2)
					for i := range letters {
						b.produce(int32(i%2), []string{"bad:a", "bad:b", "bad:skip", "bad:bad"}[i*i%7%4])
					}
					ingest(t, e, b)
					d := &dying{Engine: e, after: after, left: step}
					_, err := redriveWith(t.Context(), d, &RedriveOptions{})
					if killed = d.left <= 0 && err != nil; !killed && (err != nil || d.steps < 5) {
						t.Fatalf("Got %v from a redrive of %d steps that nobody killed, want no error and 5 steps at least", err, d.steps)
					}
					if n := redrivenOf(t, e); killed {
						left[n.Applied+n.Filtered] = true
					}
					if _, err := redriveWith(t.Context(), e, &RedriveOptions{}); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(wantMended(b), readContents(t, e)); diff != "" {
						t.Fatalf("Got other contents than the mended log has, killed at step %d (-want +got):\n%s", step, diff)
					}
					for _, a := range audit(t, e, b, false) {
						if len(a.Problems) > 0 {
							t.Fatalf("Got problems %q, killed at step %d", a.Problems, step)
						}
					}
				}
				if len(left) < 3 || !left[0] { // nothing, the first commit, both
					t.Errorf("Got %v letters redriven by those that were killed: the test shows nothing", left)
				}
			})
		}
	}
}

// wideMapper makes a megabyte of mutations of each record, which has a few bytes.
type wideMapper struct{ testMapper }

func (*wideMapper) Map(*mapping.Record) (*mapping.Output, error) {
	out := &mapping.Output{}
	for range 1000 {
		m := cell.Mutation{Table: "counts", Row: []byte(strings.Repeat("x", 900))}
		m.Increment("c", []byte("n"), 1)
		out.Mutations = append(out.Mutations, m)
	}
	return out, nil
}

// widest is an engine that knows the largest batch of those that it was given.
type widest struct {
	store.Engine
	bytes, records int
}

func (e *widest) Apply(ctx context.Context, b *store.Batch) error {
	n := 0
	for i := range b.Records {
		for k := range b.Records[i].Mutations {
			n += len(b.Records[i].Mutations[k].Row)
		}
	}
	e.bytes, e.records = max(e.bytes, n), max(e.records, len(b.Records))
	return e.Engine.Apply(ctx, b)
}

// Letters whose records become many times their size, or have large headers, are
// redriven in commits that a daemon takes.
func TestRedriveInBounds(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	for range 40 {
		b.produce(0, "bad:a")
	}
	ingest(t, e, b)
	w := &widest{Engine: e}
	got, err := newRedrive(&RedriveOptions{Engine: w, Filter: LetterFilter{Pipeline: "p"}}, func() mapper { return &wideMapper{} }, "v2").run(t.Context())
	if want := (RedriveCounts{Applied: 40}); err != nil || got != want {
		t.Errorf("Got %+v, %v, want %+v", got, err, want)
	}
	if w.bytes > 2*redriveBytes {
		t.Errorf("Got a commit with rows of %d bytes, want about %d", w.bytes, redriveBytes)
	}

	b = newFakeBroker(1)
	for range 20 {
		b.produce(0, "bad:a")
	}
	log := b.logs[0]
	for i := range log.records {
		log.records[i].Headers = []kafka.Header{{Key: []byte("h"), Value: make([]byte, 1<<20)}}
	}
	e = newEngine(t)
	ingest(t, e, b)
	w = &widest{Engine: e}
	got, err = redriveWith(t.Context(), w, &RedriveOptions{})
	if want := (RedriveCounts{Applied: 20}); err != nil || got != want {
		t.Errorf("Got %+v, %v, want %+v", got, err, want)
	}
	if w.records > 5 {
		t.Errorf("Got a commit of %d letters with headers of 1 MiB each, want 4", w.records)
	}
}

func TestRedriveFilters(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	b.produce(0, "bad:a", "bad:b", "bad:c", "huge")
	ingest(t, e, b)
	for _, c := range []struct {
		name string
		o    RedriveOptions
		want RedriveCounts
	}{
		{"topic", RedriveOptions{Filter: LetterFilter{Topic: "u"}}, RedriveCounts{}},
		{"class", RedriveOptions{Filter: LetterFilter{Class: "cell_too_large"}}, RedriveCounts{Refused: 1}},
		{"stage", RedriveOptions{Filter: LetterFilter{Stage: "decode"}, Limit: 1}, RedriveCounts{Applied: 1}},
		{"time", RedriveOptions{Filter: LetterFilter{Since: 1002, Stage: "decode"}}, RedriveCounts{Applied: 1}},
		{"places", RedriveOptions{Filter: LetterFilter{Places: []Place{{"t", 0, 0}, {"t", 0, 1}, {"t", 1, 1}}}}, RedriveCounts{Applied: 1}},
	} {
		got, err := redriveWith(t.Context(), e, &c.o)
		if err != nil || got != c.want {
			t.Errorf("%s: got %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
	left := map[string]int{}
	for _, f := range []LetterFilter{{State: DeadLetters, Brief: true}, {State: RedrivenOnly, Pipeline: "p", Topic: "t"}, {Pipeline: "other"}} {
		for d, err := range ScanLetters(t.Context(), e, &f) {
			if err != nil {
				t.Fatal(err)
			}
			if f.Brief && d.Value != nil {
				t.Errorf("Got a value of %d bytes, want none", len(d.Value))
			}
			left[fmt.Sprint(f.State)]++
		}
	}
	if d := cmp.Diff(map[string]int{"1": 1, "2": 3}, left); d != "" {
		t.Errorf("Got other letters by state (-want +got):\n%s", d)
	}
}

func TestRedriveRefusesWhatIsNotExact(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	for _, o := range []*RedriveOptions{
		nil,
		{},
		{Engine: e, Plan: &mapping.Plan{}},
		{Engine: e, Plan: &mapping.Plan{}, Filter: LetterFilter{Pipeline: "p"}, Limit: -1},
	} {
		if _, err := Redrive(t.Context(), o); !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("Got %v for %+v, want ErrInvalidArgument", err, o)
		}
	}
	o := &RedriveOptions{Engine: rowEngine{e}, Plan: &mapping.Plan{}, Filter: LetterFilter{Pipeline: "p"}}
	if _, err := Redrive(t.Context(), o); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("Got %v on an engine that commits by row, want ErrUnsupported", err)
	}
}

// eventMapper gives the record "bad:ID page" the event id ID, and makes a unit an id
// of "bad:ID,ID page". That of id "!" is of a table that is not there.
type eventMapper struct{ testMapper }

func (m *eventMapper) Map(r *mapping.Record) (*mapping.Output, error) {
	ids, page, ok := strings.Cut(strings.TrimPrefix(string(r.Value), "bad:"), " ")
	if !ok {
		return m.testMapper.Map(r)
	}
	rec := *r
	rec.Value = []byte(page)
	out, err := m.testMapper.Map(&rec)
	if err != nil {
		return nil, err
	}
	for id := range strings.SplitSeq(ids, ",") {
		unit := store.Record{Once: []byte(id), OnceTTL: 1000_000, Mutations: out.Mutations}
		if id == "!" {
			unit.Mutations = slices.Clone(out.Mutations)
			unit.Mutations[0].Table = "missing"
		}
		out.Records = append(out.Records, unit)
	}
	return out, nil
}

// redriveBy redrives letters of pipeline p, limit at most where that is not 0, by m.
func redriveBy(t *testing.T, e store.Engine, m mapper, limit int, want RedriveCounts) {
	t.Helper()
	o := &RedriveOptions{Engine: e, Filter: LetterFilter{Pipeline: "p"}, Limit: limit}
	if got, err := newRedrive(o, func() mapper { return m }, "v2").run(t.Context()); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// An event that another record has brought is not applied again, whether a letter has
// one or several; a letter of which an event is refused stays dead, and uses no id.
func TestRedriveOfEventsWithIDs(t *testing.T) {
	t.Parallel()
	for name, open := range bothEngines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, b := open(t), newFakeBroker(1)
			b.produce(0, "bad:1,2 a", "bad:3 a", "bad:3 a", "bad:4 b", "bad:2,5 a", "bad:1,2,5 c", "bad:6,! c", "bad:6,7,6 d")
			ingest(t, e, b)
			redriveBy(t, e, &eventMapper{}, 0, RedriveCounts{Applied: 5, Filtered: 2, Refused: 1})
			redriveBy(t, e, &eventMapper{}, 0, RedriveCounts{Refused: 1})
			got := readContents(t, e)
			want := map[string]string{
				"t/0/0": "applied", "t/0/1": "applied", "t/0/2": "filtered", "t/0/3": "applied",
				"t/0/4": "applied", "t/0/5": "filtered", "t/0/6": "store/no_such_table", "t/0/7": "applied",
			}
			if d := cmp.Diff(want, got.Letters); d != "" {
				t.Errorf("Got other letters (-want +got):\n%s", d)
			}
			// 1, 2, 3 and 5 of a; 4; 6 and 7.
			if d := cmp.Diff(map[string]int64{"a": 4, "b": 1, "d": 2}, got.Counts); d != "" {
				t.Errorf("Got other counts (-want +got):\n%s", d)
			}
		})
	}
}

// Whoever comes second changes nothing of a letter of several events, and uses none of their ids.
func TestRedriveOfEventsBesideOthers(t *testing.T) {
	t.Parallel()
	for name, open := range bothEngines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, b := open(t), newFakeBroker(1)
			b.produce(0, "bad:1,2 a")
			ingest(t, e, b)
			redriveBy(t, &between{e, func() {
				if n, err := Purge(t.Context(), &PurgeOptions{Engine: e, Filter: LetterFilter{Pipeline: "p"}}); err != nil || n.Purged != 1 {
					t.Errorf("purge: %+v, %v", n, err)
				}
			}}, &eventMapper{}, 0, RedriveCounts{Overtaken: 1})
			if got := readContents(t, e).Counts; len(got) > 0 {
				t.Errorf("Got counts %v of a letter that was purged", got)
			}

			b.produce(0, "bad:1,2 b")
			ingest(t, e, b)
			redriveBy(t, &between{e, func() { redriveBy(t, e, &mendedMapper{}, 0, RedriveCounts{Applied: 1}) }}, &eventMapper{}, 0, RedriveCounts{Overtaken: 1})
			if d := cmp.Diff(map[string]int64{"1,2 b": 1}, readContents(t, e).Counts); d != "" {
				t.Errorf("Got other counts (-want +got):\n%s", d)
			}
		})
	}
}

// checkedMapper is an eventMapper that puts what is stored already, and counts nothing.
type checkedMapper struct{ eventMapper }

func (m *checkedMapper) Map(r *mapping.Record) (*mapping.Output, error) {
	out, err := m.eventMapper.Map(r)
	if err != nil {
		return nil, err
	}
	for i := range out.Records {
		unit := &out.Records[i]
		unit.Mutations = unit.Mutations[:1]
		unit.Checks = []*store.Cond{{Family: "e", Qualifier: []byte("page"), Op: store.NotEqual}}
	}
	return out, nil
}

// A letter of which no check holds is left out, and its event's id is as free as where
// the record came for the first time.
func TestRedriveWhereNoCheckHolds(t *testing.T) {
	t.Parallel()
	for name, open := range bothEngines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, b := open(t), newFakeBroker(1)
			b.produce(0, "bad:1 a", "bad:1 a", "bad:1 b")
			ingest(t, e, b)
			redriveBy(t, e, &checkedMapper{}, 2, RedriveCounts{Filtered: 2})
			redriveBy(t, e, &eventMapper{}, 2, RedriveCounts{Applied: 1})
			got := readContents(t, e)
			want := map[string]string{"t/0/0": "filtered", "t/0/1": "filtered", "t/0/2": "applied"}
			if d := cmp.Diff(want, got.Letters); d != "" {
				t.Errorf("Got other letters (-want +got):\n%s", d)
			}
			if d := cmp.Diff(map[string]int64{"b": 1}, got.Counts); d != "" {
				t.Errorf("Got other counts (-want +got):\n%s", d)
			}
		})
	}
}

// rowEngine commits no more than a row at once.
type rowEngine struct{ store.Engine }

func (rowEngine) Traits() store.Traits { return store.Traits{Name: "rows", Atomic: store.AtomicRow} }

// What is no letter is reported with its row, and what was never counted is none.
func TestScanLettersReportsDamage(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	m := cell.Mutation{Table: store.OutboxTable, Row: []byte("x")}
	m.Put(store.OutboxFamily, []byte("class"), 1, []byte("c"))
	if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
		t.Fatal(err)
	}
	for d, err := range ScanLetters(t.Context(), e, &LetterFilter{}) {
		if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("Got %v, %v, want ErrCorrupt with the row", d, err)
		}
	}
	m = cell.Mutation{Table: store.OutboxTable, Row: buffer.AppendRedrivenPrefix(nil, "p")}
	m.Increment(store.OutboxFamily, []byte(buffer.Applied), 1)
	if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
		t.Fatal(err)
	}
	if _, err := AllRedriven(t.Context(), e, ""); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Got %v, want ErrCorrupt", err)
	}
}
