package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/serve"
	"sluice/serve/api"
)

// catalog is one with a table, and one that cannot be read.
type catalog struct{}

func (catalog) Tables(context.Context) ([]string, error) { return []string{"broken", "views"}, nil }

func (catalog) Load(_ context.Context, table string) (location string, metadata []byte, err error) {
	switch table {
	case "views":
		return "file:///x/views/metadata/v3.metadata.json", []byte("{\n  \"format-version\": 2\n}\n"), nil
	case "broken":
		return "", nil, errors.New("no answer of the bucket")
	}
	return "", nil, fmt.Errorf("%w: table %s", api.ErrNotFound, table)
}

// TestIcebergCatalog: the answers are those of Iceberg's REST catalog API, for readers alone.
func TestIcebergCatalog(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *serve.Options) { o.Iceberg = catalog{} })
	do := func(method, path, token string) (int, any) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/iceberg"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		if len(body) == 0 {
			return answer.StatusCode, nil
		}
		var got any
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		return answer.StatusCode, got
	}
	refused := func(status int, what string) any {
		return map[string]any{"type": what, "code": float64(status)}
	}
	sluice := []any{"sluice"}
	for _, tt := range []struct {
		method, path string
		status       int
		want         any
	}{
		{"GET", "/v1/namespaces", 200, map[string]any{"namespaces": []any{sluice}}},
		{"GET", "/v1/namespaces?parent=sluice", 200, map[string]any{"namespaces": []any{}}},
		{"GET", "/v1/namespaces?parent=other", 404, refused(404, "NoSuchNamespaceException")},
		{"GET", "/v1/namespaces/sluice", 200, map[string]any{"namespace": sluice, "properties": map[string]any{}}},
		{"HEAD", "/v1/namespaces/sluice", 204, nil},
		{"GET", "/v1/namespaces/other", 404, refused(404, "NoSuchNamespaceException")},
		{"GET", "/v1/namespaces/sluice/tables", 200, map[string]any{"identifiers": []any{map[string]any{"namespace": sluice, "name": "broken"}, map[string]any{"namespace": sluice, "name": "views"}}}},
		{"GET", "/v1/namespaces/other/tables", 404, refused(404, "NoSuchNamespaceException")},
		{"GET", "/v1/namespaces/sluice/tables/views?snapshots=all", 200, map[string]any{
			"metadata-location": "file:///x/views/metadata/v3.metadata.json", "metadata": map[string]any{"format-version": float64(2)}, "config": map[string]any{},
		}},
		{"HEAD", "/v1/namespaces/sluice/tables/views", 204, nil},
		{"HEAD", "/v1/namespaces/sluice/tables/none", 404, nil},
		{"GET", "/v1/namespaces/sluice/tables/none", 404, refused(404, "NoSuchTableException")},
		{"GET", "/v1/namespaces/sluice/tables/broken", 500, refused(500, "ServiceFailureException")},
		{"GET", "/v1/namespaces/other/tables/views", 404, refused(404, "NoSuchNamespaceException")},
		{"POST", "/v1/namespaces/sluice/tables", 501, refused(501, "UnsupportedOperationException")},
		{"DELETE", "/v1/namespaces/sluice/tables/views", 501, refused(501, "UnsupportedOperationException")},
		{"GET", "/v1/elsewhere", 501, refused(501, "UnsupportedOperationException")},
	} {
		status, got := do(tt.method, tt.path, token)
		if m, ok := got.(map[string]any); ok && m["error"] != nil {
			e := m["error"].(map[string]any)
			if e["message"] == "" {
				t.Errorf("%s %s: no message", tt.method, tt.path)
			}
			delete(e, "message")
			got = e
		}
		if d := cmp.Diff(tt.want, got); d != "" || status != tt.status {
			t.Errorf("%s %s: Got status %d (-want +got):\n%s", tt.method, tt.path, status, d)
		}
		if status, _ := do(tt.method, tt.path, "wrong"); status != 401 {
			t.Errorf("%s %s with a wrong token: Got status %d", tt.method, tt.path, status)
		}
	}
	_, config := do("GET", "/v1/config?warehouse=x", token)
	endpoints := config.(map[string]any)["endpoints"].([]any)
	if len(endpoints) != 6 {
		t.Errorf("Got %v", endpoints)
	}
	for _, e := range endpoints {
		if method, path, ok := strings.Cut(e.(string), " "); !ok || method != "GET" && method != "HEAD" || !strings.HasPrefix(path, "/v1/{prefix}/namespaces") {
			t.Errorf("Got endpoint %s", e)
		}
	}
}

// TestNoIcebergCatalog: without tables there is no catalog.
func TestNoIcebergCatalog(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/iceberg/v1/config", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("Got status %d", answer.StatusCode)
	}
}
