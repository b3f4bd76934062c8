package hbasestore

import (
	"bytes"
	"slices"

	"sluice/cell"
	"sluice/store"
)

// pushed is what HBase is sent of a filter.
type pushed struct {
	text string // in the filter language; "" = nothing
	// whole says that HBase drops all that the filter drops, so that it may
	// count versions; else it must send all that the family keeps.
	whole bool
}

// push returns what HBase can evaluate of f, which is evaluated here again: f must
// pass of what passed in HBase what it would have passed of everything. That leaves
// out filters that count (HBase begins anew in every region), that change cells, or
// that judge a row by cells which they drop or which versions hide. counted says that
// versions are counted before they are filtered (NEW_VERSION_BEHAVIOR): where they are
// counted here, HBase must not drop newer ones.
func push(f store.Filter, counted bool) pushed {
	switch {
	case f == nil:
		return pushed{whole: true}
	case repeatable(f):
		if text, err := store.FormatFilterString(unhinted(f)); err == nil {
			return pushed{text, true}
		}
	}
	list, ok := f.(*store.FilterList)
	if !ok || list.MustPassOne || !perCell(f) {
		return pushed{} // a member that counts must see what the others drop
	}
	some := &store.FilterList{}
	for _, m := range list.Filters {
		if sameInHBase(m) && (!counted || perColumn(m)) {
			m = unhinted(m)
			if _, err := store.FormatFilterString(m); err == nil {
				some.Filters = append(some.Filters, m)
			}
		}
	}
	if text, err := store.FormatFilterString(some); err == nil && len(some.Filters) > 0 {
		return pushed{text: text}
	}
	return pushed{}
}

// unhinted returns f, of which all is perCell, without filters that tell HBase the column to
// go on at: from a put of the column without a qualifier HBase (2.6) goes there past the
// markers of its family that are older than that put, and returns what they mask.
func unhinted(f store.Filter) store.Filter {
	qualifier := func(op store.CompareOp, t store.ComparatorType, value []byte) store.Filter {
		return &store.QualifierFilter{Op: op, Comparator: store.Comparator{Type: t, Value: value}}
	}
	list := &store.FilterList{}
	switch f := f.(type) {
	case *store.ColumnPrefixFilter:
		return qualifier(store.Equal, store.CompareBinaryPrefix, f.Prefix)
	case *store.MultipleColumnPrefixFilter:
		list.MustPassOne = true
		for _, p := range f.Prefixes {
			list.Filters = append(list.Filters, qualifier(store.Equal, store.CompareBinaryPrefix, p))
		}
	case *store.ColumnRangeFilter:
		above, below := store.Greater, store.Less
		if f.MinInclusive {
			above = store.GreaterOrEqual
		}
		if f.MaxInclusive {
			below = store.LessOrEqual
		}
		if f.Min != nil {
			list.Filters = append(list.Filters, qualifier(above, store.CompareBinary, f.Min))
		}
		if f.Max != nil {
			list.Filters = append(list.Filters, qualifier(below, store.CompareBinary, f.Max))
		}
	case *store.FilterList:
		list.MustPassOne = f.MustPassOne
		for _, m := range f.Filters {
			list.Filters = append(list.Filters, unhinted(m))
		}
	default:
		return f
	}
	if len(list.Filters) == 0 {
		return f // passes all, and so hints nothing
	}
	return list
}

// onDemand reports whether HBase, by default, reads a family only of rows that f, where it
// is sent, has passed by another one, which it refuses to do in a reversed scan.
func onDemand(f store.Filter, family string) bool {
	s, ok := f.(*store.SingleColumnValueFilter)
	return ok && s.FilterIfMissing && s.Family != family
}

// pushRows is push where cells are added up before f judges them: what judges rows
// alone, and the columns that are wanted (nil = all).
func pushRows(f store.Filter, columns *store.MultipleColumnPrefixFilter) pushed {
	some := &store.FilterList{}
	rows := func(f store.Filter) {
		switch f := f.(type) {
		case *store.PrefixFilter:
			some.Filters = append(some.Filters, f)
		case *store.RowFilter:
			if sameComparison(f.Comparator) {
				some.Filters = append(some.Filters, f)
			}
		}
	}
	rows(f)
	if list, ok := f.(*store.FilterList); ok && !list.MustPassOne && perCell(f) {
		for _, m := range list.Filters {
			rows(m)
		}
	}
	if columns != nil {
		some.Filters = append(some.Filters, columns)
	}
	if text, err := store.FormatFilterString(some); err == nil && len(some.Filters) > 0 {
		return pushed{text: text}
	}
	return pushed{}
}

// counterColumns returns the filter of the columns that a scan of COUNTER and DISTINCT
// families names, nil where it reads others, too.
func counterColumns(families []store.SelectedFamily) *store.MultipleColumnPrefixFilter {
	f := &store.MultipleColumnPrefixFilter{}
	for _, sf := range families {
		if !sf.Family.InPlace() || sf.Qualifiers == nil {
			return nil
		}
		for _, q := range sf.Qualifiers {
			f.Prefixes = append(f.Prefixes, cell.AppendPart(nil, q))
		}
	}
	return f
}

// repeatable reports whether HBase evaluates f as it is evaluated here, and f passes
// of what it has passed everything.
func repeatable(f store.Filter) bool {
	switch f := f.(type) {
	case *store.FirstKeyOnlyFilter:
		return true
	case *store.SingleColumnValueFilter:
		return !f.AnyVersion && sameComparison(f.Comparator)
	}
	return perCell(f) && sameInHBase(f)
}

// perCell reports whether f judges each cell by itself.
func perCell(f store.Filter) bool {
	switch f := f.(type) {
	case *store.PrefixFilter, *store.ColumnPrefixFilter, *store.MultipleColumnPrefixFilter, *store.ColumnRangeFilter, *store.TimestampsFilter,
		*store.RowFilter, *store.FamilyFilter, *store.QualifierFilter, *store.ValueFilter:
		return true
	case *store.FilterList:
		return len(f.Filters) > 0 && !slices.ContainsFunc(f.Filters, func(m store.Filter) bool { return !perCell(m) || f.MustPassOne && leaves(m) })
	}
	return false
}

// perColumn reports whether f, which judges cells, judges all versions of a column alike.
func perColumn(f store.Filter) bool {
	switch f := f.(type) {
	case *store.ValueFilter, *store.TimestampsFilter:
		return false
	case *store.FilterList:
		return !slices.ContainsFunc(f.Filters, func(m store.Filter) bool { return !perColumn(m) })
	}
	return true
}

// leaves reports whether HBase's f, having seen a column, says that its row has no
// more. It is asked about the row's other families nevertheless, but not where it is
// in a list of which one must pass: that does not ask who has left a row.
func leaves(f store.Filter) bool {
	switch f := f.(type) {
	case *store.ColumnPrefixFilter, *store.MultipleColumnPrefixFilter, *store.ColumnRangeFilter, *store.FamilyFilter:
		return true
	case *store.FilterList:
		return slices.ContainsFunc(f.Filters, leaves)
	}
	return false
}

// sameInHBase reports whether HBase compares as f, which judges cells, does.
func sameInHBase(f store.Filter) bool {
	switch f := f.(type) {
	case *store.MultipleColumnPrefixFilter:
		return !nested(f.Prefixes)
	case *store.RowFilter:
		return sameComparison(f.Comparator)
	case *store.FamilyFilter:
		return sameComparison(f.Comparator)
	case *store.QualifierFilter:
		return sameComparison(f.Comparator)
	case *store.ValueFilter:
		return sameComparison(f.Comparator)
	case *store.FilterList:
		return !slices.ContainsFunc(f.Filters, func(m store.Filter) bool { return !sameInHBase(m) })
	}
	return true
}

// nested reports whether one of prefixes begins with another. HBase's filter looks at
// the last one before a column alone then, and leaves the row where that is no prefix
// of it.
func nested(prefixes [][]byte) bool {
	for i, p := range prefixes {
		for j, o := range prefixes {
			if i != j && bytes.HasPrefix(p, o) {
				return true
			}
		}
	}
	return false
}

// sameComparison reports whether HBase compares as c does. Java's regular
// expressions and its lower case are not Go's.
func sameComparison(c store.Comparator) bool {
	return c.Type == store.CompareBinary || c.Type == store.CompareBinaryPrefix
}
