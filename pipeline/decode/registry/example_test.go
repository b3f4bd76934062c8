package registry_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"sluice/pipeline/decode"
	"sluice/pipeline/decode/registry"
)

// A record in Confluent's wire format names the schema that it was written with, which
// the registry has.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// An error means that the client has gone.
		_, _ = io.WriteString(w, `{"schema": "{\"type\": \"record\", \"name\": \"View\", \"fields\": [{\"name\": \"page\", \"type\": \"string\"}]}"}`)
	}))
	defer server.Close()
	schemas, err := registry.New(&registry.Options{URLs: []string{server.URL}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer schemas.Close()

	fields, err := decode.NewFields([]string{"page"})
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := decode.New(&decode.Options{Format: "avro", Framing: "confluent", Schemas: schemas}, fields)
	if err != nil {
		fmt.Println(err)
		return
	}
	payload := []byte("\x00\x00\x00\x00\x07\x0a/home") // schema 7; a text of 5 bytes
	show := func(doc *decode.Document) error {
		fmt.Printf("page = %s\n", doc.Value(0).Bytes)
		return nil
	}
	fmt.Println(d.Decode(payload, show))
	if err := schemas.Fetch(context.Background(), 7); err != nil {
		fmt.Println(err)
		return
	}
	if err := d.Decode(payload, show); err != nil {
		fmt.Println(err)
	}
	// Output:
	// schema 7 has to be fetched
	// page = /home
}
