//go:build !unix

package filelock

import (
	"errors"
	"fmt"
	"os"
)

// Take says that there are no locks on this system.
func Take(f *os.File) error {
	return fmt.Errorf("lock %s: %w", f.Name(), errors.ErrUnsupported)
}
