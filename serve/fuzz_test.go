package serve_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/serve"
	"sluice/serve/api"
	"sluice/store"
	"sluice/store/memstore"
	"sluice/store/pebblestore"
)

// apiEngine is what the requests of FuzzAPI need.
type apiEngine interface {
	store.Engine
	store.Admin
}

// apiPaths are the requests with a body or parameters that both engines answer.
var apiPaths = []string{
	"POST /tables", "PUT /tables/t", "PUT /tables/t/state", "POST /tables/t/split_point", "POST /namespaces", "PUT /namespaces/default",
	"POST /tables/t/split", "POST /tables/t/merge", "POST /tables/t/scan", "POST /tables/t/mutate", "POST /mutate", "POST /batch",
	"GET /tables/t/rows", "GET /counters/t", "GET /counters/t/top", "GET /rollups/t/r/series", "GET /rollups/t/r/top", "GET /outbox", "GET /offsets",
	"POST /tables/t/truncate", "POST /tables/t/compact", "DELETE /tables/t", "GET /tables/t",
}

// apiServer is a server over an engine with a table of each kind of family.
func apiServer(t *testing.T, engine apiEngine) http.Handler {
	t.Helper()
	t.Cleanup(func() { engine.Close() })
	counter, distinct, versions := store.NewFamily("n"), store.NewFamily("d"), store.NewFamily("v")
	counter.Counter, distinct.Distinct, versions.Versions = true, true, 3
	table := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f"), counter, distinct, versions}}
	if err := engine.CreateTable(t.Context(), table, [][]byte{[]byte("m")}); err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	for i, row := range []string{"a", "b", "m", "z"} {
		var m cell.Mutation
		m.Table, m.Row = "t", []byte(row)
		m.Put("f", []byte("q"), cell.Timestamp(i), []byte("1"))
		m.Put("v", []byte("q"), cell.Timestamp(i), []byte("xy"))
		m.Put("v", []byte("q"), cell.Timestamp(i+5), []byte{0, 0, 0, 0, 0, 0, 0, 9})
		m.Append("d", []byte("q"), []byte("element"))
		b.Add(int64(i), m)
		b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: []byte(row), Qualifier: []byte("20260101"), Delta: int64(i + 1), Time: 7, Offset: int64(i)})
	}
	b.Advance(store.Source{Pipeline: "p", Topic: "x"}, 0, store.Absent, store.Progress{Next: 4, Applied: 4})
	if err := engine.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	s, err := serve.New(&serve.Options{Engine: engine, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return s.Handler()
}

// apiState is all that raw scans of the tables show.
func apiState(t *testing.T, engine apiEngine) (lines []string) {
	t.Helper()
	tables, err := engine.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tables {
		sc := engine.Scan(t.Context(), &store.Scan{Table: name, Versions: store.AllVersions})
		for sc.Next() {
			for _, c := range sc.Row().Cells {
				lines = append(lines, fmt.Sprintf("%s %q %s:%q %d %d %q %d", name, sc.Row().Key, c.Family, c.Qualifier, c.Time, c.Kind, c.Value, c.TTL))
			}
		}
		if err := sc.Err(); err != nil {
			lines = append(lines, name+" cannot be scanned")
		}
		sc.Close()
	}
	return lines
}

// FuzzAPI: whatever a client sends, the server does not panic and has no error without a name,
// and both engines answer the same and have the same afterwards.
func FuzzAPI(f *testing.F) {
	for i, path := range apiPaths {
		for _, body := range []string{
			``, `{}`, `{"name":"u","families":[{"name":"f"}]}`, `{"enabled":false}`, `{"row":"bQ=="}`, `{"key":"Yw=="}`,
			`{"limit":10,"versions":3,"reversed":true,"batch":2}`, `{"start":"YQ==","stop":"eg==","raw":true,"columns":[{"family":"v","all":true}],"time":{"min":1,"max":9}}`,
			`{"row":"YQ==","ops":[{"type":"put","family":"f","qualifier":"cQ==","time":5,"value":"dg=="},{"type":"delete_row"}]}`,
			`{"row":"YQ==","ops":[{"type":"increment","family":"n","qualifier":"cQ==","delta":5}],"cond":{"family":"f","qualifier":"cQ==","op":"equal","value":"MQ=="}}`,
			`{"row":"YQ==","ops":[{"type":"append","family":"d","qualifier":"cQ==","value":"ZQ=="},{"type":"append","family":"v","qualifier":"cQ==","value":"ZQ=="}]}`,
			`{"mutations":[{"table":"t","row":"YQ==","ops":[{"type":"delete_column","family":"v","qualifier":"cQ=="}]},{"table":"u","row":"","ops":[]}]}`,
			`{"mutations":[{"offset":4,"table":"t","row":"YQ==","ops":[{"type":"put","family":"f","qualifier":"","time":3,"value":""}]}],"advances":[{"source":{"pipeline":"p","topic":"x"},"partition":0,"from":4,"progress":{"next":5,"applied":5,"fingerprint":"0"}}]}`,
		} {
			f.Add(uint8(i), "", []byte(body))
		}
		if strings.HasPrefix(path, "GET") {
			f.Add(uint8(i), "row=a&family=n&from=20260101&to=20270101&n=5&encoding=text", []byte(nil))
			f.Add(uint8(i), "row=YQ&encoding=base64&versions=3&family=v", []byte(nil))
			f.Add(uint8(i), "bucket=day&by=country&value=DE&from=2026-01-01T00:00:00Z&to=1767312000000&zone=UTC&distinct=true", []byte(nil))
			f.Add(uint8(i), "limit=2&after=", []byte(nil))
		}
	}
	now := func() cell.Timestamp { return 1_800_000_000_000 }
	f.Fuzz(func(t *testing.T, which uint8, query string, body []byte) {
		if _, err := url.ParseQuery(query); err != nil {
			t.Skip()
		}
		method, path, _ := strings.Cut(apiPaths[int(which)%len(apiPaths)], " ")
		model, err := memstore.New(&memstore.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		embedded, err := pebblestore.Open("db", &pebblestore.Options{
			FS: vfs.NewMem(), Now: now, CacheBytes: 1 << 20, MemTableBytes: 1 << 20, CounterFilterBytes: -1, OnceFilterBytes: -1, RewriteInterval: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		type answer struct {
			Status int
			Code   string
			Body   string
			State  []string
		}
		var answers [2]answer
		for i, engine := range []apiEngine{model, embedded} {
			h := apiServer(t, engine)
			r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+api.Prefix+path, bytes.NewReader(body))
			r.URL.RawQuery = query
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			a := answer{Status: w.Code, Body: w.Body.String(), State: apiState(t, engine)}
			if w.Code >= 400 {
				var e api.Error
				if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Code == "" || e.Message == "" {
					t.Fatalf("%s %s?%s %s: %d %s", method, path, query, body, w.Code, w.Body)
				}
				if e.Code == "internal" || e.Code == "corrupt" {
					t.Errorf("%T: %s %s?%s %s: %d %s", engine, method, path, query, body, w.Code, w.Body)
				}
				a.Code, a.Body = e.Code, ""
			}
			answers[i] = a
		}
		if slices.ContainsFunc(answers[:], func(a answer) bool { return a.Code == "unsupported" }) {
			return
		}
		if d := cmp.Diff(answers[0], answers[1]); d != "" {
			t.Errorf("%s %s?%s %s (-model +embedded):\n%s", method, path, query, body, d)
		}
	})
}
