package config_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/config"
	"sluice/pipeline/decode"
	"sluice/pipeline/mapping"
)

const avroSchema = `{"type":"record","name":"View","fields":[{"name":"user","type":"string"}]}`

// avroPipeline is a file whose pipeline decodes so, with some more keys in front.
func avroPipeline(front, decode string) string {
	return front + tables + "pipelines:\n  p:\n    topics: [a]\n    group: g\n    decode: {" + decode + "}\n    map:\n      - {table: events, row: user, put: {e: {u: user}}}\n"
}

func TestSchemaProblems(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{"view.avsc": avroSchema, "bad.avsc": `{"type":"record","name":"View","fields":[{"name":"user","type":"text"}]}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := os.ReadFile("../pipeline/decode/testdata/protobuf/event.binpb")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "event.binpb"), set, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	const registry = "schema_registry: {urls: [\"https://registry:8081\"]}\n"
	tests := []struct {
		name, file string
		want       []string
	}{
		{"schema file", avroPipeline("", "format: avro, schema_file: view.avsc"), nil},
		{"registry", avroPipeline(registry, "format: avro, framing: confluent"), nil},
		{"container", avroPipeline("", "format: avro, framing: container, max_bytes: 1000"), nil},
		{"json needs no registry", avroPipeline("", "format: json, framing: confluent"), nil},
		{"nothing said", avroPipeline("", "format: avro"), []string{"f.yaml:10:5: format avro needs a schema_file, or the framing confluent or container"}},
		{"framing", avroPipeline("", "format: avro, framing: confluence"), []string{`f.yaml:10:37: no framing "confluence"; there are none, confluent, container`}},
		{"no registry", avroPipeline("", "format: avro, framing: confluent"), []string{"f.yaml:10:37: framing confluent needs a schema registry (add schema_registry: {urls: [\"http://host:8081\"]})"}},
		{"mistake in the schema", avroPipeline("", "format: avro, schema_file: bad.avsc"), []string{`f.yaml:10:41: field user of record View: no type "text"`}},
		{"no such file", avroPipeline("", "format: avro, schema_file: gone.avsc"), []string{"f.yaml:10:41: open DIR/gone.avsc: no such file or directory (a relative path starts at the configuration file)"}},
		{"two schemas", avroPipeline(registry, "format: avro, framing: confluent, schema_file: view.avsc"), []string{"f.yaml:11:61: the schema is the registry's where payloads name it by its id"}},
		{"format without framing", avroPipeline("", "format: logfmt, framing: confluent"), []string{"f.yaml:10:39: format logfmt has no framing"}},
		{"protobuf", avroPipeline("", "format: protobuf, schema_file: event.binpb, message: shop.v1.Event"), []string{
			`f.yaml:12:30: the schema has no field user (did you mean "userName"?)`,
			`f.yaml:12:49: the schema has no field user (did you mean "userName"?)`,
		}},
		{"protobuf of a registry", avroPipeline(registry, "format: protobuf, framing: confluent"), nil},
		{"field", strings.ReplaceAll(avroPipeline("", "format: avro, schema_file: view.avsc"), "u: user", "u: usr"), []string{
			`f.yaml:12:49: the schema has no field usr (did you mean "user"?)`,
		}},
		{"message", avroPipeline("", "format: protobuf, schema_file: event.binpb, message: shop.Event"), []string{
			`f.yaml:10:67: no message "shop.Event"; the file has [google.protobuf.Any shop.v1.Event shop.v1.Geo shop.v1.Node shop.v1.View]`,
		}},
		{"no descriptor set", avroPipeline("", "format: protobuf, schema_file: view.avsc, message: View"), []string{
			"f.yaml:10:45: it is no descriptor set: write it with protoc --include_imports --descriptor_set_out=FILE",
		}},
		{"addresses", "schema_registry: {urls: [registry, \"http://u:p@h\"]}\n", []string{
			"f.yaml:1:26: not the address of a registry: write http://host:port or https://host:port",
			"f.yaml:1:36: the address of a registry has no user and password in it: write them apart",
		}},
		{"credentials", "schema_registry: {urls: [http://h], user: u}\n", []string{"f.yaml:1:1: user and password go together"}},
		{"TLS", "schema_registry: {urls: [http://h], tls: {ca_file: x}}\n", []string{"f.yaml:1:37: TLS is configured and no address uses it (write https: in schema_registry.urls)"}},
		{"timeout", "schema_registry: {urls: [http://h], request_timeout: 0s}\n", []string{"f.yaml:1:54: request_timeout is 0: no answer could come in time"}},
	}
	for _, tt := range tests {
		_, err := config.Parse(filepath.Join(dir, "f.yaml"), []byte(tt.file), nil)
		var problems config.Problems
		if err != nil && !errors.As(err, &problems) {
			t.Fatalf("%s: got %T %v, want Problems", tt.name, err, err)
		}
		var got []string
		for _, p := range problems {
			got = append(got, strings.ReplaceAll(strings.TrimPrefix(p.String(), dir+"/"), dir, "DIR"))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: problems (-want +got):\n%s", tt.name, diff)
		}
	}
}

// What the file says becomes a mapper that asks the registry, and a test whose
// payload is base64.
func TestRegistryOfTheFile(t *testing.T) {
	t.Parallel()
	var authorization string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization = r.Header.Get("Authorization")
		if r.URL.Path != "/schemas/ids/3" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"schema":%q}`, avroSchema)
	}))
	defer s.Close()
	file := avroPipeline("schema_registry: {urls: [\""+s.URL+"\"], token: \"${TOKEN}\"}\n", "format: avro, framing: confluent") +
		"    tests:\n      - {name: a, record_base64: AAAAAAMEYWI=, timestamp: 5, expect: \"put 'events', 'ab', 'e:u', 'ab', 5\"}\n"
	c, err := config.Parse("f.yaml", []byte(file), env("TOKEN", "t0ken"))
	if err != nil {
		t.Fatal(err)
	}
	if text := c.String(); strings.Contains(text, "t0ken") {
		t.Errorf("the token is printed:\n%s", text)
	}
	o, err := c.PipelineOptions("p")
	if err != nil {
		t.Fatal(err)
	}
	p := c.Pipelines["p"]
	m := o.Plan.NewMapper()
	out, err := m.MapFetching(t.Context(), p.MappingRecord(&p.Tests[0]))
	if err != nil || authorization != "Bearer t0ken" {
		t.Fatalf("got %v with authorization %q", err, authorization)
	}
	if got := strings.TrimSpace(string(mapping.AppendText(nil, out.Mutations))); got != p.Tests[0].Expect {
		t.Errorf("got %s, want %s", got, p.Tests[0].Expect)
	}
	// A 404 that is not the registry's word is no answer.
	if _, err := m.MapFetching(t.Context(), &mapping.Record{Topic: "a", Value: []byte("\x00\x00\x00\x00\x09")}); !errors.Is(err, decode.ErrUnavailable) {
		t.Errorf("another id: got %v", err)
	}
}
