package hbasestore

import (
	"errors"
	"testing"

	"sluice/store"
)

// A table is the same one through an alter and a split, and another one after all that takes
// its rows; of what was asked before of its schema nothing is kept.
func TestIncarnation(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g := newGateway(t, nil, false)
	s, other := dial(t, nil, g), dial(t, nil, g)
	createCounted(t, s)
	was := ""
	is := func(step string, same bool) {
		t.Helper()
		now, err := s.Incarnation(ctx, "default:c")
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if was != "" && (now == was) != same {
			t.Errorf("%s: it was %q, and is %q", step, was, now)
		}
		was = now
	}
	is("at first", true)
	if _, err := s.Table(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	d, err := other.Table(ctx, "c")
	if err != nil {
		t.Fatal(err)
	}
	d = d.Clone()
	d.Family("f").Versions = 7
	if err := other.AlterTable(ctx, d); err != nil {
		t.Fatal(err)
	}
	is("an alter", true)
	if d, err := s.Table(ctx, "c"); err != nil || d.Family("f").Versions != 7 {
		t.Errorf("Got %+v, %v of the schema after Incarnation, want VERSIONS 7", d, err)
	}
	if err := g.mem.SplitRegion(ctx, "c", []byte("f")); err != nil {
		t.Fatal(err)
	}
	is("a split", true)
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(other.DisableTable(ctx, "c"))
	do(other.EnableTable(ctx, "c"))
	is("disabled and enabled", false)
	do(other.DisableTable(ctx, "c"))
	do(other.TruncateTable(ctx, "c", true))
	is("truncated", false)
	do(other.DisableTable(ctx, "c"))
	do(other.DropTable(ctx, "c"))
	if _, err := s.Incarnation(ctx, "c"); !errors.Is(err, store.ErrTableNotFound) {
		t.Errorf("Got %v of a table that was dropped, want ErrTableNotFound", err)
	}
	createCounted(t, other)
	is("made anew", false)
}
