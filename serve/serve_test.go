package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/serve"
	"sluice/serve/api"
	"sluice/store"
	"sluice/store/memstore"
)

const token = "correct horse"

// testServer is a server over a model store with one row and some counters.
type testServer struct {
	*httptest.Server
	t      *testing.T
	engine *memstore.Store
}

func newServer(t *testing.T, change func(*serve.Options)) *testServer {
	t.Helper()
	engine, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	counter := store.NewFamily("day")
	counter.Counter = true
	table := &store.TableDescriptor{Name: "events", Families: []store.FamilyDescriptor{store.NewFamily("e"), counter}}
	if err := engine.CreateTable(t.Context(), table, [][]byte{[]byte("m")}); err != nil {
		t.Fatal(err)
	}
	var put cell.Mutation
	put.Table, put.Row = "events", []byte("a/b")
	put.Put("e", []byte("page"), 5, []byte("/home"))
	if _, err := engine.MutateRow(t.Context(), nil, &put); err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	for i, n := range []int64{3, 5} {
		b.Counters = append(b.Counters,
			store.CounterDelta{Table: "events", Family: "day", Row: []byte("/home"), Qualifier: []byte([]string{"20260101", "20260102"}[i]), Delta: n, Time: 7},
			store.CounterDelta{Table: "events", Family: "day", Row: []byte("/other"), Qualifier: []byte("20260101"), Delta: 1, Time: 7})
	}
	b.Advance(store.Source{Pipeline: "p", Topic: "t", TopicID: [16]byte{1}}, 2, store.Absent, store.Progress{First: 10, Next: 14, Applied: 4})
	if err := engine.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	o := &serve.Options{Engine: engine, Token: token, Version: api.Version{Version: "v1", Commit: "abc"}}
	if change != nil {
		change(o)
	}
	s, err := serve.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ts := &testServer{Server: httptest.NewServer(s.Handler()), t: t, engine: engine}
	t.Cleanup(ts.Close)
	return ts
}

// do sends a request with the token and returns status and body.
func (s *testServer) do(method, path, body string, change ...func(*http.Request)) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	for _, f := range change {
		f(r)
	}
	res, err := s.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	tests := []struct {
		name, method, path, body string
		status                   int
		want                     string // contained
	}{
		{"alive", "GET", "/livez", "", 200, "ok\n"},
		{"ready", "GET", "/readyz", "", 200, "ready\n"},
		{"ready, verbosely", "GET", "/readyz?verbose", "", 200, "[+] store: ok"},
		{"version", "GET", "/version", "", 200, `"version":"v1"`},
		{"metrics", "GET", "/metrics", "", 200, "sluice_build_info{commit=\"abc\""},
		{"tables", "GET", "/api/v1/tables", "", 200, `{"tables":["events"]}`},
		{"schema", "GET", "/api/v1/tables/events", "", 200, `"name":"day","versions":1`},
		{"regions", "GET", "/api/v1/tables/events", "", 200, `"start":"bQ=="`},
		{"no table", "GET", "/api/v1/tables/nope", "", 404, `"code":"table_not_found"`},
		{"row with a slash", "GET", "/api/v1/tables/events/rows/a%2Fb", "", 200, `"value":"L2hvbWU="`},
		{"row in base64", "GET", "/api/v1/tables/events/rows/YS9i?encoding=base64", "", 200, `"key":"YS9i"`},
		{"row that is not there", "GET", "/api/v1/tables/events/rows/zzz", "", 404, `"code":"not_found"`},
		{"row of another family", "GET", "/api/v1/tables/events/rows/a%2Fb?family=day", "", 404, `"code":"not_found"`},
		{"bad versions", "GET", "/api/v1/tables/events/rows/a?versions=0", "", 400, `"code":"invalid_argument"`},
		{"no family", "GET", "/api/v1/tables/events/rows/a?family=x", "", 404, `"code":"family_not_found"`},
		{"scan", "POST", "/api/v1/tables/events/scan", `{"columns":[{"family":"e","all":true}]}`, 200, "{\"row\":{\"key\":\"YS9i\",\"cells\":[{\"family\":\"e\",\"qualifier\":\"cGFnZQ==\",\"time\":5,\"value\":\"L2hvbWU=\"}]}}\n{\"end\":true}\n"},
		{"scan with a filter", "POST", "/api/v1/tables/events/scan", `{"filter":"ColumnPrefixFilter('pag') AND KeyOnlyFilter()"}`, 200, "{\"row\":{\"key\":\"YS9i\",\"cells\":[{\"family\":\"e\",\"qualifier\":\"cGFnZQ==\",\"time\":5,\"value\":\"\"}]}}\n{\"end\":true}\n"},
		{"scan with a wrong filter", "POST", "/api/v1/tables/events/scan", `{"filter":"PrefixFilter('a'"}`, 400, `filter string, column 17: expected , or ), found the end`},
		{"scan with a wrong field", "POST", "/api/v1/tables/events/scan", `{"colums":[]}`, 400, `unknown field`},
		{"scan of no table", "POST", "/api/v1/tables/nope/scan", `{}`, 404, `"code":"table_not_found"`},
		{"two bodies", "POST", "/api/v1/tables/events/scan", `{}{}`, 400, `more than one`},
		{"a body and a brace", "POST", "/api/v1/tables/events/scan", `{}}`, 400, `more than one`},
		{"a body that is not UTF-8", "POST", "/api/v1/tables/events/scan", "{\"filter\":\"PrefixFilter('\xe9')\"}", 400, `"code":"invalid_argument","message":"store: invalid argument: request body: it is not UTF-8"`},
		{"a schema that is not UTF-8", "POST", "/api/v1/namespaces", "{\"name\":\"n\",\"properties\":{\"k\":\"\xff\"}}", 400, `it is not UTF-8`},
		{"counters", "GET", "/api/v1/counters/events/%2Fhome?family=day", "", 200, `"text":"20260102","count":5,"time":7}],"sum":8`},
		{"counters by query", "GET", "/api/v1/counters/events?row=/home&family=day&from=20260101&to=20260102", "", 200, `"sum":3`},
		{"one counter", "GET", "/api/v1/counters/events/%2Fhome?family=day&qualifier=20260102", "", 200, `"sum":5`},
		{"no counter", "GET", "/api/v1/counters/events/%2Fhome?family=day&qualifier=2030", "", 404, `"code":"not_found"`},
		{"counters without family", "GET", "/api/v1/counters/events/x", "", 400, `?family=`},
		{"qualifier and range", "GET", "/api/v1/counters/events/x?family=day&qualifier=a&from=b", "", 400, `not both`},
		{"a range that is turned round", "GET", "/api/v1/counters/events/x?family=day&from=20260103&to=20260101", "", 400, `from, \"20260103\", is not before to, \"20260101\"`},
		{"top", "GET", "/api/v1/counters/events/top?family=day&n=1", "", 200, `"rows":[{"row":"L2hvbWU=","text":"/home","count":8,"time":7}]`},
		{"top of a day", "GET", "/api/v1/counters/events/top?family=day&qualifier=20260101", "", 200, `"text":"/home","count":3`},
		{"top of a mistyped range", "GET", "/api/v1/counters/events/top?family=day&form=20260102", "", 400, `there is no parameter \"form\", only encoding, family, qualifier, from, to, n, prefix`},
		{"a parameter twice", "GET", "/api/v1/counters/events/%2Fhome?family=day&qualifier=20260101&qualifier=20260102", "", 400, `parameter qualifier is there 2 times: give it once`},
		{"families of a row", "GET", "/api/v1/tables/events/rows/a%2Fb?family=day&family=e", "", 200, `"value":"L2hvbWU="`},
		{"a parameter where there is none", "GET", "/api/v1/tables?limit=1", "", 400, `there is no parameter \"limit\"`},
		{"parameters of no coding", "GET", "/api/v1/outbox?limit=%zz", "", 400, `parameters: invalid URL escape`},
		{"top 0", "GET", "/api/v1/counters/events/top?family=day&n=0", "", 400, `"code":"invalid_argument"`},
		{"offsets", "GET", "/api/v1/offsets", "", 200, `"topic_id":"01000000000000000000000000000000"},"partition":2,"progress":{"first":10,"next":14,`},
		{"balance", "GET", "/api/v1/offsets", "", 200, `"balanced":true`},
		{"outbox", "GET", "/api/v1/outbox", "", 200, `{"rows":[]}`},
		{"pipelines", "GET", "/api/v1/pipelines", "", 200, `{"pipelines":[]}`},
		{"exports", "GET", "/api/v1/exports", "", 200, `{"exports":[]}`},
		{"put", "POST", "/api/v1/tables/events/mutate", `{"row":"YQ==","ops":[{"type":"put","family":"e","qualifier":"cQ==","value":"dg=="}]}`, 200, `{"applied":true}`},
		{"condition", "POST", "/api/v1/tables/events/mutate", `{"row":"YQ==","ops":[{"type":"put","family":"e","qualifier":"cQ==","value":"dg=="}],"cond":{"family":"e","qualifier":"eg==","op":"equal","value":"eg=="}}`, 200, `{"applied":false}`},
		{"unknown operation", "POST", "/api/v1/tables/events/mutate", `{"row":"YQ==","ops":[{"type":"drop"}]}`, 400, `unknown operation`},
		{"unknown comparison", "POST", "/api/v1/tables/events/mutate", `{"row":"YQ==","ops":[],"cond":{"family":"e","qualifier":"","op":"like","value":""}}`, 400, `unknown comparison`},
		{"durability", "POST", "/api/v1/tables/events/mutate", `{"row":"YQ==","durability":"ASYNC_WAL","ops":[{"type":"put","family":"e","qualifier":"cQ==","value":"dg=="}]}`, 200, `{"applied":true}`},
		{"unknown durability", "POST", "/api/v1/tables/events/mutate", `{"row":"YQ==","durability":"MAYBE","ops":[{"type":"put","family":"e","qualifier":"cQ==","value":"dg=="}]}`, 400, `no durability`},
		{"another table", "POST", "/api/v1/tables/events/mutate", `{"table":"x","row":"YQ==","ops":[]}`, 400, `the path events`},
		{"several", "POST", "/api/v1/mutate", `{"mutations":[{"table":"events","row":"Yg==","ops":[{"type":"increment","family":"e","qualifier":"bg==","delta":2,"time":9}]},{"table":"nope","row":"Yg==","ops":[{"type":"delete_row"}]}]}`, 200, `"code":"table_not_found"`},
		{"batch that is stale", "POST", "/api/v1/batch", `{"advances":[{"source":{"pipeline":"p","topic":"t","topic_id":"01000000000000000000000000000000"},"partition":2,"from":10,"progress":{"first":10,"next":12,"applied":2}}]}`, 409, `"code":"stale"`},
		{"bad topic id", "POST", "/api/v1/batch", `{"advances":[{"source":{"topic_id":"xx"}}]}`, 400, `32 hex digits`},
		{"split", "POST", "/api/v1/tables/events/split", `{"at":"Yw=="}`, 204, ``},
		{"merge of regions that are not adjacent", "POST", "/api/v1/tables/events/merge", `{"rows":["YQ==","eg=="]}`, 409, `not adjacent`},
		{"merge", "POST", "/api/v1/tables/events/merge", `{"rows":["ZA==","YQ=="]}`, 204, ``},
		{"scan from no cursor", "POST", "/api/v1/tables/events/scan", `{"cursor":"x"}`, 400, `cursor: `},
		{"checkpoints without a directory", "POST", "/api/v1/checkpoints", `{}`, 501, `"code":"unsupported"`},
		{"unknown path", "GET", "/api/v1/nope", "", 404, `"code":"not_found"`},
		{"another method", "GET", "/api/v1/tables/events/scan", "", 405, `"code":"method_not_allowed","message":"api: method not allowed: GET /api/v1/tables/events/scan: it takes POST"`},
		{"another method of several", "PATCH", "/api/v1/tables/events", "", 405, `it takes DELETE, GET, PUT"`},
		{"put of the row /", "POST", "/api/v1/tables/events/mutate", `{"row":"Lw==","ops":[{"type":"put","family":"e","qualifier":"cQ==","value":"dg=="}]}`, 200, `{"applied":true}`},
		{"the row /", "GET", "/api/v1/tables/events/rows/%2F", "", 200, `"key":"Lw=="`},
		{"the row / by query", "GET", "/api/v1/tables/events/rows?row=/", "", 200, `"key":"Lw=="`},
		{"a row by path and query", "GET", "/api/v1/tables/events/rows/zzz?row=/", "", 400, `which one?`},
		{"a row of no name", "GET", "/api/v1/tables/events/rows", "", 400, `"code":"row_empty"`},
		{"counters of the row /", "GET", "/api/v1/counters/events/%2F?family=day", "", 200, `"row":"Lw=="`},
		{"a filter that is null", "POST", "/api/v1/tables/events/scan", `{"filter":null,"limit":1}`, 200, `{"end":true}`},
		{"put of no value", "POST", "/api/v1/tables/events/mutate", `{"row":"ZQ==","ops":[{"type":"put","family":"e","time":4,"value":null}]}`, 200, `{"applied":true}`},
		{"a scan of no value", "POST", "/api/v1/tables/events/scan", `{"start":"ZQ==","limit":1}`, 200, `"qualifier":"","time":4,"value":""}`},
		{"a row of no value", "GET", "/api/v1/tables/events/rows/e", "", 200, `"qualifier":"","time":4,"value":""}`},
		{"no body", "POST", "/api/v1/tables/events/scan", "", 400, `"message":"store: invalid argument: the request has no body"`},
	}
	for _, tt := range tests { // in order: some write
		status, body := s.do(tt.method, tt.path, tt.body)
		if status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s: Got %d %s\nWant %d with %s", tt.name, status, body, tt.status, tt.want)
		}
	}
}

// countingStore counts an event after each scan that it opens.
type countingStore struct {
	*memstore.Store
	count func()
}

func (s *countingStore) Scan(ctx context.Context, scan *store.Scan) store.Scanner {
	sc := s.Store.Scan(ctx, scan)
	s.count()
	return sc
}

// The sum of an answer is that of the counters in it, whatever is counted meanwhile.
func TestSumIsOfTheCounters(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *serve.Options) {
		engine := o.Engine.(*memstore.Store)
		o.Engine = &countingStore{engine, func() {
			m := cell.Mutation{Table: "events", Row: []byte("/home")}
			m.Increment("day", []byte("20260102"), 1)
			if _, err := engine.MutateRow(t.Context(), nil, &m); err != nil {
				t.Error(err)
			}
		}}
	})
	status, body := s.do("GET", "/api/v1/counters/events/%2Fhome?family=day", "")
	var a api.CountersResponse
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 {
		t.Fatalf("Got %d %s (%v)", status, body, err)
	}
	sum := int64(0)
	for _, c := range a.Counters {
		sum += c.Count
	}
	if len(a.Counters) != 2 || a.Sum != sum {
		t.Errorf("Got the sum %d of counters that add up to %d: %s", a.Sum, sum, body)
	}
}

// The outbox has rows that count letters: they are no letters.
func TestOutboxShowsLettersOnly(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	for _, row := range []string{store.OutboxCounts + "p\x00\x01t", "p\x00\x01t"} {
		m := cell.Mutation{Table: store.OutboxTable, Row: []byte(row)}
		m.Put(store.OutboxFamily, []byte("class"), 1, []byte("json"))
		if _, err := s.engine.MutateRow(t.Context(), nil, &m); err != nil {
			t.Fatal(err)
		}
	}
	const want = `{"rows":[{"key":"cAABdA==","columns":{"class":"anNvbg=="}}]}`
	if status, body := s.do("GET", "/api/v1/outbox", ""); status != 200 || strings.TrimSpace(body) != want {
		t.Errorf("Got %d %s, want %s", status, body, want)
	}
	if status, body := s.do("GET", "/api/v1/outbox?after=cAABdA==", ""); status != 200 || strings.TrimSpace(body) != `{"rows":[]}` {
		t.Errorf("Got %d %s after the last", status, body)
	}
}

func TestTablesChange(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	if status, body := s.do("POST", "/api/v1/tables", `{"name":"new","families":[{"name":"f","versions":3,"ttl":60,"block_size":65536}],"splits":["bQ=="]}`); status != 204 {
		t.Fatalf("create: Got %d %s", status, body)
	}
	d, err := s.engine.Table(t.Context(), "new")
	if err != nil || d.Family("f").Versions != 3 {
		t.Errorf("Got %+v, %v", d, err)
	}
	if status, body := s.do("PUT", "/api/v1/tables/new", `{"families":[{"name":"f","versions":5,"ttl":60,"block_size":65536}]}`); status != 204 {
		t.Fatalf("alter: Got %d %s", status, body)
	}
	if d, err = s.engine.Table(t.Context(), "new"); err != nil || d.Family("f").Versions != 5 {
		t.Errorf("Got %+v, %v", d, err)
	}
	if status, body := s.do("PUT", "/api/v1/tables/new", `{"name":"other"}`); status != 400 {
		t.Errorf("alter of another table: Got %d %s", status, body)
	}
	if status, body := s.do("DELETE", "/api/v1/tables/new", ``); status != 409 || !strings.Contains(body, "table_not_disabled") {
		t.Errorf("drop while it is enabled: Got %d %s", status, body)
	}
	for _, says := range []string{`{}`, `null`, `{"enabled":null}`} { // which state?
		if status, body := s.do("PUT", "/api/v1/tables/new/state", says); status != 400 || !strings.Contains(body, `say {\"enabled\": true}`) {
			t.Errorf("state %s: Got %d %s", says, status, body)
		}
	}
	if enabled, err := s.engine.TableEnabled(t.Context(), "new"); err != nil || !enabled {
		t.Errorf("Got enabled %v, %v after requests that say nothing", enabled, err)
	}
	if status, body := s.do("PUT", "/api/v1/tables/new/state", `{"enabled":false}`); status != 204 {
		t.Errorf("disable: Got %d %s", status, body)
	}
	if status, body := s.do("GET", "/api/v1/tables/new/state", ``); status != 200 || !strings.Contains(body, `"enabled":false`) {
		t.Errorf("state: Got %d %s", status, body)
	}
	if status, body := s.do("DELETE", "/api/v1/tables/new", ``); status != 204 {
		t.Errorf("drop: Got %d %s", status, body)
	}
	if status, _ := s.do("DELETE", "/api/v1/tables/new", ``); status != 404 {
		t.Errorf("drop again: Got %d", status)
	}
}

func TestGuards(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *serve.Options) { o.MaxBodyBytes = 1000; o.AllowedHosts = []string{"sluice"} })
	without := func(r *http.Request) { r.Header.Del("Authorization") }
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	tests := []struct {
		name   string
		path   string
		change func(*http.Request)
		status int
	}{
		{"no token", "/api/v1/tables", without, 401},
		{"no token for a path that is not there", "/api/v1/nope", without, 401},
		{"wrong token", "/api/v1/tables", func(r *http.Request) { r.Header.Set("Authorization", "Bearer wrong") }, 401},
		{"prefix of the token", "/api/v1/tables", func(r *http.Request) { r.Header.Set("Authorization", "Bearer correct") }, 401},
		{"other scheme", "/api/v1/tables", func(r *http.Request) { r.Header.Set("Authorization", "Basic "+token) }, 401},
		{"alive without a token", "/livez", without, 200},
		{"ready without a token", "/readyz", without, 200},
		{"metrics without a token", "/metrics", without, 200},
		{"rebound name", "/metrics", host("evil.example"), 421},
		{"rebound name with the token", "/api/v1/tables", host("evil.example:8087"), 421},
		{"localhost", "/api/v1/tables", host("localhost:1"), 200},
		{"IPv6", "/api/v1/tables", host("[::1]:1"), 200},
		{"allowed name", "/metrics", host("Sluice:8087"), 200},
	}
	for _, tt := range tests {
		if status, body := s.do("GET", tt.path, "", tt.change); status != tt.status {
			t.Errorf("%s: Got %d %s, want %d", tt.name, status, body, tt.status)
		}
	}
	large := `{"row":"` + strings.Repeat("A", 2000) + `","ops":[]}`
	if status, body := s.do("POST", "/api/v1/tables/events/mutate", large); status != 413 || !strings.Contains(body, "too_large") {
		t.Errorf("large body: Got %d %s", status, body)
	}
}

// Of very many small objects, what is made of them is bounded, as the body is.
func TestTooManyObjects(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	body := `{"mutations":[` + strings.Repeat("{},", 2_000_000) + `{}]}`
	if status, body := s.do("POST", "/api/v1/mutate", body); status != 413 || !strings.Contains(body, "at most 2000000 JSON objects") {
		t.Errorf("Got %d %.200s", status, body)
	}
}

func TestReadyzReasons(t *testing.T) {
	t.Parallel()
	status := serve.PipelineStatus{Name: "views", State: "starting", Reason: "waiting for topic pageviews"}
	s := newServer(t, func(o *serve.Options) {
		o.Pipelines = func() []serve.PipelineStatus { return []serve.PipelineStatus{status} }
	})
	code, body := s.do("GET", "/readyz", "")
	if code != 503 || !strings.Contains(body, "[-] pipeline views: starting: waiting for topic pageviews\n") || strings.Contains(body, "[+]") {
		t.Errorf("Got %d %q", code, body)
	}
	status.Ready, status.State = true, "running"
	if code, body = s.do("GET", "/readyz", ""); code != 200 || body != "ready\n" {
		t.Errorf("Got %d %q", code, body)
	}
	s.engine.Close()
	if code, body = s.do("GET", "/readyz?verbose", ""); code != 503 || !strings.Contains(body, "[-] store: ") || !strings.Contains(body, "[+] pipeline views: ok") {
		t.Errorf("closed store: Got %d %q", code, body)
	}
}

// TestRun checks that Run ends with its context and that the endpoint is usable
// in between.
func TestRun(t *testing.T) {
	t.Parallel()
	engine, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	s, err := serve.New(&serve.Options{Engine: engine})
	if err != nil {
		t.Fatal(err)
	}
	address, stop := running(t, s)
	e := s.Endpoint(address)
	r, err := http.NewRequest("GET", "http://"+e.Address+"/api/v1/hello", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.Token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	var hello api.Hello
	err = json.NewDecoder(res.Body).Decode(&hello)
	res.Body.Close()
	if err != nil || hello.Instance != e.Instance || hello.Traits.Name != engine.Traits().Name {
		t.Errorf("Got %+v, %v, want instance %s", hello, err, e.Instance)
	}
	stop()
}

// running has s run on a port of its own until stop, which it returns with the address.
func running(t *testing.T, s *serve.Server) (address string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	return l.Addr().String(), func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("Run does not end")
		}
	}
}

func TestEndpointOfUnspecifiedAddress(t *testing.T) {
	t.Parallel()
	engine, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	s, err := serve.New(&serve.Options{Engine: engine})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, a := range []string{"0.0.0.0:1", "[::]:2", "10.0.0.1:3", ":4"} {
		got[a] = s.Endpoint(a).Address
	}
	want := map[string]string{"0.0.0.0:1": "127.0.0.1:1", "[::]:2": "[::1]:2", "10.0.0.1:3": "10.0.0.1:3", ":4": "127.0.0.1:4"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestTokenIsNotPrinted(t *testing.T) {
	t.Parallel()
	o, e := serve.Options{Dir: "d", Token: token}, api.Endpoint{Address: "a:1", Token: token}
	engine, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	server, err := serve.New(&serve.Options{Engine: engine, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, h := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		slog.New(h).Info("x", "options", o, "endpoint", e, "pointer", &e)
	}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v", o, o, o), fmt.Sprintf("%v %+v %#v %s", e, e, e, e), fmt.Sprintf("%+v %+v", &o, &e), fmt.Sprintf("%v %+v %#v", server, server, server), out.String()} {
		if strings.Contains(text, token) {
			t.Errorf("the token is in %s", text)
		}
	}
}

func TestNewWithoutEngine(t *testing.T) {
	t.Parallel()
	if _, err := serve.New(nil); err == nil {
		t.Error("Got no error")
	}
}

// TestScanLinesAreJSON reads what the hand-written encoder wrote with the
// library's decoder.
func TestScanLinesAreJSON(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	rows := []cell.Cell{
		{Family: "e", Qualifier: []byte{}, Time: 1, Kind: cell.KindPut, Value: []byte{}},
		{Family: "e", Qualifier: []byte("\x00\xff\"\n"), Time: 2, Kind: cell.KindPut, Value: bytes.Repeat([]byte{0xfe}, 70_000)},
		{Family: "e", Qualifier: []byte("ttl"), Time: cell.Latest - 1, Kind: cell.KindPut, Value: []byte("v"), TTL: 1 << 40},
	}
	m := cell.Mutation{Table: "events", Row: []byte{0, 255, 'r'}}
	for _, c := range rows {
		m.Ops = append(m.Ops, cell.Op{Type: cell.OpPut, Family: c.Family, Qualifier: c.Qualifier, Time: c.Time, Value: c.Value, TTL: c.TTL})
	}
	if _, err := s.engine.MutateRow(t.Context(), nil, &m); err != nil {
		t.Fatal(err)
	}
	_, body := s.do("POST", "/api/v1/tables/events/scan", `{"start":"AP9y","stop":"AP9y","stop_inclusive":true}`)
	lines := strings.Split(strings.TrimSpace(body), "\n")
	if len(lines) != 2 {
		t.Fatalf("Got %d lines, want 2", len(lines))
	}
	var line api.ScanLine
	if err := json.Unmarshal([]byte(lines[0]), &line); err != nil {
		t.Fatal(err)
	}
	got := cell.Row{Key: line.Row.Key, Cells: api.AppendCells(nil, line.Row.Cells)}
	want := cell.Row{Key: m.Row, Cells: []cell.Cell{rows[0], rows[1], rows[2]}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
	if lines[1] != `{"end":true}` {
		t.Errorf("last line: Got %s", lines[1])
	}
}

// TestScanPages reads a table page by page, as a program without our client does:
// the last line of each answer says where the next one begins.
func TestScanPages(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	for _, row := range []string{"page1", "page2", "page3"} {
		m := cell.Mutation{Table: "events", Row: []byte(row)}
		m.Put("e", []byte("q"), 1, []byte("v"))
		if _, err := s.engine.MutateRow(t.Context(), nil, &m); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	cursor := ""
	for page := 0; page < 2; page++ {
		_, body := s.do("POST", "/api/v1/tables/events/scan", `{"prefix":"cGFnZQ==","page_rows":2,"cursor":"`+cursor+`"}`)
		var end api.ScanLine
		for line := range strings.Lines(body) {
			end = api.ScanLine{}
			if err := json.Unmarshal([]byte(line), &end); err != nil {
				t.Fatal(err)
			}
			if end.Row != nil {
				got = append(got, fmt.Sprint(page, " ", string(end.Row.Key)))
				if end.Cursor != "" {
					t.Errorf("a cursor of a row that nobody asked for: %s", line)
				}
			}
		}
		if cursor = end.Cursor; !end.End || cursor == "" || end.More != (page == 0) {
			t.Fatalf("page %d ends with %+v", page, end)
		}
	}
	if diff := cmp.Diff([]string{"0 page1", "0 page2", "1 page3"}, got); diff != "" {
		t.Errorf("pages and rows (-want +got):\n%s", diff)
	}
	_, body := s.do("POST", "/api/v1/tables/events/scan", `{"need_cursor":true,"start":"cGFnZTM="}`)
	if n := strings.Count(body, `"cursor":"`); n != 2 {
		t.Errorf("%d cursors of one row and the end: %s", n, body)
	}
}

// stallable is an engine that says whether it takes writes.
type stallable struct {
	store.Engine
	why error
}

func (e *stallable) Stalled() error { return e.why }

// A store whose disk does not answer is not ready.
func TestReadyzOfStalledStore(t *testing.T) {
	t.Parallel()
	var e *stallable
	s := newServer(t, func(o *serve.Options) {
		e = &stallable{Engine: o.Engine}
		o.Engine = e
	})
	if code, body := s.do("GET", "/readyz", ""); code != 200 {
		t.Errorf("Got %d %q", code, body)
	}
	e.why = errors.New("the disk does not answer")
	if code, body := s.do("GET", "/readyz", ""); code != 503 || !strings.Contains(body, "[-] store: the disk does not answer\n") {
		t.Errorf("Got %d %q", code, body)
	}
}
