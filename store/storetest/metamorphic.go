package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/store"
)

// Metamorphic runs one random history of mutations, batches, splits, merges,
// snapshots, flushes, rewrites, crashes and reopenings on an engine of each factory
// and requires equal results of every operation and every read. a is the model.
// Both must be store.Admin. crash, nil where b cannot, is how b's power fails.
//
// Flushes and major compactions may remove what HBase's remove, which shows in
// some reads of some families. Histories with them use families and reads where
// it does not; so do histories in which b rewrites by itself, which a knows nothing
// of; the others use everything else.
func Metamorphic(t *testing.T, a, b Factory, crash Crash) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHistory(t, rt, a, b)
		h.crash = crash
		defer h.close()
		rt.Repeat(map[string]func(*rapid.T){
			"put":          h.put,
			"delete":       h.delete,
			"modify":       h.modify,
			"check":        h.check,
			"batch":        h.batch,
			"mutate rows":  h.mutateRows,
			"read":         h.read,
			"clock":        h.advance,
			"split":        h.split,
			"merge":        h.merge,
			"split middle": h.splitMiddle,
			"switch":       h.switchTable,
			"truncate":     h.truncate,
			"alter":        h.alter,
			"snapshot":     h.snapshot,
			"old snapshot": h.readSnapshot,
			"flush":        h.flush,
			"tidy":         h.tidy,
			"rewrite":      h.rewrite,
			"crash":        h.powerFails,
			"reopen":       h.reopen,
			"":             h.same,
		})
	})
}

// side is one of the two engines.
type side struct {
	store.Engine
	open      Factory
	opts      Options
	snapshots []store.Snapshot
}

func (s *side) admin() store.Admin { return s.Engine.(store.Admin) }

// history is one random history. The first of sides is the model.
type history struct {
	t         *testing.T
	clock     *Clock
	sides     [2]*side
	crash     Crash
	flushing  bool // histories with flushes
	rewriting bool // histories in which the second side rewrites by itself
	source    store.Source
	next      [2]int64 // stored offset by partition
	offset    int64    // of the next record
}

const metaTable = "m"

var (
	metaRows       = [][]byte{[]byte("a"), []byte("a\x00"), []byte("b"), []byte("b\x00\xffz"), []byte("\xff"), []byte("c")}
	metaQualifiers = [][]byte{{}, []byte("q"), []byte("q\x00"), []byte("\xff\x00\x01")}
	metaFamilies   = []string{"f", "g"}
)

func newHistory(t *testing.T, rt *rapid.T, a, b Factory) *history {
	h := &history{t: t, clock: NewClock(10_000_000), source: store.Source{Pipeline: "p", Topic: "t", ClusterID: "c"}, next: [2]int64{store.Absent, store.Absent}}
	switch rapid.IntRange(0, 3).Draw(rt, "history") {
	case 0:
		h.flushing = true
	case 1, 2:
		h.rewriting = true
	}
	d := &store.TableDescriptor{Name: metaTable}
	for _, name := range metaFamilies {
		d.Families = append(d.Families, h.drawFamily(rt, name))
	}
	n := store.NewFamily("n")
	n.Counter = true
	if rapid.Bool().Draw(rt, "counter ttl") {
		n.TTL = 20
	}
	u := store.NewFamily("u")
	u.Distinct, u.TTL = true, n.TTL
	d.Families = append(d.Families, n, u)
	for i, open := range []Factory{a, b} {
		s := &side{open: open, opts: Options{Now: h.clock.Now, Dir: t.TempDir(), Rewriting: h.rewriting}}
		s.Engine = open(t, s.opts)
		h.sides[i] = s
		if _, ok := s.Engine.(store.Admin); !ok {
			rt.Fatalf("engine %s is no store.Admin", s.Traits().Name)
		}
		if err := s.admin().CreateTable(t.Context(), d.Clone(), [][]byte{[]byte("b")}); err != nil {
			rt.Fatalf("%s: %v", s.Traits().Name, err)
		}
	}
	return h
}

func (h *history) drawFamily(rt *rapid.T, name string) store.FamilyDescriptor {
	f := store.NewFamily(name)
	f.NewVersionBehavior = rapid.Bool().Draw(rt, name+" new version behavior")
	f.Versions = rapid.SampledFrom([]int{1, 2, 3, store.AllVersions}).Draw(rt, name+" versions")
	if h.flushing {
		// Only these keep every version that a read could ever show.
		f.Versions = store.AllVersions
		return f
	}
	if h.rewriting {
		// What a later delete could bring back must stay, and so must markers,
		// which mask what is put later with an older time.
		f.Versions, f.TimeToPurgeDeletes = store.AllVersions, 1<<40
	}
	f.KeepDeleted = rapid.SampledFrom([]store.KeepDeleted{store.KeepDeletedFalse, store.KeepDeletedFalse, store.KeepDeletedTrue, store.KeepDeletedTTL}).Draw(rt, name+" keep deleted")
	if rapid.Bool().Draw(rt, name+" ttl") {
		f.TTL = 20
		if !h.rewriting {
			f.MinVersions = rapid.IntRange(0, min(2, f.Versions)).Draw(rt, name+" min versions")
		}
	}
	return f
}

func (h *history) close() {
	for _, s := range h.sides {
		if s == nil {
			continue
		}
		for _, n := range s.snapshots {
			if err := n.Close(); err != nil {
				h.t.Errorf("close snapshot: %v", err)
			}
		}
		if err := s.Close(); err != nil {
			h.t.Errorf("close: %v", err)
		}
	}
}

// both runs f on both engines and requires what it prints to be equal.
func (h *history) both(rt *rapid.T, what string, f func(s *side) []string) {
	want, got := f(h.sides[0]), f(h.sides[1])
	if d := cmp.Diff(want, got); d != "" {
		rt.Fatalf("%s at %d (-%s +%s):\n%s", what, h.clock.Now(), h.sides[0].Traits().Name, h.sides[1].Traits().Name, d)
	}
}

// printError prints an error so that it can be compared between engines.
func printError(err error) []string {
	var b *store.BatchError
	switch {
	case err == nil:
		return []string{"ok"}
	case errors.As(err, &b):
		var out []string
		for _, r := range b.Refused {
			out = append(out, fmt.Sprintf("refused %d %s %q: %s", r.Offset, r.Table, r.Row, errorCode(r.Err)))
		}
		return out
	}
	return []string{"error " + errorCode(err)}
}

func printResult(r store.Result, err error) []string {
	if err != nil {
		return printError(err)
	}
	return append([]string{fmt.Sprintf("applied %v", r.Applied)}, cells(r.Cells, false)...)
}

func printScan(ctx context.Context, r store.Reader, s *store.Scan) []string {
	var out [2][]string
	for i := range out {
		sc := r.Scan(ctx, s)
		defer sc.Close()
		p := rowPrinter{s: s}
		err := rows(sc, i == 1, p.row)
		out[i] = append(p.out, printError(err)...)
	}
	if !slices.Equal(out[0], out[1]) {
		return append(append(out[0], "but as it is stored:"), out[1]...)
	}
	return out[0]
}

// rowPrinter prints the rows of a scan.
type rowPrinter struct {
	s   *store.Scan
	cut []byte // key of the row before, where it may go on
	out []string
}

func (p *rowPrinter) row(row *cell.Row) {
	// How a row is cut by size is the engine's.
	if p.cut == nil || !bytes.Equal(p.cut, row.Key) {
		p.out = append(p.out, fmt.Sprintf("%q", row.Key))
	}
	p.out = append(p.out, cells(row.Cells, p.s.Raw)...)
	if p.cut = nil; p.s.MaxResultBytes > 0 && row.More {
		p.cut = bytes.Clone(row.Key)
	}
}

func (h *history) drawRow(rt *rapid.T) []byte { return rapid.SampledFrom(metaRows).Draw(rt, "row") }

func drawQualifier(rt *rapid.T) []byte {
	return rapid.SampledFrom(metaQualifiers).Draw(rt, "qualifier")
}

func drawFamilyName(rt *rapid.T) string {
	// One in sixteen is unknown.
	return rapid.SampledFrom(append(slices.Repeat(metaFamilies, 8), "nope")).Draw(rt, "family")
}

// drawTime draws the store's clock or a time around it.
func (h *history) drawTime(rt *rapid.T) cell.Timestamp {
	if rapid.Bool().Draw(rt, "latest") {
		return cell.Latest
	}
	return h.clock.Now() + cell.Timestamp(rapid.IntRange(-8, 4).Draw(rt, "time")*3000)
}

func (h *history) drawPuts(rt *rapid.T, m *cell.Mutation) {
	family, at := drawFamilyName(rt), h.drawTime(rt)
	ttl := int64(0)
	// An older write comes back after a newer one at its time has expired.
	if !h.rewriting && rapid.IntRange(0, 7).Draw(rt, "has ttl") == 0 {
		if ttl = int64(rapid.IntRange(0, 20).Draw(rt, "ttl") * 1000); ttl == 0 {
			ttl = cell.NoLife
		}
	}
	for range rapid.IntRange(1, 4).Draw(rt, "columns") {
		if rapid.IntRange(0, 7).Draw(rt, "other family") == 0 {
			family = drawFamilyName(rt)
		}
		m.Put(family, drawQualifier(rt), at, h.drawValue(rt))
		m.Ops[len(m.Ops)-1].TTL = ttl
	}
}

func (h *history) drawValue(rt *rapid.T) []byte {
	return rapid.SampledFrom([][]byte{{}, []byte("v"), []byte("w"), {0, 0, 0, 0, 0, 0, 0, 5}, []byte("a\x00b")}).Draw(rt, "value")
}

func (h *history) drawDelete(rt *rapid.T, m *cell.Mutation) {
	at := h.drawTime(rt)
	switch rapid.IntRange(0, 7).Draw(rt, "kind") {
	case 0, 1:
		m.Delete(drawFamilyName(rt), drawQualifier(rt), at)
	case 2, 3:
		m.DeleteColumn(drawFamilyName(rt), drawQualifier(rt), at)
	case 4:
		m.DeleteFamily(drawFamilyName(rt), at)
	case 5:
		m.DeleteFamilyVersion(drawFamilyName(rt), at)
	case 6:
		m.DeleteColumn(rapid.SampledFrom([]string{"n", "u"}).Draw(rt, "family in place"), drawQualifier(rt), cell.Latest)
	case 7:
		m.DeleteRow(cell.Latest)
	}
}

func (h *history) drawModify(rt *rapid.T, m *cell.Mutation) {
	for range rapid.IntRange(1, 2).Draw(rt, "columns") {
		switch rapid.IntRange(0, 3).Draw(rt, "kind") {
		case 0:
			m.Increment(drawFamilyName(rt), drawQualifier(rt), int64(rapid.IntRange(-2, 9).Draw(rt, "delta")))
		case 1:
			m.Append(drawFamilyName(rt), drawQualifier(rt), h.drawValue(rt))
		case 2:
			m.Increment("n", drawQualifier(rt), int64(rapid.IntRange(-2, 9).Draw(rt, "delta")))
		case 3:
			m.Append("u", drawQualifier(rt), h.drawValue(rt))
		}
		m.Ops[len(m.Ops)-1].Time = h.drawTime(rt)
	}
}

// drawMutation draws a mutation of any kind.
func (h *history) drawMutation(rt *rapid.T) *cell.Mutation {
	m := &cell.Mutation{Table: metaTable, Row: h.drawRow(rt)}
	for range rapid.IntRange(1, 3).Draw(rt, "parts") {
		switch rapid.IntRange(0, 4).Draw(rt, "what") {
		case 0, 1, 2:
			h.drawPuts(rt, m)
		case 3:
			h.drawDelete(rt, m)
		case 4:
			h.drawModify(rt, m)
		}
	}
	return m
}

func (h *history) drawCond(rt *rapid.T) *store.Cond {
	c := &store.Cond{Family: drawFamilyName(rt), Qualifier: drawQualifier(rt), Op: store.CompareOp(rapid.IntRange(int(store.Less), int(store.Greater)).Draw(rt, "op"))}
	if rapid.Bool().Draw(rt, "has value") {
		c.Value = h.drawValue(rt)
	}
	if rapid.IntRange(0, 3).Draw(rt, "filter") == 0 {
		c.Filter = &store.ValueFilter{Op: c.Op, Comparator: store.Binary(c.Value)}
	}
	return c
}

func (h *history) mutate(rt *rapid.T, what string, cond *store.Cond, m *cell.Mutation) {
	h.both(rt, what, func(s *side) []string { return printResult(s.MutateRow(h.t.Context(), cond, m)) })
}

func (h *history) put(rt *rapid.T) {
	m := &cell.Mutation{Table: metaTable, Row: h.drawRow(rt)}
	h.drawPuts(rt, m)
	h.mutate(rt, "put", nil, m)
}

func (h *history) delete(rt *rapid.T) {
	m := &cell.Mutation{Table: metaTable, Row: h.drawRow(rt)}
	h.drawDelete(rt, m)
	h.mutate(rt, "delete", nil, m)
}

func (h *history) modify(rt *rapid.T) {
	m := &cell.Mutation{Table: metaTable, Row: h.drawRow(rt)}
	h.drawModify(rt, m)
	h.mutate(rt, "modify", nil, m)
}

func (h *history) check(rt *rapid.T) { h.mutate(rt, "check", h.drawCond(rt), h.drawMutation(rt)) }

func (h *history) batch(rt *rapid.T) {
	b := &store.Batch{Bulk: rapid.Bool().Draw(rt, "bulk")}
	partition := rapid.IntRange(0, 1).Draw(rt, "partition")
	plain := rapid.IntRange(0, 2).Draw(rt, "plain units") == 0
	for range rapid.IntRange(0, 4).Draw(rt, "mutations") {
		h.offset++
		if plain {
			b.Records = append(b.Records, h.drawPlainUnit(rt))
			continue
		}
		if rapid.IntRange(0, 3).Draw(rt, "record") > 0 {
			m := h.drawMutation(rt)
			if n, ok := store.PackedPutSize(m); ok && rapid.Bool().Draw(rt, "packed") {
				if _, ok := b.Pack(make([]byte, 0, n), h.offset, m); !ok {
					rt.Fatalf("%+v was not packed", m)
				}
				continue
			}
			b.Add(h.offset, *m)
			continue
		}
		var once []byte
		if rapid.Bool().Draw(rt, "once") {
			once = []byte{byte(rapid.IntRange(1, 5).Draw(rt, "id"))}
		}
		var cond *store.Cond
		if rapid.Bool().Draw(rt, "conditional") {
			cond = h.drawCond(rt)
		}
		b.Record(h.offset, once, cond, *h.drawMutation(rt), *h.drawMutation(rt))
	}
	for range rapid.IntRange(0, 3).Draw(rt, "counters") {
		if plain {
			break
		}
		b.Counters = append(b.Counters, store.CounterDelta{Table: metaTable, Family: "n", Row: h.drawRow(rt), Qualifier: drawQualifier(rt), Delta: int64(rapid.IntRange(-3, 9).Draw(rt, "delta")), Time: h.drawTime(rt), Offset: h.offset})
	}
	from := h.next[partition]
	if rapid.IntRange(0, 7).Draw(rt, "stale") == 0 {
		from += 7
	}
	next := max(from, 0) + int64(len(b.Puts)+len(b.Mutations)+len(b.Records))
	b.Advance(h.source, int32(partition), from, store.Progress{Next: next, Applied: next, LastOffset: -1, LeaderEpoch: -1})
	h.both(rt, "batch", func(s *side) []string {
		b.Unapplied = store.Unapplied{}
		err := s.Apply(h.t.Context(), b)
		if err == nil {
			h.next[partition] = next
		}
		return append(printError(err), fmt.Sprintf("unapplied %+v", b.Unapplied))
	})
}

// drawPlainUnit draws a record of puts and increments of which nothing is to be decided but
// whether its event id was used before.
func (h *history) drawPlainUnit(rt *rapid.T) store.Record {
	r := store.Record{Offset: h.offset - int64(rapid.IntRange(0, 1).Draw(rt, "of the record before"))}
	if rapid.IntRange(0, 3).Draw(rt, "once") > 0 {
		r.Once = []byte{byte(rapid.IntRange(1, 8).Draw(rt, "id"))}
		r.OnceTTL = rapid.SampledFrom([]int64{0, 3000, 20_000}).Draw(rt, "id's ttl")
	}
	for range rapid.IntRange(1, 2).Draw(rt, "mutations of the unit") {
		m := cell.Mutation{Table: metaTable, Row: h.drawRow(rt)}
		puts := rapid.IntRange(0, 3).Draw(rt, "puts") > 0
		if puts {
			h.drawPuts(rt, &m)
		}
		if !puts || rapid.IntRange(0, 3).Draw(rt, "and increments") == 0 {
			for range rapid.IntRange(1, 2).Draw(rt, "increments") {
				m.Increment("n", drawQualifier(rt), int64(rapid.IntRange(-2, 9).Draw(rt, "delta")))
				m.Ops[len(m.Ops)-1].Time = h.drawTime(rt)
			}
		}
		if rapid.IntRange(0, 3).Draw(rt, "and an element") == 0 {
			m.Append("u", drawQualifier(rt), h.drawValue(rt))
			m.Ops[len(m.Ops)-1].Time = h.drawTime(rt)
		}
		if n, ok := store.PackedPutSize(&m); ok && rapid.Bool().Draw(rt, "packed") {
			if r.Puts, _, ok = store.PackPut(r.Puts, make([]byte, 0, n), -1, &m); !ok {
				rt.Fatalf("%+v was not packed", m)
			}
			continue
		}
		r.Mutations = append(r.Mutations, m)
	}
	if rapid.IntRange(0, 7).Draw(rt, "conditional") == 0 {
		r.Cond = h.drawCond(rt)
	}
	if len(r.Mutations) > 0 && rapid.IntRange(0, 7).Draw(rt, "checked") == 0 {
		r.Checks = make([]*store.Cond, len(r.Mutations))
		r.Checks[0] = h.drawCond(rt)
	}
	return r
}

func (h *history) mutateRows(rt *rapid.T) {
	var ms []*cell.Mutation
	for range rapid.IntRange(1, 4).Draw(rt, "mutations") {
		ms = append(ms, h.drawMutation(rt))
	}
	h.both(rt, "mutate rows", func(s *side) []string {
		t, err := store.OpenTable(h.t.Context(), s.Engine, metaTable)
		if err != nil {
			return printError(err)
		}
		results, errs := t.MutateRows(h.t.Context(), ms...)
		var out []string
		for i := range results {
			out = append(out, printResult(results[i], errs[i])...)
		}
		return out
	})
}

func (h *history) drawTimeRange(rt *rapid.T) cell.TimeRange {
	from := h.clock.Now() + cell.Timestamp(rapid.IntRange(-8, 4).Draw(rt, "from")*3000)
	return cell.TimeRange{Min: from, Max: from + cell.Timestamp(rapid.IntRange(0, 6).Draw(rt, "length")*3000+1)}
}

// drawScan draws a read of any kind that the history allows.
func (h *history) drawScan(rt *rapid.T) *store.Scan {
	s := &store.Scan{
		Table:    metaTable,
		Versions: rapid.SampledFrom([]int{0, 1, 2, store.AllVersions}).Draw(rt, "versions"),
		Reversed: rapid.Bool().Draw(rt, "reversed"),
		Limit:    rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(rt, "limit"),
		Batch:    rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(rt, "batch"),
	}
	if rapid.Bool().Draw(rt, "start") {
		s.Start, s.StartExclusive = h.drawRow(rt), rapid.Bool().Draw(rt, "exclusive")
	}
	if rapid.Bool().Draw(rt, "stop") {
		s.Stop, s.StopInclusive = h.drawRow(rt), rapid.Bool().Draw(rt, "inclusive")
	}
	if rapid.IntRange(0, 7).Draw(rt, "prefixed") == 0 {
		s.Prefix = drawFilterRow(rt)
	}
	if rapid.IntRange(0, 3).Draw(rt, "ranged") == 0 {
		r := h.drawTimeRange(rt)
		s.Time = &r
	}
	for _, name := range []string{"f", "g", "n", "u"} {
		if rapid.IntRange(0, 15).Draw(rt, "range of family "+name) == 0 {
			if s.FamilyTime == nil {
				s.FamilyTime = map[string]cell.TimeRange{}
			}
			s.FamilyTime[name] = h.drawTimeRange(rt)
		}
	}
	if rapid.IntRange(0, 7).Draw(rt, "raw") == 0 && !h.flushing && !h.rewriting {
		s.Raw, s.Columns = true, []store.Column{{Family: "f", All: true}, {Family: "g", All: true}}
		return s
	}
	for range rapid.IntRange(0, 2).Draw(rt, "columns") {
		s.Columns = append(s.Columns, store.Column{Family: rapid.SampledFrom([]string{"f", "g", "n", "u"}).Draw(rt, "family"), Qualifier: drawQualifier(rt), All: rapid.Bool().Draw(rt, "all")})
	}
	if rapid.IntRange(0, 3).Draw(rt, "limited") == 0 {
		s.LimitPerFamily, s.OffsetPerFamily = rapid.IntRange(0, 2).Draw(rt, "limit per family"), rapid.IntRange(0, 2).Draw(rt, "offset per family")
	}
	s.MaxResultBytes = rapid.SampledFrom([]int{0, 0, 1, 8}).Draw(rt, "max result bytes")
	if s.Batch == 0 && rapid.IntRange(0, 3).Draw(rt, "filtered") == 0 {
		s.Filter = drawFilter(rt, 2)
	}
	return s
}

func (h *history) read(rt *rapid.T) {
	s := h.drawScan(rt)
	stop := rapid.IntRange(-1, 4).Draw(rt, "stop after")
	snapshot := rapid.IntRange(-3, len(h.sides[0].snapshots)-1).Draw(rt, "of a snapshot")
	h.both(rt, fmt.Sprintf("scan %+v", s), func(side *side) []string {
		var r store.Reader = side
		if snapshot >= 0 {
			r = side.snapshots[snapshot]
		}
		whole := printScan(h.t.Context(), r, s)
		if stop >= 0 {
			if d := cmp.Diff(whole, printInTwo(h.t.Context(), r, s, stop)); d != "" {
				rt.Fatalf("%s: scan %+v, stopped after %d parts and continued (-whole +parts):\n%s", side.Traits().Name, s, stop, d)
			}
		}
		return whole
	})
}

// printInTwo is printScan of a scan that is stopped after so many parts and goes on
// from its cursor.
func printInTwo(ctx context.Context, r store.Reader, s *store.Scan, stop int) []string {
	part := *s
	part.NeedCursor = true
	p := rowPrinter{s: s}
	for {
		sc := r.Scan(ctx, &part)
		defer sc.Close()
		for i := 0; i != stop && sc.Next(); i++ {
			p.row(sc.Row())
		}
		at, err := store.CursorOf(sc)
		if sc.Err() != nil {
			err = sc.Err()
		}
		if err != nil || stop < 0 {
			return append(p.out, printError(err)...)
		}
		part.Cursor, stop = at, -1
	}
}

// printAll prints every visible cell, the offsets and the region map.
func printAll(ctx context.Context, r store.Reader) []string {
	out := printScan(ctx, r, &store.Scan{Table: metaTable, Versions: store.AllVersions})
	all, err := store.AllProgress(ctx, r)
	if err != nil {
		return append(out, printError(err)...)
	}
	for _, p := range all {
		out = append(out, fmt.Sprintf("%s/%d: %d", p.Source.Pipeline, p.Partition, p.Progress.Next))
	}
	regions, err := r.Regions(ctx, metaTable)
	if err != nil {
		return append(out, printError(err)...)
	}
	for i := range regions.Len() {
		out = append(out, fmt.Sprintf("region %q %q", regions.At(i).Start, regions.At(i).Stop))
	}
	return out
}

// same is checked after every step.
func (h *history) same(rt *rapid.T) {
	h.both(rt, "everything", func(s *side) []string { return printAll(h.t.Context(), s) })
}

func (h *history) advance(rt *rapid.T) {
	h.clock.Advance(int64(rapid.SampledFrom([]int{1, 1, 1000, 7000}).Draw(rt, "ms")))
}

func (h *history) split(rt *rapid.T) {
	at := h.drawRow(rt)
	h.both(rt, "split", func(s *side) []string { return printError(s.admin().SplitRegion(h.t.Context(), metaTable, at)) })
}

func (h *history) merge(rt *rapid.T) {
	rows := make([][]byte, rapid.IntRange(1, 3).Draw(rt, "regions"))
	for i := range rows {
		rows[i] = h.drawRow(rt)
	}
	h.both(rt, "merge", func(s *side) []string { return printError(s.admin().MergeRegions(h.t.Context(), metaTable, rows...)) })
}

func (h *history) snapshot(rt *rapid.T) {
	if len(h.sides[0].snapshots) > 2 {
		rt.Skip("enough snapshots")
	}
	for _, s := range h.sides {
		if _, ok := s.Engine.(store.Snapshotter); !ok {
			rt.Skip("no snapshots")
		}
	}
	for _, s := range h.sides {
		n, err := s.Engine.(store.Snapshotter).Snapshot(h.t.Context())
		if err != nil {
			rt.Fatalf("snapshot of %s: %v", s.Traits().Name, err)
		}
		s.snapshots = append(s.snapshots, n)
	}
}

func (h *history) readSnapshot(rt *rapid.T) {
	if len(h.sides[0].snapshots) == 0 {
		rt.Skip("no snapshots")
	}
	i := rapid.IntRange(0, len(h.sides[0].snapshots)-1).Draw(rt, "snapshot")
	h.both(rt, "snapshot", func(s *side) []string { return printAll(h.t.Context(), s.snapshots[i]) })
	if !rapid.Bool().Draw(rt, "close") {
		return
	}
	for _, s := range h.sides {
		if err := s.snapshots[i].Close(); err != nil {
			rt.Fatalf("close snapshot of %s: %v", s.Traits().Name, err)
		}
		s.snapshots = slices.Delete(s.snapshots, i, i+1)
	}
}

// compact runs f on both engines, unless one does not offer it.
func (h *history) compact(rt *rapid.T, f func(store.Compactor) error) {
	if !h.flushing {
		rt.Skip("a history without flushes")
	}
	// The model comes last: it offers everything.
	for _, s := range []*side{h.sides[1], h.sides[0]} {
		c, ok := s.Engine.(store.Compactor)
		if !ok {
			rt.Skip("no compactor")
		}
		if err := f(c); errors.Is(err, store.ErrUnsupported) {
			rt.Skip(err)
		} else if err != nil {
			rt.Fatalf("compact %s: %v", s.Traits().Name, err)
		}
	}
}

func (h *history) flush(rt *rapid.T) {
	h.compact(rt, func(c store.Compactor) error { return c.Flush(h.t.Context()) })
}

// tidy makes both engines forget what no read can see.
func (h *history) tidy(rt *rapid.T) {
	h.compact(rt, func(c store.Compactor) error {
		if err := c.Flush(h.t.Context()); err != nil {
			return err
		}
		return c.MajorCompact(h.t.Context(), metaTable)
	})
}

func (h *history) reopen(rt *rapid.T) {
	for _, s := range h.sides {
		for _, n := range s.snapshots {
			if err := n.Close(); err != nil {
				rt.Fatalf("close snapshot of %s: %v", s.Traits().Name, err)
			}
		}
		s.snapshots = nil
		if s.Traits().Durable {
			s.reopen(h.t, rt)
		}
	}
}

func (s *side) reopen(t *testing.T, rt *rapid.T) {
	if err := s.Close(); err != nil {
		rt.Fatalf("close %s: %v", s.Traits().Name, err)
	}
	s.Engine = s.open(t, s.opts)
}
