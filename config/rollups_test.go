package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/config"
)

const rollupFile = `tables:
  stats:
    families:
      hour: {COUNTER: true, TTL: 30 DAYS}
      day: {COUNTER: true}
      distinct_day: {DISTINCT: true}
pipelines:
  views:
    topics: [pageviews]
    group: views
    decode: {format: json}
    rollups:
      - name: views
        table: stats
        dimensions: {country: country, page: page}
        sets: [[], [country], [country, page]]
        buckets: [hour, day]
      - name: users
        table: stats
        distinct: user
        buckets: [day]
        zone: Europe/Berlin
    tests:
      - name: a view
        record: '{"country": "de", "page": "/a", "user": "u1"}'
        timestamp: 1795303800000
        expect: |
          incr 'stats', 'views/', 'hour:2026112123', 1, 1795303800000
          incr 'stats', 'views/', 'day:20261121', 1, 1795303800000
          incr 'stats', "views/country\x00de", 'hour:2026112123', 1, 1795303800000
          incr 'stats', "views/country\x00de", 'day:20261121', 1, 1795303800000
          incr 'stats', "views/country,page\x00de\x00/a", 'hour:2026112123', 1, 1795303800000
          incr 'stats', "views/country,page\x00de\x00/a", 'day:20261121', 1, 1795303800000
          append 'stats', 'users/', 'distinct_day:20261122', 'u1', 1795303800000
`

// A file of rollups is read, and a mistake in one has its line and column.
func TestRollups(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("file.yaml", []byte(rollupFile), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Pipelines["views"].Rollups; len(got) != 2 || len(got[0].Sets) != 3 || got[1].Zone != "Europe/Berlin" {
		t.Errorf("rollups are %+v", got)
	}
	for _, spec := range c.TableSpecs() {
		if f := spec.Descriptor.Family("distinct_day"); f == nil || !f.Distinct {
			t.Errorf("family distinct_day is %+v", f)
		}
	}
	again, err := config.Parse("file.yaml", []byte(c.String()), nil)
	if err != nil {
		t.Fatalf("its own text: %v\n%s", err, c)
	}
	if diff := cmp.Diff(c.String(), again.String()); diff != "" {
		t.Errorf("its own text, read again (-first +second)\n%s", diff)
	}
	bad := strings.NewReplacer("[country, page]]", "[country, pages]]", "buckets: [hour, day]", "buckets: [hour, month]", "distinct: user", "distincts: user").Replace(rollupFile)
	_, err = config.Parse("file.yaml", []byte(bad), nil)
	if err == nil {
		t.Fatal("the mistakes were not found")
	}
	for _, want := range []string{
		`file.yaml:16:41: no dimension "pages" (did you mean "page"?)`,
		`file.yaml:17:25: table stats has no family month (declare month: {COUNTER: true})`,
		`file.yaml:20:9: unknown key "distincts" in pipelines.views.rollups[1] (did you mean "distinct"?)`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
}
