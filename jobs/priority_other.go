//go:build !linux

package jobs

import (
	"fmt"

	"sluice/store"
)

// lowerThread cannot: only Linux has priorities of threads that a program may lower
// one by one.
func lowerThread() error {
	return fmt.Errorf("%w: only on Linux", store.ErrUnsupported)
}
