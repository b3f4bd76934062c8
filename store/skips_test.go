package store

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSkips(t *testing.T) {
	t.Parallel()
	var s Skips
	if s.With(5, 5, SkippedOther) != "" || s.Offsets(0, 10) != 0 || s.String() != "" {
		t.Errorf("Got %q of no offsets", s)
	}
	s = s.With(0, 10, SkippedCorrupt).With(10, 12, SkippedTooLarge).With(20, 21, SkippedCorrupt)
	want := []Skip{{Gap{0, 10}, SkippedCorrupt}, {Gap{10, 12}, SkippedTooLarge}, {Gap{20, 21}, SkippedCorrupt}}
	if d := cmp.Diff(want, s.All()); d != "" {
		t.Errorf("ranges (-want +got):\n%s", d)
	}
	if s.Offsets(0, 30) != 13 || s.Offsets(5, 11) != 6 || s.Offsets(12, 20) != 0 || s.String() != "0-9 corrupt, 10-11 too_large, 20-20 corrupt" {
		t.Errorf("Got %d, %d and %d offsets, %s", s.Offsets(0, 30), s.Offsets(5, 11), s.Offsets(12, 20), s)
	}
	for offset, want := range map[int64]int64{0: 0, 9: 0, 10: 10, 12: 20, 20: 20, 21: -1} {
		one, ok := s.After(offset)
		if !ok {
			one.From = -1
		}
		if one.From != want {
			t.Errorf("Got a range from %d on after %d, want %d", one.From, offset, want)
		}
	}
	b, err := json.Marshal(s)
	if err != nil || string(b) != `[{"from":0,"to":10,"reason":"corrupt"},{"from":10,"to":12,"reason":"too_large"},{"from":20,"to":21,"reason":"corrupt"}]` {
		t.Errorf("Got %s, %v", b, err)
	}
	var back Skips
	if err := json.Unmarshal(b, &back); err != nil || back != s {
		t.Errorf("Got %s, %v back", back, err)
	}
	for i := range int64(2 * MaxGaps) {
		s = s.With(100+2*i, 101+2*i, SkippedOther)
	}
	if all := s.All(); len(all) != MaxGaps || all[0].From != 100+2*MaxGaps || all[MaxGaps-1].To != 101+2*(2*MaxGaps-1) {
		t.Errorf("Got %d ranges, %s", len(all), s)
	}
	for _, bad := range []string{
		`[{"from":3,"to":3,"reason":"corrupt"}]`, `[{"from":-3,"to":3,"reason":"corrupt"}]`, `[{"from":3,"to":4,"reason":"moon"}]`, `[{"from":3,"to":4}]`,
		`[{"from":3,"to":5,"reason":"other"},{"from":4,"to":6,"reason":"other"}]`, `{}`,
	} {
		if err := json.Unmarshal([]byte(bad), &back); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("Got %v of %s", err, bad)
		}
	}
	for _, name := range SkipReasons() {
		if r, err := ParseSkipReason(name); err != nil || r.String() != name {
			t.Errorf("Got %v, %v of %s", r, err, name)
		}
	}
	if _, err := ParseSkipReason(""); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("Got %v of no reason", err)
	}
}
