package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sluice/store"
)

// refuseWithin refuses a directory to publish in that lies in the directory of an
// embedded store, or is it: what is found among its checkpoints and has no lease is
// removed, and a backup goes with the store that it is of. Its error wraps store.ErrInvalidArgument.
func refuseWithin(dir, out string) error {
	in, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there is no store yet
	}
	if err != nil {
		return fmt.Errorf("the store's directory: %w", err)
	}
	at, err := existing(out)
	for err == nil {
		var info os.FileInfo
		if info, err = os.Stat(at); err != nil {
			break
		}
		if os.SameFile(in, info) {
			return fmt.Errorf("%w: %s is inside the store's directory %s, which is the store's alone: name another", store.ErrInvalidArgument, out, dir)
		}
		up := filepath.Dir(at)
		if up == at {
			return nil
		}
		at = up
	}
	return fmt.Errorf("whether %s is inside the store: %w", out, err)
}

// existing returns the path, without links, of the directory nearest to out that is there.
func existing(out string) (string, error) {
	at, err := filepath.Abs(out)
	if err != nil {
		return "", err
	}
	for {
		real, err := filepath.EvalSymlinks(at)
		if up := filepath.Dir(at); errors.Is(err, fs.ErrNotExist) && up != at {
			at = up
			continue
		}
		return real, err
	}
}
