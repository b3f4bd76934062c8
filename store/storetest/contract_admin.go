package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

func testTableState(t *testing.T, e *engine) {
	ctx, s := t.Context(), e.switcher()
	table := e.create("t", store.NewFamily("f"), counterFamily("n"))
	e.create("u", store.NewFamily("f"))
	ok(t, table.Put(ctx, []byte("a"), "f", []byte("q"), []byte("1")))
	ok(t, table.Put(ctx, []byte("b"), "f", []byte("q"), []byte("2")))
	state := func(want bool) {
		t.Helper()
		if got, err := e.Engine.(store.TableSwitcher).TableEnabled(ctx, "t"); err != nil || got != want {
			t.Errorf("TableEnabled = %v, %v; want %v", got, err, want)
		}
	}
	state(true)
	is(t, "enable an enabled table", s.EnableTable(ctx, "t"), store.ErrTableNotDisabled)
	is(t, "drop an enabled table", e.admin().DropTable(ctx, "t"), store.ErrTableNotDisabled)
	is(t, "truncate an enabled table", s.TruncateTable(ctx, "t", false), store.ErrTableNotDisabled)
	var err error
	running := e.Scan(ctx, &store.Scan{Table: "t", Batch: 1})
	defer running.Close()
	if !running.Next() {
		t.Fatal(running.Err())
	}
	ok(t, s.DisableTable(ctx, "t"))
	state(false)
	if e.durable() {
		e.reopen()
		s = e.switcher()
		state(false)
		if table, err = store.OpenTable(ctx, e.Engine, "t"); err != nil {
			t.Fatal(err)
		}
	} else if !running.Next() || string(running.Row().Key) != "b" {
		t.Errorf("a scan that ran when its table was disabled ended: %v", running.Err())
	}

	// A batch with a refused record and a disabled table: nobody is to blame.
	var b store.Batch
	b.Add(1, put("u", "", "no row"))
	b.Add(2, put("u", "r", "other table"))
	b.Add(3, put("t", "c", "3"))
	var counts store.Batch
	counts.Counters = []store.CounterDelta{{Table: "t", Family: "n", Row: []byte("r"), Qualifier: []byte("q"), Delta: 1, Time: 5}}
	var record store.Batch
	record.Record(1, []byte("once"), nil, put("t", "r", "v"))
	var refused *store.BatchError
	for what, err := range map[string]error{
		"scan":       e.scanError(&store.Scan{Table: "t"}),
		"get":        second(table.Get(ctx, []byte("a"), nil)),
		"put":        e.mutateError("t"),
		"check":      second(e.MutateRow(ctx, &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal}, mutation("t", "a"))),
		"batch":      e.Apply(ctx, &b),
		"counters":   e.Apply(ctx, &counts),
		"record":     e.Apply(ctx, &record),
		"disable it": s.DisableTable(ctx, "t"),
		"split":      e.admin().SplitRegion(ctx, "t", []byte("m")),
		"merge":      e.admin().MergeRegions(ctx, "t", nil, []byte("m")),
	} {
		is(t, what+" of a disabled table", err, store.ErrTableNotEnabled)
		is(t, what+" of a disabled table", err, store.ErrRefused)
		if errors.As(err, &refused) {
			t.Errorf("%s of a disabled table blames records: %v", what, err)
		}
	}
	if m, isMutator := e.Engine.(store.RowMutator); isMutator {
		_, errs := m.MutateRows(ctx, nil)
		if len(errs) != 0 {
			t.Errorf("MutateRows of nothing: %v", errs)
		}
		one, other := mutation("t", "r"), mutation("u", "x")
		_, errs = m.MutateRows(ctx, []*cell.Mutation{one, other})
		is(t, "MutateRows of a disabled table", errs[0], store.ErrTableNotEnabled)
		ok(t, errs[1])
	}
	e.want(t, e, "u", `"x" f:"q"="v"`)

	// The schema can change meanwhile, and everything is there afterwards.
	d, err := e.Table(ctx, "t")
	ok(t, err)
	d = d.Clone()
	d.Families = append(d.Families, store.NewFamily("g"))
	ok(t, e.admin().AlterTable(ctx, d))
	ok(t, s.EnableTable(ctx, "t"))
	state(true)
	e.want(t, e, "t", `"a" f:"q"="1"`, `"b" f:"q"="2"`)
	ok(t, e.Apply(ctx, &counts))
	ok(t, e.Apply(ctx, &record))
	is(t, "the batch again", e.Apply(ctx, &b), store.ErrInvalidArgument)

	for what, err := range map[string]error{
		"EnableTable":   s.EnableTable(ctx, "nope"),
		"DisableTable":  s.DisableTable(ctx, "nope"),
		"TableEnabled":  second(s.TableEnabled(ctx, "nope")),
		"TruncateTable": s.TruncateTable(ctx, "nope", true),
	} {
		is(t, what+" of an unknown table", err, store.ErrTableNotFound)
	}
	for _, d := range store.SystemTables() {
		is(t, "disable "+d.Name, s.DisableTable(ctx, d.Name), store.ErrRefused)
	}
	e.drop("t")
	is(t, "TableEnabled of a dropped table", second(s.TableEnabled(ctx, "t")), store.ErrTableNotFound)
}

func testTruncate(t *testing.T, e *engine) {
	ctx, s := t.Context(), e.switcher()
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f"), counterFamily("n")}}
	ok(t, e.admin().CreateTable(ctx, d, [][]byte{[]byte("g"), []byte("p")}))
	e.create("u", store.NewFamily("f"))
	fill := func() {
		t.Helper()
		for _, row := range []string{"a", "h", "z"} {
			ok(t, second(e.MutateRow(ctx, nil, mutation("t", row))))
		}
		ok(t, second(e.MutateRow(ctx, nil, mutation("u", "a"))))
		ok(t, e.increment(store.CounterDelta{Table: "t", Family: "n", Row: []byte("a"), Qualifier: []byte("q"), Delta: 3, Time: 5}))
	}
	for _, c := range []struct {
		preserve bool
		splits   []string
	}{{true, []string{"g", "p"}}, {false, nil}} {
		fill()
		before, err := e.Regions(ctx, "t")
		ok(t, err)
		ok(t, s.DisableTable(ctx, "t"))
		ok(t, s.TruncateTable(ctx, "t", c.preserve))
		check := func() {
			t.Helper()
			if on, err := e.Engine.(store.TableSwitcher).TableEnabled(ctx, "t"); err != nil || !on {
				t.Errorf("a truncated table is enabled: %v, %v", on, err)
			}
			e.want(t, e, "t")
			e.want(t, e, "u", `"a" f:"q"="v"`)
			m, err := e.Regions(ctx, "t")
			ok(t, err)
			var got []string
			for _, k := range m.Splits() {
				got = append(got, string(k))
			}
			if d := cmp.Diff(c.splits, got); d != "" {
				t.Errorf("splits after a truncate, preserve %v (-want +got):\n%s", c.preserve, d)
			}
			if before.At(0).ID != 0 && m.At(0).Name() == before.At(0).Name() { // 0 = the engine does not know it
				t.Errorf("a truncated table has the region %s still", m.At(0).Name())
			}
		}
		check()
		if e.durable() {
			e.reopen()
			s = e.switcher()
			check()
		}
	}
	fill()
	row, err := store.OpenTable(ctx, e.Engine, "t")
	ok(t, err)
	got, err := row.Get(ctx, []byte("a"), &store.Scan{Columns: []store.Column{{Family: "n", All: true}}})
	ok(t, err)
	if !bytes.Equal(got.Cells[0].Value, []byte{0, 0, 0, 0, 0, 0, 0, 3}) {
		t.Errorf("a counter of a truncated table went on from its old value: %v", got.Cells[0].Value)
	}
}

func testNamespaces(t *testing.T, e *engine) {
	ctx, n := t.Context(), e.namespacer()
	list := func(want ...string) {
		t.Helper()
		all, err := e.Engine.(store.Namespacer).Namespaces(ctx)
		ok(t, err)
		var got []string
		for _, s := range all {
			got = append(got, s.Name+fmt.Sprint(s.Properties))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("Namespaces (-want +got):\n%s", d)
		}
	}
	list("defaultmap[]", "hbasemap[]")
	given := &store.Namespace{Name: "my_ns", Properties: map[string]string{"owner": "me"}}
	ok(t, n.CreateNamespace(ctx, given))
	given.Properties["owner"] = "you" // the engine has its own
	ok(t, n.CreateNamespace(ctx, &store.Namespace{Name: "a1"}))
	list("a1map[]", "defaultmap[]", "hbasemap[]", "my_nsmap[owner:me]")
	is(t, "a namespace again", n.CreateNamespace(ctx, given), store.ErrNamespaceExists)
	for _, predefined := range []string{store.DefaultNamespace, store.HBaseNamespace} {
		is(t, "create "+predefined, n.CreateNamespace(ctx, &store.Namespace{Name: predefined}), store.ErrNamespaceExists)
		is(t, "drop "+predefined, n.DropNamespace(ctx, predefined), store.ErrConstraint)
		is(t, "alter "+predefined, n.AlterNamespace(ctx, &store.Namespace{Name: predefined}), store.ErrConstraint)
	}
	is(t, "create the store's own", n.CreateNamespace(ctx, &store.Namespace{Name: store.SystemNamespace}), store.ErrConstraint)
	is(t, "drop the store's own", n.DropNamespace(ctx, store.SystemNamespace), store.ErrConstraint)
	for _, name := range []string{"", "a-b", "a.b", "a:b", "a b", "\xff", "zookeeper"} {
		is(t, fmt.Sprintf("create %q", name), n.CreateNamespace(ctx, &store.Namespace{Name: name}), store.ErrInvalidArgument)
	}
	is(t, "alter an unknown one", n.AlterNamespace(ctx, &store.Namespace{Name: "nope"}), store.ErrNamespaceNotFound)
	is(t, "drop an unknown one", n.DropNamespace(ctx, "nope"), store.ErrNamespaceNotFound)
	d := &store.TableDescriptor{Name: "nope:t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	is(t, "a table in an unknown one", e.admin().CreateTable(ctx, d, nil), store.ErrNamespaceNotFound)

	e.create("my_ns:t", store.NewFamily("f"))
	e.create("my_ns:a", store.NewFamily("f"))
	e.create("default:t", store.NewFamily("f"))
	ok(t, n.AlterNamespace(ctx, &store.Namespace{Name: "my_ns", Properties: map[string]string{"k": "v"}}))
	is(t, "drop one with tables", n.DropNamespace(ctx, "my_ns"), store.ErrConstraint)
	ok(t, n.DropNamespace(ctx, "a1"))
	if e.durable() {
		e.reopen()
		n = e.namespacer()
	}
	list("defaultmap[]", "hbasemap[]", "my_nsmap[k:v]")
	for ns, want := range map[string][]string{"my_ns": {"my_ns:a", "my_ns:t"}, store.DefaultNamespace: {"t"}, store.HBaseNamespace: {}} {
		got, err := store.NamespaceTables(ctx, e.Engine.(interface {
			store.Admin
			store.Namespacer
		}), ns)
		ok(t, err)
		if d := cmp.Diff(want, append([]string{}, got...)); d != "" {
			t.Errorf("tables of %s (-want +got):\n%s", ns, d)
		}
	}
	if _, err := store.FindNamespace(ctx, n, "a1"); !errors.Is(err, store.ErrNamespaceNotFound) {
		t.Errorf("FindNamespace(a1) = %v", err)
	}

	// "default:t" and "t" are one table.
	ok(t, second(e.MutateRow(ctx, nil, mutation("default:t", "r"))))
	e.want(t, e, "t", `"r" f:"q"="v"`)
	e.want(t, e, "default:t", `"r" f:"q"="v"`)
	is(t, "create t again", e.admin().CreateTable(ctx, &store.TableDescriptor{Name: "t", Families: d.Families}, nil), store.ErrTableExists)
	e.drop("my_ns:a")
	e.drop("my_ns:t")
	e.drop("default:t")
	ok(t, n.DropNamespace(ctx, "my_ns"))
	list("defaultmap[]", "hbasemap[]")
}

func testTableAttributes(t *testing.T, e *engine) {
	ctx := t.Context()
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	for _, a := range [][2]string{{"max_filesize", "10485760"}, {"SPLIT_ENABLED", "FALSE"}, {"Merge_Enabled", "false"}, {"OWNER", "me"}} {
		ok(t, d.SetAttribute(a[0], a[1]))
	}
	ok(t, d.SetMetadata("team", "web"))
	ok(t, d.SetMetadata(store.MetaBusyShare, "0.5"))
	ok(t, d.Families[0].SetMetadata("owner", "me"))
	ok(t, d.Families[0].SetConfiguration("hbase.hstore.compaction.min", "5"))
	ok(t, d.Families[0].SetConfiguration(store.ConfPurgeDeletes, "7"))
	for _, broken := range []map[string]string{{"MAX_FILESIZE": "1000"}, {"NOPE": "1"}, {"SPLIT_ENABLED": "maybe"}, {"SPLIT_POLICY": "NoSuchPolicy"}} {
		b := &store.TableDescriptor{Name: "b", Families: d.Families, Attributes: broken}
		is(t, fmt.Sprintf("create with %v", broken), e.admin().CreateTable(ctx, b, nil), store.ErrInvalidSchema)
	}
	unknown := d.Clone()
	unknown.Families[0].KeepDeleted = store.KeepDeletedTTL + 1
	is(t, "create with unknown KEEP_DELETED_CELLS", e.admin().CreateTable(ctx, unknown, nil), store.ErrInvalidSchema)
	endless := d.Clone()
	endless.Families[0].TTL = store.Forever
	endless.Families[0].TTL++ // where an int has 32 bits, it is negative now
	is(t, "create with a TTL beyond all", e.admin().CreateTable(ctx, endless, nil), store.ErrInvalidSchema)
	ok(t, e.admin().CreateTable(ctx, d, [][]byte{[]byte("m")}))
	check := func() {
		t.Helper()
		got, err := e.Table(ctx, "t")
		ok(t, err)
		if diff := cmp.Diff(d, got); diff != "" {
			t.Errorf("schema (-want +got):\n%s", diff)
		}
	}
	check()
	is(t, "split where SPLIT_ENABLED is false", e.admin().SplitRegion(ctx, "t", []byte("c")), store.ErrRefused)
	if c, isCompactor := e.Engine.(store.Compactor); isCompactor {
		d.Attributes["COMPACTION_ENABLED"] = "false"
		ok(t, e.admin().AlterTable(ctx, d))
		ok(t, c.Flush(ctx))
		is(t, "major compaction where COMPACTION_ENABLED is false", c.MajorCompact(ctx, "t"), store.ErrRefused)
		d.UnsetAttribute("COMPACTION_ENABLED")
		ok(t, e.admin().AlterTable(ctx, d))
		ok(t, c.MajorCompact(ctx, "t"))
	}
	is(t, "merge where MERGE_ENABLED is false", e.admin().MergeRegions(ctx, "t", nil, []byte("m")), store.ErrMergeRegion)
	if e.durable() {
		e.reopen()
		check()
	}
	d = d.Clone()
	if !d.UnsetAttribute("split_enabled") || !d.UnsetAttribute("MERGE_ENABLED") || d.UnsetAttribute("PRIORITY") {
		t.Error("UnsetAttribute does not know what is set")
	}
	ok(t, e.admin().AlterTable(ctx, d))
	check()
	ok(t, e.admin().SplitRegion(ctx, "t", []byte("c")))
	ok(t, e.admin().MergeRegions(ctx, "t", nil, []byte("c"), []byte("m")))
	ok(t, d.SetAttribute("READONLY", "true"))
	ok(t, e.admin().AlterTable(ctx, d))
	if err := e.mutateError("t"); err == nil {
		t.Error("a READONLY table was written")
	}
}

// fillRows writes rows "r00".. with values of size bytes, and flushes.
func fillRows(t *testing.T, e *engine, table string, rows, size int) {
	t.Helper()
	for i := range rows {
		m := put(table, fmt.Sprintf("r%02d", i), strings.Repeat("x", size))
		ok(t, second(e.MutateRow(t.Context(), nil, &m)))
	}
	if c, isCompactor := e.Engine.(store.Compactor); isCompactor {
		ok(t, c.Flush(t.Context()))
	}
}

func testRegionStats(t *testing.T, e *engine) {
	ctx, meter := t.Context(), e.meter()
	table := e.create("t", store.NewFamily("f"))
	fillRows(t, e, "t", 20, 1000)
	ok(t, e.admin().SplitRegion(ctx, "t", []byte("r10")))
	stats := func() []store.RegionStats {
		t.Helper()
		all, err := meter.RegionStats(ctx, "t")
		ok(t, err)
		m, err := e.Regions(ctx, "t")
		ok(t, err)
		for i := range all {
			if d := cmp.Diff(*m.At(i), all[i].Region); d != "" || len(all) != m.Len() {
				t.Errorf("region %d of %d (-map +stats):\n%s", i, len(all), d)
			}
		}
		return all
	}
	fresh := stats()
	for i, s := range fresh {
		if _, isCompactor := e.Engine.(store.Compactor); isCompactor && (s.Bytes < 100 || s.Bytes > 100_000) {
			t.Errorf("region %d with 10 rows of 1000 equal bytes has %d bytes", i, s.Bytes)
		}
		if s.Reads+s.Writes != 0 || s.Hot {
			t.Errorf("a new region has been busy: %+v", s)
		}
	}
	for range 500 {
		ok(t, table.Put(ctx, []byte("r15"), "f", []byte("q"), []byte("v")))
	}
	for range 3 {
		_, err := table.Get(ctx, []byte("r01"), nil)
		ok(t, err)
	}
	for range 2 {
		sc := e.Scan(ctx, &store.Scan{Table: "t"}) // of both regions
		ok(t, rows(sc, false, func(*cell.Row) {}))
		ok(t, sc.Close())
	}
	e.clock.Advance(2000)
	busy := stats()
	type count struct{ Reads, Writes int64 }
	want := []count{{5, 0}, {2, 500}}
	got := []count{{busy[0].Reads, busy[0].Writes}, {busy[1].Reads, busy[1].Writes}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("requests (-want +got):\n%s", d)
	}
	if busy[1].WriteRate < 100 || busy[1].WriteRate > 500 || busy[0].WriteRate != 0 || busy[0].ReadRate <= 0 {
		t.Errorf("rates of %+v", busy)
	}
	if busy[0].Hot || !busy[1].Hot {
		t.Errorf("hot regions: %v, %v; want the second", busy[0].Hot, busy[1].Hot)
	}
	e.clock.Advance(600_000)
	if calm := stats(); calm[1].Hot || calm[1].WriteRate != 0 || calm[1].Writes != 500 {
		t.Errorf("ten minutes later: %+v", calm[1])
	}
	ok(t, e.admin().SplitRegion(ctx, "t", []byte("r15"))) // the first region goes on counting
	if after := stats(); after[0].Reads != 5 || after[1].Writes+after[2].Writes != 0 {
		t.Errorf("after a split: %+v", after)
	}
	is(t, "RegionStats of no table", second(meter.RegionStats(ctx, "nope")), store.ErrTableNotFound)
}

func testSplitPoint(t *testing.T, e *engine) {
	ctx, meter := t.Context(), e.meter()
	e.create("t", store.NewFamily("f"))
	is(t, "split point of an empty region", second(meter.SplitPoint(ctx, "t", nil)), store.ErrRefused)
	ok(t, second(e.MutateRow(ctx, nil, mutation("t", "r00"))))
	is(t, "split point of one row", second(meter.SplitPoint(ctx, "t", nil)), store.ErrRefused)
	ok(t, second(e.MutateRow(ctx, nil, mutation("t", "r01"))))
	point := func(row, want string) {
		t.Helper()
		if got, err := meter.SplitPoint(ctx, "t", []byte(row)); err != nil || string(got) != want {
			t.Errorf("SplitPoint(%s) = %q, %v; want %s", row, got, err, want)
		}
	}
	point("", "r01") // what is in memory counts
	fillRows(t, e, "t", 20, 100)
	point("", "r10")
	ok(t, e.admin().SplitRegion(ctx, "t", []byte("r10")))
	point("r00", "r05")
	point("r17", "r15")
	big := put("t", "r16", strings.Repeat("x", 10_000)) // half by bytes, not by rows
	ok(t, second(e.MutateRow(ctx, nil, &big)))
	got, err := meter.SplitPoint(ctx, "t", []byte("r17"))
	ok(t, err)
	if s := string(got); s != "r16" && s != "r17" {
		t.Errorf("SplitPoint beside a row of 10 kB = %s, want r16 or r17", s)
	}

	d := &store.TableDescriptor{Name: "p", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	ok(t, d.SetAttribute(store.AttrSplitPolicy, "org.apache.hadoop.hbase.regionserver.KeyPrefixRegionSplitPolicy"))
	ok(t, d.SetMetadata(store.MetaPrefixLength, "2"))
	ok(t, e.admin().CreateTable(ctx, d, nil))
	fillRows(t, e, "p", 20, 10)
	if got, err := meter.SplitPoint(ctx, "p", nil); err != nil || string(got) != "r1" {
		t.Errorf("SplitPoint with a prefix of 2 = %q, %v; want r1", got, err)
	}
	ok(t, e.admin().SplitRegion(ctx, "p", []byte("r1")))
	is(t, "split point inside a prefix", second(meter.SplitPoint(ctx, "p", []byte("r1"))), store.ErrRefused)
	is(t, "split point of no table", second(meter.SplitPoint(ctx, "nope", nil)), store.ErrTableNotFound)
}
