package jobs

import (
	"strings"
	"testing"

	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/store"
)

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	schema := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f"), store.NewFamily("h")}}
	for name, tt := range map[string]struct {
		job    string
		change func(s *Spec)
		want   []string
	}{
		"name":     {"../x", func(*Spec) {}, []string{`name: "../x" is not a job name: letters, digits, _, - and ., starting with a letter or digit, at most 100`}},
		"no table": {"j", func(s *Spec) { s.Table = "" }, []string{"table: it is missing"}},
		"table":    {"j", func(s *Spec) { s.Table = "u" }, []string{"table: it is u, but the schema is of t"}},
		"columns":  {"j", func(s *Spec) { s.Columns[0].Type = "int" }, []string{`columns[0].type: "int" is no type (did you mean "int64"?); it is one of string, int64, float64, bool, timestamp, bytes, json and decimal(P,S)`}},
		"iceberg":  {"j", func(s *Spec) { s.Iceberg, s.Formats = true, []string{"arrow"} }, []string{"iceberg: its files are those of Parquet, which formats has not"}},
		"iceberg of increments": {"j", func(s *Spec) { s.Iceberg, s.Incremental.FullEvery = true, 2 }, []string{
			"columns: an increment says of each row whether it is there: add {name: op, from: $op, type: string}",
			"columns: increments are put together by the row key: add a column from $row of type string or bytes, in no coding that gives two keys one value",
		}},
		"format":      {"j", func(s *Spec) { s.Formats = []string{"parquet", "csv", "parquet"} }, []string{`formats[1]: "csv" is no format; it is parquet or arrow`, "formats[2]: parquet is given twice"}},
		"compression": {"j", func(s *Spec) { s.Compression = "snappy" }, []string{`compression: "snappy" is no codec of Arrow files; it is one of [none lz4 zstd]`}},
		"rows": {"j", func(s *Spec) { s.StartRow, s.StopRow = `b\xZZ`, "" }, []string{
			`start_row: "b\\xZZ": \xZZ is not two hex digits`,
		}},
		"order":    {"j", func(s *Spec) { s.StartRow, s.StopRow = "b", "b" }, []string{`stop_row: "b" is not after start_row "b"`}},
		"families": {"j", func(s *Spec) { s.Families = []string{"g"} }, []string{`families[0]: table t has no family "g"`, `families: a column comes from family "f", which is not among them`}},
		"filter":   {"j", func(s *Spec) { s.Filter = "PrefixFilter('a'" }, []string{"filter: store: invalid argument: filter string, column 17: expected , or ), found the end"}},
		"page":     {"j", func(s *Spec) { s.Filter = "SKIP (KeyOnlyFilter() OR PageFilter(1))" }, []string{"filter: PageFilter ends a scan, and an export scans each region by itself"}},
		"json":     {"j", func(s *Spec) { s.Filter = `{"type": "PageFiltr"}` }, []string{"filter: filter PageFiltr: store: not supported: this filter"}},
		"random": {"j", func(s *Spec) {
			s.Filter = `{"type": "SkipFilter", "filter": {"type": "RandomRowFilter", "chance": 0.5}}`
		}, []string{"filter: RandomRowFilter lets other rows pass whenever it is asked, so that no run could be resumed or be an increment"}},
		"in json": {"j", func(s *Spec) {
			s.Filter = `{"type": "FilterList", "op": "MUST_PASS_ONE", "filters": ["PageFilter(1)"]}`
		}, []string{"filter: PageFilter ends a scan, and an export scans each region by itself"}},
		"while": {"j", func(s *Spec) { s.Filter = "WHILE KeyOnlyFilter()" }, []string{"filter: WHILE ends a scan, and an export scans each region by itself; start_row and stop_row bound it"}},
		"count": {"j", func(s *Spec) { s.Filter = "ColumnCountGetFilter(1)" }, []string{
			"filter: ColumnCountGetFilter ends a scan, and an export scans each region by itself; ColumnPaginationFilter does not",
		}},
		"no family": {"j", func(s *Spec) { s.Filter = "SKIP ColumnValueFilter('g', 'q', =, 'binary:a')" }, []string{`filter: table t has no family "g"`}},
		"unread family": {"j", func(s *Spec) {
			s.Families, s.Filter = []string{"f"}, "SingleColumnValueFilter('h', 'q', =, 'binary:a') AND KeyOnlyFilter()"
		}, []string{`filter: it is about family "h", which is not among families`}},
		"whole rows": {"j", func(s *Spec) {
			s.Rows, s.Columns[0].From, s.Filter = "cell", "$value", "SKIP KeyOnlyFilter()"
		}, []string{"filter: it judges whole rows, and rows: cell reads them in pieces"}},
		"sizes": {"j", func(s *Spec) { s.TargetFileBytes, s.RowGroupBytes = -1, -2 }, []string{"target_file_bytes: -1 is negative", "row_group_bytes: -2 is negative"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Spec{Table: "t", Columns: []columnar.ColumnSpec{{Name: "c", From: "f:c", Type: "string"}}, Formats: []string{Parquet, Arrow}}
			tt.change(s)
			_, err := Compile(tt.job, s, schema)
			if err == nil {
				t.Fatal("Got no error")
			}
			if d := jobstest.Diff(tt.want, strings.Split(err.Error(), "\n")); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestSplits(t *testing.T) {
	t.Parallel()
	m := jobstest.Regions("t", "d", "h", "m")
	for name, tt := range map[string]struct {
		start, stop string
		want        []string
	}{
		"all":         {"", "", []string{"0 [,d)", "1 [d,h)", "2 [h,m)", "3 [m,)"}},
		"inside":      {"e", "f", []string{"1 [e,f)"}},
		"over bounds": {"e", "n", []string{"1 [e,h)", "2 [h,m)", "3 [m,n)"}},
		"at bounds":   {"d", "h", []string{"1 [d,h)"}},
		"first":       {"", "d", []string{"0 [,d)"}},
		"last":        {"z", "", []string{"3 [z,)"}},
	} {
		j := mustCompile(t, "j", &Spec{Table: "t", StartRow: tt.start, StopRow: tt.stop, Columns: []columnar.ColumnSpec{{Name: "k", From: "$row", Type: "bytes"}}}, nil)
		var got []string
		for _, s := range j.splits(m) {
			got = append(got, string(rune('0'+s.Index))+" ["+string(s.Rows.Start)+","+string(s.Rows.Stop)+")")
		}
		if d := jobstest.Diff(tt.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestCompileTableName: a table of the default namespace has two names, of which stores know
// it by the short one.
func TestCompileTableName(t *testing.T) {
	t.Parallel()
	for _, schema := range []*store.TableDescriptor{nil, {Name: "t"}, {Name: "default:t"}} {
		j, err := Compile("j", &Spec{Table: "default:t", Columns: []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}}}, schema)
		if err != nil || j.Table() != "t" {
			t.Errorf("Got %+v, %v", j, err)
		}
	}
}
