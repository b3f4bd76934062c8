//go:build integration

package integration

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sluice/counters"
	"sluice/store"
)

// visitorTables and visitorRollups are what newHBaseIngest adds to the example: the
// different clients of all requests, and of each path.
const (
	visitorTables = `  visitors:
    families:
      distinct_day: {DISTINCT: true}
      distinct_total: {DISTINCT: true}
`
	visitorRollups = `    rollups:
      - {name: clients, table: visitors, buckets: [day, total], dimensions: {path: path}, sets: [[], [path]], distinct: client}
`
)

// CheckVisitors compares the distinct counts of a store with the clients of the log: each
// must be the very sketch of them.
func (l *Log) CheckVisitors(ctx context.Context, r store.Reader) error {
	want := map[string]*counters.Sketch{} // by row, family and qualifier
	for _, line := range l.Lines {
		m := combined.FindSubmatch(line)
		if m == nil {
			continue
		}
		request := strings.Split(string(m[5]), " ")
		if len(request) != 3 {
			continue
		}
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", string(m[4]))
		if err != nil {
			return err
		}
		for _, row := range []string{"clients/", "clients/path\x00" + request[1]} {
			for _, column := range []string{"distinct_day:" + at.UTC().Format("20060102"), "distinct_total:total"} {
				key := row + " " + column
				if want[key] == nil {
					want[key] = new(counters.Sketch)
				}
				want[key].Add(m[1])
			}
		}
	}
	sc := r.Scan(ctx, &store.Scan{Table: "visitors"})
	defer sc.Close()
	n := 0
	for sc.Next() {
		for _, c := range sc.Row().Cells {
			key := fmt.Sprintf("%s %s:%s", sc.Row().Key, c.Family, c.Qualifier)
			switch s := want[key]; {
			case s == nil:
				return fmt.Errorf("the log has no clients of %q", key)
			case string(s.Append(nil)) != string(c.Value):
				return fmt.Errorf("the distinct count %q is not that of the %d clients that the log has, or about so many", key, s.Count())
			}
			n++
		}
	}
	if err := sc.Err(); err != nil {
		return err
	}
	if n != len(want) {
		return fmt.Errorf("%d distinct counts, the log has %d", n, len(want))
	}
	return nil
}
