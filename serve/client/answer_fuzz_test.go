package client_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sluice/serve"
	"sluice/serve/client"
	"sluice/store"
)

// FuzzScanAnswer has a daemon answer a scan with anything: what is no answer is a connection
// that was lost, and no rows come after it.
func FuzzScanAnswer(f *testing.F) {
	f.Add([]byte(`{"row":{"key":"cg==","cells":[{"family":"f","qualifier":"cQ==","time":1,"value":"dg=="}]}}` + "\n{\"end\":true}\n"))
	f.Add([]byte(`{"row":{"key":"cg==","more":true},"cursor":"AA=="}` + "\n" + `{"error":{"code":"corrupt","message":"m"}}`))
	f.Add([]byte(`{"error":{}}`))
	f.Add([]byte("null\n"))
	f.Add([]byte("{\"row\":{}}\n"))
	f.Add([]byte("{\"row\":null"))
	f.Add([]byte("\n\n"))
	s, err := serve.New(&serve.Options{Engine: newStore(f)})
	if err != nil {
		f.Fatal(err)
	}
	var answer []byte
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/scan") {
			_, _ = w.Write(answer)
			return
		}
		s.Handler().ServeHTTP(w, r)
	}))
	f.Cleanup(ts.Close)
	c, err := client.Dial(f.Context(), s.Endpoint(strings.TrimPrefix(ts.URL, "http://")))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { c.Close() })
	f.Fuzz(func(t *testing.T, b []byte) {
		answer = b
		sc := c.Scan(t.Context(), &store.Scan{Table: "t"})
		defer sc.Close()
		rows := 0
		for sc.Next() {
			rows++
			if sc.Row() == nil {
				t.Fatal("no row")
			}
		}
		if rows > strings.Count(string(b), "row") {
			t.Errorf("%q: got %d rows", b, rows)
		}
		if err := sc.Err(); err != nil && len(strings.TrimSpace(err.Error())) == 0 {
			t.Errorf("%q: got an error without words", b)
		}
		if sc.Next() || sc.Err() == nil && !strings.Contains(strings.ToLower(string(b)), "end") {
			t.Errorf("%q: the scan goes on after its end, or was whole without one", b)
		}
	})
}
