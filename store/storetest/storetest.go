// Package storetest is the contract of a store.Engine in the form of tests: what
// every engine must do (Run), the curated and random cases of HBase's semantics
// (RunCases), and a random history that must read the same on two engines
// (Metamorphic).
//
// Run is all that an engine's test needs to call. The package holds no engine and
// imports none; optional abilities (store.Snapshotter, store.Admin,
// store.Compactor, MinorCompactor) are tested where an engine offers them, and
// engines that say they are durable are closed and opened again.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"sluice/cell"
	"sluice/store"
)

// Options is how a test wants an engine.
type Options struct {
	// Now is the clock that the engine must use, in ms since the Unix epoch.
	Now func() cell.Timestamp
	// Dir is where the engine keeps its files. It exists and is empty at
	// first; a durable engine that was closed and is opened with the same Dir
	// has what it had.
	Dir string
	// Rewriting asks an engine that rewrites by itself to do so all the time,
	// and wherever there is any garbage; others ignore it. Without it an engine
	// must not.
	Rewriting bool
}

// Factory opens an engine, which the test closes. It fails t where it cannot.
type Factory func(t *testing.T, o Options) store.Engine

// MinorCompactor is an engine that has HBase's minor compaction: all files into
// one, delete markers kept.
type MinorCompactor interface {
	MinorCompact(ctx context.Context, table string) error
}

// Splitter is an engine that splits a region where it chooses.
type Splitter interface {
	SplitTable(ctx context.Context, table string) error
}

// Limits is what an engine does not offer of what Run tests.
type Limits struct {
	// Without are tests of the contract, and situations of the cases, that are
	// left out, by name, and why.
	Without map[string]string
	// Cases are left out, too, by their ids.
	Cases map[string]string
	// RandomOneIn runs one in so many of the random cases, those of the area "fuzz"; 0 = all.
	RandomOneIn int
	// Unsupported is told of every case that is left out, and why: as Cases or the
	// clock say, or as one of its operations has, by an error that wraps
	// store.ErrUnsupported. nil fails those of the latter. It may be called by
	// several goroutines.
	Unsupported func(id, why string)
	// RealClock says that the engine has a clock of its own: cases that move it
	// between two steps are left out. In those in which cells expire, times are
	// mapped to that clock's; in the others, those that the store fills in are not
	// compared.
	RealClock bool
	// Defects are cases of defects of HBase's, by their ids, that the engine has.
	Defects []string
	// MayDiffer are cases, by their ids, whose raw scans may give something else;
	// Differs is told of each that does. It may be called by several goroutines.
	MayDiffer []string
	Differs   func(id string)
	// AtATime is how many cases run at a time, each on an engine that the Factory
	// has made for it; 0 = one.
	AtATime int
	// ShellOnly says that regions are split and merged, and tables flushed and
	// compacted, by other means than the engine: where that happens beside what a
	// test is about, it goes on without.
	ShellOnly bool
	// CountsByOffset says that Apply takes coalesced counters only with the offsets
	// that they come from.
	CountsByOffset bool
	// NoNullDeletes says that nothing is deleted from the empty qualifier of families
	// with NEW_VERSION_BEHAVIOR: HBase 2.6.1 cannot read the row behind such a marker
	// that is older than a put of the same column, its NewVersionBehaviorTracker
	// ends every scan of it with a NullPointerException.
	NoNullDeletes bool
	// MaxRowLength and MaxCellBytes are what the engine takes; 0 = what any
	// store takes.
	MaxRowLength, MaxCellBytes int
}

// Shorten leaves out of short runs, which look for races, tests in which one caller makes
// one call after the other, nine in ten of the random cases, and all situations of the cases
// but those that are kept.
func (l *Limits) Shorten(kept ...string) {
	if !testing.Short() {
		return
	}
	if l.Without == nil {
		l.Without = map[string]string{}
	}
	for _, name := range []string{"cursors", "distinct", "distinct deletes", "distinct refused", "filter hints", "keys and order", "system tables"} {
		l.Without[name] = "-short: one call after the other"
	}
	for _, s := range situations {
		if s != asWritten && !slices.Contains(kept, string(s)) {
			l.Without[string(s)] = "-short: the calls are those of the cases as they are written"
		}
	}
	l.RandomOneIn = 10
}

// RunWithin runs everything that l offers on engines that open makes.
func RunWithin(t *testing.T, open Factory, l *Limits) {
	t.Run("contract", func(t *testing.T) { RunContractWithin(t, open, l) })
	t.Run("cases", func(t *testing.T) { RunCasesWithin(t, open, l) })
}

// unsupported skips the case that t is.
func (l *Limits) unsupported(t *testing.T, id, why string) {
	t.Helper()
	if l.Unsupported != nil {
		l.Unsupported(id, why)
	}
	t.Skip(why)
}

// check fails t where l names what is not.
func (l *Limits) check(t *testing.T) {
	t.Helper()
	names := map[string]bool{}
	for _, c := range contract {
		names[c.name] = true
	}
	for _, s := range situations {
		names[string(s)] = true
	}
	for name := range l.Without {
		if !names[name] {
			t.Errorf("%q is left out, and is no test of the contract and no situation", name)
		}
	}
}

// Clock is a virtual clock. It is safe for concurrent use.
type Clock struct{ now atomic.Int64 }

// NewClock returns a clock that stands at now.
func NewClock(now cell.Timestamp) *Clock {
	c := new(Clock)
	c.Set(now)
	return c
}

// Now returns the clock's time.
func (c *Clock) Now() cell.Timestamp { return cell.Timestamp(c.now.Load()) }

// Set sets the clock, backwards too.
func (c *Clock) Set(now cell.Timestamp) { c.now.Store(int64(now)) }

// Advance moves the clock by ms.
func (c *Clock) Advance(ms int64) { c.now.Add(ms) }

// engine is an engine under test with what is needed to open it again.
type engine struct {
	store.Engine
	t     *testing.T
	open  Factory
	opts  Options
	clock *Clock

	limits Limits

	mu     sync.Mutex   // guards what follows, and orders increments
	source store.Source // of increments, of its own: a server behind several engines keeps offsets
	next   int64        // offset of the increment that is next
}

// start opens a new engine with a clock at HBase's case files' beginning; it is
// closed when t ends.
func start(t *testing.T, open Factory) *engine {
	t.Helper()
	clock := NewClock(10_000_000)
	e := &engine{t: t, open: open, opts: Options{Now: clock.Now, Dir: t.TempDir()}, clock: clock}
	e.Engine = open(t, e.opts)
	t.Cleanup(func() {
		if err := e.Engine.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// increment applies coalesced increments in a batch of their own.
func (e *engine) increment(deltas ...store.CounterDelta) error {
	b := &store.Batch{Counters: deltas}
	if !e.limits.CountsByOffset {
		return e.Apply(e.t.Context(), b)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	from := e.next
	if from == 0 {
		from = store.Absent
		e.source = store.Source{Pipeline: "contract", Topic: fmt.Sprintf("increments-%x", rand.Uint64())}
	}
	next := e.next
	for i := range deltas {
		deltas[i].Offset = next
		next++
	}
	b.Advance(e.source, 0, from, store.Progress{Next: next, Applied: next})
	err := e.Apply(e.t.Context(), b)
	if err == nil {
		e.next = next
	}
	return err
}

// shell returns the error of what may be done outside the engine only, nil where it is.
func (e *engine) shell(err error) error {
	if e.limits.ShellOnly && errors.Is(err, store.ErrUnsupported) {
		return nil
	}
	return err
}

// durable reports whether the engine keeps its data when it is closed.
func (e *engine) durable() bool { return e.Traits().Durable }

// reopen closes a durable engine and opens it again.
func (e *engine) reopen() {
	e.t.Helper()
	if err := e.Engine.Close(); err != nil {
		e.t.Fatalf("close before reopening: %v", err)
	}
	e.Engine = e.open(e.t, e.opts)
}

func (e *engine) admin() store.Admin {
	e.t.Helper()
	a, ok := e.Engine.(store.Admin)
	if !ok {
		e.t.Skip("the engine is no store.Admin: it cannot make tables")
	}
	return a
}

func (e *engine) switcher() store.TableSwitcher {
	e.t.Helper()
	s, ok := e.Engine.(store.TableSwitcher)
	if !ok {
		e.t.Skip("the engine is no store.TableSwitcher: its tables are always enabled")
	}
	return s
}

func (e *engine) namespacer() store.Namespacer {
	e.t.Helper()
	n, ok := e.Engine.(store.Namespacer)
	if !ok {
		e.t.Skip("the engine is no store.Namespacer: it has no namespaces")
	}
	return n
}

func (e *engine) meter() store.RegionMeter {
	e.t.Helper()
	m, ok := e.Engine.(store.RegionMeter)
	if !ok {
		e.t.Skip("the engine is no store.RegionMeter: it does not know what its regions hold")
	}
	return m
}

// drop disables and drops a table.
func (e *engine) drop(name string) {
	e.t.Helper()
	if s, ok := e.Engine.(store.TableSwitcher); ok {
		if err := s.DisableTable(e.t.Context(), name); err != nil {
			e.t.Fatal(err)
		}
	}
	if err := e.admin().DropTable(e.t.Context(), name); err != nil {
		e.t.Fatal(err)
	}
}

// create makes a table of families without splits.
func (e *engine) create(name string, families ...store.FamilyDescriptor) *store.Table {
	e.t.Helper()
	if err := e.admin().CreateTable(e.t.Context(), &store.TableDescriptor{Name: name, Families: families}, nil); err != nil {
		e.t.Fatalf("create table %s: %v", name, err)
	}
	t, err := store.OpenTable(e.t.Context(), e.Engine, name)
	if err != nil {
		e.t.Fatal(err)
	}
	return t
}
