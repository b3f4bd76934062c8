package client_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/serve"
	"sluice/serve/api"
	"sluice/serve/client"
)

// FuzzReadEndpoint: what is read of an endpoint file names an address and an instance, is read
// again from what WriteEndpoint writes of it, and no error shows its token.
func FuzzReadEndpoint(f *testing.F) {
	for _, s := range []string{
		`{"address":"127.0.0.1:8087","token":"t0ken-of-mine","pid":7,"started":"2026-01-02T03:04:05.000000006Z","instance":"i"}`,
		`{"address":"a","instance":"i","started":"9999-12-31T23:59:59+14:00"}`, `{"address":"","instance":"i"}`, `null`, `{}`, `[]`, "", `{"pid":1e9,"token":"t0ken-of-mine"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, api.EndpointFile)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := client.ReadEndpoint(dir)
		if err != nil {
			if !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "t0ken-of-mine") {
				t.Errorf("Got %v of %q", err, b)
			}
			return
		}
		if e.Address == "" || e.Instance == "" {
			t.Fatalf("Got %v of %q", e, b)
		}
		remove, err := serve.WriteEndpoint(dir, e)
		if err != nil {
			return // a time of a year that JSON has not
		}
		again, err := client.ReadEndpoint(dir)
		if err != nil || !again.Started.Equal(e.Started) {
			t.Fatalf("Got %v, %v, started %s, want %s", again, err, again.Started, e.Started)
		}
		if again.Started = e.Started; again != e {
			t.Errorf("Got %v, want %v", again, e)
		}
		if err := remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("the file is still there")
		}
	})
}
