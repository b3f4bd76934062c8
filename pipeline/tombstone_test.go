package pipeline

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
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
