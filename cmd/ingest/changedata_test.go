package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/kafka"
	"sluice/store"
)

// changeSchema is that of a Debezium event, as Confluent's Avro converter registers it.
const changeSchema = `{"type":"record","name":"Envelope","namespace":"shop.public.customers","fields":[
 {"name":"before","type":["null",{"type":"record","name":"Value","fields":[
  {"name":"id","type":"long"},{"name":"name","type":["null","string"],"default":null},
  {"name":"balance","type":["null",{"type":"bytes","scale":2,"precision":10,"connect.version":1,
   "connect.parameters":{"scale":"2","connect.decimal.precision":"10"},
   "connect.name":"org.apache.kafka.connect.data.Decimal","logicalType":"decimal"}],"default":null},
  {"name":"created","type":{"type":"long","connect.version":1,"connect.name":"io.debezium.time.MicroTimestamp"}}],
  "connect.name":"shop.public.customers.Value"}],"default":null},
 {"name":"after","type":["null","Value"],"default":null},
 {"name":"source","type":{"type":"record","name":"Source","namespace":"io.debezium.connector.postgresql",
  "fields":[{"name":"ts_ms","type":"long"}]}},
 {"name":"op","type":"string"},{"name":"ts_ms","type":["null","long"],"default":null}],
 "connect.name":"shop.public.customers.Envelope"}`

// changeData returns the files of docs/change-data.md, by section.
func changeData(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/change-data.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		name, _, _ := strings.Cut(section, "\n")
		if m := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindStringSubmatch(section); m != nil {
			found[name] = m[1]
		}
	}
	return found
}

// Every file of the page passes its own tests.
func TestChangeDataFiles(t *testing.T) {
	t.Parallel()
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/schemas/ids/7" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"schema":%q}`, changeSchema)
	}))
	t.Cleanup(registry.Close)
	all := changeData(t)
	if len(all) != 5 {
		t.Fatalf("Got %d files in docs/change-data.md, want 5", len(all))
	}
	for name, yaml := range all {
		p, out, config := program(t, []byte(yaml), "")
		p.LookupEnv = func(key string) (string, bool) {
			if key == "SLUICE_REGISTRY" {
				return registry.URL, true
			}
			return "", false
		}
		if err := (&testCommand{ConfigFlag: config}).Run(t.Context(), p); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// The table is what the database's was, whatever the times of the changes say: of a column
// that became NULL, of a row that is deleted and made again within a millisecond, and of
// clocks that go back.
func TestChangeDataRows(t *testing.T) {
	t.Parallel()
	broker := startBroker(t, map[string]int{"shop.public.customers": 1})
	dir := t.TempDir()
	file := filepath.Join(dir, "sluice.yaml")
	text := fmt.Sprintf("store: {dir: %q, min_free: 0B}\nserve: {listen: \"127.0.0.1:0\"}\nlog: {level: error}\n", filepath.Join(dir, "data")) +
		strings.Replace(changeData(t)["Debezium"], "${SLUICE_BROKERS:-127.0.0.1:9092}", broker.Addr(), 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d, end := runDaemon(t, file)
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	var messages []kafka.Message
	change := func(id int, before, after, op string, ms int64) {
		messages = append(messages, kafka.Message{
			Key:   fmt.Appendf(nil, `{"id":%d}`, id),
			Value: fmt.Appendf(nil, `{"before":%s,"after":%s,"op":%q,"source":{"ts_ms":%d}}`, before, after, op, ms),
		})
	}
	const first = `{"id":1,"name":"a","email":"x","balance":"1.50"}`
	change(1, "null", first, "r", 1000)
	change(1, first, `{"id":1,"name":"a","email":null,"balance":"1.50"}`, "u", 1000)
	change(2, "null", `{"id":2,"name":"b","email":"x"}`, "c", 1000)
	change(2, `{"id":2}`, "null", "d", 1000)
	messages = append(messages, kafka.Message{Key: []byte(`{"id":2}`)})
	change(2, "null", `{"id":2,"name":"again"}`, "c", 1000)
	change(3, "null", `{"id":3,"name":"c","email":"x"}`, "c", 2000)
	change(3, `{"id":3}`, `{"id":3,"name":"later"}`, "u", 1500)
	change(4, "null", `{"id":4,"name":"d"}`, "c", 2000)
	change(4, `{"id":4}`, "null", "d", 1500)
	if err := d.client.NewProducer(nil).Produce(t.Context(), "shop.public.customers", messages...); err != nil {
		t.Fatal(err)
	}
	p := d.pipelines[0]
	if err := p.WaitStored(t.Context(), map[string]map[int32]int64{"shop.public.customers": {0: int64(len(messages))}}); err != nil {
		t.Fatal(err)
	}
	var got []string
	scan := d.engine.Scan(t.Context(), &store.Scan{Table: "customers"})
	defer scan.Close()
	for scan.Next() {
		row := string(scan.Row().Key)
		for _, c := range scan.Row().Cells {
			row += fmt.Sprintf(" %s=%s", c.Qualifier, c.Value)
		}
		got = append(got, row)
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	want := []string{"1 balance=1.50 changed=1000 name=a", "2 changed=1000 name=again", "3 changed=1500 name=later"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Got other rows (-want +got):\n%s", diff)
	}
}
