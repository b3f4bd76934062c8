package join

import "testing"

// TestParts: the parts of a level say nothing about those of the next, or a part
// would stay whole for ever.
func TestParts(t *testing.T) {
	t.Parallel()
	level := []*parts{{level: 0}, {level: 1}}
	var first, both [fanOut]int
	for i := range 32 * fanOut * fanOut {
		key := []byte{byte(i), byte(i >> 8), 'k'}
		first[level[0].of(key)]++
		if level[0].of(key) == 0 {
			both[level[1].of(key)]++
		}
	}
	for i := range fanOut {
		if first[i] < 900 || first[i] > 1150 || both[i] < 10 || both[i] > 60 {
			t.Errorf("part %d: Got %d keys, want about 1024; of the first part again, %d, want about 32", i, first[i], both[i])
		}
	}
}
