package mapping_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// pageview is a page view of 200 bytes.
const pageview = `{"ts":1431857103123,"user":"user-0012345","page":"/products/item-00421","country":"DE","referrer":"https://www.example.com/search?q=item","agent":"Mozilla/5.0 (X11; Linux x86_64)","duration_ms":53}`

const logLine = `83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /a/b.png?x=1 HTTP/1.1" 200 - "http://example.com/" "Mozilla/5.0 \"x\""`

// exampleFile is what the tests read of an example.
type exampleFile struct {
	Tables map[string]struct {
		Families map[string]map[string]any `yaml:"families"`
	} `yaml:"tables"`
	Pipelines map[string]mapping.Spec `yaml:"pipelines"`
}

// loadExample compiles the one pipeline of a file of examples/.
func loadExample(t testing.TB, name string) *mapping.Plan {
	t.Helper()
	text, err := os.ReadFile("../../examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var file exampleFile
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	tables := func(name string) *store.TableDescriptor {
		table, ok := file.Tables[name]
		if !ok {
			return nil
		}
		d := &store.TableDescriptor{Name: name}
		for family, attributes := range table.Families {
			f := store.NewFamily(family)
			f.Counter = attributes["COUNTER"] == true
			d.Families = append(d.Families, f)
		}
		if err := d.Validate(); err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, spec := range file.Pipelines {
		plan, err := mapping.Compile(&spec, tables)
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	t.Fatalf("%s has no pipeline", name)
	return nil
}

// dump prints an output, an operation a line.
func dump(out *mapping.Output) string {
	var b strings.Builder
	for i := range out.Mutations {
		m := &out.Mutations[i]
		fmt.Fprintf(&b, "%s %q\n", m.Table, m.Row)
		for k := range m.Ops {
			switch o := &m.Ops[k]; o.Type {
			case cell.OpPut:
				fmt.Fprintf(&b, "  put %s:%s @%d %q\n", o.Family, o.Qualifier, o.Time, o.Value)
			case cell.OpIncrement:
				fmt.Fprintf(&b, "  increment %s:%s @%d by %d\n", o.Family, o.Qualifier, o.Time, o.Delta)
			default:
				fmt.Fprintf(&b, "  %s\n", o.Type)
			}
		}
	}
	return b.String()
}

func TestExamples(t *testing.T) {
	t.Parallel()
	tests := []struct {
		file, payload, want string
		tables              []string
	}{
		{"pageviews.yaml", pageview, `events "b723/user-0012345/\x7f\xff\xfe\xb2\x9e\xaa~\xec\x00\x03\x00\x00\x00\x00\x00\x00\x00\a"
  put e:agent @1431857103123 "Mozilla/5.0 (X11; Linux x86_64)"
  put e:country @1431857103123 "DE"
  put e:duration_ms @1431857103123 "53"
  put e:page @1431857103123 "/products/item-00421"
  put e:referrer @1431857103123 "https://www.example.com/search?q=item"
  put e:user @1431857103123 "user-0012345"
pageview_counts "/products/item-00421"
  increment minute:201505171005 @1431857103123 by 1
  increment hour:2015051710 @1431857103123 by 1
  increment day:20150517 @1431857103123 by 1
`, []string{"events", "pageview_counts"}},
		{"access-log.yaml", logLine, `access_log "83.149.9.216/\x7f\xff\xfe\xb2\x9e\xaa\x7fg\x00\x03\x00\x00\x00\x00\x00\x00\x00\a"
  put l:agent @1431857103000 "Mozilla/5.0 \\\"x\\\""
  put l:client @1431857103000 "83.149.9.216"
  put l:method @1431857103000 "GET"
  put l:path @1431857103000 "/a/b.png?x=1"
  put l:protocol @1431857103000 "HTTP/1.1"
  put l:referrer @1431857103000 "http://example.com/"
  put l:status @1431857103000 "200"
path_counts "/a/b.png?x=1"
  increment minute:201505171005 @1431857103000 by 1
  increment hour:2015051710 @1431857103000 by 1
  increment day:20150517 @1431857103000 by 1
`, []string{"access_log", "path_counts"}},
	}
	for _, tt := range tests {
		plan := loadExample(t, tt.file)
		if diff := cmp.Diff(tt.tables, plan.Tables()); diff != "" {
			t.Errorf("%s: tables (-want +got):\n%s", tt.file, diff)
		}
		out, err := plan.NewMapper().Map(&mapping.Record{Topic: "t", Partition: 3, Offset: 7, Timestamp: 5, Value: []byte(tt.payload)})
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
			continue
		}
		if diff := cmp.Diff(tt.want, dump(out)); diff != "" {
			t.Errorf("%s: output (-want +got):\n%s", tt.file, diff)
		}
	}
}

// The real log: every line but the malformed one maps, and the day counters add
// up.
func TestExampleRealLog(t *testing.T) {
	t.Parallel()
	log, err := os.ReadFile("../../../shared/data/apache_combined_10k.log")
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("the real log is absent: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	m := loadExample(t, "access-log.yaml").NewMapper()
	mapped, failed := int64(0), 0
	days, paths := map[string]int64{}, map[string]int64{}
	for i, line := range bytes.Split(bytes.TrimSuffix(log, []byte("\n")), []byte("\n")) {
		out, err := m.Map(&mapping.Record{Offset: int64(i), Timestamp: 1, Value: line})
		if err != nil {
			failed++
			var e *mapping.Error
			if !errors.As(err, &e) || e.Stage != mapping.StageDecode || e.Class != "combined" {
				t.Errorf("line %d: %v", i+1, err)
			}
			continue
		}
		mapped++
		counts := &out.Mutations[1]
		paths[string(counts.Row)]++
		days[string(counts.Ops[2].Qualifier)] += counts.Ops[2].Delta
	}
	if mapped != 9999 || failed != 1 {
		t.Errorf("got %d mapped and %d failed, want 9999 and 1", mapped, failed)
	}
	want := map[string]int64{}
	wantPaths := map[string]int64{}
	for _, line := range strings.Split(string(log), "\n") {
		if parts := strings.Split(line, `"`); len(parts) == 7 {
			day := parts[0][strings.IndexByte(parts[0], '[')+1:]
			want["201505"+day[:2]]++
			wantPaths[strings.Fields(parts[1])[1]]++
		}
	}
	if diff := cmp.Diff(want, days); diff != "" {
		t.Errorf("counts of days (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantPaths, paths); diff != "" {
		t.Errorf("counts of paths (-want +got):\n%s", diff)
	}
}

// Mapping allocates nothing once a Mapper has its memory.
func TestMapAllocates(t *testing.T) {
	for file, payload := range map[string]string{"pageviews.yaml": pageview, "access-log.yaml": logLine} {
		m := loadExample(t, file).NewMapper()
		r := &mapping.Record{Topic: "pageviews", Partition: 3, Offset: 7, Value: []byte(payload)}
		if n := testing.AllocsPerRun(100, func() {
			if _, err := m.Map(r); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: got %v allocations a record, want 0", file, n)
		}
	}
}

// BenchmarkMap is decode and map of a record (design D16: at most 1 µs of CPU for
// pageviews).
func BenchmarkMap(b *testing.B) {
	for _, tt := range []struct{ file, payload string }{{"pageviews.yaml", pageview}, {"access-log.yaml", logLine}} {
		b.Run(strings.TrimSuffix(tt.file, ".yaml"), func(b *testing.B) {
			m := loadExample(b, tt.file).NewMapper()
			r := &mapping.Record{Topic: "t", Partition: 3, Value: []byte(tt.payload)}
			b.ReportAllocs()
			for b.Loop() {
				r.Offset++
				if _, err := m.Map(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	// Times all over a month: every date is made anew.
	b.Run("pageviews-random-times", func(b *testing.B) {
		m := loadExample(b, "pageviews.yaml").NewMapper()
		records := make([]mapping.Record, 1024)
		for i := range records {
			ts := strconv.Itoa(1431857103123 + i*7919%1009*2_600_000)
			records[i] = mapping.Record{Topic: "t", Offset: int64(i), Value: []byte(strings.Replace(pageview, "1431857103123", ts, 1))}
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if _, err := m.Map(&records[i%len(records)]); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
}
