package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"sluice/cell"
	"sluice/store"
)

// RunCases runs the case files of $SLUICE_CASES (default ../shared/cases beside
// the module's root), one subtest a case, and skips, saying so, where there are
// none. Each case runs as it is written and, where that cannot change what it
// expects, in the other situations.
func RunCases(t *testing.T, open Factory) { RunCasesWithin(t, open, &Limits{}) }

// RunCasesWithin is RunCases for an engine that does not offer everything.
func RunCasesWithin(t *testing.T, open Factory, l *Limits) {
	l.check(t)
	cases := loadCases(t, l.Defects)
	for _, ids := range []iter.Seq[string]{maps.Keys(l.Cases), slices.Values(l.Defects), slices.Values(l.MayDiffer)} {
		for id := range ids {
			if !slices.ContainsFunc(cases, func(c testCase) bool { return c.ID == id }) {
				t.Errorf("%q is an exception, and is no case", id)
			}
		}
	}
	for _, s := range situations {
		t.Run(string(s), func(t *testing.T) {
			why := l.Without[string(s)]
			if why == "" {
				why = s.unavailable(t, open)
			}
			if why != "" {
				t.Skip(why)
			}
			var running errgroup.Group
			running.SetLimit(max(l.AtATime, 1))
			for i := range cases {
				c := &cases[i]
				if s != asWritten && !s.suits(c) {
					continue // it runs as written
				}
				if c.Area == "fuzz" && l.RandomOneIn > 1 && i%l.RandomOneIn > 0 {
					continue
				}
				running.Go(func() error {
					t.Run(c.ID, func(t *testing.T) {
						why := l.Cases[c.ID]
						if why == "" && l.RealClock {
							why = c.moves()
						}
						if why != "" {
							l.unsupported(t, c.ID, why)
						}
						runCase(t, open, s, c, l)
					})
					return nil
				})
			}
			_ = running.Wait() // cases fail their own tests
		})
	}
}

func runCase(t *testing.T, open Factory, s situation, c *testCase, l *Limits) {
	r := &caseRun{t: t, e: start(t, open), c: c, situation: s}
	if l.RealClock {
		r.times = c.timesOf(time.Now())
	}
	if !r.createTable() {
		return
	}
	for i := range c.Ops {
		o := &c.Ops[i]
		if o.read() && !r.prepare(o) {
			continue
		}
		if s == reshaped {
			r.moveRegions(i, o)
		}
		got, err := r.do(o)
		if err != nil {
			var u *unsupported
			if errors.As(err, &u) {
				t.Skip(u.Error())
			}
			if l.Unsupported != nil && errors.Is(err, store.ErrUnsupported) {
				l.unsupported(t, c.ID, err.Error())
			}
			got = map[string]any{"error": errorCode(err)}
		}
		if o.Expect == nil {
			if err != nil {
				t.Fatalf("%s\nop %d, %s: %v", c.Title, i, o.Op, err)
			}
			continue
		}
		want, werr := r.expected(o)
		if werr != nil {
			t.Fatalf("op %d, %s: expectation: %v", i, o.Op, werr)
		}
		if l.RealClock && r.times == nil {
			want, got = withoutNow(want), withoutNow(got)
		}
		if d := cmp.Diff(want, got); d != "" {
			if o.Op == "scan" && o.Raw && slices.Contains(l.MayDiffer, c.ID) {
				l.Differs(c.ID)
				continue
			}
			t.Errorf("%s\nop %d, %s (-want +got):\n%s%v", c.Title, i, o.Op, d, errors.Join(err))
		}
	}
}

// now matches, in a line of a row, a time that the store has filled in: cases start
// their clock there.
var now = regexp.MustCompile(`@\d{8,} `)

// withoutNow returns what an operation gave without such times.
func withoutNow(given any) any {
	lines, ok := given.([]string)
	if !ok {
		return given
	}
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = now.ReplaceAllString(l, "@now ")
	}
	return out
}

// unsupported is an operation that the engine does not offer.
type unsupported struct{ what string }

func (u *unsupported) Error() string { return "the engine offers no " + u.what }

// caseRun is one case on one engine.
type caseRun struct {
	t         *testing.T
	e         *engine
	c         *testCase
	situation situation
	times     *caseTimes // nil = those of the case
	table     *store.Table
	mutator   *store.BufferedMutator // nil until the case uses one
	fresh     bool                   // nothing was written since the engine was last reopened
}

const caseTable = "t"

// createTable makes the case's table; false ends the case.
func (r *caseRun) createTable() bool {
	r.t.Helper()
	if len(r.c.Table.Families) == 0 {
		return true // the case needs none
	}
	d, err := r.descriptor(r.c.Table.Families)
	if err != nil {
		r.t.Fatal(err)
	}
	var splits [][]byte
	for _, s := range r.c.Table.Splits {
		splits = append(splits, r.bytes(s))
	}
	err = r.e.admin().CreateTable(r.t.Context(), d, splits)
	var want struct {
		TableError string `json:"tableError"`
	}
	if json.Unmarshal(r.c.Expect, &want) == nil && want.TableError != "" {
		if err == nil || errorCode(err) != want.TableError {
			r.t.Errorf("create table: %v, want %s", err, want.TableError)
		}
		return false
	}
	if err != nil {
		r.t.Fatalf("create table: %v", err)
	}
	r.openTable()
	return true
}

func (r *caseRun) openTable() {
	r.t.Helper()
	var err error
	if r.table, err = store.OpenTable(r.t.Context(), r.e.Engine, caseTable); err != nil {
		r.t.Fatal(err)
	}
}

// do runs one operation and returns what it gives: cells, rows, a bool or codes.
func (r *caseRun) do(o *op) (any, error) {
	ctx := r.t.Context()
	r.fresh = r.fresh && o.read()
	if o.buffered() {
		return r.buffered(o)
	}
	switch o.Op {
	case "clock":
		if o.Now != nil {
			r.e.clock.Set(cell.Timestamp(*o.Now))
		}
		r.e.clock.Advance(o.Advance)
		return nil, nil
	case "put", "delete", "increment", "append":
		m, err := r.mutation(o)
		if err != nil {
			return nil, err
		}
		if r.situation == unpacked && o.Op == "put" && o.Expect == nil {
			return nil, r.putCells(m)
		}
		res, err := r.table.MutateRow(ctx, m)
		if err != nil {
			return nil, err
		}
		if o.ReturnResults != nil && !*o.ReturnResults {
			return []string{}, nil // our results cannot be left out: nothing to compare
		}
		return r.cells(res.Cells, false), nil
	case "checkAndMutate":
		return r.checkAndMutate(o)
	case "rowMutations":
		ms, err := r.mutations(o)
		if err != nil {
			return nil, err
		}
		res, err := r.table.MutateRow(ctx, ms...)
		if err != nil {
			return nil, err
		}
		return r.cells(res.Cells, false), nil
	case "batch":
		ms, err := r.mutations(o)
		if err != nil {
			return nil, err
		}
		_, errs := r.table.MutateRows(ctx, ms...)
		codes := make([]string, len(errs))
		for i, err := range errs {
			codes[i] = "OK"
			if err != nil {
				codes[i] = errorCode(err)
			}
		}
		return codes, nil
	case "get":
		return r.get(o)
	case "scan":
		return r.scan(o)
	case "validateTableName":
		return store.CheckTableName(o.Name) == nil, nil
	case "validateFamilyName":
		return store.CheckFamilyName(o.Name) == nil, nil
	}
	if o.administers() {
		return r.administer(ctx, o)
	}
	return nil, r.storage(ctx, o)
}

// storage runs an operation on the table as a whole.
func (r *caseRun) storage(ctx context.Context, o *op) error {
	c, isCompactor := r.e.Engine.(store.Compactor)
	switch o.Op {
	case "flush", "majorCompact":
		if !isCompactor {
			return &unsupported{"store.Compactor"}
		}
		if o.Op == "flush" {
			return c.Flush(ctx)
		}
		return c.MajorCompact(ctx, caseTable)
	case "minorCompact":
		m, ok := r.e.Engine.(MinorCompactor)
		if !ok {
			return &unsupported{"minor compaction"}
		}
		return m.MinorCompact(ctx, caseTable)
	case "alter":
		now, err := r.table.Descriptor(ctx)
		if err != nil {
			return err
		}
		d := now.Clone()
		changed, err := r.descriptor(o.Families)
		if err != nil {
			return err
		}
		for _, f := range changed.Families {
			*d.Family(f.Name) = f
		}
		return r.e.admin().AlterTable(ctx, d)
	case "config":
		now, err := r.table.Descriptor(ctx)
		if err != nil {
			return err
		}
		d := now.Clone()
		d.MaxTimestampSlop = o.MaxTimestampSlop
		return r.e.admin().AlterTable(ctx, d)
	}
	return fmt.Errorf("storetest: unknown operation %q", o.Op)
}

func (r *caseRun) bytes(s string) []byte {
	r.t.Helper()
	b, err := store.ParseBytes(s)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// column splits "family:qualifier"; without a colon it is the whole family.
func (r *caseRun) column(s string) store.Column {
	r.t.Helper()
	family, qualifier, ok := strings.Cut(s, ":")
	return store.Column{Family: family, Qualifier: r.bytes(qualifier), All: !ok}
}

func (r *caseRun) timestamp(own, all *int64) cell.Timestamp {
	switch {
	case own != nil:
		return r.times.at(*own)
	case all != nil:
		return r.times.at(*all)
	}
	return cell.Latest
}

func (r *caseRun) mutations(o *op) ([]*cell.Mutation, error) {
	var ms []*cell.Mutation
	for i := range o.Mutations {
		m, err := r.mutation(&o.Mutations[i])
		if err != nil {
			return nil, err
		}
		ms = append(ms, m)
	}
	return ms, nil
}

func (r *caseRun) mutation(o *op) (*cell.Mutation, error) {
	r.t.Helper()
	m := r.table.NewMutation(r.bytes(o.Row))
	if len(o.TimeRange) == 2 {
		span := r.times.span(o.TimeRange[0], o.TimeRange[1])
		m.Read = &span
	}
	for _, c := range o.Cells {
		var col string
		if err := json.Unmarshal(c[0], &col); err != nil {
			return nil, err
		}
		column := r.column(col)
		var own *int64
		if o.Op == "put" {
			if err := json.Unmarshal(c[1], &own); err != nil {
				return nil, err
			}
		}
		last := c[len(c)-1]
		n := len(m.Ops)
		switch o.Op {
		case "increment":
			var delta int64
			if err := json.Unmarshal(last, &delta); err != nil {
				return nil, err
			}
			m.Increment(column.Family, column.Qualifier, delta)
		default:
			var value string
			if err := json.Unmarshal(last, &value); err != nil {
				return nil, err
			}
			if o.Op == "put" {
				m.Put(column.Family, column.Qualifier, 0, r.bytes(value))
			} else {
				m.Append(column.Family, column.Qualifier, r.bytes(value))
			}
		}
		m.Ops[n].Time = r.timestamp(own, o.TS)
		if o.TTL != nil {
			if m.Ops[n].TTL = r.times.life(*o.TTL); *o.TTL == 0 {
				m.Ops[n].TTL = cell.NoLife
			}
		}
	}
	if o.Op == "delete" && len(o.Markers) == 0 {
		m.DeleteRow(r.timestamp(nil, o.TS))
	}
	for _, k := range o.Markers {
		at := r.timestamp(k.TS, o.TS)
		switch k.Kind {
		case "version":
			c := r.column(k.Col)
			m.Delete(c.Family, c.Qualifier, at)
		case "column":
			c := r.column(k.Col)
			m.DeleteColumn(c.Family, c.Qualifier, at)
		case "family":
			m.DeleteFamily(k.Family, at)
		case "familyVersion":
			m.DeleteFamilyVersion(k.Family, at)
		default:
			return nil, fmt.Errorf("storetest: unknown marker %q", k.Kind)
		}
	}
	return m, nil
}

func (r *caseRun) checkAndMutate(o *op) (any, error) {
	ms, err := r.mutations(o)
	if err != nil {
		return nil, err
	}
	cond := &store.Cond{}
	if o.Check.Filter != nil {
		if cond.Filter, err = store.ParseFilterJSON(o.Check.Filter); err != nil {
			return nil, err
		}
	} else {
		c := r.column(o.Check.Col)
		cond.Family, cond.Qualifier = c.Family, c.Qualifier
		if cond.Op, err = store.ParseCompareOp(o.Check.Cmp); err != nil {
			return nil, err
		}
		if o.Check.Value != nil {
			cond.Value = r.bytes(*o.Check.Value)
		}
	}
	if len(o.TimeRange) == 2 {
		span := r.times.span(o.TimeRange[0], o.TimeRange[1])
		cond.Time = &span
	}
	res, err := r.table.CheckAndMutate(r.t.Context(), r.bytes(o.Row), cond, ms...)
	return res.Applied, err
}

// request returns the parts that a get and a scan share.
func (r *caseRun) request(o *op) (*store.Scan, error) {
	r.t.Helper()
	s := &store.Scan{LimitPerFamily: o.LimitPerFamily, OffsetPerFamily: o.OffsetPerFamily}
	for _, c := range o.Columns {
		s.Columns = append(s.Columns, r.column(c))
	}
	switch v := o.Versions.(type) {
	case nil:
	case string:
		s.Versions = store.AllVersions
	case float64:
		s.Versions = int(v)
		if v == 0 {
			s.Versions = -1 // 0 is our default and HBase's error
		}
	}
	if len(o.TimeRange) == 2 {
		span := r.times.span(o.TimeRange[0], o.TimeRange[1])
		s.Time = &span
	}
	if o.TS != nil {
		span := r.times.span(*o.TS, *o.TS+1)
		s.Time = &span
	}
	for f, tr := range o.FamilyTimeRange {
		if s.FamilyTime == nil {
			s.FamilyTime = make(map[string]cell.TimeRange)
		}
		s.FamilyTime[f] = r.times.span(tr[0], tr[1])
	}
	var err error
	if o.Filter != nil {
		s.Filter, err = store.ParseFilterJSON(o.Filter)
	}
	return s, err
}

func (r *caseRun) get(o *op) (any, error) {
	s, err := r.request(o)
	if err != nil {
		return nil, err
	}
	if o.ExistsOnly {
		return r.table.Exists(r.t.Context(), r.bytes(o.Row), s.Columns...)
	}
	row, err := r.table.Get(r.t.Context(), r.bytes(o.Row), s)
	if err != nil {
		return nil, err
	}
	if row == nil {
		return []string{}, nil
	}
	return r.cells(row.Cells, false), nil
}

func (r *caseRun) scan(o *op) (any, error) {
	s, err := r.request(o)
	if err != nil {
		return nil, err
	}
	s.Start, s.Stop, s.Prefix = r.bytes(o.Start), r.bytes(o.Stop), r.bytes(o.Prefix)
	s.StartExclusive, s.StopInclusive = o.StartInclusive != nil && !*o.StartInclusive, o.StopInclusive
	s.Reversed, s.Raw, s.Limit, s.Batch = o.Reversed, o.Raw, o.Limit, o.Batch
	got := []string{}
	for row, err := range r.table.Rows(r.t.Context(), s) {
		if err != nil {
			return nil, err
		}
		got = append(got, fmt.Sprintf("%q", row.Key))
		got = append(got, r.cells(row.Cells, o.Raw)...)
	}
	return got, nil
}

// cells prints cells for comparison, one a string.
func cells(cs []cell.Cell, raw bool) []string {
	got := make([]string, len(cs))
	for i, c := range cs {
		got[i] = fmt.Sprintf("  %s:%q @%d = %q", c.Family, c.Qualifier, c.Time, c.Value)
		if raw || c.Kind != cell.KindPut {
			got[i] += " " + c.Kind.String()
		}
	}
	return got
}

// expected returns what an op must give, in the form that do returns.
func (r *caseRun) expected(o *op) (any, error) {
	var code struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(o.Expect, &code) == nil && code.Error != "" {
		return map[string]any{"error": code.Error}, nil
	}
	if o.buffered() {
		return expectedFailures(o)
	}
	var yes bool
	if json.Unmarshal(o.Expect, &yes) == nil {
		return yes, nil
	}
	if o.administers() {
		return r.administered(o)
	}
	if o.Op == "batch" {
		var codes []string
		err := json.Unmarshal(o.Expect, &codes)
		return codes, err
	}
	want := []string{}
	if o.Op != "scan" {
		return r.appendExpected(want, o.Expect)
	}
	var rows [][2]json.RawMessage
	if err := json.Unmarshal(o.Expect, &rows); err != nil {
		return nil, err
	}
	for _, row := range rows {
		var key string
		if err := json.Unmarshal(row[0], &key); err != nil {
			return nil, err
		}
		want = append(want, fmt.Sprintf("%q", r.bytes(key)))
		var err error
		if want, err = r.appendExpected(want, row[1]); err != nil {
			return nil, err
		}
	}
	return want, nil
}

func (r *caseRun) appendExpected(want []string, b json.RawMessage) ([]string, error) {
	var all [][]any
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	for _, c := range all {
		if len(c) < 3 {
			return nil, fmt.Errorf("cell %v", c)
		}
		column := r.column(c[0].(string))
		at := c[1].(float64)
		if at != math.Trunc(at) || at > 1<<53 {
			return nil, fmt.Errorf("timestamp %v", at)
		}
		s := fmt.Sprintf("  %s:%q @%d = %q", column.Family, column.Qualifier, int64(at), r.bytes(c[2].(string)))
		if len(c) > 3 {
			s += " " + c[3].(string)
		}
		want = append(want, s)
	}
	return want, nil
}
