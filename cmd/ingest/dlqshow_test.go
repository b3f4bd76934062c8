package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/cmd/internal/cli"
	"sluice/pipeline/buffer"
	"sluice/store"
	"sluice/store/pebblestore"
)

// Of a place there may be letters of several pipelines, and of one those of topics that
// had the name one after the other: --raw, which prints one, says what tells them apart.
func TestDlqShowOneOfSeveral(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "f.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, dlqConfig, filepath.Join(dir, "data"), "127.0.0.1:9", "user"), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := pebblestore.Open(filepath.Join(dir, "data"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	for _, d := range []buffer.DeadLetter{
		{Pipeline: "visits", TopicID: [16]byte{1}, Value: []byte("old")},
		{Pipeline: "visits", TopicID: [16]byte{2}, Value: []byte("new")},
		{Pipeline: "views", TopicID: [16]byte{2}, Value: []byte("new")},
	} {
		d.Topic, d.Stage, d.Class, d.Offset = "visits", "decode", "json", 7
		m, err := d.Mutation()
		if err != nil {
			t.Fatal(err)
		}
		b.Add(d.Offset, m)
	}
	if err := errors.Join(db.Apply(t.Context(), &b), db.Close()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "3 letters are of visits/0/7: name the --pipeline"},
		{[]string{"--pipeline", "visits"}, "2 letters are of visits/0/7, of topics that had the name one after the other: --json prints them all, with their topic ids"},
	} {
		out, err := command(t, append([]string{"dlq", "show", "-c", file, "--raw", "visits/0/7"}, c.args...)...)
		if !errors.Is(err, cli.ErrUsage) || !strings.HasSuffix(err.Error(), c.want) || out != "" {
			t.Errorf("%v: Got %q, %v, want %s", c.args, out, err, c.want)
		}
	}
	if out, err := command(t, "dlq", "show", "-c", file, "--raw", "visits/0/7", "--pipeline", "views"); err != nil || out != "new" {
		t.Errorf("Got %q, %v", out, err)
	}
}
