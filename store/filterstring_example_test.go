package store_test

import (
	"fmt"
	"log"

	"sluice/store"
)

// A filter string is read into the filter that a scan takes, and written back.
func ExampleParseFilterString() {
	f, err := store.ParseFilterString("(PrefixFilter ('user-')AND SKIP ValueFilter (!=, 'binary:0'))")
	if err != nil {
		log.Fatal(err)
	}
	scan := store.Scan{Table: "visits", Filter: f}
	s, err := store.FormatFilterString(scan.Filter)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s)

	_, err = store.ParseFilterString("RowFilter(<>, 'binary:r')")
	fmt.Println(err)
	// Output:
	// PrefixFilter('user-') AND SKIP ValueFilter(!=, 'binary:0')
	// store: invalid argument: filter string, column 11: expected one of < <= = != >= >, found "<>"
}
