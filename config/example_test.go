package config_test

import (
	"errors"
	"fmt"

	"sluice/config"
)

// Every mistake of a file is found at once, at its place.
func ExampleParse() {
	_, err := config.Parse("views.yaml", []byte(`
kafka: {brokers: ["${BROKER:-127.0.0.1:9092}"]}
store: {dir: /tmp/sluice}
tables:
  counts: {families: {c: {COUNTR: true}}}
pipelines:
  views:
    topics: [views]
    group: views
    decode: {format: json}
    map:
      - table: counts
        row: uper(page)
        increment: [{family: c, qualifier: '"views"'}]
`), func(string) (string, bool) { return "", false })
	var problems config.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			fmt.Println(p)
		}
	}
	// Output:
	// views.yaml:5:35: unknown attribute "COUNTR" of a column family (did you mean "COUNTER"?)
	// views.yaml:13:14: no function uper (did you mean "upper"?)
	// views.yaml:14:30: family c of table counts takes no increments (declare it with COUNTER: true)
}
