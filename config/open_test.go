package config_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/cell"
	"sluice/config"
	"sluice/pipeline"
	"sluice/serve"
	"sluice/serve/api"
	"sluice/store"
)

func attributeNames() []string { return store.FamilyAttributeNames() }

// parse reads a configuration with a data directory of its own.
func parse(t *testing.T, dir, rest string) *config.Config {
	t.Helper()
	c, err := config.Parse("f.yaml", []byte("store: {dir: '"+dir+"', cache: 1MiB, mem_table: 1MiB, min_free: 0}\n"+rest), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const eventTable = "tables: {events: {families: {e: {VERSIONS: 2}}, split: {keys: [m, '\\x00\\xff']}}}\n"

// daemon has the directory open and serves it, as ingest run does.
func daemon(t *testing.T, c *config.Config) (stop func()) {
	t.Helper()
	e, err := config.OpenEngine(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := serve.New(&serve.Options{Engine: e, Dir: c.Store.Dir})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	remove, err := serve.WriteEndpoint(c.Store.Dir, s.Endpoint(l.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := errors.Join(<-done, remove(), e.Close()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// useStore writes and reads a row and reports whether it went through a daemon.
func useStore(t *testing.T, c *config.Config, row string) (remote bool) {
	t.Helper()
	e, remote, err := config.MakeStore(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := c.EnsureTables(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	m := cell.Mutation{Table: "events", Row: []byte(row)}
	m.Put("e", []byte("q"), 1, []byte("v"))
	if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
		t.Fatal(err)
	}
	sc := e.Scan(t.Context(), &store.Scan{Table: "events", Start: []byte(row)})
	defer sc.Close()
	if !sc.Next() || string(sc.Row().Key) != row {
		t.Errorf("row %s is not there (%v)", row, sc.Err())
	}
	return remote
}

// TestOneDirectoryInBothStates is issue item 8: directly, through a daemon, and
// directly again, writes included.
func TestOneDirectoryInBothStates(t *testing.T) {
	t.Parallel()
	c := parse(t, filepath.Join(t.TempDir(), "data"), eventTable)
	if useStore(t, c, "a") {
		t.Error("a daemon where there is none")
	}
	stop := daemon(t, c)
	if !useStore(t, c, "b") {
		t.Error("the daemon was not used")
	}
	stop()
	if useStore(t, c, "c") {
		t.Error("a daemon that has stopped")
	}
}

// TestInstant: what is written after it stays out of it, in both states.
func TestInstant(t *testing.T) {
	t.Parallel()
	for _, remote := range []bool{false, true} {
		c := parse(t, filepath.Join(t.TempDir(), "data"), eventTable)
		useStore(t, c, "a")
		if remote {
			daemon(t, c)
		}
		in, err := config.OpenInstant(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if in.Remote != remote || in.Sequence() == 0 {
			t.Errorf("remote %t: Got Remote %t, sequence %d", remote, in.Remote, in.Sequence())
		}
		if remote {
			useStore(t, c, "b")
		}
		n := 0
		sc := in.Scan(t.Context(), &store.Scan{Table: "events"})
		for sc.Next() {
			n++
		}
		if err := errors.Join(sc.Err(), sc.Close(), in.Err()); err != nil || n != 1 {
			t.Errorf("remote %t: Got %d rows, %v, want 1", remote, n, err)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if entries, _ := os.ReadDir(filepath.Join(c.Store.Dir, "checkpoints")); len(entries) != 0 {
			t.Errorf("remote %t: the checkpoint is still there: %v", remote, entries)
		}
	}
}

// TestDirectoryInUse: no daemon answers for a directory that is locked.
func TestDirectoryInUse(t *testing.T) {
	t.Parallel()
	c := parse(t, filepath.Join(t.TempDir(), "data"), "")
	e, err := config.OpenEngine(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, _, err = config.OpenStore(t.Context(), c, nil)
	if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), "fuser") {
		t.Errorf("Got %v, want ErrLocked and what to do", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err = config.OpenStore(ctx, c, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Got %v, want Canceled", err)
	}
}

// TestDaemonWaitsForATool: a tool that looks at the directory while the daemon
// starts must not keep it from starting.
func TestDaemonWaitsForATool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := parse(t, filepath.Join(t.TempDir(), "data"), "")
		tool, err := config.OpenEngine(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		opened := make(chan error, 1)
		go func() {
			e, err := config.OpenEngine(t.Context(), c, nil)
			if err == nil {
				err = e.Close()
			}
			opened <- err
		}()
		select {
		case err := <-opened:
			t.Fatalf("opened a directory that is in use: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
		if err := tool.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-opened; err != nil {
			t.Errorf("after the tool had gone: %v", err)
		}
	})
}

// TestSecondDaemon: another daemon is not waited for.
func TestSecondDaemon(t *testing.T) {
	t.Parallel()
	c := parse(t, filepath.Join(t.TempDir(), "data"), "")
	daemon(t, c)
	synctest.Test(t, func(t *testing.T) { // no time passes while the first one answers
		begin := time.Now()
		if _, err := config.OpenEngine(t.Context(), c, nil); !errors.Is(err, store.ErrLocked) || time.Since(begin) > 0 {
			t.Errorf("Got %v after %v", err, time.Since(begin))
		}
	})
}

// TestStaleEndpoint: a daemon that was killed leaves its file behind.
func TestStaleEndpoint(t *testing.T) {
	t.Parallel()
	c := parse(t, filepath.Join(t.TempDir(), "data"), eventTable)
	useStore(t, c, "a")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	if _, err := serve.WriteEndpoint(c.Store.Dir, api.Endpoint{Address: address, Token: "t", PID: 1, Instance: "gone"}); err != nil {
		t.Fatal(err)
	}
	if useStore(t, c, "b") {
		t.Error("used a daemon that is gone")
	}
}

// TestStaleEndpointUnreadable: what a power loss has left of the file, or who has the port of a
// daemon that was killed, keeps nobody from a directory that no process has.
func TestStaleEndpointUnreadable(t *testing.T) {
	t.Parallel()
	c := parse(t, filepath.Join(t.TempDir(), "data"), eventTable)
	useStore(t, c, "a")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // until l is closed
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("SSH-2.0-OpenSSH_9.6\r\n"))
			conn.Close()
		}
	}()
	if _, err := serve.WriteEndpoint(c.Store.Dir, api.Endpoint{Address: l.Addr().String(), Token: "t", PID: 1, Instance: "gone"}); err != nil {
		t.Fatal(err)
	}
	if useStore(t, c, "b") {
		t.Error("used what is no daemon")
	}
	if err := os.WriteFile(filepath.Join(c.Store.Dir, api.EndpointFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if useStore(t, c, "c") {
		t.Error("used a daemon of an empty file")
	}
	e, err := config.OpenEngine(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, _, err := config.MakeStore(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), "read the daemon's endpoint") {
		t.Errorf("of a directory that is in use: Got %v, want what is wrong with the endpoint", err)
	}
}

func TestEnsureTables(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	c := parse(t, dir, eventTable)
	e, err := config.OpenEngine(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for i, want := range []int{1, 0} {
		created, err := c.EnsureTables(t.Context(), e)
		if err != nil || len(created) != want {
			t.Errorf("run %d: Got %v, %v, want %d tables", i, created, err, want)
		}
	}
	m, err := e.Regions(t.Context(), "events")
	if err != nil || m.Len() != 3 || string(m.At(1).Start) != "\x00\xff" {
		t.Errorf("Got %v, %v", m.All(), err)
	}
	other := parse(t, dir, "tables: {events: {families: {e: {VERSIONS: 3, TTL: 60}, x: {}}, max_cell: 1MiB}}\n")
	_, err = other.EnsureTables(t.Context(), e)
	if !errors.Is(err, store.ErrInvalidSchema) {
		t.Fatalf("Got %v, want ErrInvalidSchema", err)
	}
	for _, want := range []string{
		"f.yaml", "family e: VERSIONS is 2 in the store, 3 in the file", "family e: TTL is FOREVER in the store, 60 SECONDS (1 MINUTE) in the file",
		"family x is missing in the store", "max_cell is 10MiB in the store, 1MiB in the file",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in\n%v", want, err)
		}
	}
	if d, err := e.Table(t.Context(), "events"); err != nil || d.Family("e").Versions != 2 {
		t.Errorf("the table was altered: %+v, %v", d, err)
	}
}

// A table that was made READONLY in the shell is no other table than the file's, and is left so.
// One that the file says is READONLY must be.
func TestEnsureTablesThatAreReadOnly(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	file := "tables: {events: {families: {e: {}}%s}}\n"
	c := parse(t, dir, fmt.Sprintf(file, ""))
	e, err := config.OpenEngine(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, readOnly := range []bool{false, true} {
		for _, of := range []*config.Config{c, parse(t, dir, fmt.Sprintf(file, ", read_only: true"))} {
			wrong := of != c && !readOnly
			if _, err := of.EnsureTables(t.Context(), e); errors.Is(err, store.ErrInvalidSchema) != wrong || !wrong && err != nil {
				t.Errorf("READONLY %t: Got %v", readOnly, err)
			}
		}
		d, err := e.Table(t.Context(), "events")
		if err != nil || d.ReadOnly != readOnly {
			t.Fatalf("Got %+v, %v, want READONLY %t", d, err, readOnly)
		}
		d = d.Clone()
		d.ReadOnly = true
		if err := e.AlterTable(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
}

// What a rebuild has left that was not ended is not to be put right in the file or in the
// shell: the error names the command that ends it.
func TestEnsureTablesAmidARebuild(t *testing.T) {
	t.Parallel()
	c := parse(t, filepath.Join(t.TempDir(), "data"), "tables: {counts: {families: {a~b: {COUNTER: true}}}}\n")
	e, err := config.OpenEngine(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := c.EnsureTables(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	add := func(family string) {
		t.Helper()
		d, err := e.Table(t.Context(), "counts")
		if err != nil {
			t.Fatal(err)
		}
		d = d.Clone()
		f := store.NewFamily(family)
		f.Counter = true
		d.Families = append(d.Families, f)
		if err := e.AlterTable(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	add("a~b~page-views~12")
	_, err = c.EnsureTables(t.Context(), e)
	if !errors.Is(err, pipeline.ErrRebuilding) || errors.Is(err, store.ErrInvalidSchema) || !strings.Contains(err.Error(), `"ingest replay rebuild page-views"`) {
		t.Errorf("Got %v, want ErrRebuilding that names the command", err)
	}
	add("c~d")
	_, err = c.EnsureTables(t.Context(), e)
	if !errors.Is(err, store.ErrInvalidSchema) || !strings.Contains(err.Error(), "family c~d of the store is missing") || strings.Contains(err.Error(), "page-views") {
		t.Errorf("Got %v, want ErrInvalidSchema for c~d alone", err)
	}
}

// So it is where the rebuild has left something in tables of a template alone, which the file
// does not name.
func TestEnsureTablesAmidARebuildOfTemplates(t *testing.T) {
	t.Parallel()
	c := parse(t, filepath.Join(t.TempDir(), "data"), "tables: {counts_*: {families: {a: {COUNTER: true}}}}\n")
	e, err := config.OpenEngine(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := c.TableCreator(e, nil)(t.Context(), "counts_1"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.EnsureTables(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	d, err := e.Table(t.Context(), "counts_1")
	if err != nil {
		t.Fatal(err)
	}
	d = d.Clone()
	left := d.Families[0]
	left.Name = "a~page-views~1"
	d.Families = append(d.Families, left)
	if err := e.AlterTable(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	_, err = c.EnsureTables(t.Context(), e)
	if !errors.Is(err, pipeline.ErrRebuilding) || !strings.Contains(err.Error(), `"ingest replay rebuild page-views"`) {
		t.Errorf("Got %v, want ErrRebuilding that names the command", err)
	}
}

func TestEnsureTablesInNamespaces(t *testing.T) {
	t.Parallel()
	c := parse(t, filepath.Join(t.TempDir(), "data"), "tables: {'web:a': {families: {f: {}}, attributes: {split_policy: ConstantSizeRegionSplitPolicy}, metadata: {team: web}}, 'web:b': {families: {f: {}}}}\n")
	e, err := config.OpenEngine(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if created, err := c.EnsureTables(t.Context(), e); err != nil || len(created) != 2 {
		t.Fatalf("Got %v, %v, want two tables", created, err)
	}
	if _, err := store.FindNamespace(t.Context(), e, "web"); err != nil {
		t.Error(err)
	}
	d, err := e.Table(t.Context(), "web:a")
	if err != nil || d.Attributes[store.AttrSplitPolicy] != "ConstantSizeRegionSplitPolicy" || d.Metadata["team"] != "web" {
		t.Errorf("Got %+v, %v", d, err)
	}
}

func TestMemoryEngine(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("f.yaml", []byte("store: {engine: mem}\n"+eventTable), nil)
	if err != nil {
		t.Fatal(err)
	}
	if useStore(t, c, "a") {
		t.Error("a daemon for tables in memory")
	}
}

func TestForDirectory(t *testing.T) {
	t.Parallel()
	c := config.ForDirectory("x")
	if c.Store.Dir != "x" || c.Store.Engine != "pebble" || len(c.Pipelines) != 0 {
		t.Errorf("Got %+v", c)
	}
}

func TestStorePlace(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]config.Store{
		"./d":            {Engine: "pebble", Dir: "./d"},
		"memory":         {Engine: "mem", Dir: "./d"},
		"127.0.0.1:9090": {Engine: "hbase", Dir: "./d"},
		"a:1,b:2":        {Engine: "hbase", Dir: "./d", HBase: config.HBase{Gateways: []string{"a:1", "b:2"}}},
	} {
		if got := s.Place(); got != want {
			t.Errorf("Got %q of %+v, want %q", got, s, want)
		}
	}
}

// Scans have a small cache, and no larger one than the store's, which stays as it is.
func TestForScans(t *testing.T) {
	t.Parallel()
	for _, of := range []struct{ store, scans config.Size }{{256 << 20, 8 << 20}, {1 << 20, 1 << 20}} {
		c := &config.Config{Store: config.Store{Dir: "data", Cache: of.store, MemTable: 3 << 20}}
		want := c.Store
		want.Cache = of.scans
		if got := c.ForScans().Store; !reflect.DeepEqual(got, want) || c.Store.Cache != of.store {
			t.Errorf("scans of a store with a cache of %d have %+v, and the store's is %d; want %+v", of.store, got, c.Store.Cache, want)
		}
	}
}
