package serve

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/store/memstore"
)

// TestMetricsOnDiskThatHangs: a file system that does not say what is free holds no scrape up.
func TestMetricsOnDiskThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine, err := memstore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer engine.Close()
		s, err := New(&Options{Engine: engine, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		var answer chan struct{}
		s.diskFree = func(string) int64 {
			if answer != nil {
				<-answer
			}
			return 7 << 20
		}
		scrape := func(what string, want bool, within time.Duration) {
			t.Helper()
			begun := time.Now()
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/metrics", nil))
			if got := strings.Contains(w.Body.String(), "sluice_store_disk_free_bytes 7.340032e+06"); got != want || time.Since(begun) > within {
				t.Errorf("%s: Got the free space: %t, after %s", what, got, time.Since(begun))
			}
		}
		answer = make(chan struct{})
		scrape("nothing is known", false, freePatience)
		close(answer)
		synctest.Wait()
		answer = nil
		scrape("known", true, 0)
		time.Sleep(time.Minute)
		answer = make(chan struct{})
		scrape("known before", true, freePatience)
		close(answer)
	})
}
