package registry_test

import (
	"errors"
	"net/http"
	"testing"

	"sluice/pipeline/decode"
	"sluice/pipeline/decode/registry"
)

// FuzzAnswer has a registry answer anything, for a schema and for what it references: no
// answer makes a schema and an error, and each error says whether to wait or not.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"schema":"\"string\""}`), []byte(`{}`))
	f.Add(200, []byte(`{"schema":"main","references":[{"name":"b.B","subject":"b/v","version":2},{"name":"b.B","subject":"..","version":-1}]}`), []byte(`{"schema":"b","references":[{"name":"c","subject":"b/v","version":2}]}`))
	f.Add(200, []byte(`{"schema":"x","schemaType":"PROTOBUF"}`), []byte(`{"schema":"CgFm","schemaType":"PROTOBUF"}`))
	f.Add(404, []byte(`{"error_code":40403,"message":"no"}`), []byte(``))
	f.Add(404, []byte(`<html>`), []byte(`null`))
	f.Add(401, []byte(`{"error_code":"x"}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, status int, schema, reference []byte) {
		if status < 200 || status > 599 {
			return
		}
		s := &server{before: func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(status)
			body := reference
			if r.URL.RequestURI() == "/schemas/ids/7" {
				body = schema
			}
			_, _ = w.Write(body)
			return true
		}}
		c, err := registry.New(&registry.Options{URLs: []string{"http://registry"}, Attempts: 1, Transport: s})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fetchErr := c.Fetch(t.Context(), 7)
		got, err := c.Schema(7)
		if fetchErr != nil && !errors.Is(fetchErr, decode.ErrUnavailable) {
			t.Errorf("got %v of %d %q", fetchErr, status, schema)
		}
		if fetchErr == nil && (got == nil) == (err == nil) {
			t.Errorf("got %v and %v of %d %q", got, err, status, schema)
		}
		if fetchErr != nil && got != nil {
			t.Errorf("got %v, and %v of %d %q", got, fetchErr, status, schema)
		}
		if got != nil && (len(got.Text) == 0 || got.ID != 7 || got.Type == "") {
			t.Errorf("got %+v of %d %q", got, status, schema)
		}
	})
}
