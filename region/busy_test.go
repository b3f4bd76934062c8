package region

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBusyWatch(t *testing.T) {
	t.Parallel()
	const window = DefaultBusyWindow
	const many = 200 * window / 1000 // twice what a region must take to be busy
	old := []Info{{Table: "t", ID: 1, Stop: []byte("g")}, {Table: "t", ID: 1, Start: []byte("g"), Stop: []byte("p")}, {Table: "t", ID: 1, Start: []byte("p")}}
	type look struct {
		after  int64 // ms since the look before
		infos  []Info
		writes []int64
		want   []int
	}
	for _, c := range []struct {
		name   string
		policy BusyPolicy
		looks  []look
	}{
		{"a first look says nothing", BusyPolicy{}, []look{{0, old, []int64{many, 0, 0}, nil}}},
		{"the only region", BusyPolicy{}, []look{{0, old[:1], []int64{0}, nil}, {window, old[:1], []int64{many}, []int{0}}}},
		{"too few requests", BusyPolicy{}, []look{{0, old[:1], []int64{0}, nil}, {window, old[:1], []int64{many / 3}, nil}}},
		{"what was taken before does not count", BusyPolicy{}, []look{
			{0, old, []int64{many, 0, 0}, nil}, {window, old, []int64{many, many, 0}, []int{1}}, {window, old, []int64{many, many, 0}, nil},
		}},
		{"before the window is over", BusyPolicy{}, []look{{0, old, []int64{0, 0, 0}, nil}, {window - 1, old, []int64{many, 0, 0}, nil}, {1, old, []int64{many, 0, 0}, []int{0}}}},
		{"a share", BusyPolicy{Share: 0.6}, []look{{0, old, []int64{0, 0, 0}, nil}, {window, old, []int64{many, many, 4 * many}, []int{2}}}},
		{"all of them", BusyPolicy{}, []look{{0, old, []int64{0, 0, 0}, nil}, {window, old, []int64{many, many, many}, []int{0, 1, 2}}}},
		{"a window of one's own", BusyPolicy{Window: 1000}, []look{{0, old[:1], []int64{0}, nil}, {1000, old[:1], []int64{100}, []int{0}}, {1000, old[:1], []int64{199}, nil}}},
		{"too old an age is asked for", BusyPolicy{MinAge: 1 << 40}, []look{{0, old, []int64{0, 0, 0}, nil}, {window, old, []int64{many, 0, 0}, nil}}},
		{"a young region", BusyPolicy{}, []look{
			{0, old[:1], []int64{0}, nil},
			{window, []Info{{Table: "t", ID: 1e9 + window}}, []int64{many}, nil},
			{2 * window, []Info{{Table: "t", ID: 1e9 + window}}, []int64{3 * many}, []int{0}},
		}},
		{"any age", BusyPolicy{MinAge: -1}, []look{{0, nil, nil, nil}, {window, []Info{{Table: "t", ID: 1e9 + window}}, []int64{many}, []int{0}}}},
		{"the store was opened again", BusyPolicy{}, []look{{0, old[:1], []int64{100 * many}, nil}, {window, old[:1], []int64{many}, []int{0}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var w BusyWatch
			now := int64(1e9)
			for i, l := range c.looks {
				now += l.after
				if d := cmp.Diff(l.want, w.Look(&c.policy, l.infos, l.writes, now)); d != "" {
					t.Errorf("look %d (-want +got):\n%s", i, d)
				}
			}
		})
	}
}
