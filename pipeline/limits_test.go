package pipeline

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// A record that is too large is one like any that cannot be applied: its policy says
// what becomes of it, and those around it are applied.
func TestLimitPolicies(t *testing.T) {
	t.Parallel()
	plan, err := mapping.Compile(&mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "raw", MaxRecordBytes: 20, MaxHeaderBytes: 8},
		Rules: []mapping.RuleSpec{{
			Table: "events", Row: `u64(offset)`, Put: map[string]map[string]string{"e": {"page": "value"}},
		}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		policies map[string]Policy
		letters  map[string]string
		dropped  int64
		stopped  string
	}{
		{"dlq", nil, map[string]string{"t/0/1": "decode/record_too_large", "t/0/2": "decode/headers_too_large"}, 0, ""},
		{"drop", map[string]Policy{"record_too_large": DropRecords}, map[string]string{"t/0/2": "decode/headers_too_large"}, 1, ""},
		{"drop the stage", map[string]Policy{"decode": DropRecords}, map[string]string{}, 2, ""},
		{
			"fail",
			map[string]Policy{"headers_too_large": StopPipeline},
			map[string]string{"t/0/1": "decode/record_too_large"},
			0,
			"pipeline p: t/0, offset 2: decode: headers_too_large: 1 headers of 9 bytes, at most 8 are allowed (decode.max_header_bytes). Nothing after it was applied. ",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e, b := newEngine(t), newFakeBroker(1)
			b.produce(0, "a", strings.Repeat("x", 20), "b", "c")
			b.logs[0].records[2].Headers = append(b.logs[0].records[2].Headers, kafka.Header{Key: []byte("h"), Value: []byte("12345678")})
			p := newTest(t, e, b, withPoison(Poison{Policies: c.policies}))
			p.newMapper = func() mapper { return plan.NewMapper() }
			r := start(t, p, 0)
			applied := int64(2)
			if c.stopped != "" {
				applied = 1
				if err := r.failed(); !errors.Is(err, ErrPoison) || !strings.HasPrefix(err.Error(), c.stopped) {
					t.Errorf("Got %v, want %s…", err, c.stopped)
				}
			} else {
				r.caughtUp(b)
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(c.letters, readContents(t, e).Letters); d != "" {
				t.Errorf("Got other letters (-want +got):\n%s", d)
			}
			all, err := store.AllProgress(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			if g := all[0].Progress; g.Applied != applied || g.Dropped != c.dropped {
				t.Errorf("Got %+v, want %d applied and %d dropped", g, applied, c.dropped)
			}
		})
	}
}
