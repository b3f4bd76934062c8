package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sluice/serve/api"
)

// WriteEndpoint writes e into dir, for the tools that find the directory in use
// (client.Dial). Only the owner can read it. remove takes it away again, unless
// another process has written its own by then; call it when the server has
// stopped.
func WriteEndpoint(dir string, e api.Endpoint) (remove func() error, err error) {
	path := filepath.Join(dir, api.EndpointFile)
	b, err := json.MarshalIndent(e, "", "  ")
	if err == nil {
		err = writeFileAtomic(path, append(b, '\n'))
	}
	if err != nil {
		return nil, fmt.Errorf("serve: write the endpoint file: %w", err)
	}
	return func() error {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return fmt.Errorf("serve: remove the endpoint file: %w", err)
		}
		var now api.Endpoint
		if json.Unmarshal(b, &now) == nil && now.Instance != e.Instance {
			return nil
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("serve: remove the endpoint file: %w", err)
		}
		return nil
	}, nil
}

// writeFileAtomic replaces path whole, readable by its owner only. It is not
// synced: after a power loss the process that the file speaks of is gone, too.
func writeFileAtomic(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
