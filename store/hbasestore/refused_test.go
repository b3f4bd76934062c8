package hbasestore

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

// What HBase refuses outside of a pipeline names the table and the row once.
func TestRefusedRowIsNamedOnce(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createCounted(t, s)
	if _, err := s.Table(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	d, err := g.mem.Table(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	d = d.Clone()
	d.MaxCellBytes = 100
	if err := g.mem.AlterTable(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	m := cell.Mutation{Table: "c", Row: []byte("r")}
	m.Put("f", []byte("q"), 1, bytes.Repeat([]byte("x"), 200))
	_, err = s.MutateRow(t.Context(), nil, &m)
	b := &store.Batch{Mutations: []store.Mutation{{Offset: -1, Mutation: m}}}
	for call, err := range map[string]error{"MutateRow": err, "Apply": s.Apply(t.Context(), b)} {
		if err == nil {
			t.Errorf("%s: Got no error of a cell that HBase refuses", call)
			continue
		}
		if text, _, _ := strings.Cut(err.Error(), "HBase: "); strings.Count(text, `"r"`) != 1 || strings.Count(text, `table c`) != 1 || strings.Contains(text, "row of c") {
			t.Errorf("%s: Got %q, want the table and the row once", call, text)
		}
	}
}

// TestRefusedByHBase (I9): of a record that only HBase refuses, by a limit of its servers
// that its schema does not tell, the batch names the record, and no other of the same row:
// neither one that went in the same call, nor one that was to go after it.
func TestRefusedByHBase(t *testing.T) {
	t.Parallel()
	for name, large := range map[string]int{"the same call": 1000, "a call of its own": maxCallBytes + 1} {
		g := newGateway(t, nil, false)
		s := dial(t, nil, g)
		createCounted(t, s)
		batch := func(without int) *store.Batch {
			b := increments(0, store.Absent, "m1", [2]string{"r", "a"}, [2]string{"r", "a"}, [2]string{"r", "a"})
			b.Mutations[1].Ops[0].Value = bytes.Repeat([]byte("x"), large)
			if without >= 0 {
				b.Mutations = append(b.Mutations[:without], b.Mutations[without+1:]...)
				b.Counters = append(b.Counters[:without], b.Counters[without+1:]...)
			}
			return b
		}
		if _, err := s.Table(t.Context(), "c"); err != nil { // knows of no limit from here on
			t.Fatal(err)
		}
		d, err := g.mem.Table(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		d = d.Clone()
		d.MaxCellBytes = large
		if err := g.mem.AlterTable(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		err = s.Apply(t.Context(), batch(-1))
		checkRefusal(t, name, err, store.ErrRefused, 1)
		if text, _, _ := strings.Cut(err.Error(), "HBase: "); strings.Count(text, `"r"`) != 1 || strings.Count(text, `table c`) != 1 {
			t.Errorf("%s: Got %q, want the table and the row once", name, text)
		}
		if err := s.Apply(t.Context(), batch(1)); err != nil {
			t.Errorf("%s: Got %v without that record", name, err)
		}
		rows, err := collect(s.Scan(t.Context(), &store.Scan{Table: "c", Columns: []store.Column{{Family: "f", All: true}}}))
		if err != nil || len(rows) != 2 {
			t.Errorf("%s: Got %q, %v, want the cells of two records", name, rows, err)
		}
	}
}

// The records of a batch that are refused by the schema of their table share one look at the
// one that HBase has now, in a pipeline's batch and in any other. A batch that comes after an
// alter looks again.
func TestRefusedShareOneSchema(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createCounted(t, s)
	alter := func(change func(*store.TableDescriptor)) {
		t.Helper()
		d, err := g.mem.Table(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		d = d.Clone()
		change(d)
		if err := g.mem.AlterTable(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	var keys [][2]string
	for i := range 50 {
		keys = append(keys, [2]string{fmt.Sprint("r", i), "a"})
	}
	batches := map[string]func() *store.Batch{
		"a pipeline's": func() *store.Batch { return increments(0, store.Absent, "m1", keys...) },
		"another": func() *store.Batch {
			b := increments(0, store.Absent, "m1", keys...)
			return &store.Batch{Mutations: b.Mutations}
		},
	}
	for name, batch := range batches {
		alter(func(d *store.TableDescriptor) { d.ReadOnly = true })
		for range 2 { // the first may know of the schema from before
			before := g.count("getTableDescriptor")
			if err := s.Apply(t.Context(), batch()); !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), "read-only") {
				t.Fatalf("%s: Got %v, want that the table is read-only", name, err)
			}
			if n := g.count("getTableDescriptor") - before; n > 2 { // of mutations, and of counters
				t.Errorf("%s: the schema was read %d times for %d records, want 2 at most", name, n, len(keys))
			}
		}
		alter(func(d *store.TableDescriptor) { d.ReadOnly = false })
		if err := s.Apply(t.Context(), batch()); err != nil {
			t.Errorf("%s, after the table was altered back: %v", name, err)
		}
	}
}

// TestReadOnlyByHBase (I2, I9): a table that somebody else has made READONLY, which the schema
// that the store knows does not say yet, is told as such, of rows and of counters, and by the
// next batch before anything of it is written. What was begun is done as before.
func TestReadOnlyByHBase(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createCounted(t, s)
	readOnly := func(yes bool) {
		t.Helper()
		d, err := g.mem.Table(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		d = d.Clone()
		d.ReadOnly = yes
		if err := g.mem.AlterTable(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	from := int64(store.Absent)
	var want []string
	for i, name := range []string{"rows and counters", "counters"} {
		batch := func() *store.Batch {
			b := increments(0, from, "m1", [2]string{"a", "x"}, [2]string{"b", "x"}, [2]string{"z", "x"})
			if name == "counters" {
				b.Mutations = nil
			}
			return b
		}
		if _, err := s.Table(t.Context(), "c"); err != nil { // knows of nothing from here on
			t.Fatal(err)
		}
		readOnly(true)
		err := s.Apply(t.Context(), batch())
		var refused *store.BatchError
		switch off, ok := errors.AsType[*store.ReadOnlyError](err); {
		case !ok || off.Table != "c":
			t.Errorf("%s: Got %v, want that c is read-only", name, err)
		case errors.As(err, &refused) != (name != "counters"), refused != nil && len(refused.Refused) != 3:
			t.Errorf("%s: Got %v", name, err)
		}
		before := g.count("putMultiple") + g.count("put")
		if err := s.Apply(t.Context(), batch()); !errors.As(err, &refused) || len(refused.Refused) != 3 || !errors.Is(err, store.ErrTableReadOnly) {
			t.Errorf("%s: Got %v, want the three records refused", name, err)
		}
		if n := g.count("putMultiple") + g.count("put") - before; n != 0 {
			t.Errorf("%s: Got %d calls to a table that is known to be read-only", name, n)
		}
		m := put("r", "v")
		m.Table = "c"
		if _, err := s.MutateRow(t.Context(), nil, m); !errors.Is(err, store.ErrTableReadOnly) {
			t.Errorf("%s: Got %v of a put", name, err)
		}
		readOnly(false)
		if err := s.Apply(t.Context(), batch()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		from = int64(3 * (i + 1))
		want = []string{}
		for j, row := range []string{"a", "b", "z"} {
			want = append(want, fmt.Sprintf("%s x = %d @ %d", row, i+1, 1000+3*i+j))
		}
		if d := cmp.Diff(want, sums(t, s, &store.Scan{Columns: []store.Column{{Family: "n", All: true}}})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
