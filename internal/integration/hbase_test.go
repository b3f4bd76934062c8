//go:build integration

package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
	"sluice/store/hbasestore"
	"sluice/store/storetest"
)

// hbaseAddress returns the address of a Thrift2 gateway with a real HBase behind it:
// SLUICE_HBASE, or one that is started for the test, where the shared folder beside
// the module can. Tests that call it drop all tables there.
func hbaseAddress(t *testing.T) string {
	t.Helper()
	if a := os.Getenv("SLUICE_HBASE"); a != "" {
		return a
	}
	program := filepath.Join(ModuleRoot(t), "..", "shared", "real", "hbase")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("SLUICE_HBASE names no Thrift2 gateway, and %s is absent", program)
	}
	dir := t.TempDir()
	t.Cleanup(func() {
		if out, err := exec.Command(program, "stop", dir).CombinedOutput(); err != nil {
			t.Errorf("stop HBase: %v\n%s", err, out)
		}
	})
	out, err := exec.Command(program, "start", dir).Output()
	if err != nil {
		t.Fatalf("start HBase: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func openHBase(t *testing.T, address string, now func() cell.Timestamp) *hbasestore.Store {
	t.Helper()
	s, err := hbasestore.Open(t.Context(), &hbasestore.Options{Addresses: []string{address}, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// emptyHBase drops all tables and namespaces.
func emptyHBase(t *testing.T, s *hbasestore.Store) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	names, err := s.Tables(ctx)
	for _, name := range names {
		if derr := s.DisableTable(ctx, name); derr != nil && !errors.Is(derr, store.ErrTableNotEnabled) {
			err = errors.Join(err, derr)
		}
		err = errors.Join(err, s.DropTable(ctx, name))
	}
	all, nerr := s.Namespaces(ctx)
	err = errors.Join(err, nerr)
	for _, n := range all {
		if !store.Predefined(n.Name) {
			err = errors.Join(err, s.DropNamespace(ctx, n.Name))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestHBaseContract runs the engines' contract on a real HBase.
func TestHBaseContract(t *testing.T) {
	address := hbaseAddress(t)
	if checks := flag.Lookup("rapid.checks"); checks != nil && checks.Value.String() == checks.DefValue {
		// Each makes and drops a table, which takes HBase a second or two.
		if err := flag.Set(checks.Name, "20"); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := flag.Set(checks.Name, checks.DefValue); err != nil {
				t.Error(err)
			}
		}()
	}
	known := map[string]bool{} // directories of engines that were opened before
	storetest.RunContractWithin(t, func(t *testing.T, o storetest.Options) store.Engine {
		s := openHBase(t, address, o.Now)
		if !known[o.Dir] {
			emptyHBase(t, s)
			known[o.Dir] = true
		}
		return s
	}, storetest.HBaseLimits())
}

// TestHBaseCases runs the shared cases on a real HBase, each on a table of its own.
// Those that cannot be are printed with the reason.
func TestHBaseCases(t *testing.T) {
	address := hbaseAddress(t)
	s := openHBase(t, address, nil)
	defer s.Close()
	emptyHBase(t, s)
	limits := storetest.HBaseLimits()
	limits.RealClock = true
	limits.Cases["upstream-bug-001"] = "it expects that a defect of HBase's is not there"
	var mu sync.Mutex
	why := map[string][]string{}
	limits.Unsupported = func(id string, err error) {
		mu.Lock()
		defer mu.Unlock()
		_, reason, _ := strings.Cut(err.Error(), store.ErrUnsupported.Error()+" ")
		reason, _, _ = strings.Cut(reason, " '") // a table
		why[reason] = append(why[reason], id)
	}
	n := 0
	storetest.RunCasesWithin(t, func(t *testing.T, _ storetest.Options) store.Engine {
		n++
		return &renamed{Store: s, suffix: fmt.Sprintf("_%d", n)}
	}, limits)
	for reason, ids := range why {
		t.Logf("%d cases cannot be run: %s: %s", len(ids), reason, strings.Join(ids, " "))
	}
}

// renamed is a store of which each table has another name, so that what is empty for
// a case need not be emptied: HBase makes tables sooner than it drops them.
type renamed struct {
	*hbasestore.Store
	suffix string
}

func (r *renamed) name(table string) string {
	if store.CheckTableName(table) != nil || strings.HasPrefix(table, store.SystemNamespace+":") {
		return table
	}
	return table + r.suffix
}

func (r *renamed) Close() error { return nil }

func (r *renamed) Table(ctx context.Context, table string) (*store.TableDescriptor, error) {
	return r.Store.Table(ctx, r.name(table))
}

func (r *renamed) Regions(ctx context.Context, table string) (*region.Map, error) {
	return r.Store.Regions(ctx, r.name(table))
}

func (r *renamed) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	c := *s
	c.Table = r.name(s.Table)
	return r.Store.Scan(ctx, &c)
}

func (r *renamed) mutation(m *cell.Mutation) *cell.Mutation {
	c := *m
	c.Table = r.name(m.Table)
	return &c
}

func (r *renamed) MutateRow(ctx context.Context, cond *store.Cond, m *cell.Mutation) (store.Result, error) {
	return r.Store.MutateRow(ctx, cond, r.mutation(m))
}

func (r *renamed) MutateRows(ctx context.Context, ms []*cell.Mutation) ([]store.Result, []error) {
	own := make([]*cell.Mutation, len(ms))
	for i, m := range ms {
		own[i] = r.mutation(m)
	}
	return r.Store.MutateRows(ctx, own)
}

func (r *renamed) descriptor(d *store.TableDescriptor) *store.TableDescriptor {
	c := d.Clone()
	c.Name = r.name(strings.TrimSuffix(d.Name, r.suffix))
	return c
}

func (r *renamed) CreateTable(ctx context.Context, d *store.TableDescriptor, splits [][]byte) error {
	return r.Store.CreateTable(ctx, r.descriptor(d), splits)
}

func (r *renamed) AlterTable(ctx context.Context, d *store.TableDescriptor) error {
	return r.Store.AlterTable(ctx, r.descriptor(d))
}

func (r *renamed) DropTable(ctx context.Context, table string) error {
	return r.Store.DropTable(ctx, r.name(table))
}

func (r *renamed) EnableTable(ctx context.Context, table string) error {
	return r.Store.EnableTable(ctx, r.name(table))
}

func (r *renamed) DisableTable(ctx context.Context, table string) error {
	return r.Store.DisableTable(ctx, r.name(table))
}

func (r *renamed) TableEnabled(ctx context.Context, table string) (bool, error) {
	return r.Store.TableEnabled(ctx, r.name(table))
}

func (r *renamed) TruncateTable(ctx context.Context, table string, preserveSplits bool) error {
	return r.Store.TruncateTable(ctx, r.name(table), preserveSplits)
}

func (r *renamed) SplitRegion(ctx context.Context, table string, at []byte) error {
	return r.Store.SplitRegion(ctx, r.name(table), at)
}

func (r *renamed) MergeRegions(ctx context.Context, table string, rows ...[]byte) error {
	return r.Store.MergeRegions(ctx, r.name(table), rows...)
}

func (r *renamed) SplitPoint(ctx context.Context, table string, row []byte) ([]byte, error) {
	return r.Store.SplitPoint(ctx, r.name(table), row)
}

func (r *renamed) MajorCompact(ctx context.Context, table string) error {
	return r.Store.MajorCompact(ctx, r.name(table))
}

func (r *renamed) Apply(ctx context.Context, b *store.Batch) error {
	c := *b
	c.Mutations = make([]store.Mutation, len(b.Mutations))
	for i := range b.Mutations {
		c.Mutations[i] = store.Mutation{Offset: b.Mutations[i].Offset, Mutation: *r.mutation(&b.Mutations[i].Mutation)}
	}
	return r.Store.Apply(ctx, &c)
}
