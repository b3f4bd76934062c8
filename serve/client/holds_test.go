package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/serve"
	"sluice/store"
	"sluice/store/memstore"
)

// TestHolds makes, renews, outlives and releases holds through a daemon, whose engine
// has the same holds.
func TestHolds(t *testing.T) {
	t.Parallel()
	now := cell.Timestamp(1_000)
	m, err := memstore.New(&memstore.Options{Now: func() cell.Timestamp { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	for _, name := range []string{"t", "u"} {
		if err := m.CreateTable(t.Context(), &store.TableDescriptor{Name: name, Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	c := dial(t, m, nil)
	holds := func(want ...store.ChangeHold) {
		t.Helper()
		got, err := c.ChangeHolds(t.Context())
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("holds (%v, -want +got):\n%s", err, d)
		}
		direct, err := m.ChangeHolds(t.Context())
		if d := cmp.Diff(direct, got); err != nil || d != "" {
			t.Errorf("holds (%v, -engine +client):\n%s", err, d)
		}
	}
	hold := func(name, table string, since uint64, until cell.Timestamp) store.ChangeHold {
		t.Helper()
		h, err := c.HoldChanges(t.Context(), store.ChangeHold{Name: name, Table: table, Since: since, Until: until, Expired: name == "export:j"})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	holds()
	odd := hold("a/b %2F:?", "u", 0, 9_000)
	first := hold("export:j", "t", 0, 2_000)
	if first.Since == 0 || first.Until != 2_000 || first.Table != "t" || !first.Expired || odd.Expired {
		t.Errorf("Got %+v, want the sequence of the commit that made it", first)
	}
	holds(odd, first)

	// A renewal moves Since forwards only, however it is asked.
	if again := hold("export:j", "t", 0, 3_000); again.Since != first.Since || again.Until != 3_000 {
		t.Errorf("Got %+v after %+v", again, first)
	}
	if _, err := c.MutateRow(t.Context(), nil, put("a")); err != nil {
		t.Fatal(err)
	}
	moved := hold("export:j", "t", first.Since+1, 3_000)
	if moved.Since != first.Since+1 {
		t.Errorf("Got %+v, want since %d", moved, first.Since+1)
	}
	holds(odd, moved)

	// One that is over is made anew, and its Since tells.
	now = 3_001
	fresh := hold("export:j", "t", moved.Since, 5_000)
	if fresh.Since <= moved.Since {
		t.Errorf("Got %+v after %+v has ended", fresh, moved)
	}
	for _, name := range []string{"export:j", "export:j", odd.Name, "none", ""} {
		if err := c.ReleaseChanges(t.Context(), name); err != nil {
			t.Errorf("release %q: %v", name, err)
		}
	}
	holds()

	_, err = c.HoldChanges(t.Context(), store.ChangeHold{Name: "x", Table: "none", Until: 9_000})
	if !errors.Is(err, store.ErrTableNotFound) {
		t.Errorf("Got %v for a table that is not there", err)
	}
	_, err = c.HoldChanges(t.Context(), store.ChangeHold{Table: "t", Until: 9_000})
	if !errors.Is(err, store.ErrInvalidArgument) {
		t.Errorf("Got %v for a hold without a name", err)
	}
}

// named is an engine with an id.
type named struct{ *memstore.Store }

func (named) ID() string { return "the store" }

// plain is an engine without knowledge of changes.
type plain struct{ store.Engine }

func TestStoreWithoutHolds(t *testing.T) {
	t.Parallel()
	if id := dial(t, named{newStore(t)}, nil).ID(); id != "the store" {
		t.Errorf("Got id %q", id)
	}
	c := dial(t, plain{newStore(t)}, func(o *serve.Options) { o.RequestTimeout = time.Hour })
	_, hold := c.HoldChanges(t.Context(), store.ChangeHold{Name: "x", Table: "t"})
	_, list := c.ChangeHolds(t.Context())
	for _, err := range []error{hold, list, c.ReleaseChanges(t.Context(), "x")} {
		if !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("Got %v of an engine without holds, want ErrUnsupported", err)
		}
	}
	if id := c.ID(); id != "" {
		t.Errorf("Got id %q of an engine without", id)
	}
}
