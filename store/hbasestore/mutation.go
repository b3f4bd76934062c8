package hbasestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// ttlAttribute is a mutation's time to live, 8 bytes big-endian, ms (HBase
// Mutation.OP_ATTRIBUTE_TTL).
const ttlAttribute = "_ttl"

// mutation is a row mutation in the form in which HBase takes it: writes, or an
// increment, or an append, or what is added to a distinct count.
type mutation struct {
	table     string
	row       []byte
	writes    []*hbase.TMutation // in order
	increment *hbase.TIncrement
	append    *hbase.TAppend
	addition  *addition
	counters  []store.Column // that are incremented, of COUNTER families
	once      bool           // it must not be applied twice
	ordered   bool           // HBase sees its deletes and puts in the order in which they come
	size      int            // bytes of keys and values, about

	// What a mutation of puts is made of, so that it is one allocation.
	first      [1]*hbase.TMutation
	firstWrite hbase.TMutation
	firstPut   hbase.TPut
}

// atRow returns the error of a row that is not written, a *store.RowError.
func atRow(table string, row []byte, format string, args ...any) error {
	return &store.RowError{Table: table, Row: bytes.Clone(row), Err: fmt.Errorf(format, args...)}
}

// translate returns m, which store.ValidateMutation has passed, for HBase. Its error
// wraps store.ErrUnsupported where the gateway has no call for it.
func translate(t *store.TableDescriptor, m *cell.Mutation) (*mutation, error) {
	fail := func(why string) (*mutation, error) {
		return nil, atRow(t.Name, m.Row, "%w through HBase's Thrift2 gateway: %s", store.ErrUnsupported, why)
	}
	if m.Read != nil {
		return fail("increments and appends have no time range")
	}
	h := &mutation{table: t.Name, row: m.Row, once: !m.Idempotent()}
	h.writes = h.first[:0]
	var durability *hbase.TDurability // nil = the table's
	if m.Durability != cell.UseDefault {
		durability = hbase.TDurabilityPtr(hbase.TDurability(m.Durability))
	}
	kind := func(o *cell.Op) cell.OpType {
		if o.Type != cell.OpIncrement && o.Type != cell.OpAppend {
			return cell.OpPut
		}
		return o.Type
	}
	values := make([]hbase.TColumnValue, len(m.Ops))
	var f *store.FamilyDescriptor // of the operation before, as most mutations have one
	var family []byte
	for i := range m.Ops {
		o := &m.Ops[i]
		h.size += len(m.Row) + len(o.Family) + len(o.Qualifier) + len(o.Value) + 16
		if f == nil || f.Name != o.Family {
			f, family = t.Family(o.Family), []byte(o.Family)
		}
		if why := refuseInPlace(t, f, o); why != "" {
			return fail(why)
		}
		h.ordered = h.ordered || f != nil && f.NewVersionBehavior
		if f != nil && f.Distinct { // refuseInPlace lets appends through alone
			if i > 0 && h.addition == nil || !h.adds(o) {
				return fail(addedAlone)
			}
			continue
		}
		if h.addition != nil {
			return fail(addedAlone)
		}
		if kind(o) != kind(&m.Ops[0]) {
			return fail("increments, appends and other writes are three calls, so not one atomic mutation")
		}
		switch o.Type {
		case cell.OpIncrement, cell.OpAppend:
			if o.Time != cell.Latest || o.TTL != m.Ops[0].TTL {
				return fail("increments and appends have no timestamp, and one time to live")
			}
			if f != nil && f.Counter {
				c := *o
				c.Qualifier = appendCounter(nil, o.Qualifier, apiSource, 0)
				if h.again(&c) {
					continue
				}
				h.counters = append(h.counters, store.Column{Family: o.Family, Qualifier: o.Qualifier})
				o = &c
			}
			h.modify(o, durability)
		case cell.OpPut:
			values[i] = hbase.TColumnValue{Family: family, Qualifier: o.Qualifier, Value: o.Value, Timestamp: explicit(&o.Time)}
			h.put(&values[i], o.TTL, durability, len(m.Ops)-i)
		case cell.OpDeleteFamilyVersion:
			if o.Time == cell.Latest {
				return nil, atRow(t.Name, m.Row, "%w: a delete of a family's version names no time", store.ErrInvalidArgument)
			}
			h.delete(o, durability)
		default:
			h.delete(o, durability)
		}
	}
	if h.addition != nil {
		h.once = false // an element that is there already changes nothing
	}
	return h, nil
}

const addedAlone = "what is added to a distinct count is a call of its own for each column, so not one atomic mutation with anything else"

// refuseInPlace says why an operation is not done on HBase because of a COUNTER or a
// DISTINCT family; "" = it is. f is the operation's, nil where t has none.
func refuseInPlace(t *store.TableDescriptor, f *store.FamilyDescriptor, o *cell.Op) string {
	if o.Type == cell.OpDeleteRow {
		for i := range t.Families {
			if f := &t.Families[i]; f.InPlace() {
				return "a row with a COUNTER or DISTINCT family (" + f.Name + ") is not deleted as a whole, its counters' timestamps being offsets: delete its other families"
			}
		}
		return ""
	}
	switch {
	case f == nil || !f.InPlace():
		return ""
	case f.Distinct && o.Type != cell.OpAppend:
		return "the distinct counts of family " + f.Name + " are not deleted by mutations: their timestamps are offsets, and ingest would go on from what it knows of them; \"ingest counters remove\" removes them"
	case f.Distinct:
		return ""
	case o.Type != cell.OpIncrement:
		return "the counters of family " + f.Name + " are not deleted by mutations: their timestamps are offsets, and ingest would go on from what it knows of them; \"ingest counters remove\" removes them, and an increment by minus its value sets one to zero, and keeps what is counted afterwards"
	}
	return ""
}

// explicit returns the timestamp of an operation, nil where HBase is to fill it in.
// It is the operation's own, which is the caller's until the call has returned.
func explicit(t *cell.Timestamp) *int64 {
	if *t == cell.Latest {
		return nil
	}
	return (*int64)(t)
}

func ttl(ms int64) map[string][]byte {
	if ms == 0 {
		return nil
	}
	return map[string][]byte{ttlAttribute: binary.BigEndian.AppendUint64(nil, uint64(max(ms, 0)))} // cell.NoLife is below 0
}

// put adds to the put that was added last, or begins another, of up to n columns.
func (h *mutation) put(v *hbase.TColumnValue, life int64, d *hbase.TDurability, n int) {
	attributes := ttl(life)
	if n := len(h.writes); n > 0 && h.writes[n-1].Put != nil && bytes.Equal(h.writes[n-1].Put.Attributes[ttlAttribute], attributes[ttlAttribute]) {
		p := h.writes[n-1].Put
		p.ColumnValues = append(p.ColumnValues, v)
		return
	}
	w, p := &h.firstWrite, &h.firstPut
	if len(h.writes) > 0 {
		w, p = &hbase.TMutation{}, &hbase.TPut{}
	}
	p.Row, p.ColumnValues, p.Attributes, p.Durability = h.row, make([]*hbase.TColumnValue, 1, n), attributes, d
	p.ColumnValues[0], w.Put = v, p
	h.writes = append(h.writes, w)
}

// delete adds to the delete that was added last where it is of the same kind, or
// begins another: a TDelete has one kind.
func (h *mutation) delete(o *cell.Op, d *hbase.TDurability) {
	t := hbase.NewTDelete()
	t.Row, t.Durability = h.row, d
	c := &hbase.TColumn{Family: []byte(o.Family), Timestamp: explicit(&o.Time)}
	switch o.Type {
	case cell.OpDeleteRow:
		t.Timestamp = explicit(&o.Time)
		h.writes = append(h.writes, &hbase.TMutation{DeleteSingle: t})
		return
	case cell.OpDelete:
		t.DeleteType, c.Qualifier = hbase.TDeleteType_DELETE_COLUMN, notNil(o.Qualifier)
	case cell.OpDeleteColumn:
		t.DeleteType, c.Qualifier = hbase.TDeleteType_DELETE_COLUMNS, notNil(o.Qualifier)
	case cell.OpDeleteFamily:
		t.DeleteType = hbase.TDeleteType_DELETE_FAMILY
	case cell.OpDeleteFamilyVersion:
		t.DeleteType = hbase.TDeleteType_DELETE_FAMILY_VERSION
	}
	if o.Type == cell.OpDelete && o.Time == cell.Latest {
		if d := h.deletesNewest(c); d != nil {
			d.Columns = append(d.Columns, c)
			return
		}
	}
	if n := len(h.writes); n > 0 {
		if last := h.writes[n-1].DeleteSingle; last != nil && len(last.Columns) > 0 && last.DeleteType == t.DeleteType && !deletesFamily(last, c.Family) {
			last.Columns = append(last.Columns, c)
			return
		}
	}
	t.Columns = []*hbase.TColumn{c}
	h.writes = append(h.writes, &hbase.TMutation{DeleteSingle: t})
}

// deletesNewest returns the TDelete of h that deletes the newest version of a column
// already, nil where none does. The second of one TDelete deletes the version before
// it, as that of one mutation does elsewhere; HBase counts anew in each
// (HRegion.prepareDeleteTimestamps).
func (h *mutation) deletesNewest(column *hbase.TColumn) *hbase.TDelete {
	for _, w := range h.writes {
		if d := w.DeleteSingle; d != nil && d.DeleteType == hbase.TDeleteType_DELETE_COLUMN && slices.ContainsFunc(d.Columns, func(c *hbase.TColumn) bool {
			return c.Timestamp == nil && bytes.Equal(c.Family, column.Family) && bytes.Equal(c.Qualifier, column.Qualifier)
		}) {
			return d
		}
	}
	return nil
}

// deletesFamily reports whether d deletes a family up to a time. HBase's Delete.addFamily
// would forget that for another time.
func deletesFamily(d *hbase.TDelete, family []byte) bool {
	return d.DeleteType == hbase.TDeleteType_DELETE_FAMILY &&
		slices.ContainsFunc(d.Columns, func(c *hbase.TColumn) bool { return bytes.Equal(c.Family, family) })
}

// notNil keeps an empty qualifier apart from none, which is the family.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// modify adds an increment or an append.
func (h *mutation) modify(o *cell.Op, d *hbase.TDurability) {
	results := true
	if o.Type == cell.OpIncrement {
		if h.increment == nil {
			h.increment = &hbase.TIncrement{Row: h.row, Attributes: ttl(o.TTL), Durability: d, ReturnResults: &results}
		}
		h.increment.Columns = append(h.increment.Columns, &hbase.TColumnIncrement{Family: []byte(o.Family), Qualifier: o.Qualifier, Amount: o.Delta})
		return
	}
	if h.append == nil {
		h.append = &hbase.TAppend{Row: h.row, Attributes: ttl(o.TTL), Durability: d, ReturnResults: &results}
	}
	h.append.Columns = append(h.append.Columns, &hbase.TColumnValue{Family: []byte(o.Family), Qualifier: o.Qualifier, Value: o.Value})
}

// again adds an increment of a counter to the one that h has of it, and reports whether it
// has one: of two increments of a column in one call HBase makes only the last.
func (h *mutation) again(o *cell.Op) bool {
	if h.increment == nil {
		return false
	}
	for _, c := range h.increment.Columns {
		if string(c.Family) == o.Family && bytes.Equal(c.Qualifier, o.Qualifier) {
			c.Amount += o.Delta
			return true
		}
	}
	return false
}

// bulk reports whether h can be sent with other rows of its kind in one call, which HBase
// does not apply as a whole: it is one put or one delete, and may be repeated.
func (h *mutation) bulk() bool { return len(h.writes) == 1 && !h.once }

// servedOverhead is what HBase's servers count besides where they compare a cell with the
// table's limit: its length (PrivateCellUtil.estimatedSerializedSizeOf). The gateway does not.
const servedOverhead = 4

// checkServed refuses the cells that are too large for HBase's servers: found there, the
// other rows of their record were written.
func checkServed(t *store.TableDescriptor, m *cell.Mutation) error {
	limit := t.CellLimit()
	for i := range m.Ops {
		o := &m.Ops[i]
		if size := servedOverhead + store.CellSize(m.Row, o.Family, o.Qualifier, len(o.Value)); size > limit {
			return atRow(t.Name, m.Row, "%w: %s:%.100q has %d bytes, as HBase's servers count, which take %d", store.ErrCellTooLarge, o.Family, o.Qualifier, size, limit)
		}
	}
	return nil
}

// maxRow is the longest row of a table that HBase finds: it looks for its region by
// "table,row,99999999999999", which must not be longer than a row can be, and tries
// for 20 minutes where it is.
func maxRow(table string) int { return cell.MaxRowLength - len(table) - 16 }

// requestBytes is about how long the call of m is, and no less: a cell's fields have
// 36 bytes of names and lengths, a call a few hundred.
func requestBytes(m *cell.Mutation) int {
	n := 512 + len(m.Table) + len(m.Row)
	for i := range m.Ops {
		o := &m.Ops[i]
		n += 36 + len(o.Family) + len(o.Qualifier) + len(o.Value)
	}
	return n
}

// validate returns m for HBase, checked. A family that is missing is HBase's to find
// where a condition comes first.
func (s *Store) validate(ctx context.Context, m *cell.Mutation, conditional bool) (*mutation, error) {
	return s.validateSince(ctx, m, conditional, s.schemas.mark())
}

// validateSince is validate for one of several mutations, which check what is refused against
// a schema that was loaded after mark: one load for all.
func (s *Store) validateSince(ctx context.Context, m *cell.Mutation, conditional bool, mark int) (*mutation, error) {
	t, err := s.checked(ctx, m, conditional, mark)
	if err != nil {
		return nil, err
	}
	return translate(t, m)
}

// checked checks m against the schema of its table, which it returns: what the
// gateway would answer with an internal error, or retry for minutes, is not sent. What is
// refused was checked against a schema that was loaded after mark, see validateSince.
func (s *Store) checked(ctx context.Context, m *cell.Mutation, conditional bool, mark int) (*store.TableDescriptor, error) {
	table := store.CanonicalName(m.Table)
	if system(table) && table != store.OutboxTable && table != store.JobsTable {
		return nil, fmt.Errorf("%w: %s is the store's own", store.ErrRefused, table)
	}
	if n := maxRow(table); len(m.Row) > n {
		return nil, fmt.Errorf("table %s: %w: row key of %d bytes; HBase finds rows of up to %d there", table, store.ErrInvalidArgument, len(m.Row), n)
	}
	for i := range m.Ops {
		o := &m.Ops[i]
		if size := store.CellSize(m.Row, o.Family, o.Qualifier, len(o.Value)); size > s.o.MaxCellBytes {
			return nil, atRow(table, m.Row, "%w: %s:%.100q has %d bytes, the gateway takes %d", store.ErrCellTooLarge, o.Family, o.Qualifier, size, s.o.MaxCellBytes)
		}
	}
	if n := requestBytes(m); s.o.Framed && n > s.o.MaxFrameBytes {
		return nil, atRow(table, m.Row, "%w: a request of about %d bytes; a gateway with framed transport takes %d", store.ErrInvalidArgument, n, s.o.MaxFrameBytes)
	}
	for {
		t, fresh, err := s.schemas.since(ctx, table, mark)
		if err != nil {
			return nil, err
		}
		err = store.ValidateMutation(t, m, s.o.Now())
		if err == nil {
			err = checkServed(t, m)
		}
		switch {
		case err == nil, fresh && conditional && errors.Is(err, store.ErrFamilyNotFound):
			return t, nil
		case fresh:
			return nil, err
		}
		s.schemas.forget(table) // it may have been altered
	}
}

// MutateRow implements store.Engine. Its error wraps store.ErrUnsupported where the
// condition has a filter or a time range, or where m mixes increments, appends and
// other writes; store.ErrUnknownOutcome where the answer was lost and m, or the
// condition, must not be tried twice.
func (s *Store) MutateRow(ctx context.Context, cond *store.Cond, m *cell.Mutation) (store.Result, error) {
	if err := store.CheckNil(m); err != nil {
		return store.Result{}, err
	}
	ctx, end, err := s.begin(ctx, false)
	if err != nil {
		return store.Result{}, fmt.Errorf("mutate row of %s: %w", m.Table, err)
	}
	defer end()
	h, err := s.validate(ctx, m, cond != nil)
	if err != nil {
		return store.Result{}, fmt.Errorf("mutate row: %w", err)
	}
	if cond != nil {
		return s.checkAndMutate(ctx, cond, h)
	}
	return s.mutate(ctx, h)
}

// mutate makes the call that h is, or the calls.
func (s *Store) mutate(ctx context.Context, h *mutation) (store.Result, error) {
	if h.addition != nil {
		if err := s.addElements(ctx, h); err != nil {
			return store.Result{}, atRow(h.table, h.row, "%w", err)
		}
		return store.Result{Applied: true}, nil
	}
	r := request{what: "mutate row", table: h.table, row: h.row, rows: true, once: h.once}
	var result *hbase.TResult_
	err := s.retry(ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		switch table := []byte(h.table); {
		case h.increment != nil:
			result, err = c.Increment(ctx, table, h.increment)
		case h.append != nil:
			result, err = c.Append(ctx, table, h.append)
		case len(h.writes) > 1:
			err = c.MutateRow(ctx, table, &hbase.TRowMutations{Row: h.row, Mutations: h.writes})
		case h.writes[0].Put != nil:
			err = c.Put(ctx, table, h.writes[0].Put)
		default:
			err = c.DeleteSingle(ctx, table, h.writes[0].DeleteSingle)
		}
		return err
	})
	if err != nil {
		return store.Result{}, err
	}
	res := store.Result{Applied: true}
	if result != nil {
		for i, v := range result.ColumnValues {
			if next := i + 1; next < len(result.ColumnValues) && bytes.Equal(v.Family, result.ColumnValues[next].Family) && bytes.Equal(v.Qualifier, result.ColumnValues[next].Qualifier) {
				continue // a column that was named twice, of which the last cell stays
			}
			res.Cells = append(res.Cells, cell.Cell{Family: string(v.Family), Qualifier: v.Qualifier, Time: cell.Timestamp(v.GetTimestamp()), Kind: cell.KindPut, Value: v.Value})
		}
		if len(h.counters) > 0 {
			if res.Cells, err = s.totals(ctx, h, res.Cells); err != nil {
				return store.Result{}, atRow(h.table, h.row, "%w: it was incremented, but the sum is not known: %w", store.ErrUnknownOutcome, err)
			}
		}
		slices.SortFunc(res.Cells, cell.CompareColumns)
	}
	return res, nil
}

// totals returns the cells of an increment, some of them of COUNTER families, as a
// reader sees them: with what pipelines have counted in the same columns, as it is
// right after.
func (s *Store) totals(ctx context.Context, h *mutation, cells []cell.Cell) ([]cell.Cell, error) {
	get := &hbase.TGet{Row: h.row}
	sums := map[string]*cell.Cell{} // by family and column
	key := func(family string, column []byte) string { return family + "\x00" + string(column) }
	for _, c := range h.counters {
		column := &hbase.TColumn{Family: []byte(c.Family)}
		if !slices.ContainsFunc(get.Columns, func(o *hbase.TColumn) bool { return string(o.Family) == c.Family }) {
			get.Columns = append(get.Columns, column)
		}
	}
	results, err := s.getMultiple(ctx, h.table, []*hbase.TGet{get})
	if err != nil {
		return nil, err
	}
	for i := range cells {
		c := &cells[i]
		if column, source, _, _, err := decodeCounter(c.Qualifier, nil); err == nil && source == apiSource {
			c.Qualifier = column
			sums[key(c.Family, column)] = c
		}
	}
	for _, v := range results[0].ColumnValues {
		column, source, partition, _, err := decodeCounter(v.Qualifier, nil)
		if err != nil {
			return nil, err
		}
		c := sums[key(string(v.Family), column)]
		if c == nil || source == apiSource && partition == 0 {
			continue
		}
		n, err := decodeCount(v.Value, cell.Timestamp(v.GetTimestamp()))
		if err != nil {
			return nil, err
		}
		binary.BigEndian.PutUint64(c.Value, binary.BigEndian.Uint64(c.Value)+uint64(n.n))
		if source != apiSource || partition != takenPartition { // whose time is one of the API's
			c.Time = max(c.Time, n.time)
		}
	}
	return cells, nil
}

// checkAndMutate applies h where cond holds.
func (s *Store) checkAndMutate(ctx context.Context, cond *store.Cond, h *mutation) (store.Result, error) {
	fail := func(err error) (store.Result, error) {
		return store.Result{}, fmt.Errorf("condition on table %s, row %.100q: %w", h.table, h.row, err)
	}
	t, _, err := s.schemas.get(ctx, h.table)
	switch {
	case err != nil:
		return fail(err)
	case cond.Filter != nil || cond.Time != nil:
		return fail(fmt.Errorf("%w through HBase's Thrift2 gateway: a condition compares the newest version of one column", store.ErrUnsupported))
	case t.Family(cond.Family) == nil:
		return fail(fmt.Errorf("%w: %q", store.ErrFamilyNotFound, cond.Family))
	case cond.Op < store.Less || cond.Op > store.Greater:
		return fail(fmt.Errorf("%w: comparison %d", store.ErrInvalidArgument, cond.Op))
	case len(h.writes) == 0:
		return fail(fmt.Errorf("%w through HBase's Thrift2 gateway: an increment or append has no condition", store.ErrUnsupported))
	}
	var applied bool
	r := request{what: "check and mutate row of", table: h.table, rows: true, once: true}
	err = s.retry(ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		applied, err = c.CheckAndMutate(ctx, []byte(h.table), h.row, []byte(cond.Family), cond.Qualifier,
			hbase.TCompareOp(cond.Op-store.Less), cond.Value, &hbase.TRowMutations{Row: h.row, Mutations: h.writes})
		return err
	})
	if err != nil {
		return fail(err)
	}
	return store.Result{Applied: applied}, nil
}
