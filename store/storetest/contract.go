package storetest

import "testing"

// RunContract tests what every engine must do.
func RunContract(t *testing.T, open Factory) {
	t.Run("traits", func(t *testing.T) {
		e := start(t, open)
		if e.Traits().Name == "" || e.Traits().Atomic == 0 {
			t.Errorf("Traits() = %+v, want a name and an atomicity", e.Traits())
		}
	})
}
