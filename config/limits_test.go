package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"sluice/config"
)

// docs/limits.md has the bounds of a file at which it is refused: each is taken at its edge,
// and refused one beyond it.
func TestLimitsOfFiles(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	pipeline := func(name, topic, decode, rest, put string) string {
		return fmt.Sprintf("tables:\n  t: {families: {e: {}, day: {COUNTER: true}, total: {COUNTER: true}}}\npipelines:\n  %s:\n    topics: [%s]\n    group: g\n    decode: %s\n%s    map: [{table: t, row: key, put: {e: {v: '%s'}}}]\n", name, topic, decode, rest, put)
	}
	value := func(text string) string { return pipeline("p", "a", "{format: json}", "", text) }
	rollup := func(name string, sets int) string {
		var dimensions, all []string
		for i := range sets {
			dimensions, all = append(dimensions, fmt.Sprintf("d%d: a", i)), append(all, fmt.Sprintf("[d%d]", i))
		}
		return pipeline("p", "a", "{format: json}", fmt.Sprintf("    rollups: [{name: %s, table: t, buckets: [day, total], dimensions: {%s}, sets: [%s]}]\n",
			name, strings.Join(dimensions, ", "), strings.Join(all, ", ")), "a")
	}
	job := func(name, key, kind string) string {
		return fmt.Sprintf("jobs:\n  %s: {table: t, out: o, %s columns: [{name: k, from: $row, type: bytes}, {name: c, from: 'e:c', type: '%s'}]}\n", name, key, kind)
	}
	families := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("f%d: {}", i))
		}
		return "tables: {t: {families: {" + strings.Join(all, ", ") + "}}}\n"
	}
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, tt := range []struct {
		says  string // of the page
		most  int
		file  func(n int) string
		least bool // most is the least
	}{
		{"| the file | 4 MiB |", 4 << 20, func(n int) string { f := value("a") + "#"; return f + x(n-len(f)) }, false},
		{"| 255 bytes; 249; 100 |", 255, func(n int) string { return pipeline(x(n), "a", "{format: json}", "", "a") }, false},
		{"| 255 bytes; 249; 100 |", 249, func(n int) string { return pipeline("p", x(n), "{format: json}", "", "a") }, false},
		{"| 255 bytes; 249; 100 |", 100, func(n int) string { return job(x(n), "", "string") }, false},
		{"| an expression | 16,384 bytes |", 16384, func(n int) string { return value(`"` + x(n-2) + `"`) }, false},
		{"| 64 steps; index 1,048,576 |", 64, func(n int) string { return value("a" + strings.Repeat(".a", n-1)) }, false},
		{"| 64 steps; index 1,048,576 |", 1048576, func(n int) string { return value(fmt.Sprintf("a[%d]", n)) }, false},
		{"| columns of `csv` and `tsv` | 4,096 |", 4096, func(n int) string {
			var columns []string
			for i := range n {
				columns = append(columns, fmt.Sprintf("a%d", i))
			}
			return pipeline("p", "a", "{format: csv, columns: ["+strings.Join(columns, ", ")+"]}", "", "a0")
		}, false},
		{"a name of 64 characters", 64, func(n int) string { return rollup(x(n), 1) }, false},
		{"64 counters an event", 32, func(n int) string { return rollup("r", n) }, false},
		{"| 256; 1,024 |", 256, func(n int) string { return value(fmt.Sprintf("salt(%d, a)", n)) }, false},
		{"| 256; 1,024 |", 1024, func(n int) string { return value(fmt.Sprintf("pad(a, %d)", n)) }, false},
		{"| 256; 1,024 |", 1024, func(n int) string { return value(fmt.Sprintf("fixed(a, %d)", n)) }, false},
		{"| `decimal(P,S)` | 38 digits |", 38, func(n int) string { return job("j", "", fmt.Sprintf("decimal(%d,2)", n)) }, false},
		{"| 64 by default, 1,024 |", 1024, func(n int) string {
			return job("j", fmt.Sprintf("partition_by: [c], max_partitions: %d,", n), "string")
		}, false},
		{"(5 MiB to 1 GiB; 16 MiB by default", 1 << 30, func(n int) string { return fmt.Sprintf("s3: {part_size: %d}\n", n) }, false},
		{"(5 MiB to 1 GiB; 16 MiB by default", 5 << 20, func(n int) string { return fmt.Sprintf("s3: {part_size: %d}\n", n) }, true},
		{"16 MiB at least", 16 << 20, func(n int) string { return value("a") + fmt.Sprintf("memory: %d\n", n) }, true},
		{"| families of a table | 255 |", 255, families, false},
		{"| name of a family | 127 bytes |", 127, func(n int) string { return "tables: {t: {families: {" + x(n) + ": {}}}}\n" }, false},
		{"| 1,048,576 | the table is refused |", 1048576, func(n int) string {
			return fmt.Sprintf("tables: {t: {families: {f: {}}, split: {algorithm: UniformSplit, regions: %d}}}\n", n)
		}, false},
	} {
		if !strings.Contains(string(page), tt.says) {
			t.Errorf("docs/limits.md does not say %q", tt.says)
		}
		beyond := tt.most + 1
		if tt.least {
			beyond = tt.most - 1
		}
		if _, err := config.Parse("f.yaml", []byte(tt.file(tt.most)), env()); err != nil {
			t.Errorf("%s, at %d: %.300v", tt.says, tt.most, err)
		}
		if _, err := config.Parse("f.yaml", []byte(tt.file(beyond)), env()); err == nil {
			t.Errorf("%s: %d is taken", tt.says, beyond)
		}
	}
}
