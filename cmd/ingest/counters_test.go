package main

import (
	"strings"
	"testing"

	"sluice/internal/integration"
)

// What counters remove cannot do is said, with what to do instead. What it does is tested
// in store/hbasestore, and with make integration.
func TestCountersRemoveRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(t, "shell", "-c", w.config, "--create", "-n", "-e", "list")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"path_counts", "--yes"}, "by a TTL of their family"},
		{[]string{"path_counts", "--start-row", "b", "--stop-row", "a"}, "--stop-row a is not after --start-row b"},
		{[]string{"path_counts", "--stop-column", `\x`}, "--stop-column"},
	} {
		args := append([]string{"counters", "remove", "-c", w.config}, test.args...)
		if out, err := integration.Run(t, w.env, nil, "ingest", args...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: Got %v, want %q\n%s", args, err, test.want, out)
		}
	}
}
