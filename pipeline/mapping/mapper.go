package mapping

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/expr-lang/expr/vm"

	"sluice/cell"
	"sluice/pipeline/decode"
	"sluice/pipeline/memory"
	"sluice/store"
)

// The classes of a record that is refused before it is decoded.
const (
	classRecord  = "record_too_large"  // more than decode.max_record_bytes
	classHeaders = "headers_too_large" // more than decode.max_header_bytes
)

// classSchema is the class of a record whose schema the registry does not have, or not yet.
const classSchema = "no_schema"

// The classes of a map error.
const (
	classMissing    = "missing_field" // a row, qualifier, table, counter or condition needs what the record lacks
	classRow        = "bad_row"       // the row key is empty or too long
	classTime       = "bad_time"      // the event time or a timestamp cannot be read, or is negative
	classLate       = "late"          // the event is older than event_time.allowed_lateness, and a policy is for that
	classFuture     = "future"        // the event is beyond event_time.max_future
	classValue      = "bad_value"     // a function got what it does not take
	classTable      = "bad_table"     // the table's name breaks a rule
	classTooMany    = "too_many"      // the record becomes more mutations, or bytes, than is allowed
	classExpression = "expression"    // expr's machine failed
)

// Classes returns every class that an Error can have: those of the map stage, and
// for the decode stage the formats, what is too large and what lacks its schema.
func Classes() []string {
	return append([]string{classMissing, classRow, classTime, classLate, classFuture, classValue, classTable, classTooMany, classExpression, classRecord, classHeaders, classSchema}, decode.Formats()...)
}

// Mapper maps records by a Plan. It is made for one goroutine.
type Mapper struct {
	plan    *Plan
	memory  *memory.Share // of the decoder; nil = none
	decoder decode.Decoder
	emit    func(*decode.Document) error
	out     Output
	checks  []*store.Cond // of the mutations, in units
	conds   []store.Cond  // what checks point to
	ends    []unit
	loops   []loopState // by Plan.loops
	buf     []byte      // rows, qualifiers and values of out that had to be made: the newest of them
	made    int         // bytes of those before buf
	crossed int         // elements that were gone through in loops within loops
	spent   int64       // bytes that were read: see spend
	scratch []byte
	dates   []dateCache   // by Plan.dates
	tables  []string      // last table name of each rule that makes its own
	machine vm.VM         // runs what is not direct
	missing *missingError // last source that the machine found missing
	// Of the run of machine, by beginRun.
	runs     uint64        // so far
	building int64         // bytes of texts that it has made
	copies   []sourceCopy  // by source
	buckets  []bucketCache // by rollupBucket.cache
	values   [][]byte      // of the dimensions of the current rollup
	names    [][]byte      // of its buckets

	record *Record // the current record and document
	topic  []byte
	doc    *decode.Document
	time   int64
}

// NewMapper returns a Mapper of p, which does not count the memory that payloads unfold to.
func (p *Plan) NewMapper() *Mapper {
	m, err := p.NewMapperIn(nil)
	if err != nil {
		panic("mapping: a compiled plan has no decoder: " + err.Error()) // Compile made one
	}
	return m
}

// Unpacks reports whether payloads unfold (DecodeSpec.Unpacks).
func (p *Plan) Unpacks() bool { return p.decode.Unpacks() }

// NewMapperIn returns a Mapper of p that takes the memory of what payloads unfold to out of
// s, where that is more than a little (decode.Options.Memory); nil does not count it. Its
// Map may return a *decode.Pending for that, and it is to be Released after each record.
// Its error says that s has too little for one payload.
func (p *Plan) NewMapperIn(s *memory.Share) (*Mapper, error) {
	o := *p.decode
	if o.Unpacks() {
		o.Memory = s
	}
	d, err := decode.New(&o, p.fields)
	if err != nil {
		return nil, err
	}
	return p.mapper(s, d), nil
}

// mapper returns a Mapper with a decoder that no other one has.
func (p *Plan) mapper(s *memory.Share, d decode.Decoder) *Mapper {
	m := &Mapper{plan: p, memory: s, decoder: d, dates: make([]dateCache, len(p.dates)), tables: make([]string, len(p.rules)), topic: []byte{}}
	for i := range p.rollups {
		m.buckets = append(m.buckets, make([]bucketCache, len(p.rollups[i].buckets))...)
	}
	m.emit = m.document
	for _, l := range p.loops {
		m.loops = append(m.loops, loopState{elements: decode.NewElements(l.fields)})
	}
	return m
}

// What a Mapper keeps from a record for the next one, in bytes made and in mutations. More
// is rare, and would stay in memory for each partition that ever had it.
const (
	maxKeptBytes     = 256 << 10
	maxKeptMutations = 1024
)

// maxMade bounds the rows, qualifiers and values that are made for one record, in bytes. A
// text of the record that is part of each of them is as often in memory as the record has
// elements: 300 KB can ask for gigabytes. It is as much as a payload may unfold to.
const maxMade = decode.DefaultMaxBytes

// maxCrossed bounds the elements that loops within loops go through for one record. Two
// arrays of 300,000 elements each, 1.2 MB, have 9·10¹⁰ pairs: a condition may refuse them
// all, and the partition would stand still for hours.
const maxCrossed = 10_000_000

// maxSpent bounds the bytes that loops within loops, and expr's machine, read for one
// record. An array of 200,000 small elements beside one of 50 large ones, 1 MB, has
// maxCrossed pairs, and to go through them is to read 100 GB; so is a text that a condition
// searches for each element. A payload of 64 MiB may be read whole by 32 expressions, as JSON.
const maxSpent = 16 << 30

// jsonCost is how many times as long a byte takes that becomes a value of the machine, or
// is counted by len, as one that is skipped or copied.
const jsonCost = 8

// spend notes that n bytes are read, and returns a *tooMuchError where they are too many.
func (m *Mapper) spend(n int) error {
	if m.spent += int64(n); m.spent > m.plan.maxSpent {
		return m.plan.tooMuchSpent()
	}
	return nil
}

// Release ends the last Output, and gives back the memory that it took.
func (m *Mapper) Release() {
	if d, ok := m.decoder.(decode.Unpacker); ok {
		if held := d.Yield(); held.Bytes() > 0 {
			m.renew()
			held.Release()
			return
		}
	}
	large := m.record != nil && len(m.record.Value) > maxKeptBytes
	if large || m.made > 0 || cap(m.buf) > maxKeptBytes || cap(m.scratch) > maxKeptBytes || cap(m.out.Mutations) > maxKeptMutations {
		// All of it: what is made of one part refers to another.
		m.buf, m.scratch, m.values, m.names, m.machine, m.copies = nil, nil, nil, nil, vm.VM{}, nil
		m.out.Mutations, m.out.Records, m.checks, m.conds, m.ends = nil, nil, nil, nil, nil
	}
}

// renew makes m as new, with a decoder of its own: nothing refers to the last record.
func (m *Mapper) renew() {
	fresh, err := m.plan.NewMapperIn(m.memory)
	if err != nil {
		panic("mapping: a plan that had a decoder has none: " + err.Error())
	}
	*m = *fresh
	m.emit = m.document
}

// Forget is Release that lets go of the bytes of the last record, too, and of those
// before: until then they stay in memory, and all that shares memory with them.
func (m *Mapper) Forget() {
	m.Release()
	d, ok := m.decoder.(decode.Forgetter)
	if !ok {
		m.renew()
		return
	}
	d.Forget()
	*m = *m.plan.mapper(m.memory, m.decoder)
	m.emit = m.document
}

// Map returns what r becomes: the mutations of all its documents, in order. Its
// error is an *Error; then nothing of r is to be applied, though some of its
// documents may be good. Or it is a *decode.Pending, which says nothing of r: map
// it again once its schema is fetched, as MapFetching does. Output's bytes are r's
// where they can be: it is valid until the next Map and as long as r's slices are
// not changed.
func (m *Mapper) Map(r *Record) (*Output, error) {
	m.record = r
	if string(m.topic) != r.Topic {
		m.topic = append(m.topic[:0], r.Topic...)
	}
	m.buf, m.made, m.crossed, m.spent = m.buf[:0], 0, 0, 0
	m.out.Mutations, m.out.Records, m.out.Late = m.out.Mutations[:0], m.out.Records[:0], false
	m.checks, m.conds, m.ends = m.checks[:0], m.conds[:0], m.ends[:0]
	for i := range m.loops {
		m.loops[i].elements.Reset()
		m.loops[i].element = decode.Value{}
	}
	if m.plan.limits != (limits{}) {
		if err := m.plan.limits.check(r); err != nil {
			return nil, err
		}
	}
	if err := m.payload(r); err != nil {
		switch e := err.(type) {
		case *Error:
			return nil, e
		case *decode.Pending:
			return nil, e
		}
		class := m.plan.decode.Format
		if errors.Is(err, decode.ErrNoSchema) {
			class = classSchema
		}
		return nil, &Error{Stage: StageDecode, Class: class, Err: err}
	}
	m.records()
	return &m.out, nil
}

// MapFetching is Map that fetches the schemas which the decoder lacks. Its error
// may wrap decode.ErrUnavailable, too, or be the context's.
func (m *Mapper) MapFetching(ctx context.Context, r *Record) (*Output, error) {
	for {
		out, err := m.Map(r)
		pending, ok := err.(*decode.Pending)
		if !ok {
			return out, err
		}
		if err := pending.Fetch(ctx); err != nil {
			return nil, err
		}
	}
}

// document maps one document of the record.
func (m *Mapper) document(d *decode.Document) error {
	m.doc = d
	t, err := m.eventTime()
	if err != nil {
		return err
	}
	m.time = t
	from := len(m.out.Mutations)
	for i := range m.plan.rules {
		if len(m.plan.rules[i].loops) > 0 {
			err = m.each(i, 0)
		} else {
			err = m.apply(i)
		}
		if err != nil {
			return err
		}
	}
	for i := range m.plan.rollups {
		if err := m.rollup(i); err != nil {
			return err
		}
	}
	return m.endUnit(from)
}

func (m *Mapper) eventTime() (int64, error) {
	e := &m.plan.event
	if e.field >= 0 {
		if v := m.doc.Value(e.field); !v.Absent() {
			t, err := e.parse(v.Kind, v.Bytes)
			switch {
			case err != nil:
			case t < 0:
				err = valueErrorf("%d ms is before 1970", t)
			case t == math.MaxInt64: // cell.Latest: the store's clock, not a time
				err = valueErrorf("%d ms is no time", t)
			}
			if err != nil {
				return 0, &Error{Stage: StageMap, Class: classTime, Err: fmt.Errorf("event time: %w", err)}
			}
			late, err := e.bounded(t, m.record.Timestamp)
			m.out.Late = m.out.Late || late
			return t, err
		}
		if e.required != nil {
			return 0, &Error{Stage: StageMap, Class: classMissing, Err: fmt.Errorf("event time: %w", e.required)}
		}
	}
	if t := m.record.Timestamp; t >= 0 && t < math.MaxInt64 {
		return t, nil
	}
	return 0, &Error{Stage: StageMap, Class: classTime, Err: fmt.Errorf("event time: the record's timestamp is %d ms", m.record.Timestamp)}
}

// bounded says whether an event happened too long before its record was made, and
// refuses one that happened too long after it. It is the record's timestamp that tells and no clock, so that a record that
// is read again is judged alike.
func (e *eventTime) bounded(t, record int64) (isLate bool, err error) {
	if record < 0 {
		return false, nil // the record has no timestamp
	}
	late, future := record-t, t-record // neither is negative: no overflow
	switch {
	case e.lateness > 0 && late > e.lateness:
		if !e.refuseLate {
			return true, nil
		}
		return true, &Error{Stage: StageMap, Class: classLate, Err: fmt.Errorf("event time: %v before the record's timestamp, at most %v is allowed", ms(late), ms(e.lateness))}
	case e.future > 0 && future > e.future:
		return false, &Error{Stage: StageMap, Class: classFuture, Err: fmt.Errorf("event time: %v after the record's timestamp, at most %v is allowed", ms(future), ms(e.future))}
	}
	return false, nil
}

func ms(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// apply applies rule i to the document and the current elements of its loops.
func (m *Mapper) apply(i int) error {
	r := &m.plan.rules[i]
	if r.when != nil {
		if ok, err := r.when(m); err != nil {
			return m.fail(i, "when", err)
		} else if !ok {
			return nil
		}
	}
	table, err := m.table(i)
	if err != nil {
		return err
	}
	row, err := m.bytes(&r.row)
	if err != nil {
		return m.fail(i, "row", err)
	}
	if err := cell.CheckRow(row); err != nil {
		return &Error{Stage: StageMap, Class: classRow, Err: fmt.Errorf("map[%d].row: %d bytes: %w", i, len(row), err)}
	}
	t := m.time
	if r.timestamp != nil {
		if t, err = r.timestamp(m); err != nil {
			return m.fail(i, "timestamp", err)
		}
		if t < 0 || t == math.MaxInt64 {
			return &Error{Stage: StageMap, Class: classTime, Err: fmt.Errorf("map[%d].timestamp: %d ms is no time", i, t)}
		}
	}
	if len(m.out.Mutations) == maxMutations {
		return tooMany(fmt.Sprintf("map[%d]", i))
	}
	mut := m.next()
	mut.Table, mut.Row = table, row
	if err := m.deletes(mut, i, cell.Timestamp(t)); err != nil {
		return err
	}
	if err := m.columns(mut, i, "put", r.puts, cell.Op{Type: cell.OpPut, Time: cell.Timestamp(t)}); err != nil {
		return err
	}
	if err := m.columns(mut, i, "append", r.appends, cell.Op{Type: cell.OpAppend, Time: cell.Timestamp(t)}); err != nil {
		return err
	}
	for k := range r.adds {
		if err := m.add(mut, &r.adds[k], t); err != nil {
			return m.fail(i, "increment["+strconv.Itoa(k)+"]", err)
		}
	}
	if len(mut.Ops) == 0 {
		m.out.Mutations = m.out.Mutations[:len(m.out.Mutations)-1]
		return nil
	}
	if m.plan.units {
		cond, err := m.cond(i)
		if err != nil {
			return err
		}
		m.checks = append(m.checks, cond)
	}
	return nil
}

// columns adds the columns of rule i's key, put or append, to mut: each an op with
// its family, qualifier and value.
func (m *Mapper) columns(mut *cell.Mutation, i int, key string, puts []put, op cell.Op) error {
	for k := range puts {
		p := &puts[k]
		value, err := m.bytes(&p.value)
		if err != nil {
			if _, missing := err.(*missingError); missing {
				continue // an event without the field has no such column
			}
			return m.fail(i, key+"."+p.family+"."+string(p.qualifier), err)
		}
		op.Family, op.Qualifier, op.Value = p.family, p.qualifier, value
		mut.Ops = append(mut.Ops, op)
	}
	return nil
}

func (m *Mapper) add(mut *cell.Mutation, a *add, t int64) error {
	if a.when != nil {
		if ok, err := a.when(m); err != nil || !ok {
			return err
		}
	}
	qualifier, err := m.bytes(&a.qualifier)
	if err != nil {
		return err
	}
	by := int64(1)
	if a.by != nil {
		if by, err = a.by(m); err != nil {
			return err
		}
	}
	mut.Ops = append(mut.Ops, cell.Op{Type: cell.OpIncrement, Family: a.family, Qualifier: qualifier, Time: cell.Timestamp(t), Delta: by})
	return nil
}

// tooMany makes an *Error of a rule at path that would make one mutation more than
// are allowed.
func tooMany(path string) error {
	return &Error{Stage: StageMap, Class: classTooMany, Err: fmt.Errorf("%s: the record becomes more than %d mutations", path, maxMutations)}
}

// next returns an empty mutation at the end of the output, which has fewer than
// maxMutations, in memory of an earlier one where there is some.
func (m *Mapper) next() *cell.Mutation {
	n := len(m.out.Mutations)
	if n == cap(m.out.Mutations) {
		m.out.Mutations = append(m.out.Mutations, cell.Mutation{})
	} else {
		m.out.Mutations = m.out.Mutations[:n+1]
	}
	mut := &m.out.Mutations[n]
	mut.Ops = mut.Ops[:0]
	return mut
}

// table returns the table of rule i.
func (m *Mapper) table(i int) (string, error) {
	r := &m.plan.rules[i]
	if r.tableName == nil {
		return r.table, nil
	}
	name, err := r.tableName(m, m.scratch[:0])
	m.scratch = name[:0]
	if err != nil {
		return "", m.fail(i, "table", err)
	}
	if string(name) != m.tables[i] {
		s := string(name)
		if err := store.CheckTableName(s); err != nil {
			return "", &Error{Stage: StageMap, Class: classTable, Err: fmt.Errorf("map[%d].table: %w", i, err)}
		}
		m.tables[i] = s
	}
	return m.tables[i], nil
}

// bytes returns the value of t: bytes of the record, or new ones in m.buf.
func (m *Mapper) bytes(t *text) ([]byte, error) {
	if s := t.source; s != nil {
		_, b := m.read(s)
		if b == nil {
			return nil, s.missing
		}
		return b[:len(b):len(b)], nil
	}
	if err := m.room(); err != nil {
		return nil, err
	}
	start := len(m.buf)
	buf, err := t.make(m, m.buf)
	if err != nil {
		return nil, err
	}
	m.buf = buf
	return buf[start:len(buf):len(buf)], nil
}

// room makes room in m.buf for one more, or returns a *tooMuchError. What was made before
// is referred to: a slice that grows would leave a copy of all of it behind each time.
func (m *Mapper) room() error {
	if m.made+len(m.buf) > m.plan.maxMade {
		return m.plan.tooMuchMade()
	}
	if len(m.buf) > maxKeptBytes/4*3 { // a quarter is room for the next one, as a rule
		m.made += len(m.buf)
		m.buf = make([]byte, 0, maxKeptBytes)
	}
	return nil
}

// tooMuchError: a record asks for more than is made for one, or gone through.
type tooMuchError struct{ reason string }

func (e *tooMuchError) Error() string { return e.reason }

func (p *Plan) tooMuchMade() error {
	return &tooMuchError{fmt.Sprintf("more than %d bytes of rows, qualifiers and values are made for the record", p.maxMade)}
}

func (p *Plan) tooManyCrossed() error {
	return &tooMuchError{fmt.Sprintf("more than %d elements of arrays within others, or beside them, are gone through", p.maxCrossed)}
}

func (p *Plan) tooMuchSpent() error {
	return &tooMuchError{fmt.Sprintf("more than %d bytes are read for the record, as its fields are read for each of many elements", p.maxSpent)}
}

// read returns the bytes of a source that is no integer of the record; nil where
// it is missing or null.
func (m *Mapper) read(s *source) (decode.Kind, []byte) {
	switch s.kind {
	case sourceField:
		v := m.doc.Value(s.field)
		return v.Kind, v.Bytes
	case sourceTopic:
		return decode.String, m.topic
	case sourceKey:
		return decode.String, m.record.Key
	case sourceValue:
		return decode.String, m.record.Value
	case sourceElement:
		l := &m.loops[s.loop]
		if s.field < 0 {
			return l.element.Kind, l.element.Bytes
		}
		v := l.doc.Value(s.field)
		return v.Kind, v.Bytes
	case sourceHeader:
		// The last of several wins, as Kafka's lastHeader.
		for i := len(m.record.Headers) - 1; i >= 0; i-- {
			if h := &m.record.Headers[i]; string(h.Key) == string(s.header) {
				return decode.String, h.Value
			}
		}
	}
	return decode.Missing, nil
}

// fail makes an *Error of what an expression of rule i returned.
func (m *Mapper) fail(i int, key string, err error) error {
	return failed(fmt.Sprintf("map[%d].%s", i, key), err)
}

// failed makes an *Error of what the expression at path returned.
func failed(path string, err error) error {
	class := classExpression
	var missing *missingError
	var value *valueError
	var much *tooMuchError
	switch {
	case errors.As(err, &missing):
		class = classMissing
	case errors.As(err, &much):
		class = classTooMany
	case errors.As(err, &value):
		class = classValue
	}
	return &Error{Stage: StageMap, Class: class, Err: fmt.Errorf("%s: %w", path, err)}
}

// parseUnix reads a number of units since the epoch, of so many ms each, rounded
// to whole ms.
func parseUnix(unit int64) func(k decode.Kind, b []byte) (int64, error) {
	shift := 0
	if unit == 1000 {
		shift = 3
	}
	return func(k decode.Kind, b []byte) (int64, error) {
		if k != decode.Number && k != decode.String {
			return 0, valueErrorf("%s, where a number is needed", named(k))
		}
		if i, ok := parseInteger(b); ok {
			if i > math.MaxInt64/unit || i < math.MinInt64/unit {
				return 0, valueErrorf("%s is out of range", clip(b))
			}
			return i * unit, nil
		}
		if i, ok := roundedNumber(b, shift); ok { // a float may be half a ms of what is less
			return i, nil
		}
		f, err := strconv.ParseFloat(string(b), 64)
		if err != nil || math.IsNaN(f) || bytes.ContainsAny(b, "_xX") { // as Go's own numbers may be written
			return 0, valueErrorf("%q is no number", clip(b))
		}
		return integerOfFloat(math.Round(f * float64(unit)))
	}
}

func parseRFC3339(k decode.Kind, b []byte) (int64, error) {
	var t time.Time
	if k != decode.String || t.UnmarshalText(b) != nil || !isRFC3339(b) {
		return 0, valueErrorf("%q is no RFC 3339 time", clip(b))
	}
	return t.UnixMilli(), nil
}

// isRFC3339 reports whether a time that package time reads is written as RFC 3339 has it,
// section 5.6: that reads hours of one digit, commas, and zones of +24:60, too.
func isRFC3339(b []byte) bool {
	const comma, zone = len("2006-01-02T15:04:05"), len("07:00")
	if b[len("2006-01-02T1")] == ':' || b[comma] == ',' {
		return false
	}
	if b[len(b)-1] == 'Z' {
		return true
	}
	offset := b[len(b)-zone:]
	return string(offset[:2]) < "24" && string(offset[3:]) < "60"
}
