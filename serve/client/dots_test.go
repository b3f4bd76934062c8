package client_test

import (
	"errors"
	"testing"

	"sluice/store"
)

// TestNamesOfDots: a name that is a step in a path is a name like another.
func TestNamesOfDots(t *testing.T) {
	t.Parallel()
	c := dial(t, newStore(t), nil)
	for _, name := range []string{".", ".."} {
		if _, err := c.Table(t.Context(), name); !errors.Is(err, store.ErrTableNotFound) {
			t.Errorf("table %s: Got %v", name, err)
		}
		if err := c.DropTable(t.Context(), name); !errors.Is(err, store.ErrTableNotFound) {
			t.Errorf("drop %s: Got %v", name, err)
		}
		if _, err := c.RegionStats(t.Context(), name); !errors.Is(err, store.ErrTableNotFound) {
			t.Errorf("regions of %s: Got %v", name, err)
		}
		if err := c.DropNamespace(t.Context(), name); !errors.Is(err, store.ErrNamespaceNotFound) {
			t.Errorf("namespace %s: Got %v", name, err)
		}
	}
}
