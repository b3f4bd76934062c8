//go:build integration

package integration

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strconv"

	"sluice/cell"
	"sluice/store"
)

// filterCases draws tables, scans and filters.
type filterCases struct {
	*rand.Rand
	values valueKind
}

// valueKind is what all values of a table are: HBase's comparators of numbers, and those
// of a part of a value, fail on others or read beyond them.
type valueKind int

const (
	anyBytes valueKind = iota
	longs
	decimals
)

// What filters and tables are made of: few of each, so that they meet.
var (
	filterRows       = [][]byte{[]byte("a"), []byte("a\x00"), []byte("ab"), []byte("abc"), []byte("b"), []byte("ba"), []byte("bb"), []byte("c"), []byte("\xff"), []byte("\xff\xff")}
	filterQualifiers = [][]byte{{}, []byte("a"), []byte("ab"), []byte("b"), []byte("q"), []byte("\xff")}
	filterFamilies   = []string{"f", "g", "h"}
	filterValues     = [...][][]byte{
		anyBytes: {{}, []byte("a"), []byte("A"), []byte("ab"), []byte("b"), {0x80}},
		longs:    {long(-1), long(0), long(7), long(1 << 40)},
		decimals: {{0, 0, 0, 0, 7}, {0, 0, 0, 1, 70}, {0, 0, 0, 0, 0xfd}, {0, 0, 0, 2, 1, 0}}, // 7, 7.0, -3, 2.56
	}
)

const (
	filterTimes = 6 // from 1 on
	filterDepth = 3
)

func long(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func (r filterCases) yes() bool          { return r.IntN(2) == 0 }
func (r filterCases) oneIn(n int) bool   { return r.IntN(n) == 0 }
func (r filterCases) row() []byte        { return pick(r, filterRows) }
func (r filterCases) qualifier() []byte  { return pick(r, filterQualifiers) }
func (r filterCases) family() string     { return pick(r, filterFamilies) }
func (r filterCases) value() []byte      { return pick(r, filterValues[r.values]) }
func (r filterCases) at() cell.Timestamp { return cell.Timestamp(1 + r.IntN(filterTimes)) }

func pick[T any](r filterCases, of []T) T { return of[r.IntN(len(of))] }

// table draws a table of at least one family.
func (r filterCases) table(name string) *store.TableDescriptor {
	d := &store.TableDescriptor{Name: name}
	for _, name := range filterFamilies[:1+r.IntN(len(filterFamilies))] {
		f := store.NewFamily(name)
		f.Versions = 1 + r.IntN(3)
		if r.oneIn(6) {
			f.NewVersionBehavior = true
		}
		if r.oneIn(6) {
			f.KeepDeleted = store.KeepDeletedTrue
		}
		d.Families = append(d.Families, f)
	}
	return d
}

// mutations draws what is written to d, in this order.
func (r filterCases) mutations(d *store.TableDescriptor) []*cell.Mutation {
	var ms []*cell.Mutation
	markers := r.yes()
	unnamed := map[string]bool{} // columns without a qualifier, by row and family
	for range 10 + r.IntN(30) {
		f := &d.Families[r.IntN(len(d.Families))]
		m := &cell.Mutation{Table: d.Name, Row: r.row()}
		used := map[string]bool{}
		for range 1 + r.IntN(4) {
			q := r.qualifier()
			column := string(m.Row) + "/" + f.Name
			if f.NewVersionBehavior && (used[string(q)] || len(q) == 0 && unnamed[column]) { // docs/data-model.md
				continue
			}
			used[string(q)] = true
			unnamed[column] = unnamed[column] || len(q) == 0
			m.Put(f.Name, q, r.at(), r.value())
		}
		if len(m.Ops) == 0 {
			continue
		}
		ms = append(ms, m)
		if !r.oneIn(4) {
			continue
		}
		m = &cell.Mutation{Table: d.Name, Row: m.Row}
		kind := r.IntN(4)
		if !markers || f.NewVersionBehavior {
			kind = 2 + kind%2
		}
		switch q := r.qualifier(); kind {
		case 0:
			m.DeleteFamily(f.Name, r.at())
		case 1:
			m.DeleteFamilyVersion(f.Name, r.at())
		case 2:
			if len(q) > 0 || !f.NewVersionBehavior { // docs/operations.md
				m.DeleteColumn(f.Name, q, r.at())
			}
		default:
			if len(q) > 0 || !f.NewVersionBehavior {
				m.Delete(f.Name, q, r.at())
			}
		}
		if len(m.Ops) > 0 {
			ms = append(ms, m)
		}
	}
	return ms
}

// scan draws a scan of d with a filter.
func (r filterCases) scan(d *store.TableDescriptor) *store.Scan {
	s := &store.Scan{Table: d.Name, Reversed: r.oneIn(3), Versions: 1 + r.IntN(4), Filter: r.filter(filterDepth)}
	if r.oneIn(3) {
		s.Start, s.StartExclusive = r.row(), r.oneIn(4)
	}
	if r.oneIn(3) {
		s.Stop, s.StopInclusive = r.row(), r.yes()
	}
	times := func() cell.TimeRange {
		t := cell.TimeRange{Min: r.at()}
		t.Max = t.Min + cell.Timestamp(r.IntN(filterTimes))
		return t
	}
	if r.oneIn(5) {
		t := times()
		s.Time = &t
	}
	if r.oneIn(10) {
		s.FamilyTime = map[string]cell.TimeRange{d.Families[r.IntN(len(d.Families))].Name: times()}
	}
	if r.oneIn(3) {
		for range 1 + r.IntN(3) {
			s.Columns = append(s.Columns, store.Column{Family: d.Families[r.IntN(len(d.Families))].Name, Qualifier: r.qualifier(), All: r.yes()})
		}
	}
	if r.oneIn(5) {
		s.Limit = 1 + r.IntN(3)
	}
	if r.oneIn(8) {
		s.Batch = 1 + r.IntN(3)
	}
	if r.oneIn(8) {
		s.LimitPerFamily, s.OffsetPerFamily = r.IntN(3), r.IntN(2)
	}
	return s
}

func (r filterCases) op() store.CompareOp {
	return store.CompareOp(int(store.Less) + r.IntN(int(store.Greater)))
}

// comparator draws one of something like value.
func (r filterCases) comparator(value []byte) store.Comparator {
	switch r.IntN(12) {
	case 0, 1:
		return store.Comparator{Type: store.CompareBinaryPrefix, Value: value[:min(len(value), 1+r.IntN(2))]}
	case 2:
		return store.Comparator{Type: store.CompareSubstring, Value: pick(r, [][]byte{[]byte("a"), []byte("AB"), []byte("b")})}
	case 3:
		return store.Comparator{Type: store.CompareRegex, Value: pick(r, [][]byte{[]byte("^a"), []byte("b$"), []byte("a|c"), []byte("(?i)A"), []byte("^.$")})}
	case 4:
		return store.Comparator{Type: store.CompareBit, Value: value, BitOp: pick(r, []string{"AND", "OR", "XOR"})}
	case 5:
		return store.Comparator{Type: store.CompareNull}
	}
	return store.Binary(value)
}

// valueComparator draws one of a value.
func (r filterCases) valueComparator() store.Comparator {
	if v := r.value(); r.values != anyBytes && r.oneIn(4) {
		offset := r.IntN(3)
		return store.Comparator{Type: store.CompareBinaryComponent, Value: v[offset : offset+1+r.IntN(2)], Offset: offset}
	}
	switch {
	case r.values == longs && r.yes():
		return store.Comparator{Type: store.CompareLong, Value: strconv.AppendInt(nil, int64(r.IntN(10)-2), 10)}
	case r.values == decimals && r.yes():
		return store.Comparator{Type: store.CompareBigDecimal, Value: strconv.AppendInt(nil, int64(r.IntN(10)-4), 10)}
	}
	return r.comparator(r.value())
}

func (r filterCases) single() store.SingleColumnValueFilter {
	return store.SingleColumnValueFilter{
		Family: r.family(), Qualifier: r.qualifier(), Op: r.op(), Comparator: r.valueComparator(), FilterIfMissing: r.yes(), AnyVersion: r.oneIn(3),
	}
}

func (r filterCases) qualifiers() [][]byte {
	var some [][]byte
	for _, i := range r.Perm(len(filterQualifiers))[:1+r.IntN(3)] {
		some = append(some, filterQualifiers[i])
	}
	return some
}

// filter draws a filter, which may have others within where depth is above 0.
func (r filterCases) filter(depth int) store.Filter {
	if depth > 0 && r.oneIn(2) {
		switch r.IntN(6) {
		case 0:
			return &store.SkipFilter{Filter: r.filter(depth - 1)}
		case 1:
			return &store.WhileMatchFilter{Filter: r.filter(depth - 1)}
		}
		f := &store.FilterList{MustPassOne: r.yes()}
		for range 1 + r.IntN(3) {
			f.Filters = append(f.Filters, r.filter(depth-1))
		}
		return f
	}
	switch r.IntN(23) {
	case 0:
		return &store.RowFilter{Op: r.op(), Comparator: r.comparator(r.row())}
	case 1:
		return &store.FamilyFilter{Op: r.op(), Comparator: r.comparator([]byte(r.family()))}
	case 2:
		return &store.QualifierFilter{Op: r.op(), Comparator: r.comparator(r.qualifier())}
	case 3, 4:
		return &store.ValueFilter{Op: r.op(), Comparator: r.valueComparator()}
	case 5, 6:
		f := r.single()
		return &f
	case 7:
		return &store.SingleColumnValueExcludeFilter{SingleColumnValueFilter: r.single()}
	case 8:
		return &store.ColumnValueFilter{Family: r.family(), Qualifier: r.qualifier(), Op: r.op(), Comparator: r.valueComparator()}
	case 9:
		f := &store.DependentColumnFilter{Family: r.family(), Qualifier: r.qualifier(), DropDependent: r.yes()}
		if r.yes() {
			f.Op, f.Comparator = r.op(), r.valueComparator()
		}
		return f
	case 10:
		return &store.PrefixFilter{Prefix: r.row()}
	case 11:
		return &store.InclusiveStopFilter{Row: r.row()}
	case 12:
		return &store.PageFilter{PageSize: int64(r.IntN(4))}
	case 13:
		return &store.ColumnPrefixFilter{Prefix: r.qualifier()}
	case 14:
		return &store.MultipleColumnPrefixFilter{Prefixes: r.qualifiers()}
	case 15:
		f := &store.ColumnRangeFilter{MinInclusive: r.yes(), MaxInclusive: r.yes()}
		if !r.oneIn(4) {
			f.Min = r.qualifier()
		}
		if !r.oneIn(4) {
			f.Max = r.qualifier()
		}
		return f
	case 16:
		return &store.ColumnCountGetFilter{Limit: r.IntN(4)}
	case 17:
		if r.oneIn(3) {
			return &store.ColumnPaginationFilter{Limit: r.IntN(4), ColumnOffset: r.qualifier()}
		}
		return &store.ColumnPaginationFilter{Limit: r.IntN(4), Offset: r.IntN(3)}
	case 18:
		if r.yes() {
			return &store.FirstKeyOnlyFilter{}
		}
		return &store.FirstKeyValueMatchingQualifiersFilter{Qualifiers: r.qualifiers()}
	case 19:
		return &store.KeyOnlyFilter{LengthAsValue: r.yes()}
	case 20:
		f := &store.TimestampsFilter{}
		for range r.IntN(3) {
			f.Timestamps = append(f.Timestamps, r.at())
		}
		return f
	case 21:
		f := &store.FuzzyRowFilter{}
		for range 1 + r.IntN(2) {
			p := store.FuzzyPair{Key: r.row()}
			for range p.Key {
				p.Mask = append(p.Mask, byte(r.IntN(2)))
			}
			f.Pairs = append(f.Pairs, p)
		}
		return f
	}
	f := &store.MultiRowRangeFilter{}
	for range 1 + r.IntN(2) {
		w := store.RowRange{Start: r.row(), Stop: r.row(), StartExclusive: r.yes(), StopInclusive: true}
		if bytes.Compare(w.Start, w.Stop) > 0 {
			w.Start, w.Stop = w.Stop, w.Start
		}
		f.Ranges = append(f.Ranges, w)
	}
	return f
}

// smaller returns filters that are parts of f, or f without some.
func smaller(f store.Filter) []store.Filter {
	var all []store.Filter
	switch f := f.(type) {
	case *store.SkipFilter:
		all = append(all, f.Filter)
		for _, m := range smaller(f.Filter) {
			all = append(all, &store.SkipFilter{Filter: m})
		}
	case *store.WhileMatchFilter:
		all = append(all, f.Filter)
		for _, m := range smaller(f.Filter) {
			all = append(all, &store.WhileMatchFilter{Filter: m})
		}
	case *store.FilterList:
		all = append(all, f.Filters...)
		for i, member := range f.Filters {
			if len(f.Filters) > 1 {
				all = append(all, &store.FilterList{MustPassOne: f.MustPassOne, Filters: slices.Delete(slices.Clone(f.Filters), i, i+1)})
			}
			for _, m := range smaller(member) {
				members := slices.Clone(f.Filters)
				members[i] = m
				all = append(all, &store.FilterList{MustPassOne: f.MustPassOne, Filters: members})
			}
		}
	}
	return all
}

// smallerScans returns scans that have less to them than s.
func smallerScans(s *store.Scan) []*store.Scan {
	var all []*store.Scan
	with := func(is bool, change func(*store.Scan)) {
		if is {
			c := *s
			change(&c)
			all = append(all, &c)
		}
	}
	for _, f := range smaller(s.Filter) {
		with(true, func(c *store.Scan) { c.Filter = f })
	}
	with(s.Batch > 0, func(c *store.Scan) { c.Batch = 0 })
	with(s.Limit > 0, func(c *store.Scan) { c.Limit = 0 })
	with(s.LimitPerFamily+s.OffsetPerFamily > 0, func(c *store.Scan) { c.LimitPerFamily, c.OffsetPerFamily = 0, 0 })
	with(s.Time != nil, func(c *store.Scan) { c.Time = nil })
	with(s.FamilyTime != nil, func(c *store.Scan) { c.FamilyTime = nil })
	with(s.Reversed && len(s.Start)+len(s.Stop) == 0, func(c *store.Scan) { c.Reversed = false })
	with(s.Versions > 1, func(c *store.Scan) { c.Versions-- })
	with(s.Columns != nil, func(c *store.Scan) { c.Columns = nil })
	with(len(s.Start) > 0, func(c *store.Scan) { c.Start, c.StartExclusive = nil, false })
	with(len(s.Stop) > 0, func(c *store.Scan) { c.Stop, c.StopInclusive = nil, false })
	return all
}
