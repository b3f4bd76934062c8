package jobstest

import (
	"flag"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Checks is how many of rapid's 100 checks Check makes.
const Checks = 50

// Check is rapid.Check of a property that takes long: half as many checks, unless
// -rapid.checks asks for another number, as make soak does.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	most := math.MaxInt
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		most = Checks
	}
	n, failed := 0, false
	rapid.Check(t, func(rt *rapid.T) {
		if n++; n > most && !failed { // which is made smaller by as many checks as that takes
			return
		}
		passed := false
		defer func() { failed = failed || !passed || rt.Failed() }()
		property(rt)
		passed = true
	})
}
