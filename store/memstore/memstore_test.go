package memstore_test

import (
	"testing"

	"sluice/store"
	"sluice/store/memstore"
	"sluice/store/storetest"
)

func TestEngine(t *testing.T) {
	t.Parallel()
	limits := &storetest.Limits{}
	limits.Shorten()
	storetest.RunWithin(t, open, limits)
}

func open(t *testing.T, o storetest.Options) store.Engine {
	s, err := memstore.New(&memstore.Options{Now: o.Now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMetamorphic keeps the random histories themselves sound: the model agrees
// with itself.
func TestMetamorphic(t *testing.T) {
	t.Parallel()
	storetest.Metamorphic(t, open, open, nil)
}

func TestChanges(t *testing.T) {
	t.Parallel()
	storetest.Changes(t, open, nil)
}
