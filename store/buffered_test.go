package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

// hooked is an engine whose Apply can be made to fail or wait first.
type hooked struct {
	store.Engine
	before func(ctx context.Context, call int, b *store.Batch) error // nil = apply

	mu      sync.Mutex
	calls   int
	applied [][]string // rows of the batches that were applied
}

func (h *hooked) Apply(ctx context.Context, b *store.Batch) error {
	h.mu.Lock()
	h.calls++
	call := h.calls
	h.mu.Unlock()
	if h.before != nil {
		if err := h.before(ctx, call, b); err != nil {
			return err
		}
	}
	if err := h.Engine.Apply(ctx, b); err != nil {
		return err
	}
	var rows []string
	for i := range b.Mutations {
		rows = append(rows, string(b.Mutations[i].Row))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.applied = append(h.applied, rows)
	return nil
}

// batches returns the rows of the applied batches, one batch a text.
func (h *hooked) batches() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, rows := range h.applied {
		all = append(all, strings.Join(rows, " "))
	}
	return all
}

// hookedTable returns the table t, with the families f and COUNTER n, of a model
// engine behind a hook.
func hookedTable(t testing.TB, before func(ctx context.Context, call int, b *store.Batch) error) (*hooked, *store.Table) {
	t.Helper()
	e := newEngine()
	n := store.NewFamily("n")
	n.Counter = true
	f := store.NewFamily("f")
	f.Versions = 1000
	if err := e.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f, n}}, nil); err != nil {
		t.Fatal(err)
	}
	h := &hooked{Engine: e, before: before}
	table, err := store.OpenTable(t.Context(), h, "t")
	if err != nil {
		t.Fatal(err)
	}
	return h, table
}

func mutator(t testing.TB, table *store.Table, o *store.BufferedMutatorOptions) *store.BufferedMutator {
	t.Helper()
	b, err := table.BufferedMutator(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// putOf writes value to f:q of row at its time.
func putOf(row string, at cell.Timestamp, value string) *cell.Mutation {
	m := &cell.Mutation{Row: []byte(row)}
	m.Put("f", []byte("q"), at, []byte(value))
	return m
}

// refusedPut is a mutation that Mutate takes and the engine does not.
func refusedPut(row string) *cell.Mutation {
	m := &cell.Mutation{Row: []byte(row)}
	m.Put("nope", []byte("q"), 1, nil)
	return m
}

// failures returns the rows of a *BufferedError with a name of their errors.
func failures(t testing.TB, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var e *store.BufferedError
	if !errors.As(err, &e) {
		t.Errorf("%v is no *BufferedError", err)
		return nil
	}
	var rows []string
	for _, f := range e.Failed {
		name := "other"
		for _, class := range []error{store.ErrFamilyNotFound, store.ErrClosed, store.ErrTransient, context.Canceled} {
			if errors.Is(f.Err, class) {
				name = strings.TrimPrefix(class.Error(), "store: ")
				break
			}
		}
		rows = append(rows, string(f.Mutation.Row)+": "+name)
	}
	return rows
}

func mustClose(t testing.TB, b *store.BufferedMutator) {
	t.Helper()
	if err := b.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestBufferedMutatorFlush(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	h, table := hookedTable(t, nil)
	b := mutator(t, table, nil)
	defer mustClose(t, b)
	row, qualifier, value := []byte("r"), []byte("q"), []byte("v")
	m := table.NewMutation(row)
	m.Put("f", qualifier, 5, value)
	noError(t, table.Put(ctx, []byte("n"), "f", []byte("q"), []byte("\x00\x00\x00\x00\x00\x00\x00\x05")))
	add := table.NewMutation([]byte("n"))
	add.Increment("f", []byte("q"), 1)
	add.Read = &cell.TimeRange{Max: 2000}
	noError(t, b.Mutate(ctx, m, putOf("s", 5, "w"), add))
	row[0], qualifier[0], value[0], m.Ops[0].Time, add.Read.Max = 'x', 'x', 'x', 9, 1 // the mutator has copies
	if got := values(t, table, "r"); len(got) != 0 || h.calls != 0 {
		t.Errorf("before the flush: %v, %d calls of the engine", got, h.calls)
	}
	noError(t, b.Flush(ctx))
	if d := cmp.Diff(map[string]string{"f:q": "v"}, values(t, table, "r")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"f:q": "\x00\x00\x00\x00\x00\x00\x00\x06"}, values(t, table, "n")); d != "" {
		t.Errorf("incremented (-want +got):\n%s", d)
	}
	noError(t, b.Flush(ctx)) // of nothing
	noError(t, b.Mutate(ctx))
	noError(t, b.Flush(ctx))
	if d := cmp.Diff([]string{"r s n"}, h.batches()); d != "" {
		t.Errorf("batches (-want +got):\n%s", d)
	}
}

// The mutation that crosses the limit is sent with those before it, and Mutate
// returns when it is applied.
func TestBufferedMutatorLimits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		opts store.BufferedMutatorOptions
		call int // mutations a call
		want []string
	}{
		{"every mutation", store.BufferedMutatorOptions{BufferBytes: 1}, 1, []string{"0", "1", "2", "3", "4", "5"}},
		{"a call is not cut", store.BufferedMutatorOptions{BufferBytes: 1}, 4, []string{"0 1 2 3", "4 5"}},
		{"bytes", store.BufferedMutatorOptions{BufferBytes: 1000}, 1, []string{"0 1 2"}}, // 300 of value and some 200 each
		{"number", store.BufferedMutatorOptions{MaxMutations: 2}, 1, []string{"0 1", "2 3", "4 5"}},
		{"both", store.BufferedMutatorOptions{BufferBytes: 1000, MaxMutations: 2}, 3, []string{"0 1 2", "3 4 5"}},
		{"default", store.BufferedMutatorOptions{}, 1, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h, table := hookedTable(t, nil)
			b := mutator(t, table, &test.opts)
			var ms []*cell.Mutation
			for i := range 6 {
				ms = append(ms, putOf(fmt.Sprint(i), 1, strings.Repeat("v", 300)))
			}
			for len(ms) > 0 {
				n := min(test.call, len(ms))
				noError(t, b.Mutate(t.Context(), ms[:n]...))
				ms = ms[n:]
			}
			got := h.batches()
			if test.name == "bytes" {
				got = got[:1] // where the second is cut depends on the sizes of Go's structures
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("batches before the last flush (-want +got):\n%s", d)
			}
			mustClose(t, b)
			if got := strings.Join(h.batches(), " "); got != "0 1 2 3 4 5" {
				t.Errorf("applied in the end: %s", got)
			}
		})
	}
}

func TestBufferedMutatorInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		h, table := hookedTable(t, nil)
		b := mutator(t, table, &store.BufferedMutatorOptions{FlushInterval: time.Second})
		step := func(d time.Duration, want ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if d := cmp.Diff(want, h.batches()); d != "" {
				t.Errorf("batches (-want +got):\n%s", d)
			}
		}
		step(time.Hour) // nothing is buffered, nothing is due
		noError(t, b.Mutate(ctx, putOf("a", 1, "")))
		step(600 * time.Millisecond)
		noError(t, b.Mutate(ctx, putOf("b", 1, ""))) // the oldest counts
		step(399 * time.Millisecond)
		step(time.Millisecond, "a b")
		noError(t, b.Mutate(ctx, putOf("c", 1, "")))
		noError(t, b.Flush(ctx))
		noError(t, b.Mutate(ctx, putOf("d", 1, "")))
		step(999*time.Millisecond, "a b", "c") // a flush begins the age anew
		step(time.Millisecond, "a b", "c", "d")
		mustClose(t, b)
	})
}

// A batch that fails transiently keeps its place, and nothing overtakes it.
func TestBufferedMutatorRetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		const failing = 6
		h, table := hookedTable(t, func(_ context.Context, call int, _ *store.Batch) error {
			if call <= failing {
				return fmt.Errorf("test: %w", store.ErrDiskFull)
			}
			return nil
		})
		b := mutator(t, table, nil)
		add := table.NewMutation([]byte("r"))
		add.Increment("n", []byte("count"), 5)
		noError(t, b.Mutate(ctx, putOf("r", 1, "first"), add))
		begun := time.Now()
		flushed := make(chan error, 2)
		go func() { flushed <- b.Flush(ctx) }()
		synctest.Wait() // the first attempt has failed
		again := table.NewMutation([]byte("r"))
		again.DeleteRow(cell.Latest)
		again.Put("f", []byte("q"), 2000, []byte("second"))
		noError(t, b.Mutate(ctx, putOf("s", 1, ""), again))
		go func() { flushed <- b.Flush(ctx) }()
		noError(t, <-flushed)
		noError(t, <-flushed)
		if got, want := time.Since(begun), 100*time.Millisecond*(1+2+3+5+10+20); got != want {
			t.Errorf("the retries took %v, want %v", got, want)
		}
		if d := cmp.Diff([]string{"r r", "s r"}, h.batches()); d != "" {
			t.Errorf("batches (-want +got):\n%s", d)
		}
		if d := cmp.Diff(map[string]string{"f:q": "second"}, values(t, table, "r")); d != "" {
			t.Errorf("row (-want +got):\n%s", d)
		}
		mustClose(t, b)
	})
}

func TestBufferedMutatorGivesUp(t *testing.T) {
	t.Parallel()
	units := func(n time.Duration) time.Duration { return n * 100 * time.Millisecond }
	for _, test := range []struct {
		name  string
		opts  store.BufferedMutatorOptions
		err   error
		calls int
		took  time.Duration
		want  string
	}{
		{"HBase's pauses", store.BufferedMutatorOptions{}, store.ErrDiskFull, 16, units(1 + 2 + 3 + 5 + 10 + 20 + 40 + 4*100 + 4*200), "temporary failure"},
		{"two", store.BufferedMutatorOptions{Retries: 2, RetryPause: time.Minute}, store.ErrTransient, 3, 3 * time.Minute, "temporary failure"},
		{"never", store.BufferedMutatorOptions{Retries: -1}, store.ErrTransient, 1, 0, "temporary failure"},
		{"the engine is closed", store.BufferedMutatorOptions{}, store.ErrClosed, 1, 0, "closed"},
		{"the engine has stopped", store.BufferedMutatorOptions{}, fmt.Errorf("%w: (%w)", store.ErrClosed, store.ErrTransient), 1, 0, "closed"},
		{"the engine is broken", store.BufferedMutatorOptions{}, store.ErrCorrupt, 1, 0, "other"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				fail := true
				h, table := hookedTable(t, func(context.Context, int, *store.Batch) error {
					if fail {
						return fmt.Errorf("test: %w", test.err)
					}
					return nil
				})
				b := mutator(t, table, &test.opts)
				noError(t, b.Mutate(ctx, putOf("a", 1, ""), putOf("b", 1, "")))
				begun := time.Now()
				err := b.Flush(ctx)
				if d := cmp.Diff([]string{"a: " + test.want, "b: " + test.want}, failures(t, err)); d != "" {
					t.Errorf("failures (-want +got):\n%s", d)
				}
				if !errors.Is(err, test.err) {
					t.Errorf("%v does not wrap %v", err, test.err)
				}
				if got := time.Since(begun); got != test.took || h.calls != test.calls {
					t.Errorf("%d calls in %v, want %d in %v", h.calls, got, test.calls, test.took)
				}
				if want := fmt.Sprintf("%d attempts: ", test.calls); test.calls > 1 && !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
				// They have left the buffer, and what comes now is applied.
				fail = false
				noError(t, b.Mutate(ctx, putOf("c", 1, "")))
				noError(t, b.Flush(ctx))
				mustClose(t, b)
				if d := cmp.Diff([]string{"c"}, h.batches()); d != "" {
					t.Errorf("batches (-want +got):\n%s", d)
				}
			})
		})
	}
}

// Refused mutations are reported, in order; those beside them are applied, also
// where the store fails transiently before, between and after.
func TestBufferedMutatorRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		h, table := hookedTable(t, func(_ context.Context, call int, b *store.Batch) error {
			switch {
			case call == 1 || call == 3:
				return store.ErrTransient
			case call == 4: // an engine that finds some later than others
				return &store.BatchError{Refused: []store.Refusal{{Offset: 1, Err: store.ErrFamilyNotFound}}}
			}
			return nil
		})
		b := mutator(t, table, nil)
		noError(t, b.Mutate(ctx, refusedPut("a"), putOf("b", 1, ""), putOf("c", 1, "")))
		noError(t, b.Mutate(ctx, refusedPut("d"), putOf("e", 1, ""), refusedPut("f")))
		err := b.Flush(ctx)
		if d := cmp.Diff([]string{"a: no such column family", "b: no such column family", "d: no such column family", "f: no such column family"}, failures(t, err)); d != "" {
			t.Errorf("failures (-want +got):\n%s", d)
		}
		if got, want := err.Error(), `store: buffered mutation of table t, row "a": `; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, " (and 3 more)") {
			t.Errorf("error %q, want %q… (and 3 more)", got, want)
		}
		if d := cmp.Diff([]string{"c e"}, h.batches()); d != "" {
			t.Errorf("batches (-want +got):\n%s", d)
		}
		mustClose(t, b) // nothing is reported twice
	})
}

// What a call was told of is no error of later calls, and is the receiver's own.
func TestBufferedMutatorReportsOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, table := hookedTable(t, nil)
	b := mutator(t, table, &store.BufferedMutatorOptions{MaxMutations: 1})
	defer mustClose(t, b)
	for range 3 {
		err := b.Mutate(ctx, refusedPut("a"))
		if d := cmp.Diff([]string{"a: no such column family"}, failures(t, err)); d != "" {
			t.Errorf("failures (-want +got):\n%s", d)
		}
		var e *store.BufferedError
		if errors.As(err, &e) {
			m := e.Failed[0].Mutation
			_ = append(m.Row, 'x')
			if got := string(m.Ops[0].Qualifier); got != "q" {
				t.Errorf("the row's memory runs into the qualifier %q", got)
			}
		}
		noError(t, b.Mutate(ctx, putOf("b", 1, "")))
		noError(t, b.Flush(ctx))
	}
}

// A flush that nobody waits for any more goes on.
func TestBufferedMutatorFlushAbandoned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h, table := hookedTable(t, func(context.Context, int, *store.Batch) error {
			<-release
			return nil
		})
		b := mutator(t, table, nil)
		for _, row := range []string{"a", "b"} {
			noError(t, b.Mutate(t.Context(), putOf(row, 1, "")))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := b.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Flush: %v", err)
			}
		}
		noError(t, b.Mutate(t.Context(), putOf("c", 1, ""))) // goes with b
		close(release)
		synctest.Wait()
		if d := cmp.Diff([]string{"a", "b c"}, h.batches()); d != "" {
			t.Errorf("batches (-want +got):\n%s", d)
		}
		mustClose(t, b)
	})
}

// What fails when nobody waits is reported by the next call, whichever it is.
func TestBufferedMutatorReportsLater(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, b *store.BufferedMutator) error{
		"Mutate": func(ctx context.Context, b *store.BufferedMutator) error { return b.Mutate(ctx, putOf("b", 1, "")) },
		"Flush":  func(ctx context.Context, b *store.BufferedMutator) error { return b.Flush(ctx) },
		"Close":  func(ctx context.Context, b *store.BufferedMutator) error { return b.Close(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				h, table := hookedTable(t, nil)
				b := mutator(t, table, &store.BufferedMutatorOptions{FlushInterval: time.Second})
				noError(t, b.Mutate(ctx, refusedPut("a")))
				time.Sleep(time.Second)
				synctest.Wait()
				if d := cmp.Diff([]string{"a: no such column family"}, failures(t, call(ctx, b))); d != "" {
					t.Errorf("failures (-want +got):\n%s", d)
				}
				mustClose(t, b)
				if name == "Mutate" { // b was taken all the same
					if d := cmp.Diff([]string{"b"}, h.batches()); d != "" {
						t.Errorf("batches (-want +got):\n%s", d)
					}
				}
			})
		})
	}
}

func TestBufferedMutatorOnError(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, table := hookedTable(t, nil)
	var got [][]string
	b := mutator(t, table, &store.BufferedMutatorOptions{MaxMutations: 3, OnError: func(e *store.BufferedError) { got = append(got, failures(t, e)) }})
	noError(t, b.Mutate(ctx, putOf("a", 1, "")))
	noError(t, b.Mutate(ctx, refusedPut("b"), refusedPut("c"))) // flushes
	noError(t, b.Mutate(ctx, refusedPut("d")))
	noError(t, b.Flush(ctx))
	noError(t, b.Mutate(ctx, refusedPut("e")))
	mustClose(t, b)
	const why = ": no such column family"
	if d := cmp.Diff([][]string{{"b" + why, "c" + why}, {"d" + why}, {"e" + why}}, got); d != "" {
		t.Errorf("OnError (-want +got):\n%s", d)
	}
}

// Of the calls that wait for one failing batch, one gets the failures and the others
// learn that there were some.
func TestBufferedMutatorReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		release := make(chan struct{})
		_, table := hookedTable(t, func(context.Context, int, *store.Batch) error {
			<-release
			return nil
		})
		b := mutator(t, table, &store.BufferedMutatorOptions{MaxMutations: 3})
		noError(t, b.Mutate(ctx, putOf("a", 1, ""), refusedPut("b")))
		calls := []func() error{
			func() error { return b.Mutate(ctx, putOf("c", 1, "")) }, // fills it
			func() error { return b.Flush(ctx) },
			func() error { return b.Flush(ctx) },
			func() error { return b.Close(ctx) },
		}
		errs := make(chan error, len(calls))
		for _, call := range calls {
			go func() { errs <- call() }()
			synctest.Wait()
		}
		close(release)
		told := 0
		for range calls {
			err := <-errs
			var e *store.BufferedError
			switch {
			case errors.Is(err, store.ErrReported):
			case errors.As(err, &e) && len(e.Failed) == 1:
				told++
			default:
				t.Errorf("a call that waited: %v", err)
			}
		}
		if told != 1 {
			t.Errorf("%d calls got the failures, want 1", told)
		}
		mustClose(t, b)
	})
}

// Close says that something has failed while it waited, too.
func TestBufferedMutatorCloseReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		release := make(chan struct{})
		_, table := hookedTable(t, func(context.Context, int, *store.Batch) error {
			<-release
			return nil
		})
		b := mutator(t, table, &store.BufferedMutatorOptions{MaxMutations: 2})
		told, closed := make(chan error, 1), make(chan error, 1)
		go func() { told <- b.Mutate(ctx, refusedPut("a"), putOf("b", 1, "")) }()
		synctest.Wait()
		noError(t, b.Mutate(ctx, putOf("c", 1, "")))
		go func() { closed <- b.Close(ctx) }()
		synctest.Wait()
		release <- struct{}{} // a and b, then b alone
		release <- struct{}{}
		if d := cmp.Diff([]string{"a: no such column family"}, failures(t, <-told)); d != "" {
			t.Errorf("failures (-want +got):\n%s", d)
		}
		release <- struct{}{} // c
		if err := <-closed; !errors.Is(err, store.ErrReported) {
			t.Errorf("Close: %v", err)
		}
		mustClose(t, b)
	})
}

func TestBufferedMutatorClosed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	h, table := hookedTable(t, nil)
	b := mutator(t, table, nil)
	noError(t, b.Mutate(ctx, putOf("a", 1, "")))
	mustClose(t, b)
	mustClose(t, b)
	if err := b.Mutate(ctx, putOf("b", 1, "")); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Mutate after Close: %v", err)
	}
	if err := b.Flush(ctx); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Flush after Close: %v", err)
	}
	if d := cmp.Diff([]string{"a"}, h.batches()); d != "" {
		t.Errorf("batches (-want +got):\n%s", d)
	}
}

// Close gives up when its context ends: during a retry's pause, or while the
// engine has the batch.
func TestBufferedMutatorCloseGivesUp(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(ctx context.Context, call int, b *store.Batch) error{
		"temporary failure": func(context.Context, int, *store.Batch) error { return store.ErrTransient },
		"context canceled": func(ctx context.Context, _ int, _ *store.Batch) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h, table := hookedTable(t, before)
				b := mutator(t, table, &store.BufferedMutatorOptions{MaxMutations: 1, RetryPause: time.Hour})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				noError(t, b.Mutate(ctx, putOf("a", 1, ""))) // being sent when ctx ends
				late := make(chan error, 1)
				go func() { late <- b.Mutate(t.Context(), putOf("b", 1, "")) }() // waits behind it
				synctest.Wait()
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begun := time.Now()
				err := b.Close(ctx)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
					t.Errorf("Close after %v: %v", time.Since(begun), err)
				}
				var got []string
				for _, err := range []error{err, <-late} {
					if !errors.Is(err, store.ErrReported) {
						got = append(got, failures(t, err)...)
					}
				}
				slices.Sort(got)
				if d := cmp.Diff([]string{"a: " + name, "b: " + name}, got); d != "" {
					t.Errorf("failures (-want +got):\n%s", d)
				}
				if len(h.batches()) != 0 {
					t.Errorf("applied %v", h.batches())
				}
				mustClose(t, b)
			})
		})
	}
}

// A Close whose context ends while the last batch is applied has nothing to
// report.
func TestBufferedMutatorCloseApplied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, table := hookedTable(t, nil)
		h.before = func(ctx context.Context, _ int, _ *store.Batch) error {
			<-ctx.Done() // the abort comes too late
			return nil
		}
		h.Engine = begun{h.Engine}
		b := mutator(t, table, nil)
		noError(t, b.Mutate(t.Context(), putOf("a", 1, "v")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		noError(t, b.Close(ctx))
		if d := cmp.Diff(map[string]string{"f:q": "v"}, values(t, table, "a")); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// begun is an engine that finishes what it was called for, whatever becomes of the
// context.
type begun struct{ store.Engine }

func (e begun) Apply(ctx context.Context, b *store.Batch) error {
	return e.Engine.Apply(context.WithoutCancel(ctx), b)
}

// While the store does not answer, callers wait, and what is held is two buffers.
func TestBufferedMutatorBackPressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		release := make(chan struct{})
		h, table := hookedTable(t, func(context.Context, int, *store.Batch) error {
			<-release
			return nil
		})
		const limit, callers, calls = 10, 8, 40
		b := mutator(t, table, &store.BufferedMutatorOptions{MaxMutations: limit})
		var mu sync.Mutex
		taken := map[int]int{} // calls that have returned, by caller
		var all sync.WaitGroup
		for c := range callers {
			all.Go(func() {
				for i := range calls {
					if err := b.Mutate(ctx, putOf(fmt.Sprintf("%d", c), cell.Timestamp(i+1), ""), putOf(fmt.Sprintf("%d", c), cell.Timestamp(i+1), "")); err != nil {
						t.Error(err)
					}
					mu.Lock()
					taken[c]++
					mu.Unlock()
				}
			})
		}
		// Somebody is being sent, somebody else fills the next buffer; all
		// others wait. Later callers must be let go by their contexts, untaken.
		synctest.Wait()
		total := 0
		for _, n := range taken {
			total += 2 * n
		}
		if total > 2*(limit+2) {
			t.Errorf("%d mutations were taken, at most two buffers of %d and a call each should be", total, limit)
		}
		canceled, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := b.Mutate(canceled, putOf("x", 1, "")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Mutate of a full buffer: %v", err)
		}
		if err := b.Flush(canceled); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush of a full buffer: %v", err)
		}
		if err := b.Mutate(canceled); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Mutate with an ended context: %v", err)
		}
		close(release)
		all.Wait()
		mustClose(t, b)
		if got := strings.Fields(strings.Join(h.batches(), " ")); len(got) != 2*callers*calls {
			t.Errorf("%d mutations were applied, want %d", len(got), 2*callers*calls)
		}
		for _, rows := range h.applied {
			if len(rows) > limit+2 {
				t.Errorf("a batch has %d mutations", len(rows))
			}
		}
	})
}

// A context that ends while the mutation is being sent is no failure: it was taken.
func TestBufferedMutatorContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h, table := hookedTable(t, func(context.Context, int, *store.Batch) error {
			<-release
			return nil
		})
		b := mutator(t, table, &store.BufferedMutatorOptions{BufferBytes: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		noError(t, b.Mutate(ctx, putOf("a", 1, "")))
		if ctx.Err() == nil {
			t.Error("Mutate did not wait")
		}
		close(release)
		noError(t, b.Flush(t.Context())) // waits for what is being sent
		if d := cmp.Diff([]string{"a"}, h.batches()); d != "" {
			t.Errorf("batches (-want +got):\n%s", d)
		}
		mustClose(t, b)
	})
}

func TestBufferedMutatorArguments(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	h, table := hookedTable(t, nil)
	for _, o := range []store.BufferedMutatorOptions{{BufferBytes: -1}, {MaxMutations: -1}, {FlushInterval: -1}, {RetryPause: -1}} {
		if _, err := table.BufferedMutator(&o); !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("BufferedMutator(%+v): %v", o, err)
		}
	}
	b := mutator(t, table, &store.BufferedMutatorOptions{MaxCellBytes: 100})
	other, empty := putOf("r", 1, "v"), table.NewMutation([]byte("r"))
	other.Table = "u"
	appended := table.NewMutation([]byte("r"))
	appended.Append("f", []byte("q"), make([]byte, 100))
	const fixed = 20 + len("r") + len("f") + len("q")
	for _, test := range []struct {
		name string
		m    *cell.Mutation
		want error
	}{
		{"nil", nil, store.ErrInvalidArgument},
		{"other table", other, store.ErrInvalidArgument},
		{"no operations", empty, store.ErrInvalidArgument},
		{"no row", putOf("", 1, ""), store.ErrInvalidArgument},
		{"long row", putOf(strings.Repeat("r", cell.MaxRowLength+1), 1, ""), cell.ErrRowTooLong},
		{"large put", putOf("r", 1, strings.Repeat("v", 101-fixed)), store.ErrCellTooLarge},
		{"large append", appended, store.ErrInvalidArgument},
	} {
		err := b.Mutate(ctx, putOf("good", 1, ""), test.m)
		if !errors.Is(err, test.want) || !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := b.Mutate(canceled, putOf("x", 1, "")); !errors.Is(err, context.Canceled) {
		t.Errorf("Mutate with an ended context: %v", err)
	}
	same := putOf("r", 1, strings.Repeat("v", 100-fixed))
	same.Table = "default:t"
	noError(t, b.Mutate(ctx, same))
	mustClose(t, b)
	if d := cmp.Diff([]string{"r"}, h.batches()); d != "" { // nothing of the refused calls
		t.Errorf("batches (-want +got):\n%s", d)
	}
	h, table = hookedTable(t, nil)
	b = mutator(t, table, &store.BufferedMutatorOptions{MaxCellBytes: -1})
	var e *store.BufferedError
	err := b.Mutate(ctx, putOf("r", 1, strings.Repeat("v", store.DefaultMaxCellBytes+1)))
	if !errors.Is(err, store.ErrCellTooLarge) || !errors.As(err, &e) { // the table's own limit
		t.Errorf("flush of a large cell: %v", err)
	}
	mustClose(t, b)
	if len(h.batches()) != 0 {
		t.Errorf("applied %v", h.batches())
	}
}
