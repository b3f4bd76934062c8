package decode_test

import (
	"fmt"

	"sluice/pipeline/decode"
)

func Example() {
	fields, err := decode.NewFields([]string{"user", "geo.country", "tags[0]", "missing"})
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := decode.New(&decode.Options{Format: "ndjson"}, fields)
	if err != nil {
		fmt.Println(err)
		return
	}
	payload := []byte(`{"user": "anna \u00e9", "geo": {"country": "DE"}, "other": [1, 2]}
{"user": 7, "tags": [1.50], "geo": {"country": null}}
`)
	err = d.Decode(payload, func(doc *decode.Document) error {
		for i := range doc.Len() {
			v := doc.Value(i)
			fmt.Printf("%s %s %q\n", fields.Path(i), v.Kind, v.Bytes)
		}
		return nil
	})
	fmt.Println(err)
	fmt.Println(d.Decode([]byte(`{"user": tru}`), nil))
	// Output:
	// user string "anna é"
	// geo.country string "DE"
	// tags[0] missing ""
	// missing missing ""
	// user number "7"
	// geo.country null ""
	// tags[0] number "1.50"
	// missing missing ""
	// <nil>
	// byte 12: unexpected '}', expected true
}
