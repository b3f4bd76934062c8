package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/internal/overdue"
	"sluice/pipeline"
	"sluice/serve/client"
	"sluice/store"
	"sluice/store/hbasestore"
	"sluice/store/memstore"
	"sluice/store/pebblestore"
)

// Engine is what both ways of reaching a store offer: opening its directory, and
// asking the daemon that has it open.
type Engine interface {
	store.Engine
	store.Admin
	store.TableSwitcher
	store.Namespacer
	store.RegionMeter
	store.RowMutator
	store.Compactor
}

var (
	_ Engine = (*pebblestore.DB)(nil)
	_ Engine = (*memstore.Store)(nil)
	_ Engine = (*hbasestore.Store)(nil)
	_ Engine = (*client.Client)(nil)
)

// ForDirectory returns the configuration of an empty file with this data
// directory, for tools that are given no file.
func ForDirectory(dir string) *Config {
	c := Default()
	c.Store.Dir = dir
	return c
}

// Place says where the tables are, as people name it: the data directory, the gateways of
// an HBase, or the memory of the process.
func (s *Store) Place() string {
	switch s.Engine {
	case "hbase":
		return strings.Join(s.HBase.Addresses(), ",")
	case "mem":
		return "memory"
	}
	return s.Dir
}

// PebbleOptions returns the options of the embedded engine.
func (c *Config) PebbleOptions(log *slog.Logger) *pebblestore.Options {
	o := &pebblestore.Options{
		CacheBytes:          int64(c.Store.Cache),
		MemTableBytes:       uint64(c.Store.MemTable),
		MinFreeBytes:        int64(c.Store.MinFree),
		CounterCacheEntries: c.Store.CounterCache,
		RewriteInterval:     c.Store.RewriteInterval, RewriteKeysPerSecond: c.Store.RewriteRate,
		Logger: log,
	}
	// The file's 0 means never or no bound, the option's the default.
	if o.RewriteInterval == 0 {
		o.RewriteInterval = -1
	}
	if o.RewriteKeysPerSecond == 0 {
		o.RewriteKeysPerSecond = -1
	}
	if o.MinFreeBytes == 0 {
		o.MinFreeBytes = -1 // the file's 0 means no check, the option's the default
	}
	if c.Store.Sync == "never" {
		o.Sync = pebblestore.SyncNever
	}
	return o
}

// scanCacheBytes is how much block cache scans have: they come to a block once. In a
// larger one each block takes memory that was freed long ago, and so has left the
// processor's caches.
const scanCacheBytes = 8 << 20

// ForScans returns c for a store that this process opens to scan it, and not to look
// rows up: a copy with a Store.Cache of at most 8 MiB, which shares all else with c.
// Exports of packed rows take 0.8 of the time, and 0.3 of the memory, that they take with
// 256 MiB.
func (c *Config) ForScans() *Config {
	scans := *c
	scans.Store.Cache = min(c.Store.Cache, scanCacheBytes)
	return &scans
}

// HBaseOptions returns the options of engine hbase. Its error is that of a
// certificate.
func (c *Config) HBaseOptions(log *slog.Logger) (*hbasestore.Options, error) {
	h := &c.Store.HBase
	o := &hbasestore.Options{
		Addresses: h.Addresses(), Framed: h.Framed, Connections: h.Connections,
		CallTimeout: h.CallTimeout, RetryTimeout: h.RetryTimeout, CounterCache: h.CounterCache, MaxCellBytes: int(h.MaxCell), MaxFrameBytes: int(h.MaxFrame), Logger: log,
	}
	var err error
	if o.TLS, o.RootCAs, err = h.TLS.load("store.hbase.tls", c.renewed); err != nil {
		return nil, fmt.Errorf("store.hbase.tls: %w", err)
	}
	return o, nil
}

// OpenEngine opens the configured store in this process. A directory that another
// process has is waited for a little, as it may be a tool that is done soon; then,
// or at once where it is a daemon, the error wraps store.ErrLocked. log may be nil.
func OpenEngine(ctx context.Context, c *Config, log *slog.Logger) (Engine, error) {
	deadline := time.NewTimer(daemonWait)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		e, err := openEngine(ctx, c, log)
		if !errors.Is(err, store.ErrLocked) {
			return e, err
		}
		if d, dialErr := client.DialDir(ctx, c.Store.Dir); dialErr == nil {
			return nil, errors.Join(err, d.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("open the store: %w", ctx.Err())
		case <-deadline.C:
			return nil, err
		}
	}
}

// openEngine is OpenEngine without waiting.
func openEngine(ctx context.Context, c *Config, log *slog.Logger) (Engine, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	switch c.Store.Engine {
	case "pebble":
		done := overdue.Tell(cmp.Or(log, slog.New(slog.DiscardHandler)), "open the store", "path", c.Store.Dir)
		defer done()
		db, err := pebblestore.Open(c.Store.Dir, c.PebbleOptions(log))
		if err != nil {
			return nil, err // not a nil *DB in an Engine
		}
		return db, nil
	case "mem":
		return memstore.New(nil)
	case "hbase":
		o, err := c.HBaseOptions(log)
		if err != nil {
			return nil, err
		}
		s, err := hbasestore.Open(ctx, o)
		if err != nil {
			return nil, err // not a nil *Store in an Engine
		}
		return s, nil
	}
	return nil, fmt.Errorf("%w: storage engine %q", store.ErrUnsupported, c.Store.Engine)
}

// daemonWait bounds the wait for a daemon that has the directory open and has not
// written its endpoint yet, or is about to let go.
const daemonWait = 3 * time.Second

// ErrNoStore: the data directory of a tool holds no store, and the tool makes none.
var ErrNoStore = errors.New("config: no store")

// CheckStore returns an error that wraps ErrNoStore where the engine keeps a directory
// and that holds no store, as with a mistyped path or in another working directory.
func (c *Config) CheckStore() error {
	if c.Store.Engine != "pebble" {
		return nil
	}
	found, err := pebblestore.Exists(c.Store.Dir)
	if err != nil || found {
		return err
	}
	dir, err := filepath.Abs(c.Store.Dir)
	if err != nil {
		dir = c.Store.Dir
	}
	return fmt.Errorf("%w in %s: check the path and the working directory; ingest run and shell --create make one", ErrNoStore, dir)
}

// OpenStore opens the configured store for a tool: through the daemon that has
// the directory open, writes included, or directly where there is none. remote
// says which. Where there is no store, none is made, and the error wraps ErrNoStore.
// log may be nil.
func OpenStore(ctx context.Context, c *Config, log *slog.Logger) (e Engine, remote bool, err error) {
	if err := c.CheckStore(); err != nil {
		return nil, false, err
	}
	return MakeStore(ctx, c, log)
}

// MakeStore is OpenStore that makes the store where there is none.
func MakeStore(ctx context.Context, c *Config, log *slog.Logger) (e Engine, remote bool, err error) {
	if c.Store.Engine != "pebble" {
		e, err = OpenEngine(ctx, c, log)
		return e, false, err
	}
	deadline := time.NewTimer(daemonWait)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		d, err := client.DialDir(ctx, c.Store.Dir)
		if err == nil {
			return d, true, nil
		}
		// Whatever became of the daemon that wrote the endpoint, and whoever answers
		// there now: who runs has the directory's lock.
		e, openErr := openEngine(ctx, c, log)
		if openErr == nil {
			return e, false, nil
		}
		if !errors.Is(openErr, store.ErrLocked) {
			return nil, false, openErr
		}
		if !errors.Is(err, client.ErrNoDaemon) {
			return nil, false, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, false, fmt.Errorf("open %s: %w", c.Store.Dir, ctx.Err())
		case <-deadline.C:
			return nil, false, fmt.Errorf(
				"open %s: %w, and there is no daemon to ask (%w): if it is a shell or an export, wait for it or end it; "+
					"if it is an ingest daemon that is starting, try again; otherwise find the process with \"fuser %s/LOCK\"",
				c.Store.Dir, store.ErrLocked, err, c.Store.Dir)
		}
	}
}

// EnsureTables creates the tables of the file that do not exist, with their
// namespaces, and returns their names. A table that exists with another schema is left as it is: the error
// names every difference and wraps store.ErrInvalidSchema, or pipeline.ErrRebuilding where that is all
// that an unfinished rebuild has left.
func (c *Config) EnsureTables(ctx context.Context, e interface {
	store.Engine
	store.Admin
},
) (created []string, err error) {
	var differences []string
	var rebuilding error
	for _, spec := range c.TableSpecs() {
		d := spec.Descriptor
		have, err := e.Table(ctx, d.Name)
		if errors.Is(err, store.ErrTableNotFound) {
			if err = ensureNamespace(ctx, e, store.NamespaceOf(d.Name)); err == nil {
				err = e.CreateTable(ctx, d, spec.Splits)
			}
			if err == nil {
				created = append(created, d.Name)
				continue
			}
			if errors.Is(err, store.ErrTableExists) { // somebody was faster
				have, err = e.Table(ctx, d.Name)
			}
		}
		if err != nil {
			return created, err // it names the table
		}
		if err := rebuildOf(d, have); err != nil && rebuilding == nil {
			rebuilding = err
		}
		differences = append(differences, schemaDifferences(d, have)...)
	}
	if rebuilding == nil {
		if rebuilding, err = c.rebuildOfTemplates(ctx, e); err != nil {
			return created, err
		}
	}
	if len(differences) > 0 {
		return created, fmt.Errorf("%w: the store's tables are not as %s says; change the file, or alter the tables in the shell:\n  %s",
			store.ErrInvalidSchema, c.file, strings.Join(differences, "\n  "))
	}
	return created, rebuilding
}

// rebuildOf returns what to do about the families of an unfinished rebuild, nil where have
// is without any that the file does not name.
func rebuildOf(file, have *store.TableDescriptor) error {
	for i := range have.Families {
		if name := have.Families[i].Name; file.Family(name) == nil {
			if err := pipeline.Rebuilding(file.Name, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// rebuildOfTemplates is rebuildOf of the tables that were made by the file's templates.
func (c *Config) rebuildOfTemplates(ctx context.Context, e interface {
	store.Engine
	store.Admin
},
) (rebuilding, err error) {
	tables, err := e.Tables(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range tables {
		made := c.TableTemplate(name)
		if made == nil || !isTemplate(c.tableKey(name)) {
			continue
		}
		have, err := e.Table(ctx, name)
		if errors.Is(err, store.ErrTableNotFound) { // dropped meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		if rebuilding = rebuildOf(made, have); rebuilding != nil {
			return rebuilding, nil
		}
	}
	return nil, nil
}

// ensureNamespace creates the namespace of a table of the file where it is
// missing.
func ensureNamespace(ctx context.Context, e store.Engine, name string) error {
	n, ok := e.(store.Namespacer)
	if !ok || store.Predefined(name) {
		return nil
	}
	_, err := store.FindNamespace(ctx, n, name)
	if errors.Is(err, store.ErrNamespaceNotFound) {
		err = n.CreateNamespace(ctx, &store.Namespace{Name: name})
	}
	if errors.Is(err, store.ErrNamespaceExists) { // somebody was faster
		return nil
	}
	return err
}

// schemaDifferences says how the file's schema differs from the store's.
func schemaDifferences(file, have *store.TableDescriptor) []string {
	var out []string
	differ := func(what, stored, wanted string) {
		if stored != wanted {
			out = append(out, fmt.Sprintf("table %s: %s is %s in the store, %s in the file", file.Name, what, stored, wanted))
		}
	}
	for i := range file.Families {
		f := &file.Families[i]
		h := have.Family(f.Name)
		if h == nil {
			out = append(out, fmt.Sprintf("table %s: family %s is missing in the store", file.Name, f.Name))
			continue
		}
		stored := attributesOf(h)
		wanted := attributesOf(f)
		for _, name := range store.FamilyAttributeNames() {
			differ("family "+f.Name+": "+name, shown(stored[name]), shown(wanted[name]))
		}
	}
	for i := range have.Families {
		if name := have.Families[i].Name; file.Family(name) == nil && pipeline.Rebuilding(file.Name, name) == nil {
			out = append(out, fmt.Sprintf("table %s: family %s of the store is missing in the file", file.Name, name))
		}
	}
	differ("max_cell", maxCell(have).String(), maxCell(file).String())
	differ("max_timestamp_slop", fmt.Sprintf("%d ms", have.MaxTimestampSlop), fmt.Sprintf("%d ms", file.MaxTimestampSlop))
	if file.ReadOnly { // one that is made so in the shell is so for a while, and no other table
		differ("read_only", fmt.Sprint(have.ReadOnly), fmt.Sprint(file.ReadOnly))
	}
	for _, name := range slices.Sorted(maps.Keys(file.Attributes)) {
		differ(name, shown(have.Attributes[name]), shown(file.Attributes[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(file.Metadata)) {
		differ(name, shown(have.Metadata[name]), shown(file.Metadata[name]))
	}
	return out
}

func attributesOf(f *store.FamilyDescriptor) map[string]string {
	m := map[string]string{}
	for _, a := range append(f.List(), f.ListMetadata()...) {
		m[a.Name] = a.Value
	}
	return m
}

func shown(value string) string {
	if value == "" {
		return "not set"
	}
	return value
}

func maxCell(t *store.TableDescriptor) Size {
	if t.MaxCellBytes == 0 {
		return store.DefaultMaxCellBytes
	}
	return Size(t.MaxCellBytes)
}
