package hbasestore

import (
	"errors"
	"testing"
	"time"

	"sluice/store"
)

// What a buffer sends is applied once, though its batch is applied in part: only what
// was not applied is sent again, and never what may have been.
func TestBufferedInPart(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		method string
		fault  fault
		failed int
		first  uint64 // the count of row a; that of b is 1
	}{
		{"increment applied", "increment", fault{dropAfter: true}, 1, 1},
		{"increment not applied", "increment", fault{dropBefore: true}, 1, 0},
		{"put not applied", "putMultiple", fault{dropBefore: true}, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			mem := newMem(t)
			g := newGateway(t, mem, false)
			s := dial(t, func(o *Options) { o.RetryTimeout, o.Connections = time.Nanosecond, 1 }, g)
			table, err := store.OpenTable(t.Context(), s, "t")
			if err != nil {
				t.Fatal(err)
			}
			b, err := table.BufferedMutator(&store.BufferedMutatorOptions{RetryPause: time.Nanosecond})
			if err != nil {
				t.Fatal(err)
			}
			g.first(1, test.method, test.fault)
			if err := b.Mutate(t.Context(), increment("a"), increment("b"), put("c", "v"), put("d", "v")); err != nil {
				t.Fatal(err)
			}
			err = b.Close(t.Context())
			var failed *store.BufferedError
			if errors.As(err, &failed) {
				n := len(failed.Failed)
				if n != test.failed {
					t.Errorf("Got %d failed, want %d: %v", n, test.failed, err)
				}
			} else if test.failed != 0 || err != nil {
				t.Errorf("Got %v, want %d failed", err, test.failed)
			}
			if test.method == "increment" && !errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("Got %v, want ErrUnknownOutcome", err)
			}
			for row, want := range map[string]uint64{"a": test.first, "b": 1} {
				if n := counted(t, mem, row); n != want {
					t.Errorf("Got a count of %d in row %s, want %d", n, row, want)
				}
			}
		})
	}
}
