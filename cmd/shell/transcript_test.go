package main

import (
	"flag"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"sluice/cell"
	"sluice/serve"
	"sluice/serve/client"
	"sluice/store/memstore"
	"sluice/store/pebblestore"
)

// testClock is at 2026-01-02T03:04:05.677 before the first command and a
// millisecond later for each.
type testClock struct{ asked atomic.Int64 }

func (c *testClock) now() cell.Timestamp {
	return cell.Timestamp(time.Date(2026, 1, 2, 3, 4, 5, 677e6, time.UTC).UnixMilli() + (c.asked.Load()+1)/2)
}

// took is a session's clock: a command asks it when it begins and when it ends.
func (c *testClock) took() time.Time {
	c.asked.Add(1)
	return time.Unix(0, 0)
}

// testStores opens every kind of store that the shell works on, with a clock.
var testStores = map[string]func(t testing.TB, now func() cell.Timestamp) Store{
	"mem": func(t testing.TB, now func() cell.Timestamp) Store {
		m, err := memstore.New(&memstore.Options{Now: now})
		return closing(t, m, err)
	},
	"pebble": openPebble,
	"served": func(t testing.TB, now func() cell.Timestamp) Store {
		s, err := serve.New(&serve.Options{Engine: openPebble(t, now)})
		if err != nil {
			t.Fatal(err)
		}
		ts := httptest.NewServer(s.Handler())
		t.Cleanup(ts.Close)
		c, err := client.Dial(t.Context(), s.Endpoint(strings.TrimPrefix(ts.URL, "http://")))
		return closing(t, c, err)
	},
}

func openPebble(t testing.TB, now func() cell.Timestamp) Store {
	db, err := pebblestore.Open(t.TempDir(), &pebblestore.Options{Now: now, MemTableBytes: 1 << 20, CacheBytes: 1 << 20, MinFreeBytes: -1, Sync: pebblestore.SyncNever})
	return closing(t, db, err)
}

func closing[S Store](t testing.TB, s S, err error) Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// newTestSession returns a session on an empty store, in UTC.
func newTestSession(t testing.TB, kind string, out *strings.Builder) *session {
	t.Helper()
	clock := new(testClock)
	s := newSession(t.Context(), testStores[kind](t, clock.now), newPrinter(out, time.UTC))
	s.now = clock.took
	s.version = "v1"
	return s
}

// TestTranscripts runs testdata/transcripts on every kind of store: each "run" is a
// script, its output what the shell prints for it; "terminal" prints for one of 80
// columns, "json" as -o json does. Rewrite with -rewrite, then read the diff.
func TestTranscripts(t *testing.T) {
	for _, kind := range []string{"pebble", "mem", "served"} {
		if kind != "pebble" && flag.Lookup("rewrite").Value.String() == "true" {
			continue // one store writes them, the others must agree
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
				var out strings.Builder
				s := newTestSession(t, kind, &out)
				datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
					out.Reset()
					s.print.width, s.print.json = 0, false
					switch d.Cmd {
					case "run":
					case "terminal":
						s.print.width = 80
					case "json":
						s.print.json = true
					default:
						t.Fatalf("unknown command %s", d.Cmd)
					}
					_ = s.script(newScriptInput(strings.NewReader(d.Input)), "script", false, func(e *scriptError) {
						if s.print.json {
							out.WriteString("stderr: " + e.Error() + "\n")
						}
					})
					return strings.ReplaceAll(out.String(), " \n", "$\n") // trailing blanks, made visible
				})
			})
		})
	}
}
