package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
	"sluice/store/pebblestore"
)

// chain is an incremental job of a table of an embedded store, whose processes are
// killed at any step, and begun anew by others.
type chain struct {
	t       *testing.T
	db      *pebblestore.DB
	options pebblestore.Options
	data    string // the data directory
	out     string
	job     *Job
	whole   *Job // the same rows, of which every run is full
	at      time.Time
	expires bool
	anew    bool // rows are mostly put with all columns that the job has
	offset  int64

	snapshot store.Snapshot                 // the latest instant; nil = it is closed
	instants map[uint64]map[string][]string // the rows of a full export of each, by sequence
	altered  []uint64                       // when the table was made anew, truncated or altered
	before   *Manifest                      // the run that _latest.json named when the next one began; nil = none
	told     bool                           // the store was told of that run when it had ended
	ahead    bool                           // the Iceberg table was another run, whose process was killed before it named it
	met      map[string]int
}

func (c *chain) now() cell.Timestamp { return cell.Timestamp(c.at.UnixMilli()) }

// newChain draws a store with a table and a job of it.
func newChain(t *testing.T, rt *rapid.T, dir string, met map[string]int) *chain {
	c := &chain{
		t: t, data: filepath.Join(dir, "data"), out: filepath.Join(dir, "out"), options: *jobstest.PebbleOptions(),
		at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), instants: map[uint64]map[string][]string{}, met: met,
		expires: rapid.Bool().Draw(rt, "expires"),
	}
	c.options.Now, c.options.MinBulkKeys = c.now, 2
	c.do(rt, os.Mkdir(c.out, 0o755))
	c.open(rt)
	d := c.create(rt)
	yes := true
	spec := &Spec{
		Table: "t", Out: c.out, Incremental: Incremental{FullEvery: rapid.IntRange(2, 6).Draw(rt, "full every")},
		Formats: rapid.SampledFrom([][]string{{Parquet}, {Arrow}, {Parquet, Arrow}}).Draw(rt, "formats"),
		Columns: []columnar.ColumnSpec{
			{Name: "key", From: "$row", Type: "string"},
			{Name: "q", From: "f:q", Type: "string"},
			{Name: "r", From: "f:r", Type: "string"},
			{Name: "g", From: "g:q", Type: "string"},
			{Name: "n", From: "n:q", Type: "int64"},
			{Name: "time", From: "$timestamp", Type: "int64", Nullable: &yes},
		},
	}
	c.anew = rapid.IntRange(0, 2).Draw(rt, "anew") == 0
	if c.anew {
		spec.Columns = slices.DeleteFunc(spec.Columns, func(c columnar.ColumnSpec) bool { return c.Name == "g" || c.Name == "n" })
	}
	if !c.anew && rapid.Bool().Draw(rt, "filter") {
		spec.Filter = incrementalFilter
	}
	if !c.anew && rapid.Bool().Draw(rt, "where") {
		spec.Where = []columnar.Predicate{{Column: "q", Op: "!=", Value: "w"}}
	}
	if from := rapid.SampledFrom([]string{"", "2", "2026-01-01T00:00:00Z"}).Draw(rt, "time range"); from != "" {
		spec.TimeRange = TimeRange{TimeSpan: TimeSpan{From: from}, Families: map[string]TimeSpan{"n": {}}}
	}
	switch rapid.IntRange(0, 3).Draw(rt, "layout") {
	case 0:
		spec.PartitionBy = []string{"q"}
	case 1:
		spec.Sort = []SortColumn{{Column: "q"}}
	}
	full := *spec
	full.Incremental = Incremental{}
	spec.Iceberg = slices.Contains(spec.Formats, Parquet) && rapid.IntRange(0, 3).Draw(rt, "iceberg") > 0
	full.Columns = slices.Clone(spec.Columns)
	c.whole = mustCompile(t, "whole", &full, d)
	if c.expires {
		spec.Incremental.Expired = ReportExpired
	}
	spec.Columns = append(spec.Columns, columnar.ColumnSpec{Name: "op", From: "$op", Type: "string"})
	c.job = mustCompile(t, "j", spec, d)
	return c
}

// do fails the case where something that was done has.
func (c *chain) do(rt *rapid.T, err error) {
	if err != nil {
		rt.Fatal(err)
	}
}

func (c *chain) open(rt *rapid.T) {
	o := c.options
	db, err := pebblestore.Open(c.data, &o)
	c.do(rt, err)
	c.db = db
}

// close closes the latest instant and the store.
func (c *chain) close(rt *rapid.T) {
	c.leave(rt)
	c.do(rt, c.db.Close())
}

// leave closes the latest instant.
func (c *chain) leave(rt *rapid.T) {
	if c.snapshot != nil {
		c.do(rt, c.snapshot.Close())
		c.snapshot = nil
	}
}

func (c *chain) create(rt *rapid.T) *store.TableDescriptor {
	f, g, n := store.NewFamily("f"), store.NewFamily("g"), store.NewFamily("n")
	f.Versions = rapid.IntRange(1, 2).Draw(rt, "versions")
	n.Counter = true
	if c.expires {
		g.TTL, n.TTL = 3*3600, 5*3600
	}
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f, g, n}}
	c.do(rt, c.db.CreateTable(c.t.Context(), d, [][]byte{[]byte("c")}))
	return d
}

// write draws some writes, and makes them one by one or in one batch.
func (c *chain) write(rt *rapid.T) {
	b := &store.Batch{Bulk: true}
	bulk := rapid.IntRange(0, 3).Draw(rt, "bulk") == 0
	for range rapid.IntRange(0, 6).Draw(rt, "mutations") {
		rows := []string{"a", "b", "c", "d", "e"}
		if c.anew { // some writes of one row between two runs
			rows = rows[1:3]
		}
		m := &cell.Mutation{Table: "t", Row: []byte(rapid.SampledFrom(rows).Draw(rt, "row"))}
		at := rapid.SampledFrom([]cell.Timestamp{cell.Latest, 1, 1000, c.now() - 2*3600_000}).Draw(rt, "time")
		what := rapid.IntRange(0, 7)
		if c.anew {
			what = rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, 5, 6, 6, 7})
		}
		switch what.Draw(rt, "what") {
		case 0, 1:
			m.Put("f", []byte("q"), at, []byte(rapid.SampledFrom([]string{"v", "w", "hidden"}).Draw(rt, "value")))
			if c.anew || rapid.Bool().Draw(rt, "both") {
				m.Put("f", []byte("r"), at, []byte(rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "value")))
			}
		case 2:
			m.Put("g", []byte("q"), at, []byte(rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "value")))
			if c.expires {
				m.Ops[0].TTL = int64(rapid.IntRange(0, 2).Draw(rt, "TTL")) * 3600_000
			}
		case 3:
			m.Increment("n", []byte("q"), 1)
		case 4:
			m.DeleteColumn("n", []byte("q"), cell.Latest)
		case 5:
			m.DeleteColumn(rapid.SampledFrom([]string{"f", "g"}).Draw(rt, "family"), []byte(rapid.SampledFrom([]string{"q", "r"}).Draw(rt, "qualifier")), at)
		case 6:
			m.Delete("f", []byte(rapid.SampledFrom([]string{"q", "r"}).Draw(rt, "qualifier")), at)
		case 7:
			m.DeleteRow(at)
		}
		if bulk {
			c.offset++
			b.Add(c.offset, *m)
			continue
		}
		_, err := c.db.MutateRow(c.t.Context(), nil, m)
		c.do(rt, err)
	}
	if len(b.Mutations) > 0 {
		c.met["bulk"]++
		c.do(rt, c.db.Apply(c.t.Context(), b))
	}
}

// disturb does what changes no row, or makes that the next run must be full.
func (c *chain) disturb(rt *rapid.T) {
	ctx := c.t.Context()
	what := rapid.SampledFrom([]string{"", "", "flush", "rewrite", "rewrite", "compact", "tidy", "split", "merge", "reopen", "collect", "backfill", "alter", "truncate", "drop"}).Draw(rt, "disturb")
	c.met[what]++
	switch what {
	case "flush":
		c.do(rt, c.db.Flush(ctx))
	case "rewrite":
		c.do(rt, errors.Join(c.db.Flush(ctx), c.db.MajorCompact(ctx, "t")))
	case "compact":
		c.do(rt, errors.Join(c.db.Flush(ctx), c.db.MinorCompact(ctx, "t")))
	case "tidy":
		c.do(rt, c.db.Tidy(ctx))
	case "split":
		at := rapid.SampledFrom([]string{"b", "d", "e"}).Draw(rt, "split")
		if err := c.db.SplitRegion(ctx, "t", []byte(at)); !errors.Is(err, store.ErrInvalidArgument) { // one begins there
			c.do(rt, err)
		}
	case "merge":
		regions, err := c.db.Regions(ctx, "t")
		c.do(rt, err)
		if regions.Len() > 1 {
			c.do(rt, c.db.MergeRegions(ctx, "t", regions.At(0).Start, regions.At(1).Start))
		}
	case "reopen":
		c.close(rt)
		c.open(rt)
	case "collect":
		tg, err := target.OpenLocal(c.out)
		c.do(rt, err)
		_, err = Collect(ctx, &CollectOptions{Target: tg, Keep: map[string]Keep{"j": {Runs: 1}}, Now: func() time.Time { return c.at }})
		c.do(rt, errors.Join(err, tg.Close()))
	case "backfill": // which does not become the latest
		if c.before == nil {
			return
		}
		s, err := c.db.Snapshot(ctx)
		c.do(rt, err)
		_, err = Run(ctx, &RunOptions{
			Job: c.job, Source: s, Out: c.out, Holder: c.db, StoreID: c.db.ID(), Now: func() time.Time { return c.at },
			LogicalTime: time.Date(2020, 1, 1, c.met[what], 0, 0, 0, time.UTC),
		})
		c.do(rt, errors.Join(err, s.Close()))
	case "alter":
		d, err := c.db.Table(ctx, "t")
		c.do(rt, err)
		d = d.Clone()
		d.Family("f").Versions = rapid.IntRange(1, 3).Draw(rt, "versions")
		c.do(rt, c.db.AlterTable(ctx, d))
	case "truncate":
		c.do(rt, errors.Join(c.db.DisableTable(ctx, "t"), c.db.TruncateTable(ctx, "t", rapid.Bool().Draw(rt, "keep splits"))))
	case "drop":
		c.do(rt, errors.Join(c.db.DisableTable(ctx, "t"), c.db.DropTable(ctx, "t")))
		c.create(rt)
	}
	if slices.Contains([]string{"alter", "truncate", "drop"}, what) {
		s, err := c.db.Snapshot(ctx)
		c.do(rt, err)
		c.altered = append(c.altered, s.Sequence())
		c.do(rt, s.Close())
	}
}

// killedHolder is a store that a process speaks with until it is killed.
type killedHolder struct {
	store.ChangeHolder
	k *killing
}

func (h killedHolder) HoldChanges(ctx context.Context, hold store.ChangeHold) (held store.ChangeHold, err error) {
	err = h.k.around("hold", func() error {
		held, err = h.ChangeHolder.HoldChanges(ctx, hold)
		return err
	})
	return held, err
}

// instant takes the store as it is now, and makes a full export of it.
func (c *chain) instant(rt *rapid.T) {
	ctx := c.t.Context()
	c.leave(rt)
	c.do(rt, HoldChanges(ctx, c.job, c.db, c.at))
	s, err := c.db.Snapshot(ctx)
	c.do(rt, err)
	c.snapshot = s
	out, err := os.MkdirTemp(filepath.Dir(c.out), "")
	c.do(rt, err)
	m, err := Run(ctx, &RunOptions{Job: c.whole, Source: s, Out: out, Now: func() time.Time { return c.at }})
	c.do(rt, err)
	whole := map[string][]string{}
	for _, row := range readFormat(c.t, filepath.Join(out, runDir("whole", m.LogicalTime)), m, c.whole.Formats()[0]) {
		whole[row[0]] = row
	}
	c.instants[s.Sequence()] = whole
	c.do(rt, os.RemoveAll(out))
}

// publish makes the next run, by as many processes as it takes, and names it.
func (c *chain) publish(rt *rapid.T) {
	c.at = c.at.Add(time.Duration(rapid.IntRange(1, 90).Draw(rt, "minutes")) * time.Minute)
	c.instant(rt)
	taken, logical := 1, c.at
	for attempt := 0; ; attempt++ {
		die := 0
		if attempt < 3 {
			die = rapid.IntRange(0, 80).Draw(rt, "die") // 0, or beyond its last step: not killed
		}
		how, err := c.attempt(rt, logical, fmt.Sprint(logical, taken), die)
		if !errors.Is(err, errKilled) {
			c.do(rt, err)
			return
		}
		c.met["killed "+strings.Fields(how)[0]]++
		if rapid.IntRange(0, 2).Draw(rt, "goes on at once") > 0 {
			continue
		}
		c.write(rt)
		c.disturb(rt)
		if rapid.Bool().Draw(rt, "for a later time") {
			c.at = c.at.Add(time.Hour)
			logical = c.at
		} else if c.snapshot != nil && rapid.Bool().Draw(rt, "of the same instant") {
			continue
		}
		c.instant(rt)
		taken++
	}
}

// attempt makes a run in a process that is killed at a step, which it names.
func (c *chain) attempt(rt *rapid.T, logical time.Time, checkpoint string, die int) (how string, err error) {
	local, err := target.OpenLocal(c.out)
	c.do(rt, err)
	defer func() { c.do(rt, local.Close()) }()
	k := &killing{Local: local, die: die}
	defer func() {
		if k.dead {
			how = k.steps[len(k.steps)-1]
		}
	}()
	// The process before may have named what it was killed at.
	if latest, err := readLatest(c.t.Context(), local, "j"); err == nil && latest.RunID != runID("j", logical) {
		c.before, _, err = readManifest(c.t.Context(), local, path.Join("j", latest.Manifest))
		c.do(rt, err)
		holds, err := c.db.ChangeHolds(c.t.Context())
		c.do(rt, err)
		c.told = slices.ContainsFunc(holds, func(h store.ChangeHold) bool { return h.Since >= c.before.Sequence })
		if c.job.spec.Iceberg {
			current, err := icebergTable(local, "j").Current(c.t.Context())
			c.do(rt, err)
			if current != runID("j", logical) { // or a process before has made this one, when the table was what it was
				c.ahead = current != c.before.RunID
			}
		}
	} else if !errors.Is(err, target.ErrNotFound) {
		c.do(rt, err)
	}
	// What is written during a run is of the next one.
	late := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 0, 2).Draw(rt, "during")
	_, err = Run(c.t.Context(), &RunOptions{
		Job: c.job, Source: c.snapshot, Target: k, Holder: killedHolder{c.db, k}, StoreID: c.db.ID(), LogicalTime: logical, Checkpoint: checkpoint,
		Now: func() time.Time { return c.at }, Parallelism: rapid.IntRange(1, 2).Draw(rt, "parallelism"), batchRows: 2, Logger: slog.New(slog.DiscardHandler),
		Progress: func(work.Progress) {
			for _, row := range late {
				m := &cell.Mutation{Table: "t", Row: []byte(row)}
				m.Put("f", []byte("q"), cell.Latest, []byte("late"))
				if _, err := c.db.MutateRow(c.t.Context(), nil, m); err != nil {
					c.t.Error(err)
				}
			}
			late = nil
		},
	})
	if errors.Is(err, target.ErrExists) && !errors.Is(err, errKilled) {
		// The one that was killed had published it.
		c.met["published before"]++
		if _, err = FinishPublished(c.t.Context(), k, "j", logical); !k.dead && errors.Is(err, target.ErrNotFound) {
			err = nil
		}
	}
	return how, err
}

// compare puts the latest run and those that it goes on from together, as
// docs/export.md tells readers to do, and compares them with a full export of its
// instant.
func (c *chain) compare(rt *rapid.T) {
	ctx, dir := c.t.Context(), filepath.Join(c.out, "j")
	r, err := Verify(ctx, dir)
	if err != nil || !r.OK() {
		rt.Fatalf("verify: %v, %v", err, r.Err())
	}
	latest := r.Manifest
	runs := []*Manifest{latest}
	for m := latest; m.increment(); runs = append(runs, m) {
		if m, _, err = ReadRun(ctx, filepath.Join(dir, m.Incremental.Base)); err != nil {
			rt.Fatal(err)
		}
	}
	chained := map[string][]string{}
	for _, m := range slices.Backward(runs) {
		for i, format := range c.job.Formats() {
			rows := readFormat(c.t, filepath.Join(c.out, runDir("j", m.LogicalTime)), m, format)
			if i > 0 { // both are of the same batches
				continue
			}
			for _, row := range rows {
				delete(chained, row[0])
				if row[len(row)-1] == columnar.OpUpsert {
					chained[row[0]] = row[:len(row)-1]
				}
			}
		}
	}
	whole, ok := c.instants[latest.Sequence]
	if !ok {
		rt.Fatalf("run %s is of instant %d, which nobody took", latest.RunID, latest.Sequence)
	}
	if d := cmp.Diff(whole, chained, cmpopts.EquateEmpty()); d != "" {
		rt.Fatalf("increment %d (-full +chain):\n%s", latest.Incremental.Number, d)
	}
	want := 0
	if c.before != nil && !c.told {
		c.met["not told"]++
	}
	if before := c.before; before != nil && c.told && !c.ahead && before.Incremental.Number+1 < c.job.spec.Incremental.FullEvery &&
		!slices.ContainsFunc(c.altered, func(at uint64) bool { return before.Sequence < at && at <= latest.Sequence }) {
		want = before.Incremental.Number + 1
	}
	if latest.Incremental.Number != want {
		rt.Fatalf("Got increment %d, want %d: run %s at %d, the table was altered at %d", latest.Incremental.Number, want, latest.RunID, latest.Sequence, c.altered)
	}
	if c.job.spec.Iceberg {
		tg, err := target.OpenLocal(c.out)
		c.do(rt, err)
		current, err := icebergTable(tg, "j").Current(ctx)
		if err := errors.Join(err, tg.Close()); err != nil || current != latest.RunID {
			rt.Fatalf("the Iceberg table is run %q (%v), want %s", current, err, latest.RunID)
		}
		c.met[fmt.Sprint("snapshots ", min(want, 2))]++
	}
	c.met[fmt.Sprint("increments ", min(want, 2))]++
}

// TestChainsOfKilledRuns is TestFullAndIncrements on the embedded store: a full run and
// the increments after it are the table, through random histories of writes, deletes,
// late timestamps, counters, bulk loads, expiry, rewrites, compactions, splits,
// merges and reopenings, with runs that are killed at any step and gone on with, at
// their instant or a later one, or given up. After an alteration, a truncation, or a
// table that was made anew under the same name, a run is full, and only then or when it
// is due.
func TestChainsOfKilledRuns(t *testing.T) {
	t.Parallel()
	dir, met, cases := t.TempDir(), map[string]int{}, 0
	jobstest.Check(t, func(rt *rapid.T) {
		cases++
		own, err := os.MkdirTemp(dir, "")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(own)
		c := newChain(t, rt, own, met)
		defer func() { c.close(rt) }()
		for range rapid.IntRange(2, 6).Draw(rt, "runs") {
			c.write(rt)
			c.disturb(rt)
			if c.expires { // what expires now may be rewritten before a run has seen it
				c.at = c.at.Add(time.Duration(rapid.IntRange(0, 3).Draw(rt, "hours")) * time.Hour)
				c.disturb(rt)
			}
			c.publish(rt)
			c.compare(rt)
		}
	})
	if cases < jobstest.Checks || t.Failed() { // rapid.checks may ask for fewer
		return
	}
	for _, what := range []string{
		"bulk", "flush", "rewrite", "compact", "tidy", "split", "merge", "reopen", "collect", "backfill", "alter", "truncate", "drop",
		"killed before", "killed after", "killed half", "published before", "not told", "increments 0", "increments 1", "increments 2", "snapshots 0", "snapshots 2",
	} {
		if met[what] == 0 {
			t.Errorf("Got no %q in %d cases: %v", what, cases, met)
		}
	}
}
