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

	"github.com/apache/thrift/lib/go/thrift"
	"google.golang.org/protobuf/encoding/protowire"

	"sluice/cell"
	"sluice/store"
)

// nativeHBase asks an unframed gateway for scans of which HBase itself evaluates the
// filter, whatever it is: as protobuf (Filter.proto and Comparator.proto of HBase 2.6).
// store/hbasestore never does that. One goroutine uses it.
type nativeHBase struct {
	address   string
	transport thrift.TTransport // nil = to be opened
	client    thrift.TClient
}

// nativePatience bounds a call: some scans end in a retry of every exception.
const nativePatience = 4 * time.Second

// errNative is HBase's refusal of a scan.
var errNative = errors.New("HBase refuses the scan")

func (n *nativeHBase) open() error {
	conf := &thrift.TConfiguration{ConnectTimeout: nativePatience, SocketTimeout: nativePatience}
	t := thrift.NewTBufferedTransport(thrift.NewTSocketConf(n.address, conf), 64<<10)
	p := thrift.NewTBinaryProtocolConf(t, conf)
	if err := t.Open(); err != nil {
		return err
	}
	n.transport, n.client = t, thrift.NewTStandardClient(p, p)
	return nil
}

func (n *nativeHBase) close() error {
	if n.transport == nil {
		return nil
	}
	defer func() { n.transport = nil }()
	return n.transport.Close()
}

// nativeRows bounds the rows of a scan.
const nativeRows = 10_000

// scan returns the results of a scan without limits a family. Its error wraps errNative
// where HBase has answered with one.
func (n *nativeHBase) scan(ctx context.Context, s *store.Scan) ([]cell.Row, error) {
	filter, err := nativeFilter(s.Filter)
	if err != nil {
		return nil, err
	}
	if n.transport == nil {
		if err := n.open(); err != nil {
			return nil, err
		}
	}
	r := &nativeReply{}
	if _, err := n.client.Call(ctx, "getScannerResults", &nativeScan{s, filter}, r); err != nil {
		var refused thrift.TApplicationException
		if errors.As(err, &refused) {
			return nil, fmt.Errorf("%w: %w", errNative, err)
		}
		return nil, errors.Join(err, n.close())
	}
	if r.message != "" {
		reason, _, _ := strings.Cut(r.message, "\n")
		return nil, fmt.Errorf("%w: %s", errNative, reason)
	}
	return r.rows, nil
}

// nativeScan is the arguments of getScannerResults.
type nativeScan struct {
	*store.Scan
	filter []byte
}

func (s *nativeScan) Read(context.Context, thrift.TProtocol) error {
	return errors.New("arguments are not read")
}

// Write implements thrift.TStruct. An error of the transport stays until its flush.
func (s *nativeScan) Write(ctx context.Context, p thrift.TProtocol) error {
	w := &nativeWriter{ctx, p, nil}
	w.bytes(1, []byte(s.Table))
	w.field(thrift.STRUCT, 2)
	w.scan(s)
	w.number(3, nativeRows)
	w.end()
	return w.err
}

type nativeWriter struct {
	ctx context.Context
	p   thrift.TProtocol
	err error // the first
}

func (w *nativeWriter) do(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *nativeWriter) field(t thrift.TType, id int16) { w.do(w.p.WriteFieldBegin(w.ctx, "", t, id)) }
func (w *nativeWriter) end()                           { w.do(w.p.WriteFieldStop(w.ctx)) }

func (w *nativeWriter) bytes(id int16, b []byte) {
	w.field(thrift.STRING, id)
	w.do(w.p.WriteBinary(w.ctx, b))
}

func (w *nativeWriter) number(id int16, n int) {
	w.field(thrift.I32, id)
	w.do(w.p.WriteI32(w.ctx, int32(n)))
}

func (w *nativeWriter) times(r cell.TimeRange) {
	for i, t := range []cell.Timestamp{r.Min, r.Max} {
		w.field(thrift.I64, int16(i+1))
		w.do(w.p.WriteI64(w.ctx, int64(t)))
	}
	w.end()
}

// scan writes a TScan. A gateway's has an inclusive start and an exclusive stop.
func (w *nativeWriter) scan(s *nativeScan) {
	after := func(row []byte, is bool) []byte {
		if is && len(row) > 0 {
			return append(row[:len(row):len(row)], 0)
		}
		return row
	}
	w.bytes(1, after(s.Start, s.StartExclusive))
	w.bytes(2, after(s.Stop, s.StopInclusive))
	if len(s.Columns) > 0 {
		w.field(thrift.LIST, 3)
		w.do(w.p.WriteListBegin(w.ctx, thrift.STRUCT, len(s.Columns)))
		for _, c := range s.Columns {
			w.bytes(1, []byte(c.Family))
			if !c.All {
				w.bytes(2, c.Qualifier)
			}
			w.end()
		}
	}
	w.number(4, nativeRows)
	w.number(5, max(s.Versions, 1))
	if s.Time != nil {
		w.field(thrift.STRUCT, 6)
		w.times(*s.Time)
	}
	if s.Batch > 0 {
		w.number(8, s.Batch)
	}
	if s.Raw {
		w.field(thrift.MAP, 9)
		w.do(w.p.WriteMapBegin(w.ctx, thrift.STRING, thrift.STRING, 1))
		w.do(w.p.WriteBinary(w.ctx, []byte("_raw_")))
		w.do(w.p.WriteBinary(w.ctx, []byte{0xff}))
	}
	w.field(thrift.BOOL, 11)
	w.do(w.p.WriteBool(w.ctx, s.Reversed))
	if len(s.FamilyTime) > 0 {
		w.field(thrift.MAP, 13)
		w.do(w.p.WriteMapBegin(w.ctx, thrift.STRING, thrift.STRUCT, len(s.FamilyTime)))
		for f, r := range s.FamilyTime {
			w.do(w.p.WriteBinary(w.ctx, []byte(f)))
			w.times(r)
		}
	}
	if s.Limit > 0 {
		w.number(15, s.Limit)
	}
	if s.filter != nil {
		w.bytes(18, s.filter)
	}
	w.end()
}

// nativeReply is the answer of getScannerResults.
type nativeReply struct {
	rows    []cell.Row
	message string // of a TIOError
}

func (r *nativeReply) Write(context.Context, thrift.TProtocol) error {
	return errors.New("an answer is not written")
}

// Read implements thrift.TStruct.
func (r *nativeReply) Read(ctx context.Context, p thrift.TProtocol) error {
	return nativeFields(ctx, p, func(_ thrift.TType, id int16) error {
		if id == 0 {
			return nativeList(ctx, p, func() error {
				var row cell.Row
				err := readNativeRow(ctx, p, &row)
				r.rows = append(r.rows, row)
				return err
			})
		}
		r.message = "without a message"
		return nativeFields(ctx, p, func(t thrift.TType, id int16) (err error) {
			if id == 1 {
				r.message, err = p.ReadString(ctx)
				return err
			}
			return p.Skip(ctx, t)
		})
	})
}

func nativeFields(ctx context.Context, p thrift.TProtocol, read func(t thrift.TType, id int16) error) error {
	for {
		_, t, id, err := p.ReadFieldBegin(ctx)
		if err != nil || t == thrift.STOP {
			return err
		}
		if err := read(t, id); err != nil {
			return err
		}
	}
}

func nativeList(ctx context.Context, p thrift.TProtocol, read func() error) error {
	_, n, err := p.ReadListBegin(ctx)
	for ; n > 0 && err == nil; n-- {
		err = read()
	}
	return err
}

func readNativeRow(ctx context.Context, p thrift.TProtocol, row *cell.Row) error {
	return nativeFields(ctx, p, func(t thrift.TType, id int16) (err error) {
		switch id {
		case 1:
			row.Key, err = p.ReadBinary(ctx)
			return err
		case 2:
			return nativeList(ctx, p, func() error {
				var c cell.Cell
				err := readNativeCell(ctx, p, &c)
				row.Cells = append(row.Cells, c)
				return err
			})
		}
		return p.Skip(ctx, t)
	})
}

func readNativeCell(ctx context.Context, p thrift.TProtocol, c *cell.Cell) error {
	c.Kind = cell.KindPut
	return nativeFields(ctx, p, func(t thrift.TType, id int16) (err error) {
		switch id {
		case 1:
			c.Family, err = p.ReadString(ctx)
		case 2:
			c.Qualifier, err = p.ReadBinary(ctx)
		case 3:
			c.Value, err = p.ReadBinary(ctx)
		case 4:
			var at int64
			at, err = p.ReadI64(ctx)
			c.Time = cell.Timestamp(at)
		case 6:
			var kind int8
			kind, err = p.ReadByte(ctx)
			c.Kind = cell.Kind(kind)
		default:
			err = p.Skip(ctx, t)
		}
		return err
	})
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
