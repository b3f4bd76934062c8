package integration

import "testing"

func TestLogs(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]*Log{"shared": SharedLog(t), "generated": GeneratedLog(2, 10_000)} {
		sum := 0
		for _, n := range l.Paths {
			sum += n
		}
		if len(l.Lines) != 10_000 || l.Bad != 1 || sum != 9_999 {
			t.Errorf("%s log: %d lines, %d bad, %d requests; want 10000, 1, 9999", name, len(l.Lines), l.Bad, sum)
		}
	}
}
