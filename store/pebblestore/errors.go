package pebblestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"sluice/store"
)

// engineError gives an error of Pebble its class.
func engineError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrClosed):
		return err
	case pebble.IsCorruptionError(err):
		return corruptError(err)
	case errors.Is(err, pebble.ErrReadOnly):
		return fmt.Errorf("%w: opened read-only", store.ErrReadOnly)
	case errors.Is(err, pebble.ErrClosed):
		return store.ErrClosed
	}
	return diskError(err)
}

// corruptError names the file, where Pebble knows it, in place of the mark by which Pebble
// carries it along, a line of text of its own.
func corruptError(err error) error {
	if at := pebble.ExtractDataCorruptionInfo(err); at != nil {
		return fmt.Errorf("%w: %s: %w", store.ErrCorrupt, at.Path, at.Details)
	}
	return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
}

// diskError says what an operator can do about an error of the file system.
func diskError(err error) error {
	switch {
	case err == nil:
		return nil
	case store.NoSpace(err):
		return fmt.Errorf("%w: free some space: %w", store.ErrDiskFull, err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: the file system is mounted read-only: remount it, or choose another data directory: %w", fs.ErrPermission, err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("the data directory must be writable for this user: %w", err)
	case pebble.IsCorruptionError(err):
		return corruptError(err)
	}
	return err
}
