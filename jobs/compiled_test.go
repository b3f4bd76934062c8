package jobs

import (
	"testing"

	"sluice/store"
)

func mustCompile(t testing.TB, name string, s *Spec, schema *store.TableDescriptor) *Job {
	t.Helper()
	j, err := Compile(name, s, schema)
	if err != nil {
		t.Fatalf("Compile: %v", err)
	}
	return j
}
