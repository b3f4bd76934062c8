package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/cell"
	"sluice/store"
)

// AcidOptions size a run of AcidGuarantees. Zero fields have the defaults of HBase's
// AcidGuaranteesTestTool, as the issue sizes it.
type AcidOptions struct {
	Duration time.Duration // how long writers write. Default: 1 s
	Writers  int           // Default: 10
	Families int           // 1..26. Default: 3
	Columns  int           // of each family. Default: 20
	Rows     int           // Default: 3
	Getters  int           // Default: 2
	Scanners int           // Default: 2
}

func (o *AcidOptions) withDefaults() AcidOptions {
	c := *o
	for _, d := range []struct {
		field *int
		value int
	}{{&c.Writers, 10}, {&c.Families, 3}, {&c.Columns, 20}, {&c.Rows, 3}, {&c.Getters, 2}, {&c.Scanners, 2}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Duration == 0 {
		c.Duration = time.Second
	}
	return c
}

// acid is one run of AcidGuarantees.
type acid struct {
	AcidOptions
	engine store.Engine
	table  *store.Table
	rows   [][]byte

	writes, gets, scans, flushes, rewrites, changes atomic.Int64
}

// AcidGuarantees is HBase's AcidGuaranteesTestTool: writers put one value in every
// column of a row, while rows are read and scanned, memory is flushed, the table
// rewritten and its regions split and merged. It asserts what HBase's reference
// guide promises (ACID semantics; invariant I1):
//
//   - a get or a scanned row is a row as it stood at one time: never a mix;
//   - no reader sees a row go back in time;
//   - what a writer was told is written, it reads.
//
// It makes its table, and fails t where one of the activities never happened. The
// engine's clock must not go backwards.
func AcidGuarantees(t *testing.T, e store.Engine, o *AcidOptions) {
	if o == nil {
		o = &AcidOptions{}
	}
	a := &acid{AcidOptions: o.withDefaults(), engine: e}
	d := &store.TableDescriptor{Name: "acid"}
	for f := range a.Families {
		d.Families = append(d.Families, store.NewFamily(string(rune('A'+f))))
	}
	admin, ok := e.(store.Admin)
	if !ok {
		t.Fatal("the engine is no store.Admin: it cannot make tables")
	}
	if err := admin.CreateTable(t.Context(), d, nil); err != nil {
		t.Fatal(err)
	}
	var err error
	if a.table, err = store.OpenTable(t.Context(), e, d.Name); err != nil {
		t.Fatal(err)
	}
	for i := range a.Rows {
		a.rows = append(a.rows, fmt.Appendf(nil, "test_row_%d", i))
		if err := a.put(t.Context(), a.rows[i], 0, 0, i%2 == 0); err != nil {
			t.Fatal(err)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	done := make(chan struct{})
	repeat := func(what string, step func(ctx context.Context) error) {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := step(ctx); err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("%s: %v", what, err)
					}
					cancel()
					return
				}
			}
		})
	}
	for w := range a.Writers {
		n := uint32(0)
		repeat(fmt.Sprintf("writer %d", w+1), func(ctx context.Context) error { n++; return a.write(ctx, uint32(w)+1, n) })
	}
	for range a.Getters {
		seen := acidHistory{}
		repeat("get", func(ctx context.Context) error { return a.get(ctx, seen) })
	}
	for range a.Scanners {
		seen := acidHistory{}
		repeat("scan", func(ctx context.Context) error { return a.scan(ctx, seen) })
	}
	repeat("split and merge", a.reshape)
	if c, ok := e.(store.Compactor); ok {
		repeat("flush", func(ctx context.Context) error { a.flushes.Add(1); return c.Flush(ctx) })
		repeat("rewrite", func(ctx context.Context) error { a.rewrites.Add(1); return c.MajorCompact(ctx, d.Name) })
	}
	select {
	case <-time.After(a.Duration):
	case <-ctx.Done():
	}
	close(done)
	all.Wait()
	t.Logf("%d writes, %d gets, %d scans, %d flushes, %d rewrites, %d splits and merges in %v",
		a.writes.Load(), a.gets.Load(), a.scans.Load(), a.flushes.Load(), a.rewrites.Load(), a.changes.Load(), a.Duration)
	if a.writes.Load() == 0 || a.gets.Load() == 0 || a.scans.Load() == 0 || a.changes.Load() == 0 {
		t.Error("something never happened: give it longer")
	}
}

// put writes one value, of writer w and its n-th write, in every column of a row, by
// MutateRow or as part of a batch.
func (a *acid) put(ctx context.Context, row []byte, w, n uint32, batch bool) error {
	value := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, w), n)
	m := a.table.NewMutation(row)
	for f := a.Families - 1; f >= 0; f-- { // not in the order of the keys
		for q := range a.Columns {
			m.Put(string(rune('A'+f)), fmt.Appendf(nil, "col%02d", q), cell.Latest, value)
		}
	}
	if batch {
		return a.engine.Apply(ctx, &store.Batch{Mutations: []store.Mutation{{Offset: -1, Mutation: *m}}})
	}
	_, err := a.table.MutateRow(ctx, m)
	return err
}

func (a *acid) write(ctx context.Context, w, n uint32) error {
	key := a.rows[int(w+n)%len(a.rows)]
	if err := a.put(ctx, key, w, n, n%2 == 0); err != nil {
		return err
	}
	a.writes.Add(1)
	row, err := a.table.Get(ctx, key, nil)
	if err != nil {
		return err
	}
	byWriter, number, err := a.whole(row)
	if err == nil && byWriter == w && number != n {
		err = fmt.Errorf("row %s: write %d was acknowledged, write %d is read", key, n, number)
	}
	return err
}

// whole checks that a row is one write's, and returns whose.
func (a *acid) whole(row *cell.Row) (writer, n uint32, err error) {
	if row == nil {
		return 0, 0, errors.New("a row is not there")
	}
	if got, want := len(row.Cells), a.Families*a.Columns; got != want {
		return 0, 0, fmt.Errorf("row %s has %d cells, want %d", row.Key, got, want)
	}
	first := &row.Cells[0]
	for i := range row.Cells {
		if c := &row.Cells[i]; !bytes.Equal(c.Value, first.Value) || c.Time != first.Time {
			return 0, 0, fmt.Errorf("row %s is a mix: %s:%s is %x at %d, %s:%s is %x at %d",
				row.Key, first.Family, first.Qualifier, first.Value, first.Time, c.Family, c.Qualifier, c.Value, c.Time)
		}
	}
	return binary.BigEndian.Uint32(first.Value), binary.BigEndian.Uint32(first.Value[4:]), nil
}

// acidHistory is what one reader has seen: of each row the newest time, and of each
// row and writer the last write.
type acidHistory map[string]uint64

func (h acidHistory) forward(what string, now uint64) error {
	if now < h[what] {
		return fmt.Errorf("%s went back from %d to %d", what, h[what], now)
	}
	h[what] = now
	return nil
}

func (a *acid) check(row *cell.Row, seen acidHistory) error {
	w, n, err := a.whole(row)
	if err != nil {
		return err
	}
	return errors.Join(
		seen.forward(fmt.Sprintf("the time of row %s", row.Key), uint64(row.Cells[0].Time)),
		seen.forward(fmt.Sprintf("row %s of writer %d", row.Key, w), uint64(n)))
}

func (a *acid) get(ctx context.Context, seen acidHistory) error {
	for _, key := range a.rows {
		row, err := a.table.Get(ctx, key, nil)
		if err == nil {
			err = a.check(row, seen)
		}
		if err != nil {
			return err
		}
		a.gets.Add(1)
	}
	return nil
}

func (a *acid) scan(ctx context.Context, seen acidHistory) error {
	n := 0
	for row, err := range a.table.Rows(ctx, &store.Scan{Reversed: a.scans.Add(1)%2 == 0}) {
		if err == nil {
			err = a.check(row, seen)
		}
		if err != nil {
			return err
		}
		n++
	}
	if n != len(a.rows) {
		return fmt.Errorf("%d rows, want %d", n, len(a.rows))
	}
	return nil
}

// reshape splits the table at each of its rows and merges it again.
func (a *acid) reshape(ctx context.Context) error {
	admin := a.engine.(store.Admin)
	for _, at := range a.rows[1:] {
		if err := admin.SplitRegion(ctx, a.table.Name(), at); err != nil {
			return err
		}
		a.changes.Add(1)
	}
	if len(a.rows) > 1 {
		a.changes.Add(1)
		return admin.MergeRegions(ctx, a.table.Name(), a.rows...)
	}
	return nil
}
