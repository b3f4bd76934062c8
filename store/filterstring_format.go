package store

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// FormatFilterString writes f in the filter language, so that ParseFilterString
// reads the same filter back; a list of one filter is written as that filter.
// Bytes are written as they are: the string is UTF-8 where all of them are. The
// error wraps ErrInvalidArgument where f is wrong, ErrUnsupported where it has no
// string form, as in HBase: filters and comparators that ParseFilter does not
// register, an empty list, an empty bound of a range (which reads as open).
func FormatFilterString(f Filter) (string, error) {
	var w filterWriter
	w.filter(f, precedenceOr, 0)
	if w.err != nil {
		return "", w.err
	}
	if _, err := f.Start(&Scan{}); err != nil {
		return "", err
	}
	return w.b.String(), nil
}

// How tightly a place binds: what binds less needs parentheses there.
const (
	precedenceOr = iota
	precedenceAnd
	precedenceUnit
)

// filterWriter writes the filter language; the first error stays.
type filterWriter struct {
	b   strings.Builder
	err error
}

func (w *filterWriter) unsupported(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("filter string of %s: %w", fmt.Sprintf(format, args...), ErrUnsupported)
	}
}

// filter writes f, which stands inside depth levels, where precedence is needed.
func (w *filterWriter) filter(f Filter, precedence, depth int) {
	if depth == maxFilterNesting {
		w.unsupported("more than %d levels of filters", maxFilterNesting)
		return
	}
	switch f := f.(type) {
	case *FilterList:
		w.list(f, precedence, depth)
	case *SkipFilter:
		w.b.WriteString("SKIP ")
		w.filter(f.Filter, precedenceUnit, depth+1)
	case *WhileMatchFilter:
		w.b.WriteString("WHILE ")
		w.filter(f.Filter, precedenceUnit, depth+1)
	case *KeyOnlyFilter:
		if f.LengthAsValue {
			w.call("KeyOnlyFilter", true)
		} else {
			w.call("KeyOnlyFilter")
		}
	case *FirstKeyOnlyFilter:
		w.call("FirstKeyOnlyFilter")
	case *PrefixFilter:
		w.call("PrefixFilter", f.Prefix)
	case *ColumnPrefixFilter:
		w.call("ColumnPrefixFilter", f.Prefix)
	case *MultipleColumnPrefixFilter:
		args := make([]any, len(f.Prefixes))
		for i, p := range f.Prefixes {
			args[i] = p
		}
		w.call("MultipleColumnPrefixFilter", args...)
	case *ColumnCountGetFilter:
		w.call("ColumnCountGetFilter", f.Limit)
	case *ColumnPaginationFilter:
		if f.ColumnOffset != nil {
			w.unsupported("a ColumnPaginationFilter with a column offset")
		}
		w.call("ColumnPaginationFilter", f.Limit, f.Offset)
	case *PageFilter:
		w.call("PageFilter", f.PageSize)
	case *InclusiveStopFilter:
		w.call("InclusiveStopFilter", f.Row)
	case *TimestampsFilter:
		args := make([]any, len(f.Timestamps))
		for i, t := range f.Timestamps {
			args[i] = int64(t)
		}
		w.call("TimestampsFilter", args...)
	case *RowFilter:
		w.call("RowFilter", f.Op, f.Comparator)
	case *FamilyFilter:
		w.call("FamilyFilter", f.Op, f.Comparator)
	case *QualifierFilter:
		w.call("QualifierFilter", f.Op, f.Comparator)
	case *ValueFilter:
		w.call("ValueFilter", f.Op, f.Comparator)
	case *ColumnRangeFilter:
		if f.Min != nil && len(f.Min) == 0 || f.Max != nil && len(f.Max) == 0 {
			w.unsupported("a ColumnRangeFilter with an empty bound")
		}
		w.call("ColumnRangeFilter", f.Min, f.MinInclusive, f.Max, f.MaxInclusive)
	case *SingleColumnValueFilter:
		w.singleColumnValue("SingleColumnValueFilter", f)
	case *SingleColumnValueExcludeFilter:
		w.singleColumnValue("SingleColumnValueExcludeFilter", &f.SingleColumnValueFilter)
	case *DependentColumnFilter:
		args := []any{[]byte(f.Family), f.Qualifier}
		if f.DropDependent || f.Op != 0 {
			args = append(args, f.DropDependent)
		}
		if f.Op != 0 {
			args = append(args, f.Op, f.Comparator)
		}
		w.call("DependentColumnFilter", args...)
	case *ColumnValueFilter:
		w.call("ColumnValueFilter", []byte(f.Family), f.Qualifier, f.Op, f.Comparator)
	default:
		w.unsupported("%s", strings.TrimPrefix(fmt.Sprintf("%T", f), "*store."))
	}
}

func (w *filterWriter) list(f *FilterList, precedence, depth int) {
	if len(f.Filters) == 0 {
		w.unsupported("an empty FilterList")
		return
	}
	if len(f.Filters) == 1 {
		w.filter(f.Filters[0], precedence, depth+1)
		return
	}
	own, keyword := precedenceAnd, " AND "
	if f.MustPassOne {
		own, keyword = precedenceOr, " OR "
	}
	if own < precedence {
		depth++
		w.b.WriteByte('(')
		defer w.b.WriteByte(')')
	}
	for i, m := range f.Filters {
		if i > 0 {
			w.b.WriteString(keyword)
		}
		w.filter(m, own+1, depth)
	}
}

func (w *filterWriter) singleColumnValue(name string, f *SingleColumnValueFilter) {
	args := []any{[]byte(f.Family), f.Qualifier, f.Op, f.Comparator}
	if f.FilterIfMissing || f.AnyVersion {
		args = append(args, f.FilterIfMissing, !f.AnyVersion)
	}
	w.call(name, args...)
}

// call writes one filter with arguments of the types []byte, bool, int,
// int64, CompareOp and Comparator; a Comparator follows its CompareOp.
func (w *filterWriter) call(name string, args ...any) {
	w.b.WriteString(name)
	w.b.WriteByte('(')
	var op CompareOp
	for i, arg := range args {
		if i > 0 {
			w.b.WriteString(", ")
		}
		switch arg := arg.(type) {
		case []byte:
			w.quote("", arg)
		case bool:
			w.b.WriteString(strconv.FormatBool(arg))
		case int:
			if arg > math.MaxInt32 {
				w.unsupported("%s with %d, more than 32 bits", name, arg)
			}
			w.b.WriteString(strconv.Itoa(arg))
		case int64:
			w.b.WriteString(strconv.FormatInt(arg, 10))
		case CompareOp:
			if op = arg; op < Less || op > Greater {
				w.unsupported("%s with the comparison %s", name, op)
				return
			}
			w.b.WriteString(opSymbols[op])
		case Comparator:
			w.comparator(name, op, &arg)
		}
	}
	w.b.WriteByte(')')
}

func (w *filterWriter) comparator(name string, op CompareOp, c *Comparator) {
	if !ordered(c.Type) && op != Equal && op != NotEqual {
		w.unsupported("%s with the comparison %s and the comparator %q", name, op, c.Type)
	}
	for _, form := range comparatorForms {
		if value, ok := bytes.CutPrefix(c.Value, []byte(form.value)); ok && form.typ == c.Type {
			w.quote(form.prefix, value)
			return
		}
	}
	w.unsupported("%s with the comparator %q", name, c.Type)
}

func (w *filterWriter) quote(prefix string, b []byte) {
	w.b.WriteByte('\'')
	w.b.WriteString(prefix)
	w.b.WriteString(strings.ReplaceAll(string(b), "'", "''"))
	w.b.WriteByte('\'')
}
