package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// The records of a compacted topic leave the rows that have no tombstone behind them, as
// the broker sends it: null, and not empty. One that is skipped counts as filtered.
func TestTombstonesFromKafka(t *testing.T) {
	t.Parallel()
	for tombstones, want := range map[string]struct {
		rows                    []string
		applied, filtered, dead int64
	}{
		"map":    {[]string{"b", "c"}, 5, 0, 1},
		"skip":   {[]string{"a", "b", "c"}, 4, 1, 1},
		"refuse": {[]string{"a", "b", "c"}, 4, 0, 2},
	} {
		t.Run(tombstones, func(t *testing.T) {
			t.Parallel()
			c, e := newCluster(t, map[string]int{"pages": 1}), newPebble(t)
			if err := c.out.Produce(
				t.Context(), "pages",
				kafka.Message{Key: []byte("a"), Value: []byte(`{"page":"/1"}`)}, kafka.Message{Key: []byte("b"), Value: []byte(`{"page":"/1"}`)},
				kafka.Message{Key: []byte("a")}, kafka.Message{Key: []byte("b"), Value: []byte{}},
				kafka.Message{Key: []byte("c"), Value: []byte(`{"page":"/2"}`)}, kafka.Message{Key: []byte("b"), Value: []byte(`{"page":"/3"}`)},
			); err != nil {
				t.Fatal(err)
			}
			plan, err := mapping.Compile(&mapping.Spec{
				Decode: mapping.DecodeSpec{Format: "json", Tombstones: tombstones},
				Rules: []mapping.RuleSpec{
					{Table: "events", Row: "key", When: "value != nil", Put: map[string]map[string]string{"e": {"page": "page"}}},
					{Table: "events", Row: "key", When: "value == nil", Delete: []mapping.DeleteSpec{{What: "row"}}},
				},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			m := c.run(e, func(o *Options) { o.Plan = plan })
			m.wait(c.ends("pages"))
			m.close()
			got := readContents(t, e)
			if d := cmp.Diff(want.rows, slices.Sorted(maps.Keys(got.Events))); d != "" {
				t.Errorf("Got other rows (-want +got):\n%s", d)
			}
			if p := got.Progress; p.Applied != want.applied || p.Filtered != want.filtered || p.Dead != want.dead {
				t.Errorf("Got %+v, want %d applied, %d filtered and %d dead", p, want.applied, want.filtered, want.dead)
			}
			c.audit(e)
		})
	}
}

// Of a put and a tombstone of one millisecond the tombstone wins, as in HBase, but in a
// family with NEW_VERSION_BEHAVIOR, where the order of the records decides.
func TestTombstonesOfOneMillisecond(t *testing.T) {
	t.Parallel()
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprint(ordered), func(t *testing.T) {
			t.Parallel()
			c, e := newCluster(t, map[string]int{"pages": 1}), newPebble(t)
			f := store.NewFamily("d")
			f.NewVersionBehavior = ordered
			if err := e.(store.Admin).CreateTable(t.Context(), &store.TableDescriptor{Name: "users", Families: []store.FamilyDescriptor{f}}, nil); err != nil {
				t.Fatal(err)
			}
			plan, err := mapping.Compile(&mapping.Spec{
				Decode: mapping.DecodeSpec{Format: "json", Tombstones: "map"},
				Rules: []mapping.RuleSpec{
					{Table: "users", Row: "key", When: "value != nil", Put: map[string]map[string]string{"d": {"name": "name"}}},
					{Table: "users", Row: "key", When: "value == nil", Delete: []mapping.DeleteSpec{{What: "row"}}},
				},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			at := time.UnixMilli(1_700_000_000_000)
			put := func(key, name string) kafka.Message {
				return kafka.Message{Key: []byte(key), Value: fmt.Appendf(nil, `{"name":%q}`, name), Time: at}
			}
			gone := func(key string) kafka.Message { return kafka.Message{Key: []byte(key), Time: at} }
			if err := c.out.Produce(t.Context(), "pages", put("a", "1"), gone("a"), put("a", "2"), put("b", "1"), gone("b")); err != nil {
				t.Fatal(err)
			}
			m := c.run(e, func(o *Options) { o.Plan = plan })
			m.wait(c.ends("pages"))
			m.close()
			var got []string
			sc := e.Scan(t.Context(), &store.Scan{Table: "users"})
			defer sc.Close()
			for sc.Next() {
				got = append(got, string(sc.Row().Key)+" "+string(sc.Row().Cells[0].Value))
			}
			if err := sc.Err(); err != nil {
				t.Fatal(err)
			}
			var want []string
			if ordered {
				want = []string{"a 2"}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("Got other rows (-want +got):\n%s", d)
			}
		})
	}
}
