package store

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGaps(t *testing.T) {
	t.Parallel()
	var g Gaps
	if g.With(5, 5) != "" || g.Offsets() != 0 || g.String() != "" {
		t.Errorf("Got %q of no offsets", g)
	}
	g = g.With(0, 10).With(10, 12).With(20, 21)
	if d := cmp.Diff([]Gap{{0, 12}, {20, 21}}, g.All()); d != "" {
		t.Errorf("ranges (-want +got):\n%s", d)
	}
	if g.Offsets() != 13 || g.String() != "0-11 20-20" {
		t.Errorf("Got %d offsets, %s", g.Offsets(), g)
	}
	b, err := json.Marshal(g)
	if err != nil || string(b) != "[[0,12],[20,21]]" {
		t.Errorf("Got %s, %v", b, err)
	}
	var back Gaps
	if err := json.Unmarshal(b, &back); err != nil || back != g {
		t.Errorf("Got %s, %v back", back, err)
	}
	for i := range int64(2 * MaxGaps) {
		g = g.With(100+2*i, 101+2*i)
	}
	if all := g.All(); len(all) != MaxGaps || all[0].From != 100+2*MaxGaps || all[MaxGaps-1].To != 101+2*(2*MaxGaps-1) {
		t.Errorf("Got %d ranges, %s", len(all), g)
	}
	for _, bad := range []string{"[[3,3]]", "[[3,1]]", "[[1,2],[2,3]]", "[[-5,2]]", "{}"} {
		if err := json.Unmarshal([]byte(bad), &back); !errors.Is(err, ErrInvalidArgument) && bad != "{}" || err == nil {
			t.Errorf("Got %v of %s", err, bad)
		}
	}
}
