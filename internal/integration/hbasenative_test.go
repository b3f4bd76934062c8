//go:build integration

package integration

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/bare"
)

// nativeHBase asks an unframed gateway for scans of which HBase itself evaluates the
// filter, whatever it is: as protobuf (Filter.proto and Comparator.proto of HBase 2.6).
// store/hbasestore never does that. One goroutine uses it.
type nativeHBase struct {
	address string
	client  *bare.Client // nil = to be made
}

// nativePatience bounds a call: some scans end in a retry of every exception.
const nativePatience = 4 * time.Second

// nativeRows bounds the rows of a scan.
const nativeRows = 10_000

func (n *nativeHBase) close() error {
	if n.client == nil {
		return nil
	}
	defer func() { n.client = nil }()
	return n.client.Close()
}

// scan returns the results of a scan without limits a family.
func (n *nativeHBase) scan(ctx context.Context, s *store.Scan) ([]cell.Row, error) {
	filter, err := nativeFilter(s.Filter)
	if err != nil {
		return nil, err
	}
	if n.client == nil {
		if n.client, err = bare.Dial(n.address, false, nativePatience); err != nil {
			return nil, err
		}
	}
	rows, err := n.client.Results(ctx, s, filter, nativeRows)
	if err != nil { // of HBase, or of the connection, on which the answer may still come
		return nil, errors.Join(err, n.close())
	}
	return rows, nil
}

// message is a protobuf message in the making.
type message []byte

func (m message) bytes(field protowire.Number, b []byte) message {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), b)
}

func (m message) number(field protowire.Number, n int64) message {
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), uint64(n))
}

func (m message) yes(field protowire.Number, is bool) message {
	return m.number(field, int64(protowire.EncodeBool(is)))
}

// named is a Filter or a Comparator: the name of a class and what it reads itself.
func named(class string, content message) message {
	return message(nil).bytes(1, []byte("org.apache.hadoop.hbase.filter."+class)).bytes(2, content)
}

// nativeFilter returns f as HBase's protobuf; nil = none.
func nativeFilter(f store.Filter) (message, error) {
	var m message
	var failed error
	comparator := func(c store.Comparator) message {
		b, err := nativeComparator(c)
		failed = errors.Join(failed, err)
		return b
	}
	inner := func(f store.Filter) message {
		b, err := nativeFilter(f)
		failed = errors.Join(failed, err)
		return b
	}
	op := func(o store.CompareOp) int64 { return int64(o - store.Less) }
	compare := func(o store.CompareOp, c store.Comparator) message {
		return message(nil).number(1, op(o)).bytes(2, comparator(c))
	}
	single := func(f *store.SingleColumnValueFilter) message {
		return message(nil).bytes(1, []byte(f.Family)).bytes(2, f.Qualifier).number(3, op(f.Op)).bytes(4, comparator(f.Comparator)).
			yes(5, f.FilterIfMissing).yes(6, !f.AnyVersion)
	}
	name := strings.TrimPrefix(fmt.Sprintf("%T", f), "*store.")
	switch f := f.(type) {
	case nil:
		return nil, nil
	case *store.RowFilter:
		m = m.bytes(1, compare(f.Op, f.Comparator))
	case *store.FamilyFilter:
		m = m.bytes(1, compare(f.Op, f.Comparator))
	case *store.QualifierFilter:
		m = m.bytes(1, compare(f.Op, f.Comparator))
	case *store.ValueFilter:
		m = m.bytes(1, compare(f.Op, f.Comparator))
	case *store.SingleColumnValueFilter:
		m = single(f)
	case *store.SingleColumnValueExcludeFilter:
		m = m.bytes(1, single(&f.SingleColumnValueFilter))
	case *store.ColumnValueFilter:
		m = m.bytes(1, []byte(f.Family)).bytes(2, f.Qualifier).number(3, op(f.Op)).bytes(4, comparator(f.Comparator))
	case *store.DependentColumnFilter:
		by := message(nil).number(1, op(store.NoOp))
		if f.Op != 0 {
			by = compare(f.Op, f.Comparator)
		}
		m = m.bytes(1, by).bytes(2, []byte(f.Family)).bytes(3, f.Qualifier).yes(4, f.DropDependent)
	case *store.PrefixFilter:
		m = m.bytes(1, f.Prefix)
	case *store.InclusiveStopFilter:
		m = m.bytes(1, f.Row)
	case *store.PageFilter:
		m = m.number(1, f.PageSize)
	case *store.ColumnPrefixFilter:
		m = m.bytes(1, f.Prefix)
	case *store.MultipleColumnPrefixFilter:
		for _, p := range f.Prefixes {
			m = m.bytes(1, p)
		}
	case *store.ColumnRangeFilter:
		if f.Min != nil {
			m = m.bytes(1, f.Min)
		}
		m = m.yes(2, f.MinInclusive)
		if f.Max != nil {
			m = m.bytes(3, f.Max)
		}
		m = m.yes(4, f.MaxInclusive)
	case *store.ColumnCountGetFilter:
		m = m.number(1, int64(f.Limit))
	case *store.ColumnPaginationFilter:
		m = m.number(1, int64(f.Limit))
		if f.ColumnOffset != nil {
			m = m.bytes(3, f.ColumnOffset)
		} else {
			m = m.number(2, int64(f.Offset))
		}
	case *store.FirstKeyOnlyFilter:
	case *store.FirstKeyValueMatchingQualifiersFilter:
		for _, q := range f.Qualifiers {
			m = m.bytes(1, q)
		}
	case *store.KeyOnlyFilter:
		m = m.yes(1, f.LengthAsValue)
	case *store.TimestampsFilter:
		for _, t := range f.Timestamps {
			m = m.number(1, int64(t))
		}
	case *store.FuzzyRowFilter:
		for _, p := range f.Pairs {
			m = m.bytes(1, message(nil).bytes(1, p.Key).bytes(2, p.Mask))
		}
		m = m.yes(2, true) // is_mask_v2: else a mask of zeros is one of wildcards
	case *store.MultiRowRangeFilter:
		for _, r := range f.Ranges {
			m = m.bytes(1, message(nil).bytes(1, r.Start).yes(2, !r.StartExclusive).bytes(3, r.Stop).yes(4, r.StopInclusive))
		}
	case *store.SkipFilter:
		m = m.bytes(1, inner(f.Filter))
	case *store.WhileMatchFilter:
		m = m.bytes(1, inner(f.Filter))
	case *store.FilterList:
		m = m.number(1, 1)
		if f.MustPassOne {
			m = message(nil).number(1, 2)
		}
		for _, member := range f.Filters {
			m = m.bytes(2, inner(member))
		}
	default:
		return nil, fmt.Errorf("no protobuf of %T", f)
	}
	return named(name, m), failed
}

func nativeComparator(c store.Comparator) (message, error) {
	plain := func(class string, value []byte) message {
		return named(class, message(nil).bytes(1, message(nil).bytes(1, value)))
	}
	switch c.Type {
	case store.CompareBinary:
		return plain("BinaryComparator", c.Value), nil
	case store.CompareBinaryPrefix:
		return plain("BinaryPrefixComparator", c.Value), nil
	case store.CompareBinaryComponent:
		return named("BinaryComponentComparator", message(nil).bytes(1, c.Value).number(2, int64(c.Offset))), nil
	case store.CompareRegex:
		const dotAll = 32
		return named("RegexStringComparator", message(nil).bytes(1, c.Value).number(2, dotAll).bytes(3, []byte("UTF-8"))), nil
	case store.CompareSubstring:
		return named("SubstringComparator", message(nil).bytes(1, c.Value)), nil
	case store.CompareBit:
		ops := map[string]int64{"AND": 1, "OR": 2, "XOR": 3}
		return named("BitComparator", message(nil).bytes(1, message(nil).bytes(1, c.Value)).number(2, ops[c.BitOp])), nil
	case store.CompareLong:
		n, err := strconv.ParseInt(string(c.Value), 10, 64)
		return plain("LongComparator", binary.BigEndian.AppendUint64(nil, uint64(n))), err
	case store.CompareBigDecimal:
		n, err := strconv.ParseInt(string(c.Value), 10, 8) // of scale 0
		return plain("BigDecimalComparator", []byte{0, 0, 0, 0, byte(n)}), err
	case store.CompareNull:
		return named("NullComparator", nil), nil
	}
	return nil, fmt.Errorf("no protobuf of comparator %s", c.Type)
}
