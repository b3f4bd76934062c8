package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sluice/serve/api"
	"sluice/serve/checkpoint"
)

// WriteEndpoint writes e into dir, for the tools that find the directory in use
// (client.Dial). Only the owner can read it. remove takes it away again, unless
// another process has written its own by then; call it when the server has
// stopped.
func WriteEndpoint(dir string, e api.Endpoint) (remove func() error, err error) {
	path := filepath.Join(dir, api.EndpointFile)
	b, err := json.MarshalIndent(e, "", "  ")
	if err == nil {
		err = checkpoint.WriteFile(path, append(b, '\n'))
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
