package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"sluice/serve/api"
	"sluice/store"
)

// TestNothingIsEmptiedAmidARebuild: a table that an unfinished rebuild counts in is neither
// dropped nor truncated over HTTP, keeps its families, and the answer says what to do.
func TestNothingIsEmptiedAmidARebuild(t *testing.T) {
	t.Parallel()
	d := idleDaemon(t, slog.DiscardHandler, fmt.Sprintf(`
store: {dir: %q}
serve: {listen: "127.0.0.1:0"}
`, filepath.Join(t.TempDir(), "data")))
	for name, families := range map[string][]string{"cnt": {"c", "c~views~1"}, "other": {"c"}} {
		table := store.TableDescriptor{Name: name}
		for _, f := range families {
			table.Families = append(table.Families, store.NewFamily(f))
		}
		if err := d.engine.CreateTable(t.Context(), &table, nil); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(method, path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, "http://127.0.0.1"+api.Prefix+path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+d.server.Token())
		d.server.Handler().ServeHTTP(w, r)
		return w
	}
	for _, q := range []struct {
		families []string
		want     int
	}{
		{[]string{"c"}, http.StatusUnprocessableEntity},
		{[]string{"c~views~1"}, http.StatusUnprocessableEntity},
		{[]string{"c", "d", "c~views~1"}, http.StatusNoContent},
		{[]string{"c", "c~views~1"}, http.StatusNoContent},
	} {
		to := api.Table{Name: "cnt"}
		for _, f := range q.families {
			d := store.NewFamily(f)
			to.Families = append(to.Families, api.FromTable(&store.TableDescriptor{Families: []store.FamilyDescriptor{d}}).Families...)
		}
		body, err := json.Marshal(&to)
		if err != nil {
			t.Fatal(err)
		}
		w := ask("PUT", "/tables/cnt", string(body))
		if told := strings.Contains(w.Body.String(), `ingest replay rebuild views`); told != (q.want == http.StatusUnprocessableEntity) || told && w.Code != q.want || !told && w.Code/100 != 2 {
			t.Errorf("alter to families %s: Got %d %s, want %d", q.families, w.Code, w.Body, q.want)
		}
	}
	for _, table := range []string{"cnt", "other", "none"} {
		want := map[string]int{"cnt": http.StatusUnprocessableEntity, "other": http.StatusNoContent, "none": http.StatusNotFound}[table]
		if table != "none" {
			if w := ask("PUT", "/tables/"+table+"/state", `{"enabled": false}`); w.Code != http.StatusNoContent {
				t.Fatalf("disable %s: %d %s", table, w.Code, w.Body)
			}
		}
		for _, q := range []struct{ method, path, body string }{
			{"POST", "/tables/" + table + "/truncate", "{}"},
			{"DELETE", "/tables/" + table, ""},
		} {
			if q.method == "DELETE" && table == "other" {
				if w := ask("PUT", "/tables/"+table+"/state", `{"enabled": false}`); w.Code != http.StatusNoContent {
					t.Fatalf("disable %s: %d %s", table, w.Code, w.Body)
				}
			}
			w := ask(q.method, q.path, q.body)
			if told := strings.Contains(w.Body.String(), `ingest replay rebuild views`); w.Code != want || told != (table == "cnt") {
				t.Errorf("%s %s: Got %d %s, want %d", q.method, q.path, w.Code, w.Body, want)
			}
		}
	}
}
