package store_test

import (
	"encoding/json"
	"errors"
	"testing"

	"sluice/store"
)

// FuzzGaps: the JSON of gaps and skips, which a daemon sends, is what it says, or refused.
func FuzzGaps(f *testing.F) {
	f.Add([]byte(`[[2,3],[5,9]]`))
	f.Add([]byte(`[{"from":2,"to":3,"reason":"corrupt"},{"from":3,"to":4,"reason":"other"}]`))
	f.Add([]byte(`[[-1,3],[3,2]]`))
	f.Add([]byte(`[[9223372036854775806,9223372036854775807]]`))
	f.Add([]byte(`null`))
	f.Add([]byte(`[{"reason":""}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var gaps store.Gaps
		if err := json.Unmarshal(b, &gaps); err == nil {
			again := store.Gaps("")
			for _, one := range gaps.All() {
				again = again.With(one.From, one.To)
			}
			if text, err := json.Marshal(gaps); err != nil || again != gaps || json.Unmarshal(text, &again) != nil || again != gaps {
				t.Errorf("%s: got %s, then %s (%v)", b, gaps, again, err)
			}
			if n := gaps.Offsets(); n < 0 || n == 0 != (gaps == "") {
				t.Errorf("%s: got %d offsets in %s", b, n, gaps)
			}
		} else if json.Valid(b) && !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("%s: got %v, want ErrInvalidArgument", b, err)
		}
		var skips store.Skips
		if err := json.Unmarshal(b, &skips); err == nil {
			again := store.Skips("")
			for _, one := range skips.All() {
				again = again.With(one.From, one.To, one.Reason)
			}
			if text, err := json.Marshal(skips); err != nil || again != skips || json.Unmarshal(text, &again) != nil || again != skips {
				t.Errorf("%s: got %s, then %s (%v)", b, skips, again, err)
			}
		} else if json.Valid(b) && !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("%s: got %v, want ErrInvalidArgument", b, err)
		}
	})
}
