package rebuild_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/internal/crashfs"
	"sluice/pipeline/mapping"
	"sluice/pipeline/rebuild"
	"sluice/store"
	"sluice/store/pebblestore"
)

// leftover makes what rules that are no more have counted: in a family of a table that
// the present rules write, and in a table that none does. It returns the former rules.
func (w *world) leftover() *mapping.Plan {
	w.t.Helper()
	d, err := w.engine.Table(w.t.Context(), "counts")
	w.ok(err)
	d = d.Clone()
	d.Families = append(d.Families, counterFamily("old"))
	w.ok(w.engine.AlterTable(w.t.Context(), d))
	w.ok(w.engine.CreateTable(w.t.Context(), &store.TableDescriptor{Name: "gone", Families: []store.FamilyDescriptor{counterFamily("c")}}, nil))
	for _, at := range [][3]string{{"counts", "/p1", "old"}, {"counts", "/only-old", "old"}, {"gone", "/p1", "c"}} {
		m := &cell.Mutation{Table: at[0], Row: []byte(at[1])}
		m.Increment(at[2], []byte("n"), 7)
		_, err := w.engine.MutateRow(w.t.Context(), nil, m)
		w.ok(err)
	}
	rule := func(table, family string) mapping.RuleSpec {
		return mapping.RuleSpec{Table: table, Row: "page", Increment: []mapping.IncrementSpec{{Family: family, Qualifier: `"n"`}}}
	}
	p, err := mapping.Compile(&mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rules: []mapping.RuleSpec{rule("counts", "old"), rule("gone", "c")}}, nil)
	w.ok(err)
	return p
}

func counterFamily(name string) store.FamilyDescriptor {
	f := store.NewFamily(name)
	f.Counter = true
	return f
}

// unused returns what a comparison lists as such, "TABLE FAMILY COUNTERS".
func unused(all []rebuild.Comparison) []string {
	var got []string
	for _, c := range all {
		if c.Unused {
			got = append(got, fmt.Sprintf("%s %s %d", c.Table, c.Family, c.Missing))
		}
	}
	return got
}

// held returns the counters of a family, by row.
func (w *world) held(table, family string) map[string]byte {
	w.t.Helper()
	got := map[string]byte{}
	sc := w.engine.Scan(w.t.Context(), &store.Scan{Table: table, Columns: []store.Column{{Family: family, All: true}}})
	defer sc.Close()
	for sc.Next() {
		got[string(sc.Row().Key)] = sc.Row().Cells[0].Value[7]
	}
	w.ok(sc.Err())
	return got
}

// What the rules count no more is found, left as it is unless its removal is asked for,
// and then goes in the commit of the switch. What another pipeline counts is not named.
func TestRebuildFindsUnused(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		w.produce(300)
		w.ingest()
		former := w.leftover()
		previous := func(o *rebuild.Options) { o.Previous = []*mapping.Plan{former} }
		compare := func(want []string, change ...func(*rebuild.Options)) {
			t.Helper()
			r := w.open(change...)
			w.ok(r.Count(t.Context()))
			all, err := r.Compare(t.Context())
			w.ok(err)
			if d := cmp.Diff(want, unused(all)); d != "" {
				t.Errorf("unused (-want +got):\n%s", d)
			}
		}
		compare([]string{"counts old 2"})
		compare([]string{"counts old 2", "gone c 1"}, previous)
		w.ok(w.engine.(store.TableSwitcher).DisableTable(t.Context(), "gone"))
		compare([]string{"counts old 2"}, previous)
		w.ok(w.engine.(store.TableSwitcher).EnableTable(t.Context(), "gone"))
		compare(nil, previous, func(o *rebuild.Options) { o.Others = []*mapping.Plan{former} })

		w.damage()
		r := w.open(previous)
		w.ok(r.Count(t.Context()))
		w.ok(r.Switch(t.Context()))
		if got := len(w.held("counts", "old")) + len(w.held("gone", "c")); got != 3 {
			t.Errorf("Got %d unused counters after a switch that keeps them, want 3", got)
		}
		// There is nothing to put right but what is left over.
		r = w.open(previous, func(o *rebuild.Options) { o.RemoveUnused = true })
		w.ok(r.Count(t.Context()))
		w.ok(r.Switch(t.Context()))
		if got := len(w.held("counts", "old")) + len(w.held("gone", "c")); got != 0 {
			t.Errorf("Got %d unused counters after a switch that removes them", got)
		}
		compare(nil, previous)
		w.ok(rebuild.Discard(t.Context(), w.engine, "views", &store.RebuildHolder{}))
		d, err := w.engine.Table(t.Context(), "counts")
		w.ok(err)
		d = d.Clone()
		d.Families = slices.DeleteFunc(d.Families, func(f store.FamilyDescriptor) bool { return f.Name == "old" })
		w.ok(w.engine.AlterTable(t.Context(), d)) // empty, and still there
		w.check()
	})
}

// A rule that meets no record any more leaves its counts over; they are not taken for
// equal.
func TestRebuildFindsFamiliesWithoutRecords(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		w.produce(100)
		w.ingest()
		none := func(o *rebuild.Options) {
			p, err := mapping.Compile(&mapping.Spec{
				Decode: mapping.DecodeSpec{Format: "json"},
				Rules:  []mapping.RuleSpec{{When: "false", Table: "counts", Row: "page", Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"n"`}}}},
			}, nil)
			w.ok(err)
			o.Plan, o.RemoveUnused = p, true
		}
		r := w.open(none)
		w.ok(r.Count(t.Context()))
		all, err := r.Compare(t.Context())
		w.ok(err)
		if want := fmt.Sprintf("counts c %d", len(w.want)); len(all) != 1 || unused(all)[0] != want {
			t.Errorf("Got %+v, want %s", all, want)
		}
		w.ok(r.Switch(t.Context()))
		clear(w.want)
		w.check()
	})
}

// powerDisk is a disk whose power fails at one of the writes that come after it was
// armed.
type powerDisk struct {
	crashfs.FS

	mu       sync.Mutex  // guards below
	unsynced int         // percent of what was not synced that is there after all
	writes   int         // since it was armed
	at       int         // the write at which power fails; 0 = at none
	left     *crashfs.FS // what the failure leaves; nil = it has not come yet
}

func newPowerDisk(fs crashfs.FS) *powerDisk { return &powerDisk{FS: fs} }

// open opens the engine on the disk.
func (d *powerDisk) open(t *testing.T) *pebblestore.DB {
	t.Helper()
	db, err := pebblestore.Open("db", &pebblestore.Options{
		FS: d.OnWrite(d.write), CacheBytes: 1 << 20, MemTableBytes: 256 << 10, MinFreeBytes: -1, RewriteInterval: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func (d *powerDisk) write() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == 0 || d.left != nil {
		return
	}
	if d.writes++; d.writes == d.at {
		left := d.clone(d.unsynced)
		d.left = &left
	}
}

func (d *powerDisk) clone(unsynced int) crashfs.FS {
	return d.Crash(unsynced, rand.New(rand.NewPCG(uint64(d.at), uint64(unsynced))))
}

// arm makes power fail at a write from now on.
func (d *powerDisk) arm(at, unsynced int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at, d.unsynced = at, unsynced
}

// failed returns whether power has failed, and what is left of the disk if it has, or
// if it does now.
func (d *powerDisk) failed() (bool, crashfs.FS) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left != nil {
		return true, *d.left
	}
	d.at = 0
	return false, d.clone(0)
}

// I3 for rebuilds: power fails, or the process is killed, at each write of a switch that
// replaces counters of two tables and empties two families. What is served afterwards is
// all of the old generation or all of the new one, and the new one where Switch had
// returned; the same command, given again, ends with the counts of the log.
func TestSwitchAndPowerLoss(t *testing.T) {
	t.Parallel()
	base := newPowerDisk(crashfs.New())
	db := base.open(t)
	w := newWorld(t, db)
	more := &store.TableDescriptor{Name: "more", Families: []store.FamilyDescriptor{counterFamily("c")}}
	w.ok(db.CreateTable(t.Context(), more, nil))
	w.twice = true
	w.produce(200)
	w.ingest()
	former := w.leftover()
	w.damage()
	options := func(o *rebuild.Options) { o.Previous, o.RemoveUnused = []*mapping.Plan{former}, true }
	w.ok(w.open(options).Count(t.Context()))
	type served struct{ Counts, Old, More, Gone map[string]byte }
	look := func() served {
		return served{w.held("counts", "c"), w.held("counts", "old"), w.held("more", "c"), w.held("gone", "c")}
	}
	old := look()
	w.ok(db.Close())
	want := served{map[string]byte{}, map[string]byte{}, map[string]byte{}, map[string]byte{}}
	for page, n := range w.want {
		want.Counts[page], want.More[page] = byte(n), byte(n)
	}

	seen := map[bool]int{} // by whether the new generation was served
	for at := 1; ; at++ {
		cut := false
		for _, unsynced := range []int{0, 50, 100} {
			disk := newPowerDisk(base.clone(0))
			db := disk.open(t)
			w.engine = db
			r := w.open(options)
			w.ok(r.Count(t.Context())) // of what was counted before: nothing
			disk.arm(at, unsynced)
			w.ok(r.Switch(t.Context()))
			failed, left := disk.failed()
			w.ok(db.Close())
			acknowledged := !failed
			cut = cut || failed

			db = newPowerDisk(left).open(t)
			w.engine = db
			got := look()
			renewed := cmp.Equal(got, want)
			seen[renewed]++
			if !renewed && (acknowledged || !cmp.Equal(got, old)) {
				t.Errorf("power lost at write %d, %d %% unsynced, acknowledged %t: neither generation is whole (-new +served):\n%s", at, unsynced, acknowledged, cmp.Diff(want, got))
			}
			r = w.open(options)
			w.ok(r.Count(t.Context()))
			w.ok(r.Switch(t.Context()))
			if d := cmp.Diff(want, look()); d != "" {
				t.Errorf("power lost at write %d, %d %% unsynced: after the second call (-log +served):\n%s", at, unsynced, d)
			}
			d, err := db.Table(t.Context(), "counts")
			w.ok(err)
			if len(d.Families) != 3 {
				t.Errorf("power lost at write %d: table counts has families %v", at, d.Families)
			}
			w.ok(db.Close())
		}
		if !cut {
			break
		}
	}
	if seen[false] < 2 || seen[true] < 2 {
		t.Errorf("Got %d times the old generation and %d times the new one after a loss of power", seen[false], seen[true])
	}
}

// Power fails anywhere in a rebuild that is begun, counts, and is switched to: the next
// one ends with the counts of the log, as often as it takes.
func TestRebuildAndPowerLoss(t *testing.T) {
	t.Parallel()
	disk := newPowerDisk(crashfs.New())
	db := disk.open(t)
	w := newWorld(t, db)
	w.produce(300)
	w.ingest()
	db = w.losePower(t, disk, db, 12, func() {
		add := &cell.Mutation{Table: "counts", Row: []byte("/p1")}
		add.Increment("c", []byte("n"), 5)
		_, err := w.engine.MutateRow(t.Context(), nil, add)
		w.ok(err)
	})
	w.check()
	w.ok(db.Close())
}

// losePower rebuilds on disk, where db is open, until the power has failed so often, each
// time after damage, and then once more. It returns what is open in the end.
func (w *world) losePower(t *testing.T, disk *powerDisk, db *pebblestore.DB, losses int, damage func()) *pebblestore.DB {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	for lost := 0; lost < losses; {
		damage()
		disk.arm(1+rng.IntN(24), rng.IntN(101))
		r := w.open(func(o *rebuild.Options) { o.BatchRecords = 40 })
		w.ok(r.Count(t.Context()))
		w.ok(r.Switch(t.Context()))
		failed, left := disk.failed()
		w.ok(db.Close())
		if failed {
			lost++
		}
		disk = newPowerDisk(left)
		db = disk.open(t)
		w.engine = db
	}
	r := w.open()
	w.ok(r.Count(t.Context()))
	w.ok(r.Switch(t.Context()))
	return db
}
