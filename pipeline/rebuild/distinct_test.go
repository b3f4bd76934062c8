package rebuild_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/counters"
	"sluice/internal/crashfs"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/pipeline/rebuild"
	"sluice/store"
)

// distinctWorld counts the users of pages, too: by a rule in family u of table counts,
// and by a rollup in table rolled.
type distinctWorld struct {
	*world
	users map[string]*counters.Sketch // that must be, by row
}

func distinctFamily(name string) store.FamilyDescriptor {
	f := store.NewFamily(name)
	f.Distinct = true
	return f
}

func newDistinctWorld(w *world) *distinctWorld {
	w.t.Helper()
	d, err := w.engine.Table(w.t.Context(), "counts")
	w.ok(err)
	d = d.Clone()
	d.Families = append(d.Families, distinctFamily("u"))
	w.ok(w.engine.AlterTable(w.t.Context(), d))
	rolled := &store.TableDescriptor{Name: "rolled", Families: []store.FamilyDescriptor{distinctFamily(counters.Total.Family(true))}}
	w.ok(w.engine.CreateTable(w.t.Context(), rolled, nil))
	w.rules = func(s *mapping.Spec) {
		s.Rules[1].Append = map[string]map[string]string{"u": {"users": "user"}}
		s.Rollups = []mapping.RollupSpec{{
			Name: "visitors", Table: "rolled", When: "!bot", Distinct: "user", Dimensions: map[string]string{"page": "page"}, Buckets: []string{"total"},
		}}
	}
	return &distinctWorld{world: w, users: map[string]*counters.Sketch{}}
}

// produce writes n events: some are no JSON, some are filtered, and some have a cell
// that the store does not take; the users of these are nobody else's.
func (w *distinctWorld) produce(n int) {
	w.t.Helper()
	messages := make([]kafka.Message, n)
	for i := range messages {
		at := w.sent + i
		page, user := fmt.Sprintf("/p%d", at*at%11), fmt.Sprint("u", at*7%400)
		bot, agent := at%7 == 3, "x"
		switch {
		case at%10 == 4:
			messages[i] = kafka.Message{Value: []byte("not json"), Partition: int32(at % 2)}
			continue
		case at%13 == 5:
			bot, agent, user = false, strings.Repeat("x", 200), fmt.Sprint("refused", at)
		case bot:
			user = fmt.Sprint("bot", at)
		default:
			w.want[page]++
			if w.users[page] == nil {
				w.users[page] = new(counters.Sketch)
			}
			w.users[page].Add([]byte(user))
		}
		messages[i] = kafka.Message{Value: fmt.Appendf(nil, `{"page": %q, "bot": %t, "agent": %q, "user": %q}`, page, bot, agent, user), Partition: int32(at % 2)}
	}
	w.sent += n
	w.ok(w.out.Produce(w.t.Context(), "pages", messages...))
}

// sketches returns the sketches of a family, by the end of the row.
func (w *distinctWorld) sketches(table, family string) map[string][]byte {
	w.t.Helper()
	got := map[string][]byte{}
	sc := w.engine.Scan(w.t.Context(), &store.Scan{Table: table, Columns: []store.Column{{Family: family, All: true}}})
	defer sc.Close()
	for sc.Next() {
		row := string(sc.Row().Key)
		if at := strings.LastIndex(row, "/"); at > 0 { // a rollup's begins with its name and the dimensions
			row = row[at:]
		}
		got[row] = bytes.Clone(sc.Row().Cells[0].Value)
	}
	w.ok(sc.Err())
	return got
}

// check compares what is served with the log, to the register.
func (w *distinctWorld) check() {
	w.t.Helper()
	want := map[string][]byte{}
	for page, s := range w.users {
		want[page] = s.Append(nil)
	}
	if d := cmp.Diff(want, w.sketches("counts", "u")); d != "" {
		w.t.Errorf("served users (-want +got):\n%s", d)
	}
	if d := cmp.Diff(want, w.sketches("rolled", counters.Total.Family(true))); d != "" {
		w.t.Errorf("served visitors (-want +got):\n%s", d)
	}
	got := map[string]int64{}
	sc := w.engine.Scan(w.t.Context(), &store.Scan{Table: "counts", Columns: []store.Column{{Family: "c", All: true}}})
	defer sc.Close()
	for sc.Next() {
		for _, b := range sc.Row().Cells[0].Value {
			got[string(sc.Row().Key)] = got[string(sc.Row().Key)]<<8 | int64(b)
		}
	}
	w.ok(sc.Err())
	if d := cmp.Diff(w.want, got); d != "" {
		w.t.Errorf("served counts (-want +got):\n%s", d)
	}
	for table, families := range map[string]int{"counts": 3, "rolled": 1} {
		d, err := w.engine.Table(w.t.Context(), table)
		w.ok(err)
		if len(d.Families) != families {
			w.t.Errorf("table %s has families %v", table, d.Families)
		}
	}
}

// damage changes which users are served: one page has another, one as many others, one
// none, and one is too many.
func (w *distinctWorld) damage() {
	w.t.Helper()
	appended := func(row, element string) *cell.Mutation {
		m := &cell.Mutation{Table: "counts", Row: []byte(row)}
		m.Append("u", []byte("users"), []byte(element))
		return m
	}
	gone := func(row string) *cell.Mutation {
		m := &cell.Mutation{Table: "counts", Row: []byte(row)}
		m.DeleteFamily("u", cell.Latest)
		return m
	}
	for _, m := range []*cell.Mutation{appended("/p1", "somebody"), appended("/nobody", "somebody"), gone("/p4"), gone("/one"), appended("/one", "bob")} {
		_, err := w.engine.MutateRow(w.t.Context(), nil, m)
		w.ok(err)
	}
}

// one sends the only event of its page.
func (w *distinctWorld) one() {
	w.t.Helper()
	w.want["/one"], w.users["/one"] = 1, new(counters.Sketch)
	w.users["/one"].Add([]byte("alice"))
	w.ok(w.out.Produce(w.t.Context(), "pages", kafka.Message{Value: []byte(`{"page": "/one", "bot": false, "agent": "x", "user": "alice"}`), Partition: int32(w.sent % 2)}))
	w.sent++
}

// Different values are counted again to the same registers; what was damaged is found,
// where it counts as many, too, and put right in the commit of the switch.
func TestRebuildDistinct(t *testing.T) {
	engines(t, func(t *testing.T, plain *world) {
		w := newDistinctWorld(plain)
		w.produce(1500)
		w.one()
		w.ingest()
		w.check()
		r := w.open(func(o *rebuild.Options) { o.BatchRecords = 300 })
		w.ok(r.Count(t.Context()))
		got, err := r.Compare(t.Context())
		w.ok(err)
		pages := int64(len(w.users))
		want := []rebuild.Comparison{
			{Table: "counts", Family: "c", Equal: pages},
			{Table: "counts", Family: "u", Distinct: true, Equal: pages},
			{Table: "rolled", Family: counters.Total.Family(true), Distinct: true, Equal: pages},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("compared (-want +got):\n%s", d)
		}
		w.ok(r.Discard(t.Context()))

		w.damage()
		r = w.open()
		w.ok(r.Count(t.Context()))
		got, err = r.Compare(t.Context())
		w.ok(err)
		number := func(n int64) *int64 { return &n }
		more := new(counters.Sketch)
		more.Merge(w.users["/p1"])
		more.Add([]byte("somebody"))
		want[1] = rebuild.Comparison{
			Table: "counts", Family: "u", Distinct: true, Equal: pages - 3, Different: 2, Missing: 1, Extra: 1,
			Differences: []rebuild.Difference{
				{Row: []byte("/nobody"), Qualifier: []byte("users"), Served: number(1)},
				{Row: []byte("/one"), Qualifier: []byte("users"), Served: number(1), Rebuilt: number(1)},
				{Row: []byte("/p1"), Qualifier: []byte("users"), Served: number(more.Count()), Rebuilt: number(w.users["/p1"].Count())},
				{Row: []byte("/p4"), Qualifier: []byte("users"), Rebuilt: number(w.users["/p4"].Count())},
			},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("compared after the damage (-want +got):\n%s", d)
		}
		w.ok(r.Switch(t.Context()))
		w.check()
		w.produce(300)
		w.ingest()
		w.check()
	})
}

// A rebuild that is killed between commits goes on where it stopped.
func TestRebuildDistinctResumes(t *testing.T) {
	engines(t, func(t *testing.T, plain *world) {
		w := newDistinctWorld(plain)
		w.produce(600)
		w.one()
		w.ingest()
		w.damage()
		for killed := 0; ; killed++ {
			ctx, cancel := context.WithCancel(t.Context())
			r := w.open(func(o *rebuild.Options) {
				o.BatchRecords = 40
				o.Progress = func(rebuild.Progress) {
					if killed < 5 {
						cancel()
					}
				}
			})
			err := r.Count(ctx)
			cancel()
			if err == nil {
				w.ok(r.Switch(t.Context()))
				if killed < 5 {
					t.Errorf("killed only %d times", killed)
				}
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		w.check()
	})
}

// Power fails anywhere in a rebuild of distinct counts; the next one ends with what the
// log has.
func TestRebuildDistinctAndPowerLoss(t *testing.T) {
	t.Parallel()
	disk := newPowerDisk(crashfs.New())
	db := disk.open(t)
	w := newDistinctWorld(newWorld(t, db))
	w.produce(200)
	w.one()
	w.ingest()
	db = w.losePower(t, disk, db, 8, w.damage)
	w.check()
	w.ok(db.Close())
}

// A DISTINCT family in which nothing is counted any more is found, and emptied where
// that is asked for.
func TestRebuildFindsUnusedDistinct(t *testing.T) {
	engines(t, func(t *testing.T, plain *world) {
		w := newDistinctWorld(plain)
		w.produce(50)
		w.one()
		w.ingest()
		d, err := w.engine.Table(t.Context(), "counts")
		w.ok(err)
		d = d.Clone()
		d.Families = append(d.Families, distinctFamily("old"))
		w.ok(w.engine.AlterTable(t.Context(), d))
		m := &cell.Mutation{Table: "counts", Row: []byte("/p1")}
		m.Append("old", []byte("users"), []byte("alice"))
		_, err = w.engine.MutateRow(t.Context(), nil, m)
		w.ok(err)
		r := w.open(func(o *rebuild.Options) { o.RemoveUnused = true })
		w.ok(r.Count(t.Context()))
		all, err := r.Compare(t.Context())
		w.ok(err)
		if d := cmp.Diff([]string{"counts old 1"}, unused(all)); d != "" {
			t.Errorf("unused (-want +got):\n%s", d)
		}
		w.ok(r.Switch(t.Context()))
		if left := w.sketches("counts", "old"); len(left) > 0 {
			t.Errorf("Got %v after a switch that empties it", left)
		}
	})
}

// A mapping that deletes distinct counts is found out at the first record that does. What
// was counted until then is not left behind, where it would keep the daemon from starting.
func TestRebuildOfDeletesLeavesNothing(t *testing.T) {
	engines(t, func(t *testing.T, world *world) {
		w := newDistinctWorld(world)
		w.produce(40)
		w.ingest()
		schema, err := w.engine.Table(t.Context(), "counts")
		w.ok(err)
		p, err := mapping.Compile(&mapping.Spec{
			Decode: mapping.DecodeSpec{Format: "json"},
			Rules: []mapping.RuleSpec{
				{Table: "counts", Row: "page", When: "!bot", Append: map[string]map[string]string{"u": {"users": "user"}}},
				{Table: "counts", Row: "page", When: "bot", Delete: []mapping.DeleteSpec{{What: "row"}}},
			},
		}, func(string) *store.TableDescriptor { return schema })
		w.ok(err)
		r := w.open(func(o *rebuild.Options) { o.Plan, o.BatchRecords = p, 1 })
		if err := r.Count(t.Context()); !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("counted: %v, want ErrUnsupported", err)
		}
		after, err := w.engine.Table(t.Context(), "counts")
		w.ok(err)
		if diff := cmp.Diff(schema, after); diff != "" {
			t.Errorf("the table's schema is another one (-before +after):\n%s", diff)
		}
	})
}
