package hbasestore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/cell"
	"sluice/store"
)

// rowsOf is a scan of some rows by their keys.
func rowsOf(keys ...string) *store.Scan {
	f := &store.MultiRowRangeFilter{}
	for _, k := range keys {
		f.Ranges = append(f.Ranges, store.RowRange{Start: []byte(k), Stop: []byte(k), StopInclusive: true})
	}
	return &store.Scan{Table: "t", Filter: f}
}

// HBase's client tries calls of several rows of a disabled table for minutes, and the gateway
// answers nothing meanwhile. Such a call says that the table is disabled, further ones are not
// made until it is enabled, and the gateway is not one that fails. All connections wait here.
func TestDisabledIsSilent(t *testing.T) {
	t.Parallel()
	mem := newMem(t, "s")
	g := newGateway(t, mem, false)
	s := dial(t, func(o *Options) {
		o.Connections, o.CallTimeout, o.RetryTimeout, o.silence = 1, time.Hour, time.Hour, time.Millisecond
	}, g)
	calls := map[string]func() error{
		"rows": func() error {
			_, errs := s.MutateRows(t.Context(), []*cell.Mutation{put("r", "v"), put("s", "v")})
			return errors.Join(errs...)
		},
		"batch": func() error {
			b := &store.Batch{}
			for _, row := range []string{"r", "rr", "s", "t"} {
				b.Add(1, *put(row, "v"))
			}
			return s.Apply(t.Context(), b)
		},
		"rows by key": func() error {
			_, err := collect(s.Scan(t.Context(), rowsOf("r", "s")))
			return err
		},
		"scan": func() error {
			_, err := collect(s.Scan(t.Context(), &store.Scan{Table: "t"}))
			return err
		},
	}
	silent := []string{"putMultiple", "getMultiple", "openScanner", "getScannerRows", "getScannerResults"}
	made := func() (n int) {
		for _, m := range silent {
			n += g.count(m)
		}
		return n
	}
	for name, call := range calls {
		if err := call(); err != nil { // schema and regions are known
			t.Fatal(name, err)
		}
	}
	if err := mem.DisableTable(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	g.inject(func(method string) fault { return fault{hang: slices.Contains(silent, method)} })
	for name, call := range calls {
		s.off.set("t", false)
		before := made()
		for range 3 {
			if err := call(); !errors.Is(err, store.ErrTableNotEnabled) || errors.Is(err, store.ErrTransient) && name != "batch" {
				t.Errorf("%s: Got %v, want ErrTableNotEnabled", name, err)
			}
		}
		if n := made() - before; n > 2 { // of two regions at the same time
			t.Errorf("%s: Got %d calls, want those that found it out", name, n)
		}
	}
	if p := s.pool.gateways[0]; !p.until.IsZero() {
		t.Error("the gateway is left alone, want it to work")
	}
	g.inject(nil)
	if err := mem.EnableTable(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	for name, call := range calls {
		if err := call(); err != nil {
			t.Errorf("%s of the table that is enabled: %v", name, err)
		}
	}
}

// A call that is late, of a table that is enabled, is waited for.
func TestLateIsNotDisabled(t *testing.T) {
	t.Parallel()
	g := newGateway(t, newMem(t), false)
	s := dial(t, func(o *Options) { o.silence = time.Nanosecond }, g)
	asked := make(chan struct{})
	g.inject(func(method string) fault {
		switch method {
		case "put":
			return fault{until: asked}
		case "isTableDisabled":
			return fault{done: func() { close(asked) }, dropAfter: true}
		}
		return fault{}
	})
	if err := mutate(t, s, put("r", "v")); err != nil {
		t.Error(err)
	}
	if s.off.known("t") || !s.pool.gateways[0].until.IsZero() {
		t.Error("Got the table disabled, or its gateway left alone")
	}
}

// Whether a mutation that must not be made twice was made before its table was disabled is not known.
func TestDisabledAmidIncrement(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	g := newGateway(t, mem, false)
	s := dial(t, func(o *Options) { o.CallTimeout, o.silence = time.Hour, time.Millisecond }, g)
	if err := mutate(t, s, put("r", "v")); err != nil {
		t.Fatal(err)
	}
	g.inject(func(method string) fault {
		if method != "increment" {
			return fault{}
		}
		if err := mem.DisableTable(context.Background(), "t"); err != nil {
			t.Error(err)
		}
		return fault{hang: true}
	})
	if err := mutate(t, s, increment("r")); !errors.Is(err, store.ErrUnknownOutcome) || !errors.Is(err, store.ErrTableNotEnabled) {
		t.Errorf("Got %v, want ErrUnknownOutcome and ErrTableNotEnabled", err)
	}
}

// What a batch writes of a disabled table is one error that names the table, however many rows it is of.
func TestDisabledIsToldOnce(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	g := newGateway(t, mem, false)
	s := dial(t, func(o *Options) { o.CallTimeout, o.RetryTimeout, o.silence = time.Hour, time.Hour, time.Millisecond }, g)
	n := store.NewFamily("n")
	n.Counter = true
	if err := s.CreateTable(t.Context(), &store.TableDescriptor{Name: "c", Families: []store.FamilyDescriptor{store.NewFamily("f"), n}}, nil); err != nil {
		t.Fatal(err)
	}
	of := func(from int64) *store.Batch {
		b := increments(0, from, "v", [2]string{"a", "x"}, [2]string{"b", "x"}, [2]string{"c", "x"})
		b.Mutations = nil
		return b
	}
	if err := s.Apply(t.Context(), of(store.Absent)); err != nil { // the counters are known
		t.Fatal(err)
	}
	if err := mem.DisableTable(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	g.inject(func(method string) fault { return fault{hang: method == "putMultiple"} })
	err := s.Apply(t.Context(), of(3))
	off, ok := errors.AsType[*store.DisabledError](err)
	if !ok || off.Table != "c" || strings.Count(err.Error(), "disabled") != 1 {
		t.Errorf("Got %v, want that c is disabled, once", err)
	}
}

// A state that cannot be changed as the store's own table is disabled says so (I2): nobody waits
// for an answer that does not come.
func TestDisabledOffsets(t *testing.T) {
	t.Parallel()
	mem := newMem(t, "s")
	g := newGateway(t, mem, false)
	s := dial(t, func(o *Options) { o.CallTimeout, o.RetryTimeout, o.silence = time.Hour, time.Hour, time.Millisecond }, g)
	begin := func(from, next int64) error {
		b := &store.Batch{}
		b.Advance(views, 0, from, store.Progress{Next: next, LastOffset: -1, LeaderEpoch: -1, MappingVersion: "v"})
		return s.Apply(t.Context(), b)
	}
	if err := begin(store.Absent, 1); err != nil {
		t.Fatal(err)
	}
	g.inject(func(method string) fault {
		if method != "checkAndMutate" {
			return fault{}
		}
		if err := mem.DisableTable(context.Background(), own(store.OffsetsTable)); err != nil && !errors.Is(err, store.ErrTableNotEnabled) {
			t.Error(err)
		}
		return fault{hang: true}
	})
	if err := begin(1, 2); !errors.Is(err, store.ErrTableNotEnabled) {
		t.Errorf("Got %v, want ErrTableNotEnabled", err)
	}
	g.inject(nil)
	if err := mem.EnableTable(t.Context(), own(store.OffsetsTable)); err != nil {
		t.Fatal(err)
	}
	if err := begin(1, 2); err != nil {
		t.Error(err)
	}
}
