package overdue

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTell(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]int{9 * time.Second: 0, 11 * time.Second: 2, 65 * time.Second: 2, 3 * time.Minute: 4} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			done := Tell(slog.New(slog.NewTextHandler(&out, nil)), "open the store", "path", "/data")
			time.Sleep(took)
			done()
			done()
			time.Sleep(time.Hour)
			if got := strings.Count(out.String(), `path=/data what="open the store" took=`); got != want {
				t.Errorf("%s: Got %d lines, want %d:\n%s", took, got, want, out.String())
			}
		})
	}
}
