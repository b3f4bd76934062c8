//go:build integration

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore"
)

// TestHBaseLostReplies: of a call that a real HBase must not be asked for twice, and
// whose reply or which itself is lost on the way, the caller is told that nobody knows,
// and it is made at most once: appends, increments and conditions. Puts are made again.
func TestHBaseLostReplies(t *testing.T) {
	h := startHBase(t)
	setup := openHBase(t, h.address, nil)
	defer setup.Close()
	emptyHBase(t, setup)
	n := store.NewFamily("n")
	n.Counter = true
	if err := setup.CreateTable(t.Context(), &store.TableDescriptor{Name: "lost", Families: []store.FamilyDescriptor{store.NewFamily("f"), n}}, nil); err != nil {
		t.Fatal(err)
	}
	mutation := func(row string) *cell.Mutation { return &cell.Mutation{Table: "lost", Row: []byte(row)} }
	read := func(row string) (value []byte) {
		t.Helper()
		sc := setup.Scan(t.Context(), &store.Scan{Table: "lost", Start: []byte(row), Stop: []byte(row), StopInclusive: true})
		defer sc.Close()
		for sc.Next() {
			value = bytes.Clone(sc.Row().Cells[0].Value)
		}
		if err := sc.Err(); err != nil {
			t.Fatal(err)
		}
		return value
	}
	one := []byte{0, 0, 0, 0, 0, 0, 0, 1}
	unset := &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal}
	for _, test := range []struct {
		name, method string
		write        func(*cell.Mutation)
		cond         *store.Cond
		before       []byte // what the row has first, by an append
		want         error
		applied      []byte // what the row has where the reply was lost
		calls        int
	}{
		{"append", "append", func(m *cell.Mutation) { m.Append("f", []byte("q"), []byte("b;")) }, nil, []byte("a;"), store.ErrUnknownOutcome, []byte("a;b;"), 1},
		{"first append", "append", func(m *cell.Mutation) { m.Append("f", []byte("q"), []byte("b;")) }, nil, nil, store.ErrUnknownOutcome, []byte("b;"), 1},
		{"increment", "increment", func(m *cell.Mutation) { m.Increment("f", []byte("q"), 1) }, nil, nil, store.ErrUnknownOutcome, one, 1},
		{"increment of a COUNTER", "increment", func(m *cell.Mutation) { m.Increment("n", []byte("q"), 1) }, nil, nil, store.ErrUnknownOutcome, one, 1},
		{"condition", "checkAndMutate", func(m *cell.Mutation) { m.Put("f", []byte("q"), 7, []byte("b")) }, unset, nil, store.ErrUnknownOutcome, []byte("b"), 1},
		{"put without a time", "put", func(m *cell.Mutation) { m.Put("f", []byte("q"), cell.Latest, []byte("b")) }, nil, nil, store.ErrUnknownOutcome, []byte("b"), 1},
		{"put", "put", func(m *cell.Mutation) { m.Put("f", []byte("q"), 7, []byte("b")) }, nil, nil, nil, []byte("b"), 2},
	} {
		for _, what := range []loss{replyLost, callLost} {
			p := newThriftProxy(t, h.address, nil)
			s, err := hbasestore.Open(t.Context(), &hbasestore.Options{Addresses: []string{p.address}})
			if err != nil {
				t.Fatal(err)
			}
			row := fmt.Sprintf("%s, %s", test.name, what)
			if test.before != nil {
				m := mutation(row)
				m.Append("f", []byte("q"), test.before)
				if _, err := setup.MutateRow(t.Context(), nil, m); err != nil {
					t.Fatal(err)
				}
			}
			lost := false
			p.losing(func(method string) loss {
				if lost || method != test.method {
					return nothingLost
				}
				lost = true
				return what
			})
			m := mutation(row)
			test.write(m)
			if _, err = s.MutateRow(t.Context(), test.cond, m); !errors.Is(err, test.want) {
				t.Errorf("%s, %s: Got %v, want %v", test.name, what, err, test.want)
			}
			if n := p.count(test.method); n != test.calls {
				t.Errorf("%s, %s: Got %d calls, want %d", test.name, what, n, test.calls)
			}
			want := test.applied
			if what == callLost && test.want != nil {
				want = test.before
			}
			if got := read(row); !bytes.Equal(got, want) {
				t.Errorf("%s, %s: HBase has %q, want %q", test.name, what, got, want)
			}
			// The store goes on.
			m = mutation(row)
			m.Append("f", []byte("a"), []byte("again"))
			if _, err := s.MutateRow(t.Context(), nil, m); err != nil {
				t.Errorf("%s, %s: afterwards: %v", test.name, what, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
