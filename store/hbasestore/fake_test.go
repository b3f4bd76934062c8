package hbasestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
	"sluice/store/memstore"
)

// fakeGateway is a Thrift2 gateway over a memstore, as far as a Store calls one. It
// answers as HBase 2.6.1 does.
type fakeGateway struct {
	hbase.THBaseService // what is not built here panics
	mem                 *memstore.Store
	framed              bool
	listener            net.Listener
	serving             sync.WaitGroup
	altering            sync.Mutex  // a change of a table at a time
	enabling            atomic.Bool // tables that are not disabled are on their way to be enabled

	mu       sync.Mutex // guards what follows
	fault    func(method string) fault
	pages    []int         // bytes of the values that scanners have answered with
	perRow   time.Duration // that a scanner looks for a row
	calls    map[string]int
	conns    map[net.Conn]struct{}
	accepted int
	closed   chan struct{}
	scanners map[int32]store.Scanner
	tables   map[int32][]byte // of scanners
	lastID   int32
	states   map[string]int64 // when a table was made, enabled, disabled, in ms; hbase:meta has it
	clock    int64            // of states
}

// fault is what goes wrong with a call.
type fault struct {
	hang       bool          // no answer, ever
	until      chan struct{} // no answer before it is closed; nil = at once
	dropBefore bool          // the connection ends, and nothing was done
	dropAfter  bool          // the connection ends, and it was done
	done       func()        // called between the two; nil = nothing
	text       string        // a TIOError
	canRetry   bool          // of text
	internal   bool          // an exception that the IDL does not name
}

// newGateway starts a gateway over mem, nil = an empty one. It stops with the test.
func newGateway(t *testing.T, mem *memstore.Store, framed bool) *fakeGateway {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newGatewayAt(t, l, mem, framed)
}

// newGatewayAt is newGateway on a listener, which it closes.
func newGatewayAt(t *testing.T, l net.Listener, mem *memstore.Store, framed bool) *fakeGateway {
	t.Helper()
	if mem == nil {
		var err error
		if mem, err = memstore.New(nil); err != nil {
			t.Fatal(err)
		}
	}
	g := makeGateway(l, mem, framed)
	t.Cleanup(g.stop)
	return g
}

// makeGateway is newGatewayAt without a test: whoever calls it calls stop.
func makeGateway(l net.Listener, mem *memstore.Store, framed bool) *fakeGateway {
	g := &fakeGateway{
		mem: mem, framed: framed, listener: l, calls: map[string]int{}, conns: map[net.Conn]struct{}{},
		closed: make(chan struct{}), scanners: map[int32]store.Scanner{}, tables: map[int32][]byte{}, states: map[string]int64{},
	}
	g.serving.Go(g.accept)
	return g
}

func (g *fakeGateway) address() string { return g.listener.Addr().String() }

// stop ends the gateway with all its connections.
func (g *fakeGateway) stop() {
	g.mu.Lock()
	select {
	case <-g.closed:
		g.mu.Unlock()
		return
	default:
	}
	close(g.closed)
	for c := range g.conns {
		c.Close()
	}
	g.mu.Unlock()
	g.listener.Close()
	g.serving.Wait()
	g.expire()
}

// expire forgets all scanners.
func (g *fakeGateway) expire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, sc := range g.scanners {
		sc.Close()
		delete(g.scanners, id)
	}
}

// open counts scanners that were not closed.
func (g *fakeGateway) open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.scanners)
}

// count returns how often a method was called; "" = connections.
func (g *fakeGateway) count(method string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if method == "" {
		return g.accepted
	}
	return g.calls[method]
}

// inject makes calls fail; nil = none.
func (g *fakeGateway) inject(f func(method string) fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fault = f
}

// first makes the first n calls of a method fail.
func (g *fakeGateway) first(n int, method string, f fault) {
	g.inject(func(m string) fault {
		if m != method || n == 0 {
			return fault{}
		}
		n--
		return f
	})
}

// cutOff returns a context that is over at the n-th call of one of methods (none = any),
// to which f happens.
func (g *fakeGateway) cutOff(t *testing.T, n int, f fault, methods ...string) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	g.inject(func(method string) fault {
		if len(methods) == 0 || slices.Contains(methods, method) {
			n--
			switch {
			case n == 0 && f.dropAfter: // whoever made the call finds it done
				f.done = cancel
				return f
			case n == 0:
				cancel()
				return f
			}
		}
		return fault{}
	})
	return ctx
}

func (g *fakeGateway) accept() {
	for {
		c, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		select {
		case <-g.closed:
			g.mu.Unlock()
			c.Close()
			return
		default:
		}
		g.conns[c] = struct{}{}
		g.accepted++
		g.mu.Unlock()
		g.serving.Go(func() {
			defer c.Close()
			g.serve(c)
		})
	}
}

func (g *fakeGateway) serve(c net.Conn) {
	var t thrift.TTransport = thrift.NewTBufferedTransport(thrift.NewTSocketFromConnConf(c, nil), 4096)
	if g.framed {
		t = thrift.NewTFramedTransportConf(t, nil)
	}
	p := thrift.NewTBinaryProtocolConf(t, nil)
	processor := thrift.WrapProcessor(hbase.NewTHBaseServiceProcessor(g), g.faulty)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		if ok, err := processor.Process(ctx, p, p); !ok && err != nil && !errors.As(err, new(thrift.TApplicationException)) {
			return
		}
	}
}

// process is a thrift.TProcessorFunction.
type process func(ctx context.Context, seqID int32, in, out thrift.TProtocol) (bool, thrift.TException)

func (f process) Process(ctx context.Context, seqID int32, in, out thrift.TProtocol) (bool, thrift.TException) {
	return f(ctx, seqID, in, out)
}

// faulty is the processor's middleware that makes calls fail.
func (g *fakeGateway) faulty(name string, next thrift.TProcessorFunction) thrift.TProcessorFunction {
	return process(func(ctx context.Context, seqID int32, in, out thrift.TProtocol) (bool, thrift.TException) {
		g.mu.Lock()
		g.calls[name]++
		var f fault
		if g.fault != nil {
			f = g.fault(name)
		}
		g.mu.Unlock()
		end := thrift.NewTTransportException(thrift.END_OF_FILE, "dropped")
		if f.until != nil {
			select {
			case <-f.until:
			case <-g.closed:
			}
		}
		switch {
		case f.hang:
			<-g.closed
			return false, end
		case f.dropBefore:
			return false, end
		case f.dropAfter:
			nowhere := thrift.NewTBinaryProtocolConf(thrift.NewTMemoryBuffer(), nil)
			next.Process(ctx, seqID, in, nowhere)
			if f.done != nil {
				f.done()
			}
			return false, end
		case f.text == "" && !f.internal:
			return next.Process(ctx, seqID, in, out)
		}
		var err error
		note := func(e error) { err = errors.Join(err, e) }
		note(in.Skip(ctx, thrift.STRUCT))
		note(in.ReadMessageEnd(ctx))
		if f.internal {
			note(out.WriteMessageBegin(ctx, name, thrift.EXCEPTION, seqID))
			note(thrift.NewTApplicationException(thrift.INTERNAL_ERROR, "Internal error processing "+name).Write(ctx, out))
		} else {
			note(out.WriteMessageBegin(ctx, name, thrift.REPLY, seqID))
			note(out.WriteStructBegin(ctx, "result"))
			note(out.WriteFieldBegin(ctx, "io", thrift.STRUCT, 1))
			note((&hbase.TIOError{Message: &f.text, CanRetry: &f.canRetry}).Write(ctx, out))
			note(out.WriteFieldEnd(ctx))
			note(out.WriteFieldStop(ctx))
			note(out.WriteStructEnd(ctx))
		}
		note(out.WriteMessageEnd(ctx))
		note(out.Flush(ctx))
		if err != nil {
			return false, end
		}
		return true, nil
	})
}

// answer gives an error of memstore HBase's text.
func answer(table []byte, err error) error {
	if err == nil {
		return nil
	}
	text := "org.apache.hadoop.hbase.DoNotRetryIOException: " + err.Error()
	for _, c := range []struct {
		err  error
		text string
	}{
		{store.ErrFamilyNotFound, "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException: Column family"},
		{store.ErrTableNotFound, string(table)},
		{store.ErrTableNotEnabled, string(table) + " is disabled."},
		{store.ErrTableNotDisabled, "org.apache.hadoop.hbase.TableNotDisabledException: " + string(table)},
		{store.ErrTableExists, "org.apache.hadoop.hbase.TableExistsException: " + string(table)},
		{store.ErrNamespaceNotFound, "org.apache.hadoop.hbase.NamespaceNotFoundException: "},
		{store.ErrNamespaceExists, "org.apache.hadoop.hbase.NamespaceExistException: "},
		{store.ErrConstraint, "org.apache.hadoop.hbase.constraint.ConstraintException: "},
		{store.ErrTableReadOnly, "org.apache.hadoop.hbase.DoNotRetryIOException: region is read only"},
		{store.ErrNotANumber, "org.apache.hadoop.hbase.DoNotRetryIOException: Field is not a long, it's 1 bytes wide"},
	} {
		if errors.Is(err, c.err) {
			text = c.text
			break
		}
	}
	text += "\n\tat org.apache.hadoop.hbase.regionserver.HRegion.mutate(HRegion.java:4092)"
	no := false
	return &hbase.TIOError{Message: &text, CanRetry: &no}
}

// counterText is under what the memstore keeps that a family is a COUNTER one: to
// HBase it is a family as any.
const counterText = "x-counter"

// distinctText is that of a DISTINCT family.
const distinctText = "x-distinct"

// unknownAttributes are the attributes that HBase keeps and does not know.
var unknownAttributes = map[string]string{counterText: "COUNTER", distinctText: "DISTINCT"}

// own returns the name under which the memstore has a table: it lets nobody write
// its own system tables, and has not all.
func own(table string) string {
	if system(table) && table != store.OutboxTable && table != store.JobsTable {
		return strings.Replace(table, ":", "..", 1)
	}
	return table
}

func (g *fakeGateway) GetThriftServerType(context.Context) (hbase.TThriftServerType, error) {
	return hbase.TThriftServerType_TWO, nil
}

func (g *fakeGateway) GetTableDescriptor(ctx context.Context, name *hbase.TTableName) (*hbase.TTableDescriptor, error) {
	d, err := g.mem.Table(ctx, own(nameOf(name)))
	if err != nil {
		return nil, answer([]byte(nameOf(name)), err)
	}
	t := toHBase(d)
	t.TableName = name
	for i, c := range t.Columns { // HBase has everything among the attributes
		for unknown, name := range unknownAttributes {
			if text, ok := c.Attributes[unknown]; ok {
				delete(c.Attributes, unknown)
				c.Attributes[name] = text
			}
		}
		for _, a := range d.Families[i].List() {
			switch a.Name {
			case "NAME":
			case "TTL":
				c.Attributes["TTL"] = []byte("2147483647")
				if f := d.Families[i]; f.TTL != store.Forever {
					c.Attributes["TTL"] = []byte(store.FormatTTL(f.TTL)[:bytes.IndexByte([]byte(store.FormatTTL(f.TTL)), ' ')])
				}
			case "BLOCKSIZE":
				c.Attributes["BLOCKSIZE"] = []byte("65536")
			default:
				c.Attributes[a.Name] = []byte(a.Value)
			}
		}
	}
	t.Attributes["IS_META"] = []byte("false")
	t.Attributes["hbase.store.file-tracker.impl"] = []byte("DEFAULT")
	return t, nil
}

func (g *fakeGateway) GetTableNamesByPattern(ctx context.Context, _ string, _ bool) ([]*hbase.TTableName, error) {
	names, err := g.mem.Tables(ctx)
	out := []*hbase.TTableName{tableName(store.OffsetsTable)}
	for _, n := range names {
		if !strings.HasPrefix(n, store.SystemNamespace+"..") {
			out = append(out, tableName(n))
		}
	}
	return out, answer(nil, err)
}

func (g *fakeGateway) GetAllRegionLocations(ctx context.Context, table []byte) ([]*hbase.THRegionLocation, error) {
	m, err := g.mem.Regions(ctx, own(string(table)))
	if err != nil {
		return nil, nil // as HBase
	}
	var out []*hbase.THRegionLocation
	for _, i := range m.All() {
		out = append(out, &hbase.THRegionLocation{
			ServerName: &hbase.TServerName{HostName: "localhost", Port: new(int32(16020))},
			RegionInfo: &hbase.THRegionInfo{TableName: table, StartKey: i.Start, EndKey: i.Stop},
		})
	}
	return out, nil
}

func (g *fakeGateway) GetRegionLocation(ctx context.Context, table, row []byte, _ bool) (*hbase.THRegionLocation, error) {
	all, err := g.GetAllRegionLocations(ctx, table)
	for _, l := range all {
		if bytes.Compare(l.RegionInfo.StartKey, row) <= 0 && (len(l.RegionInfo.EndKey) == 0 || bytes.Compare(row, l.RegionInfo.EndKey) < 0) {
			return l, nil
		}
	}
	return nil, err
}

// schema reads a descriptor as HBase does: fields over attributes.
func schema(d *hbase.TTableDescriptor) *store.TableDescriptor {
	t := fromHBase(d)
	t.Name = own(t.Name)
	for i := range t.Families {
		for _, c := range d.Columns {
			if f := &t.Families[i]; f.Name == string(c.Name) {
				f.Versions, f.MinVersions, f.TTL, f.BlockSize = int(c.GetMaxVersions()), int(c.GetMinVersions()), int(c.GetTimeToLive()), int(c.GetBlockSize())
				f.KeepDeleted = store.KeepDeleted(c.GetKeepDeletedCells())
				if f.Counter {
					f.Counter, f.Metadata = false, with(f.Metadata, counterText, "true")
				}
				if f.Distinct {
					f.Distinct, f.Metadata = false, with(f.Metadata, distinctText, "true")
				}
			}
		}
	}
	return t
}

func (g *fakeGateway) CreateTable(ctx context.Context, d *hbase.TTableDescriptor, splits [][]byte) error {
	t := schema(d)
	if g.framed { // the defect that HBASE has
		if len(splits) > 1 {
			return errors.New("All split keys must be unique, found duplicate: \x80\x01\x00") // not of the IDL: an internal error
		}
		splits, t.Metadata = nil, map[string]string{"\x80\x01\x00": "\x00"}
	}
	return answer(d.TableName.Qualifier, g.changed(t.Name, g.mem.CreateTable(ctx, t, splits)))
}

func (g *fakeGateway) ModifyTable(ctx context.Context, d *hbase.TTableDescriptor) error {
	if g.framed {
		d.Attributes = garble(d.Attributes)
		for _, c := range d.Columns {
			c.Attributes = garble(c.Attributes)
		}
	}
	return answer(d.TableName.Qualifier, g.mem.AlterTable(ctx, schema(d)))
}

// garble is what a framed gateway makes of attributes.
func garble(attributes map[string][]byte) map[string][]byte {
	if len(attributes) == 0 {
		return attributes
	}
	return map[string][]byte{"\x80\x01\x00": []byte("\x00")}
}

// alter changes the families of a table, as it is then.
func (g *fakeGateway) alter(ctx context.Context, name *hbase.TTableName, change func(*store.TableDescriptor)) error {
	g.altering.Lock()
	defer g.altering.Unlock()
	d, err := g.mem.Table(ctx, own(nameOf(name)))
	if err == nil {
		d = d.Clone()
		change(d)
		err = g.mem.AlterTable(ctx, d)
	}
	return answer(name.Qualifier, err)
}

// familyOf returns a family as HBase reads it.
func familyOf(name *hbase.TTableName, f *hbase.TColumnFamilyDescriptor) store.FamilyDescriptor {
	return schema(&hbase.TTableDescriptor{TableName: name, Columns: []*hbase.TColumnFamilyDescriptor{f}}).Families[0]
}

func without(d *store.TableDescriptor, family []byte) {
	d.Families = slices.DeleteFunc(d.Families, func(f store.FamilyDescriptor) bool { return f.Name == string(family) })
}

func (g *fakeGateway) AddColumnFamily(ctx context.Context, name *hbase.TTableName, f *hbase.TColumnFamilyDescriptor) error {
	if g.framed {
		f.Attributes = garble(f.Attributes)
	}
	return g.alter(ctx, name, func(d *store.TableDescriptor) { d.Families = append(d.Families, familyOf(name, f)) })
}

func (g *fakeGateway) ModifyColumnFamily(ctx context.Context, name *hbase.TTableName, f *hbase.TColumnFamilyDescriptor) error {
	if g.framed {
		f.Attributes = garble(f.Attributes)
	}
	return g.alter(ctx, name, func(d *store.TableDescriptor) {
		without(d, f.Name)
		d.Families = append(d.Families, familyOf(name, f))
	})
}

func (g *fakeGateway) DeleteColumnFamily(ctx context.Context, name *hbase.TTableName, family []byte) error {
	if g.framed {
		text := "org.apache.hadoop.hbase.InvalidFamilyOperationException: Column family '\\x80\\x01' does not exist"
		return &hbase.TIOError{Message: &text}
	}
	return g.alter(ctx, name, func(d *store.TableDescriptor) { without(d, family) })
}

// changed notes that the state of a table was written, unless err says that it was not.
func (g *fakeGateway) changed(table string, err error) error {
	if err == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.clock++
		g.states[table] = g.clock
	}
	return err
}

// state is a row of hbase:meta.
func (g *fakeGateway) state(ctx context.Context, row []byte) (*hbase.TResult_, error) {
	if _, err := g.mem.Table(ctx, own(string(row))); err != nil {
		return &hbase.TResult_{}, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.states[own(string(row))]
	return &hbase.TResult_{Row: row, ColumnValues: []*hbase.TColumnValue{{
		Family: []byte(stateFamily), Qualifier: []byte(stateColumn), Timestamp: &at, Value: []byte("\x08\x00"),
	}}}, nil
}

func (g *fakeGateway) DeleteTable(ctx context.Context, name *hbase.TTableName) error {
	return answer(name.Qualifier, g.mem.DropTable(ctx, own(nameOf(name))))
}

func (g *fakeGateway) TruncateTable(ctx context.Context, name *hbase.TTableName, preserve bool) error {
	return answer(name.Qualifier, g.changed(own(nameOf(name)), g.mem.TruncateTable(ctx, own(nameOf(name)), preserve)))
}

func (g *fakeGateway) EnableTable(ctx context.Context, name *hbase.TTableName) error {
	err := g.changed(own(nameOf(name)), g.mem.EnableTable(ctx, own(nameOf(name))))
	if errors.Is(err, store.ErrTableNotDisabled) {
		text, no := "tableName="+own(nameOf(name))+", state=ENABLED", false
		return &hbase.TIOError{Message: &text, CanRetry: &no}
	}
	return answer(name.Qualifier, err)
}

func (g *fakeGateway) DisableTable(ctx context.Context, name *hbase.TTableName) error {
	err := g.changed(own(nameOf(name)), g.mem.DisableTable(ctx, own(nameOf(name))))
	if errors.Is(err, store.ErrTableNotEnabled) {
		text, no := "org.apache.hadoop.hbase.TableNotEnabledException: "+own(nameOf(name)), false
		return &hbase.TIOError{Message: &text, CanRetry: &no}
	}
	return answer(name.Qualifier, err)
}

func (g *fakeGateway) IsTableEnabled(ctx context.Context, name *hbase.TTableName) (bool, error) {
	enabled, err := g.mem.TableEnabled(ctx, own(nameOf(name)))
	return enabled && !g.enabling.Load(), answer(name.Qualifier, err)
}

func (g *fakeGateway) IsTableDisabled(ctx context.Context, name *hbase.TTableName) (bool, error) {
	enabled, err := g.mem.TableEnabled(ctx, own(nameOf(name)))
	return err == nil && !enabled, answer(name.Qualifier, err)
}

func (g *fakeGateway) CreateNamespace(ctx context.Context, n *hbase.TNamespaceDescriptor) error {
	if n.Name == store.SystemNamespace {
		return answer(nil, store.ErrNamespaceExists)
	}
	return answer(nil, g.mem.CreateNamespace(ctx, &store.Namespace{Name: n.Name, Properties: n.Configuration}))
}

func (g *fakeGateway) ModifyNamespace(ctx context.Context, n *hbase.TNamespaceDescriptor) error {
	return answer(nil, g.mem.AlterNamespace(ctx, &store.Namespace{Name: n.Name, Properties: n.Configuration}))
}

func (g *fakeGateway) DeleteNamespace(ctx context.Context, name string) error {
	return answer(nil, g.mem.DropNamespace(ctx, name))
}

func (g *fakeGateway) ListNamespaceDescriptors(ctx context.Context) ([]*hbase.TNamespaceDescriptor, error) {
	all, err := g.mem.Namespaces(ctx)
	out := []*hbase.TNamespaceDescriptor{{Name: store.SystemNamespace}}
	for _, n := range all {
		out = append(out, &hbase.TNamespaceDescriptor{Name: n.Name, Configuration: n.Properties})
	}
	return out, answer(nil, err)
}

// scan returns what a TScan asks for.
func scanOf(table []byte, t *hbase.TScan) (*store.Scan, error) {
	s := &store.Scan{
		Table: own(string(table)), Start: t.StartRow, Stop: t.StopRow, Reversed: t.GetReversed(), Versions: int(t.MaxVersions),
		Batch: int(t.GetBatchSize()), Raw: len(t.Attributes[rawAttribute]) > 0,
		StopInclusive: len(t.StartRow) > 0 && bytes.Equal(t.StartRow, t.StopRow),
	}
	for _, c := range t.Columns {
		s.Columns = append(s.Columns, store.Column{Family: string(c.Family), Qualifier: c.Qualifier, All: c.Qualifier == nil})
	}
	within := func(r *hbase.TTimeRange) cell.TimeRange {
		return cell.TimeRange{Min: cell.Timestamp(r.MinStamp), Max: cell.Timestamp(r.MaxStamp)}
	}
	if t.TimeRange != nil {
		r := within(t.TimeRange)
		s.Time = &r
	}
	for f, r := range t.ColFamTimeRangeMap {
		if s.FamilyTime == nil {
			s.FamilyTime = map[string]cell.TimeRange{}
		}
		s.FamilyTime[f] = within(r)
	}
	var err error
	if len(t.FilterString) > 0 {
		s.Filter, err = store.ParseFilterString(string(t.FilterString))
	}
	if f, ok := s.Filter.(*store.SingleColumnValueFilter); ok && f.FilterIfMissing && s.Reversed {
		if slices.ContainsFunc(s.Columns, func(c store.Column) bool { return c.Family != f.Family }) {
			text, no := "org.apache.hadoop.hbase.DoNotRetryIOException: Reverse scan with loading CFs on demand is not supported", false
			return nil, &hbase.TIOError{Message: &text, CanRetry: &no}
		}
	}
	return s, err
}

func (g *fakeGateway) OpenScanner(ctx context.Context, table []byte, t *hbase.TScan) (int32, error) {
	s, err := scanOf(table, t)
	if err != nil {
		return 0, err // not of the IDL: an internal error
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lastID++
	g.tables[g.lastID] = table
	g.scanners[g.lastID] = g.mem.Scan(context.WithoutCancel(ctx), s)
	return g.lastID, nil
}

func next(sc store.Scanner, n int32) []*hbase.TResult_ {
	out := []*hbase.TResult_{} // which is sent where it is empty, too
	for int32(len(out)) < n && sc.Next() {
		row := sc.Row()
		r := &hbase.TResult_{Row: bytes.Clone(row.Key), Partial: row.More}
		for _, c := range row.Cells {
			at, kind := int64(c.Time), int8(c.Kind)
			r.ColumnValues = append(r.ColumnValues, &hbase.TColumnValue{
				Family: []byte(c.Family), Qualifier: bytes.Clone(c.Qualifier), Value: bytes.Clone(c.Value), Timestamp: &at, Type: &kind,
			})
		}
		out = append(out, r)
	}
	return out
}

// sent notes a page. g.mu is held.
func (g *fakeGateway) sent(out []*hbase.TResult_) {
	bytes := 0
	for _, r := range out {
		for _, c := range r.ColumnValues {
			bytes += len(c.Value)
		}
	}
	g.pages = append(g.pages, bytes)
}

func (g *fakeGateway) GetScannerRows(_ context.Context, id, n int32) ([]*hbase.TResult_, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	sc := g.scanners[id]
	if sc == nil {
		text := "Invalid scanner Id"
		return nil, &hbase.TIllegalArgument{Message: &text}
	}
	out := next(sc, n)
	g.sent(out)
	if err := answer(g.tables[id], sc.Err()); err != nil || g.perRow == 0 {
		return out, err
	}
	found := time.NewTimer(time.Duration(len(out)) * g.perRow)
	defer found.Stop()
	g.mu.Unlock()
	defer g.mu.Lock() // for the one that is deferred above
	select {
	case <-found.C:
	case <-g.closed:
	}
	return out, nil
}

func (g *fakeGateway) CloseScanner(_ context.Context, id int32) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if sc := g.scanners[id]; sc != nil {
		sc.Close()
		delete(g.scanners, id)
	}
	return nil
}

func (g *fakeGateway) GetScannerResults(ctx context.Context, table []byte, t *hbase.TScan, n int32) ([]*hbase.TResult_, error) {
	s, err := scanOf(table, t)
	if err != nil {
		return nil, err
	}
	sc := g.mem.Scan(ctx, s)
	defer sc.Close()
	out := next(sc, n)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sent(out)
	return out, answer(table, sc.Err())
}

func (g *fakeGateway) Get(ctx context.Context, table []byte, t *hbase.TGet) (*hbase.TResult_, error) {
	if string(table) == metaTable {
		return g.state(ctx, t.Row)
	}
	scan := hbase.NewTScan()
	scan.StartRow, scan.StopRow, scan.Columns, scan.TimeRange, scan.FilterString = t.Row, t.Row, t.Columns, t.TimeRange, t.FilterString
	scan.MaxVersions = max(t.GetMaxVersions(), 1)
	rows, err := g.GetScannerResults(ctx, table, scan, 1)
	if err != nil || len(rows) == 0 {
		return &hbase.TResult_{}, err // a row that is absent has no key
	}
	return rows[0], nil
}

// live gives the last operation the time to live among attributes.
func live(m *cell.Mutation, attributes map[string][]byte) {
	if life := attributes[ttlAttribute]; life != nil {
		ms := int64(binary.BigEndian.Uint64(life))
		if ms == 0 {
			ms = cell.NoLife
		}
		m.Ops[len(m.Ops)-1].TTL = ms
	}
}

// GetMultiple implements hbase.THBaseService.
func (g *fakeGateway) GetMultiple(ctx context.Context, table []byte, gets []*hbase.TGet) ([]*hbase.TResult_, error) {
	var out []*hbase.TResult_
	for _, get := range gets {
		r, err := g.Get(ctx, table, get)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// mutationOf returns the mutation that writes are.
func mutationOf(table, row []byte, writes ...*hbase.TMutation) *cell.Mutation {
	m := &cell.Mutation{Table: own(string(table)), Row: row}
	at := func(t *int64) cell.Timestamp {
		if t == nil {
			return cell.Latest
		}
		return cell.Timestamp(*t)
	}
	newest := map[string]int{} // by column: how many of its newest versions a Delete deletes, at most
	for _, w := range writes {
		if p := w.Put; p != nil {
			for _, v := range p.ColumnValues {
				m.Put(string(v.Family), v.Qualifier, at(v.Timestamp), v.Value)
				live(m, p.Attributes)
			}
			continue
		}
		d := w.DeleteSingle
		one := &cell.Mutation{} // a Delete of HBase's, of which addFamily drops what was added before
		if len(d.Columns) == 0 {
			one.DeleteRow(at(d.Timestamp))
		}
		counted := map[string]int{} // HBase counts anew in each
		for _, c := range d.Columns {
			switch family := string(c.Family); d.DeleteType {
			case hbase.TDeleteType_DELETE_COLUMN:
				if column := string(cell.AppendPart(nil, c.Family)) + string(c.Qualifier); c.Timestamp == nil {
					if counted[column]++; counted[column] <= newest[column] {
						continue // a version that another deletes already
					}
					newest[column] = counted[column]
				}
				one.Delete(family, c.Qualifier, at(c.Timestamp))
			case hbase.TDeleteType_DELETE_COLUMNS:
				one.DeleteColumn(family, c.Qualifier, at(c.Timestamp))
			case hbase.TDeleteType_DELETE_FAMILY:
				one.DeleteFamily(family, at(c.Timestamp))
			case hbase.TDeleteType_DELETE_FAMILY_VERSION:
				one.DeleteFamilyVersion(family, at(c.Timestamp))
			}
		}
		m.Ops = append(m.Ops, one.Ops...)
	}
	return m
}

func (g *fakeGateway) mutate(ctx context.Context, cond *store.Cond, m *cell.Mutation) (store.Result, error) {
	res, err := g.mem.MutateRow(ctx, cond, m)
	return res, answer([]byte(m.Table), err)
}

func (g *fakeGateway) Put(ctx context.Context, table []byte, p *hbase.TPut) error {
	_, err := g.mutate(ctx, nil, mutationOf(table, p.Row, &hbase.TMutation{Put: p}))
	return err
}

// PutMultiple applies the good ones where one fails, as HBase.
func (g *fakeGateway) PutMultiple(ctx context.Context, table []byte, puts []*hbase.TPut) (failed error) {
	for _, p := range puts {
		if err := g.Put(ctx, table, p); err != nil {
			failed = refusedInPart(err)
		}
	}
	return failed
}

func (g *fakeGateway) DeleteSingle(ctx context.Context, table []byte, d *hbase.TDelete) error {
	_, err := g.mutate(ctx, nil, mutationOf(table, d.Row, &hbase.TMutation{DeleteSingle: d}))
	return err
}

// DeleteMultiple is as PutMultiple.
func (g *fakeGateway) DeleteMultiple(ctx context.Context, table []byte, deletes []*hbase.TDelete) (left []*hbase.TDelete, failed error) {
	for _, d := range deletes {
		if err := g.DeleteSingle(ctx, table, d); err != nil {
			failed = refusedInPart(err)
		}
	}
	return nil, failed
}

// refusedInPart is what HBase answers where it refused a row of several for err.
func refusedInPart(err error) error {
	var io *hbase.TIOError
	errors.As(err, &io)
	text, yes := "Failed 1 action: "+io.GetMessage()+": 1 time, servers with issues: localhost,16020,1", true
	return &hbase.TIOError{Message: &text, CanRetry: &yes}
}

func (g *fakeGateway) MutateRow(ctx context.Context, table []byte, m *hbase.TRowMutations) error {
	_, err := g.mutate(ctx, nil, mutationOf(table, m.Row, m.Mutations...))
	return err
}

func (g *fakeGateway) CheckAndMutate(ctx context.Context, table, row, family, qualifier []byte, op hbase.TCompareOp, value []byte, m *hbase.TRowMutations) (bool, error) {
	cond := &store.Cond{Family: string(family), Qualifier: qualifier, Op: store.CompareOp(op) + store.Less, Value: value}
	res, err := g.mutate(ctx, cond, mutationOf(table, m.Row, m.Mutations...))
	return res.Applied, err
}

func result(row []byte, res store.Result) *hbase.TResult_ {
	r := &hbase.TResult_{Row: row}
	for _, c := range slices.Backward(res.Cells) { // in no order that is promised
		at := int64(c.Time)
		r.ColumnValues = append(r.ColumnValues, &hbase.TColumnValue{Family: []byte(c.Family), Qualifier: c.Qualifier, Value: c.Value, Timestamp: &at})
	}
	return r
}

func (g *fakeGateway) Increment(ctx context.Context, table []byte, i *hbase.TIncrement) (*hbase.TResult_, error) {
	m := &cell.Mutation{Table: own(string(table)), Row: i.Row}
	for _, c := range i.Columns {
		m.Increment(string(c.Family), c.Qualifier, c.Amount)
		live(m, i.Attributes)
	}
	res, err := g.mutate(ctx, nil, m)
	if err != nil {
		return nil, err
	}
	return named(result(i.Row, res), func(yield func(family, qualifier []byte) bool) {
		for _, c := range i.Columns {
			if !yield(c.Family, c.Qualifier) {
				return
			}
		}
	}), nil
}

// named gives a column that a call names several times as many cells, as HBase does: what
// each would have made of what was stored, of which the last one is stored.
func named(r *hbase.TResult_, columns iter.Seq2[[]byte, []byte]) *hbase.TResult_ {
	var out []*hbase.TColumnValue
	for _, v := range r.ColumnValues {
		n := 0
		for family, qualifier := range columns {
			if bytes.Equal(family, v.Family) && bytes.Equal(qualifier, v.Qualifier) {
				n++
			}
		}
		for range n - 1 {
			other := *v
			other.Value = []byte("another")
			out = append(out, &other)
		}
		out = append(out, v)
	}
	r.ColumnValues = out
	return r
}

func (g *fakeGateway) Append(ctx context.Context, table []byte, a *hbase.TAppend) (*hbase.TResult_, error) {
	m := &cell.Mutation{Table: own(string(table)), Row: a.Row}
	for _, c := range a.Columns {
		m.Append(string(c.Family), c.Qualifier, c.Value)
		live(m, a.Attributes)
	}
	res, err := g.mutate(ctx, nil, m)
	if err != nil {
		return nil, err
	}
	return named(result(a.Row, res), func(yield func(family, qualifier []byte) bool) {
		for _, c := range a.Columns {
			if !yield(c.Family, c.Qualifier) {
				return
			}
		}
	}), nil
}
