package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/store"
)

// Tables that are missing are created when the first record needs them, also where
// that fails at first; the log is then applied as if they had been there.
func TestTablesAreCreated(t *testing.T) {
	t.Parallel()
	for engine, open := range bothEngines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			e, b := open(t), newFakeBroker(1)
			admin, switcher := e.(store.Admin), e.(store.TableSwitcher)
			tables := map[string]*store.TableDescriptor{}
			names, err := admin.Tables(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if tables[name], err = e.Table(t.Context(), name); err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(switcher.DisableTable(t.Context(), name), admin.DropTable(t.Context(), name)); err != nil {
					t.Fatal(err)
				}
			}
			var failed atomic.Int32
			create := func(ctx context.Context, name string) error {
				if failed.Add(1) <= 3 {
					return store.ErrDiskFull
				}
				return admin.CreateTable(ctx, tables[name], nil)
			}
			b.produce(0, "a", "bad", "b", "skip", "huge", "a", "long", "c")
			r := start(t, newTest(t, e, b, func(o *Options) { o.CreateTable = create }), 0)
			r.caughtUp(b)
			b.produce(0, "after")
			r.caughtUp(b)
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			checkContents(t, e, b)
			if m := r.Metrics(); m.Pauses == 0 {
				t.Error("the partition was not paused while tables could not be created")
			}
		})
	}
}

// A table that nobody wants is not created: its records are dead letters.
func TestTablesAreNotCreated(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	admin, switcher := e.(store.Admin), e.(store.TableSwitcher)
	if err := errors.Join(switcher.DisableTable(t.Context(), "events"), admin.DropTable(t.Context(), "events")); err != nil {
		t.Fatal(err)
	}
	asked := map[string]int{}
	create := func(_ context.Context, name string) error {
		asked[name]++
		return fmt.Errorf("%w: %s", store.ErrTableNotFound, name)
	}
	b.produce(0, "a", "b", "skip")
	r := start(t, newTest(t, e, b, func(o *Options) { o.CreateTable = create }), 0)
	r.caughtUp(b)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if m := r.Metrics(); m.Dead != 2 || m.Filtered != 1 || asked["events"] == 0 || len(asked) != 1 {
		t.Errorf("Got %d dead and %d filtered, asked for %v", m.Dead, m.Filtered, asked)
	}
}

// A redrive creates the tables that a pipeline would: a letter may be the first record
// of its day.
func TestRedriveCreatesTables(t *testing.T) {
	t.Parallel()
	for engine, open := range bothEngines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			e, b := open(t), newFakeBroker(1)
			b.produce(0, "bad:a", "bad:b", "bad:a")
			ingest(t, e, b)
			admin, switcher := e.(store.Admin), e.(store.TableSwitcher)
			tables := map[string]*store.TableDescriptor{}
			for _, name := range []string{"events", "counts"} {
				d, err := e.Table(t.Context(), name)
				if err := errors.Join(err, switcher.DisableTable(t.Context(), name), admin.DropTable(t.Context(), name)); err != nil {
					t.Fatal(err)
				}
				tables[name] = d
			}
			full := errors.New("disk full")
			if _, err := redriveWith(t.Context(), e, &RedriveOptions{CreateTable: func(context.Context, string) error { return full }}); !errors.Is(err, full) {
				t.Errorf("Got %v where no table can be created, want that it cannot", err)
			}
			got, err := redriveWith(t.Context(), e, &RedriveOptions{CreateTable: func(ctx context.Context, name string) error {
				return admin.CreateTable(ctx, tables[name], nil)
			}})
			if want := (RedriveCounts{Applied: 3}); err != nil || got != want {
				t.Errorf("Got %+v, %v, want %+v", got, err, want)
			}
			if d := cmp.Diff(wantMended(b), readContents(t, e)); d != "" {
				t.Errorf("Got other contents than the mended log has (-want +got):\n%s", d)
			}
		})
	}
}
