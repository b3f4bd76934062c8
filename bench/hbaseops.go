package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/cell"
	"sluice/config"
	"sluice/store"
	"sluice/store/hbasestore/bare"
	"sluice/store/pebblestore"
)

// What the operations of a run are driven on.
const (
	embeddedSide = "embedded"
	gatewaySide  = "HBase"
	bareSide     = "bare loop"
)

// The tables of a run, each of family f and four regions.
const (
	hbaseTables  = "sluice_bench_"
	readTable    = hbaseTables + "read"    // rows that are scanned and got
	writtenTable = hbaseTables + "written" // rows in batches
	singleTable  = hbaseTables + "single"  // increments and check-and-puts
)

const (
	hbaseBatch = 500
	// rowsLimit bounds the rows that one window writes, so that an embedded
	// engine's compactions do not take longer than the run.
	rowsLimit = 400_000
	// barePage is what the bare loop fetches a call: about 300 KB.
	barePage = 1000
)

var (
	hbaseFamily  = []byte("f")
	hbaseColumns = [...][]byte{[]byte("c0"), []byte("c1"), []byte("c2"), []byte("c3"), []byte("c4"), []byte("c5")}
	hbaseValue   = []byte("01234567890123456789")
	countColumn  = []byte("n")
	turnColumn   = []byte("turn")
)

// hbaseKind is what an operation does.
type hbaseKind string

const (
	putBatches   hbaseKind = "rows of six columns, batches of 500"
	getRows      hbaseKind = "get"
	scanRegions  hbaseKind = "scan, rows"
	incrementOne hbaseKind = "increment"
	checkAndPut  hbaseKind = "check-and-put"
)

// hbaseOperation is what is measured.
type hbaseOperation struct {
	kind    hbaseKind
	callers int
}

// hbaseOperations have those of one caller for comparison with the bare loop. A
// caller of a scan reads regions of its own.
var hbaseOperations = []hbaseOperation{
	{putBatches, 1},
	{putBatches, 8},
	{getRows, 1},
	{getRows, 8},
	{scanRegions, 1},
	{scanRegions, 4},
	{incrementOne, 1},
	{incrementOne, 8},
	{incrementOne, 256},
	{checkAndPut, 1},
	{checkAndPut, 8},
	{checkAndPut, 256},
}

// of reports whether op is measured on s: the bare loop has one connection.
func (op *hbaseOperation) of(s *hbaseSide) bool { return s.bare == nil || op.callers == 1 }

// writes reports whether op leaves the store something to flush and to compact.
func (op *hbaseOperation) writes() bool { return op.kind != getRows && op.kind != scanRegions }

func (op *hbaseOperation) what() string {
	switch {
	case op.kind == scanRegions && op.callers == 1:
		return string(op.kind) + ", a region at a time"
	case op.kind == scanRegions:
		return fmt.Sprintf("%s, %d regions at a time", op.kind, op.callers)
	case op.callers == 1:
		return string(op.kind) + ", 1 caller"
	}
	return fmt.Sprintf("%s, %d callers", op.kind, op.callers)
}

// hbaseWritten is what must be found in the end.
type hbaseWritten struct{ rows, increments, turns atomic.Int64 }

func (w *hbaseWritten) add(other *hbaseWritten) {
	w.rows.Add(other.rows.Load())
	w.increments.Add(other.increments.Load())
	w.turns.Add(other.turns.Load())
}

// hbaseSide is what operations are driven on: a store, or the generated client code
// alone where bare is not nil.
type hbaseSide struct {
	name    string
	engine  config.Engine
	bare    *bare.Client
	servers []int // processes that serve it; nil = none, or not known

	keys    [][]byte // of readTable
	written hbaseWritten
	windows int // that were measured
}

// rowKey fills key, of 9 bytes, with the n-th of different keys that are spread over
// the regions; a side's begin with the same letter.
func (s *hbaseSide) rowKey(key []byte, n int64) {
	const digits = "0123456789abcdef"
	h := uint32(n) * 2654435761 // odd: no two of 2^32 are equal
	for i := range 8 {
		key[i] = digits[h>>(28-4*i)&15]
	}
	key[8] = s.name[0]
}

// makeTables makes the tables anew, with rows to be read.
func (s *hbaseSide) makeTables(ctx context.Context, rows int) error {
	if err := dropHBaseTables(ctx, s.engine); err != nil {
		return err
	}
	for _, name := range []string{readTable, writtenTable, singleTable} {
		d := &store.TableDescriptor{Name: name, Families: []store.FamilyDescriptor{store.NewFamily(string(hbaseFamily))}}
		if err := s.engine.CreateTable(ctx, d, [][]byte{[]byte("4"), []byte("8"), []byte("c")}); err != nil {
			return err
		}
	}
	b := newPutBatch(readTable)
	for n := 0; n < rows; n += hbaseBatch {
		for i := range b.Mutations {
			s.rowKey(b.Mutations[i].Row, int64(n+i))
		}
		if err := s.engine.Apply(ctx, b); err != nil {
			return err
		}
	}
	for i := range (rows + hbaseBatch - 1) / hbaseBatch * hbaseBatch {
		key := make([]byte, 9)
		s.rowKey(key, int64(i))
		s.keys = append(s.keys, key)
	}
	return nil
}

// newPutBatch returns a batch of rows whose keys are still to be set.
func newPutBatch(table string) *store.Batch {
	b := &store.Batch{}
	for i := range hbaseBatch {
		m := cell.Mutation{Table: table, Row: make([]byte, 9)}
		for _, c := range hbaseColumns {
			m.Put(string(hbaseFamily), c, besideStart, hbaseValue)
		}
		b.Add(int64(i), m)
	}
	return b
}

// measure drives op until the window is over, each caller once at least.
func (s *hbaseSide) measure(ctx context.Context, op *hbaseOperation, window time.Duration) (hbaseSample, error) {
	runtime.GC()
	s.windows++
	m, err := startMeter(0)
	if err != nil {
		return hbaseSample{}, err
	}
	served, err := processesCPU(s.servers)
	if err != nil {
		return hbaseSample{}, err
	}
	ends := time.Now().Add(window)
	var done atomic.Int64
	g, driving := errgroup.WithContext(ctx)
	for caller := range op.callers {
		g.Go(func() error {
			calls := 0
			more := func() bool { // once, however late it is
				calls++
				return driving.Err() == nil && (calls == 1 || time.Now().Before(ends))
			}
			return s.drive(driving, op, caller, more, &done)
		})
	}
	if err := errors.Join(g.Wait(), ctx.Err()); err != nil {
		return hbaseSample{}, err
	}
	got, err := m.stop()
	if err != nil {
		return hbaseSample{}, err
	}
	now, err := processesCPU(s.servers)
	if err != nil {
		return hbaseSample{}, err
	}
	out := hbaseSample{n: done.Load(), seconds: got.Seconds, client: got.CPU, servers: (now - served).Seconds(), foreign: got.Foreign}
	if got.Foreign >= 0 {
		out.foreign = max(got.Foreign-out.servers/got.Seconds/float64(runtime.NumCPU()), 0)
	}
	if op.writes() && s.name == embeddedSide {
		// Its flushes and compactions come later, and in this process: neither the rate
		// nor the CPU of what is measured next is to have them.
		if err := m.settle(&got, min(4*window, pebblestore.GatherRest)); err != nil {
			return hbaseSample{}, err
		}
		if op.kind == putBatches {
			out.client = got.Settled
		}
	}
	return out, nil
}

// drive is one caller of an operation. It adds what it has done to done.
func (s *hbaseSide) drive(ctx context.Context, op *hbaseOperation, caller int, more func() bool, done *atomic.Int64) error {
	switch op.kind {
	case putBatches:
		return s.putBatches(ctx, more, done)
	case getRows:
		return s.getRows(ctx, caller, more, done)
	case scanRegions:
		return s.scan(ctx, op, caller, more, done)
	}
	// Rows of a caller and window of its own, wherever they lie.
	row := make([]byte, 9, 9+32)
	s.rowKey(row, int64(caller+1))
	row = fmt.Appendf(row, "-%d-%d", s.windows, caller)
	if op.kind == incrementOne {
		return s.increments(ctx, row, more, done)
	}
	return s.checkAndPuts(ctx, row, more, done)
}

func (s *hbaseSide) putBatches(ctx context.Context, more func() bool, done *atomic.Int64) error {
	b := newPutBatch(writtenTable)
	ms := make([]*cell.Mutation, len(b.Mutations))
	for i := range ms {
		ms[i] = &b.Mutations[i].Mutation
	}
	for more() && done.Load() < rowsLimit {
		last := s.written.rows.Add(hbaseBatch)
		for i := range ms {
			s.rowKey(ms[i].Row, last-int64(i))
		}
		var err error
		if s.bare != nil {
			err = s.bare.Put(ctx, []byte(writtenTable), ms)
		} else {
			err = s.engine.Apply(ctx, b)
		}
		if err != nil {
			return err
		}
		done.Add(hbaseBatch)
	}
	return nil
}

func (s *hbaseSide) getRows(ctx context.Context, caller int, more func() bool, done *atomic.Int64) error {
	for i := caller * 1009; more(); i++ {
		row := s.keys[i*7919%len(s.keys)]
		cells, err := 0, error(nil)
		if s.bare != nil {
			cells, err = s.bare.Get(ctx, []byte(readTable), row)
		} else {
			sc := s.engine.Scan(ctx, &store.Scan{Table: readTable, Start: row, Stop: row, StopInclusive: true})
			err = each(sc, func(r *cell.Row) error { cells += len(r.Cells); return nil })
		}
		if err == nil && cells != len(hbaseColumns) {
			err = fmt.Errorf("WRONG: row %s has %d cells, want %d", row, cells, len(hbaseColumns))
		}
		if err != nil {
			return err
		}
		done.Add(1)
	}
	return nil
}

// scan reads the regions of the caller.
func (s *hbaseSide) scan(ctx context.Context, op *hbaseOperation, caller int, more func() bool, done *atomic.Int64) error {
	m, err := s.engine.Regions(ctx, readTable)
	if err != nil {
		return err
	}
	if m.Len() != 4 {
		return fmt.Errorf("table %s has %d regions, want 4", readTable, m.Len())
	}
	want := 0
	scan := store.Scan{Table: readTable}
	for _, key := range s.keys {
		if op.callers == 1 || m.Locate(key) == caller {
			want++
		}
	}
	if op.callers > 1 {
		i := m.At(caller)
		scan.Start, scan.Stop = i.Start, i.Stop
	}
	for more() {
		rows, cells := 0, 0
		if s.bare != nil {
			rows, cells, err = s.bare.Scan(ctx, []byte(readTable), barePage)
		} else {
			err = each(s.engine.Scan(ctx, &scan), func(r *cell.Row) error {
				rows++
				cells += len(r.Cells)
				return nil
			})
		}
		if err == nil && (rows != want || cells != want*len(hbaseColumns)) {
			err = fmt.Errorf("WRONG: scanned %d rows and %d cells, want %d rows of %d", rows, cells, want, len(hbaseColumns))
		}
		if err != nil {
			return err
		}
		done.Add(int64(rows))
	}
	return nil
}

func (s *hbaseSide) increments(ctx context.Context, row []byte, more func() bool, done *atomic.Int64) error {
	m := cell.Mutation{Table: singleTable, Row: row}
	m.Increment(string(hbaseFamily), countColumn, 1)
	for n := int64(1); more(); n++ {
		got := int64(0)
		if s.bare != nil {
			var err error
			if got, err = s.bare.Increment(ctx, []byte(singleTable), row, hbaseFamily, countColumn); err != nil {
				return err
			}
		} else {
			r, err := s.engine.MutateRow(ctx, nil, &m)
			if err != nil {
				return err
			}
			if len(r.Cells) == 1 && len(r.Cells[0].Value) == 8 {
				got = int64(binary.BigEndian.Uint64(r.Cells[0].Value))
			}
		}
		if got != n {
			return fmt.Errorf("WRONG: increment %d of row %s is answered %d", n, row, got)
		}
		s.written.increments.Add(1)
		done.Add(1)
	}
	return nil
}

func (s *hbaseSide) checkAndPuts(ctx context.Context, row []byte, more func() bool, done *atomic.Int64) error {
	var old []byte
	for n := uint64(1); more(); n++ {
		value := binary.BigEndian.AppendUint64(nil, n)
		applied := false
		var err error
		if s.bare != nil {
			applied, err = s.bare.CheckAndPut(ctx, []byte(singleTable), row, hbaseFamily, turnColumn, old, value)
		} else {
			m := cell.Mutation{Table: singleTable, Row: row}
			m.Put(string(hbaseFamily), turnColumn, cell.Latest, value)
			var r store.Result
			r, err = s.engine.MutateRow(ctx, &store.Cond{Family: string(hbaseFamily), Qualifier: turnColumn, Op: store.Equal, Value: old}, &m)
			applied = r.Applied
		}
		if err == nil && !applied {
			err = fmt.Errorf("WRONG: row %s, turn %d: the condition did not hold", row, n)
		}
		if err != nil {
			return err
		}
		old = value
		s.written.turns.Add(1)
		done.Add(1)
	}
	return nil
}

// verify compares the tables with what was acknowledged.
func (s *hbaseSide) verify(ctx context.Context) error {
	rows := int64(0)
	if err := each(s.engine.Scan(ctx, &store.Scan{Table: writtenTable, Filter: &store.FirstKeyOnlyFilter{}}), func(*cell.Row) error { rows++; return nil }); err != nil {
		return err
	}
	increments, turns := int64(0), int64(0)
	err := each(s.engine.Scan(ctx, &store.Scan{Table: singleTable}), func(r *cell.Row) error {
		for _, c := range r.Cells {
			n := int64(binary.BigEndian.Uint64(c.Value))
			if string(c.Qualifier) == string(turnColumn) {
				turns += n
			} else {
				increments += n
			}
		}
		return nil
	})
	if w := &s.written; err == nil && (rows != w.rows.Load() || increments != w.increments.Load() || turns != w.turns.Load()) {
		err = fmt.Errorf("WRONG: %d rows, %d increments and %d check-and-puts were acknowledged; there are %d, %d and %d",
			w.rows.Load(), w.increments.Load(), w.turns.Load(), rows, increments, turns)
	}
	return err
}
