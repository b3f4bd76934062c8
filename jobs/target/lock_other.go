//go:build !unix

package target

import (
	"errors"
	"fmt"
	"os"
)

// lock says that there are no locks on this system.
func lock(f *os.File) error {
	return fmt.Errorf("lock %s: %w", f.Name(), errors.ErrUnsupported)
}
