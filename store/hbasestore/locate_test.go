package hbasestore

import (
	"errors"
	"testing"

	"sluice/store"
)

// TestLocateRegion: the server is HBase's own, and a region that is on its way is waited for.
func TestLocateRegion(t *testing.T) {
	t.Parallel()
	g := newGateway(t, newMem(t, "m"), false)
	s := dial(t, nil, g)
	g.first(2, "getRegionLocation", fault{internal: true})
	for _, test := range []struct{ row, start, stop string }{{"", "", "m"}, {"a", "", "m"}, {"m", "m", ""}, {"z", "m", ""}} {
		r, server, err := s.LocateRegion(t.Context(), "default:t", []byte(test.row))
		if err != nil || r.Table != "t" || string(r.Start) != test.start || string(r.Stop) != test.stop || server != "localhost:16020" {
			t.Errorf("%q: Got %+v at %q, %v", test.row, r, server, err)
		}
	}
	if _, _, err := s.LocateRegion(t.Context(), "none", nil); !errors.Is(err, store.ErrTableNotFound) {
		t.Errorf("Got %v, want ErrTableNotFound", err)
	}
}
