package serve

import (
	"os"
	"path/filepath"
	"testing"

	"sluice/serve/api"
)

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestEndpointFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine := api.Endpoint{Address: "127.0.0.1:1", Token: "t", PID: 1, Instance: "a"}
	remove, err := WriteEndpoint(dir, mine)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, api.EndpointFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("Got %v, %v, want mode 0600", info, err)
	}
	theirs := mine
	theirs.Instance = "b"
	removeTheirs, err := WriteEndpoint(dir, theirs)
	if err != nil {
		t.Fatal(err)
	}
	if err := remove(); err != nil || !exists(path) {
		t.Errorf("another's endpoint was removed (%v)", err)
	}
	if err := removeTheirs(); err != nil || exists(path) {
		t.Errorf("the endpoint is still there (%v)", err)
	}
	if err := removeTheirs(); err != nil {
		t.Errorf("second remove: %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
	if _, err := WriteEndpoint(filepath.Join(dir, "missing"), mine); err == nil {
		t.Error("Got no error for a directory that is not there")
	}
}
