package jobstest

import (
	"reflect"

	"github.com/google/go-cmp/cmp"
)

// Diff returns "" where want and got are equal, else how they differ, as cmp.Diff does,
// which takes long to find that many rows or bytes are equal.
func Diff(want, got any) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got)
}
