package serve_test

import (
	"net/http"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/store"
)

// Rollups are read by HTTP: series with their gaps, the top n, estimates with their
// error.
func TestRollupAnswers(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	hour, users := store.NewFamily("hour"), store.NewFamily("distinct_total")
	hour.Counter, users.Distinct = true, true
	if err := s.engine.CreateTable(t.Context(), &store.TableDescriptor{Name: "stats", Families: []store.FamilyDescriptor{hour, users}}, nil); err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	for row, n := range map[string]int64{"views/country\x00de": 3, "views/country\x00fr": 5, "views/country\x00\xff": 1} {
		b.Counters = append(b.Counters, store.CounterDelta{Table: "stats", Family: "hour", Row: []byte(row), Qualifier: []byte("2026010110"), Delta: n, Time: 1767261600007})
	}
	for _, user := range []string{"u1", "u2", "u1"} {
		m := cell.Mutation{Table: "stats", Row: []byte("users/")}
		m.Append("distinct_total", []byte("total"), []byte(user))
		b.Add(0, m)
	}
	if err := s.engine.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	const path = "/api/v1/rollups/stats/"
	const day = "&bucket=hour&from=2026-01-01T09:00:00Z&to=2026-01-01T11:00:00Z"
	for _, tt := range []struct {
		name, path string
		status     int
		want       string // contained
	}{
		{"series", path + "views/series?by=country&value=de" + day, 200, `{"name":"views","dimensions":["country"],"values":["ZGU="],"texts":["de"],"bucket":"hour","points":[` +
			`{"start":1767258000000,"stop":1767261600000,"count":0},{"start":1767261600000,"stop":1767265200000,"count":3,"time":1767261600007}],"sum":3}`},
		{"series in base64", path + "views/series?by=country&value=_w&encoding=base64" + day, 200, `"count":1`},
		{"series by ms", path + "views/series?by=country&value=fr&bucket=hour&from=1767261600000&to=1767261600001", 200, `"sum":5`},
		{"top", path + "views/top?by=country&n=2" + day, 200, `"groups":[{"values":["ZnI="],"texts":["fr"],"count":5,"time":1767261600007},{"values":["ZGU="],"texts":["de"],"count":3,`},
		{"distinct", path + "users/series?bucket=total&distinct=true", 200, `"dimensions":[],"values":[],"texts":[],"bucket":"total","error":0.008125,"points":[{"start":0,"stop":9223372036854775807,"count":2,`},
		{"top of distinct", path + "users/top?bucket=total&distinct=true", 200, `"groups":[{"values":[],"texts":[],"count":2,`},
		{"a distinct count", "/api/v1/counters/stats/users%2F?family=distinct_total", 200, `"count":2,`},
		{"a distinct count is an estimate", "/api/v1/counters/stats/users%2F?family=distinct_total", 200, `"sum":2,"estimate":true`},
		{"top of a DISTINCT family", "/api/v1/counters/stats/top?family=distinct_total", 200, `"estimate":true`},
		{"a schema", "/api/v1/tables/stats", 200, `"distinct":true`},
		{"dimensions apart", path + "views/top?by=country&by=page&bucket=total", 400, `parameter by is there 2 times: give it once`},
		{"no bucket", path + "views/series?by=country&value=de", 400, `bucket is \"\", want minute, hour,`},
		{"no time", path + "views/series?by=country&value=de&bucket=hour&from=yesterday&to=5", 400, `from is \"yesterday\"`},
		{"too few values", path + "views/series?by=country" + day, 400, `"code":"invalid_argument"`},
		{"a name", path + "vi%20ews/series?by=country&value=de" + day, 400, `is not allowed`},
		{"no zone", path + "views/series?by=country&value=de&zone=Mars" + day, 400, `zone is \"Mars\"`},
		{"the machine's zone", path + "views/series?by=country&value=de&zone=Local" + day, 400, `zone is \"Local\"`},
		{"maybe", path + "views/series?by=country&value=de&distinct=maybe" + day, 400, `distinct is \"maybe\"`},
		{"top 0", path + "views/top?by=country&n=0" + day, 400, `"code":"invalid_argument"`},
		{"no table", "/api/v1/rollups/nope/views/top?by=country" + day, 404, `"code":"table_not_found"`},
		{"no family", path + "views/top?by=country&bucket=day&from=0&to=5", 404, `"code":"family_not_found"`},
	} {
		status, body := s.do(http.MethodGet, tt.path, "")
		if status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d %s\nwant %d, containing %s", tt.name, status, body, tt.status, tt.want)
		}
	}
}
