package hbasestore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"sluice/store"
)

// TestCreatedTableStays: a table that was made stays where nobody can be asked what it has
// become: another process may have found it, and have written to it, by then.
func TestCreatedTableStays(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"getTableDescriptor", "getAllRegionLocations"} {
		g := newGateway(t, nil, false)
		s, other := dial(t, func(o *Options) { o.RetryTimeout = time.Nanosecond }, g), dial(t, nil, g)
		created := false
		g.inject(func(m string) fault {
			created = created || m == "createTable"
			if created && m == method {
				return fault{text: "org.apache.hadoop.hbase.PleaseHoldException: Master is initializing", canRetry: true}
			}
			return fault{}
		})
		d := &store.TableDescriptor{Name: "x", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
		err := s.CreateTable(t.Context(), d, [][]byte{[]byte("m")})
		if !errors.Is(err, store.ErrTransient) || !strings.Contains(err.Error(), "PleaseHold") {
			t.Errorf("%s fails: Got %v, want ErrTransient", method, err)
		}
		g.inject(nil)
		if _, err := other.Table(t.Context(), "x"); err != nil {
			t.Errorf("%s fails: the table is gone: %v", method, err)
		}
	}
}
