//go:build integration

package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/cell"
	"sluice/internal/fenced"
	"sluice/serve/client"
	"sluice/store"
	"sluice/store/pebblestore"
)

// I5: what pyarrow reads of a flight, all parts side by side, is what export run exports of
// the same instant, while the table is written and split. docs/flight.md's example works.
func TestFlightReaders(t *testing.T) {
	python := python(t)
	dir := t.TempDir()
	data, out := filepath.Join(dir, "sluice-data"), filepath.Join(dir, "out")
	db, err := pebblestore.Open(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	counter := store.NewFamily("n")
	counter.Counter = true
	splits := [][]byte{[]byte("r02000"), []byte("r05000"), []byte("r05500")}
	if err := db.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f"), counter}}, splits); err != nil {
		t.Fatal(err)
	}
	for i := range 9000 {
		m := &cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "r%05d", i)}
		at := cell.Timestamp(1700000000000 + i)
		m.Put("f", []byte("text"), at, []byte(strings.Repeat("ü", i%9)))
		m.Put("f", []byte("price"), at, fmt.Appendf(nil, "%d.%02d", i, i%100))
		m.Put("f", fmt.Appendf(nil, "other%d", i%3), at, []byte{byte(i), 0xff})
		if i%4 > 0 {
			m.Put("f", []byte("number"), at, fmt.Append(nil, -i))
			m.Increment("n", []byte("views"), int64(i))
		}
		if _, err := db.MutateRow(t.Context(), nil, m); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "sluice.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
store: {dir: %s}
serve: {listen: "127.0.0.1:0"}
flight: {listen: %s}
jobs:
  events:
    table: t
    columns:
      - {name: key, from: $row, type: string}
      - {name: text, from: "f:text", type: string}
      - {name: number, from: "f:number", type: int64}
      - {name: price, from: "f:price", type: "decimal(9,2)"}
      - {name: views, from: "n:views", type: int64}
      - {name: time, from: $timestamp, type: timestamp}
      - {name: rest, from: $unmatched.f, type: map}
    where: [{column: price, op: "<", value: "8000"}]
    out: %s
`, data, address, out), 0o644); err != nil {
		t.Fatal(err)
	}
	d := StartDaemon(t, config, os.Environ())
	endpoint := filepath.Join(data, "sluice.endpoint")
	c := dialDaemon(t, data)

	cmd, stdin, stdout := startScript(t.Context(), t, "flight.py", address, endpoint, "events", filepath.Join(out, "events"))
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() || lines.Text() != "OPENED" {
		t.Fatalf("Got %q, %v\n%s", lines.Text(), cmd.Wait(), d.Log())
	}
	if _, err := Run(t, os.Environ(), nil, "export", "run", "-q", "-c", config, "events"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writes sync.WaitGroup
	writes.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			key := fmt.Appendf(nil, "r%05d", i*997%12000)
			m := &cell.Mutation{Table: "t", Row: key}
			m.Put("f", []byte("text"), 1800000000000, []byte("later"))
			_, err := c.MutateRow(ctx, nil, m)
			if err == nil && i%20 == 0 {
				if err = c.SplitRegion(ctx, "t", key); errors.Is(err, store.ErrInvalidArgument) {
					err = nil // a region begins there
				}
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	if _, err := fmt.Fprintln(stdin, "go on"); err != nil {
		t.Error(err)
	}
	lines.Scan()
	if got := lines.Text(); got != "READ 8000 4" {
		t.Errorf("Got %q", got)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, d.Log())
	}
	cancel()
	writes.Wait()

	code := ""
	for _, b := range fenced.Blocks(t, filepath.Join(ModuleRoot(t), "docs", "flight.md")) {
		if b.Language == "python" {
			code += b.Text
		}
	}
	example := exec.CommandContext(t.Context(), python, "-c", strings.ReplaceAll(code, "127.0.0.1:8815", address))
	example.Dir = dir // where sluice-data is
	if b, err := example.CombinedOutput(); err != nil || !strings.HasPrefix(string(b), "8000 ") {
		t.Errorf("docs/flight.md: %v\n%s", err, b)
	}
	if err := d.Stop(time.Minute); err != nil {
		t.Errorf("%v\n%s", err, d.Log())
	}
}

// dialDaemon returns a client of the daemon of a data directory, once that answers.
func dialDaemon(t *testing.T, data string) *client.Client {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for {
		c, err := client.DialDir(t.Context(), data)
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal(err)
		}
	}
}
