package inverse_test

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/inverse"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// derivedYAML returns the jobs that are derived of a table, as a configuration has them.
func derivedYAML(t *testing.T, table *store.TableDescriptor, rules ...inverse.Rules) string {
	t.Helper()
	derived, err := inverse.Jobs(table, rules)
	if err != nil {
		t.Fatal(err)
	}
	for i := range derived {
		derived[i].Spec.Out = "./out"
	}
	return string(inverse.AppendYAML(nil, derived))
}

var update = flag.Bool("update", false, "write testdata anew")

// golden compares got with a file of testdata, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile("testdata/"+name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s\n%s", name, d, got)
	}
}

// TestSeveralRules: what pipelines put into one column in different ways is read as text, or
// bytes, which take all of it; so are keys that are made in different ways, and each of it is
// said.
func TestSeveralRules(t *testing.T) {
	t.Parallel()
	table := &store.TableDescriptor{Name: "app:users", Families: []store.FamilyDescriptor{
		family("d", ""), family("e", ""), family("n", "COUNTER"), family("u", "DISTINCT"), family("other", ""),
	}}
	web := &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rules: []mapping.RuleSpec{
		{Table: "app:users", Row: `id + "|" + kind + "|" + u16(partition)`, Put: map[string]map[string]string{
			"d": {"name": "name", "since": "time", "size": "int(size)", "a.b": "not x", "${x}": "[id]", "Ä'\"\\\n": "id", "": "id"},
			"e": {"name": "upper(name)", "only": "u64(n)"},
		}, Increment: []mapping.IncrementSpec{
			{Family: "n", Qualifier: `"views"`}, {Family: "n", Qualifier: `date(time, "yyyyMMdd")`},
		}, Append: map[string]map[string]string{"d": {"trail": `page + " "`}, "u": {"pages": "page"}}},
		{Table: "app:users", Row: `id + "|" + kind + "|" + u16(partition)`, Delete: []mapping.DeleteSpec{{What: "row"}}},
	}}
	mobile := &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rules: []mapping.RuleSpec{
		{Table: "app:{kind}", Row: `id + "|" + sort + "|" + u16(partition)`, Put: map[string]map[string]string{"d": {"size": "u64(size)", "since": "int(t)"}, "e": {"only": "u64(m)"}}},
		{Table: "other", Row: `id`, Put: map[string]map[string]string{"d": {"none": "id"}}},
	}}
	golden(t, "several.yaml", derivedYAML(t, table, inverse.Rules{Pipeline: "web", Spec: web}, inverse.Rules{Pipeline: "mobile", Spec: mobile}))
	web.Rules[1] = mapping.RuleSpec{Table: "app:users", Row: "key", Put: map[string]map[string]string{"d": {"size": "int(size)"}}}
	golden(t, "keys.yaml", derivedYAML(t, table, inverse.Rules{Pipeline: "web", Spec: web}, inverse.Rules{Pipeline: "mobile", Spec: mobile}))
}

// TestCounts: a table of counts is read a row a cell, and the counts of each set of
// dimensions, and of different values, by a job of its own.
func TestCounts(t *testing.T) {
	t.Parallel()
	table := &store.TableDescriptor{Name: "stats", Families: []store.FamilyDescriptor{
		family("hour", "COUNTER"), family("total", "COUNTER"), family("distinct_total", "DISTINCT"), family("b", "COUNTER"),
	}}
	rollups := &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rollups: []mapping.RollupSpec{
		{Name: "views", Table: "stats", Dimensions: map[string]string{"country": "upper(country)", "page-of": "page", "n": "int(n)"}, Sets: [][]string{{}, {"country"}, {"country", "page-of"}, {"n"}}, Buckets: []string{"hour", "total"}},
		{Name: "views", Table: "stats", Dimensions: map[string]string{"country": "upper(country)"}, Distinct: "user", Buckets: []string{"total"}},
		{Name: "bytes", Table: "stats", Dimensions: map[string]string{"id": "u64(id)"}, Buckets: []string{"total"}},
	}}
	records := []mapping.Record{
		{Topic: "t", Timestamp: 1431857103123, Value: []byte(`{"country": "de", "page": "/a", "n": 7, "user": "u", "id": 513}`)},
		{Topic: "t", Timestamp: 1431857103123, Value: []byte(`{"country": "de", "page": "/b", "n": 7, "user": "v", "id": 513}`)},
	}
	derived, rows := roundTrip(t, rollups, table, records)
	golden(t, "rollups.yaml", string(inverse.AppendYAML(nil, derived)))
	byName := map[string][]map[string]string{}
	for i := range derived {
		byName[derived[i].Name] = rows[i]
	}
	without := func(rows []map[string]string) (out []string) {
		for _, r := range rows {
			out = append(out, strings.Join([]string{r["country"], r["page-of"], r["n"], r["id"], r["family"], r["qualifier"], r["count"]}, " "))
		}
		return out
	}
	for name, want := range map[string][]string{
		"stats_views":                 {`    "hour" "2015051710" 2`, `    "total" "total" 2`},
		"stats_views_country":         {`"DE"    "hour" "2015051710" 2`, `"DE"    "total" "total" 2`},
		"stats_views_country_page-of": {`"DE" "/a"   "hour" "2015051710" 1`, `"DE" "/a"   "total" "total" 1`, `"DE" "/b"   "hour" "2015051710" 1`, `"DE" "/b"   "total" "total" 1`},
		"stats_views_n":               {`  7  "hour" "2015051710" 2`, `  7  "total" "total" 2`},
		"stats_views_country_2":       {`"DE"    "distinct_total" "total" 2`},
		"stats_bytes_id":              {`   "\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x02\x01\x02" "total" "total" 2`},
	} {
		if d := cmp.Diff(want, without(byName[name])); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}

	counts := &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rules: []mapping.RuleSpec{
		{Table: "stats", Row: `page`, Increment: []mapping.IncrementSpec{{Family: "hour", Qualifier: `date(time, "yyyyMMddHH")`}, {Family: "b", Qualifier: `u64(id)`}}},
	}, Rollups: rollups.Rollups[1:2]}
	derived, rows = roundTrip(t, counts, table, records)
	golden(t, "counts.yaml", string(inverse.AppendYAML(nil, derived)))
	if len(rows) != 2 || len(rows[0]) != 4 || rows[0][1]["row"] != `"/a"` || rows[0][1]["count"] != "1" || len(rows[1]) != 1 || rows[1][0]["count"] != "2" {
		t.Errorf("Got %v", rows)
	}
}

// A family whose columns the record names is a map, beside columns that the rule names; where
// their names are no text, the family has a job of its own.
func TestDynamicBesideNamed(t *testing.T) {
	t.Parallel()
	table := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{family("f", ""), family("n", "COUNTER"), family("m", "COUNTER")}}
	spec := &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rules: []mapping.RuleSpec{{
		Table: "t", Row: "id", Put: map[string]map[string]string{"f": {"n": "n"}},
		Increment: []mapping.IncrementSpec{{Family: "n", Qualifier: "kind"}, {Family: "n", Qualifier: `"all"`}, {Family: "m", Qualifier: "u16(partition)", By: "n"}},
	}}}
	derived, rows := roundTrip(t, spec, table, []mapping.Record{{Topic: "t", Partition: 258, Timestamp: 5, Value: []byte(`{"id": "a", "n": 7, "kind": "k"}`)}})
	golden(t, "dynamic.yaml", string(inverse.AppendYAML(nil, derived)))
	want := [][]map[string]string{
		{{"id": `"a"`, "n": `"7"`, "all": "1", "n_columns": `{"k": 1}`, "timestamp": "5000"}},
		{{"id": `"a"`, "family": `"m"`, "qualifier": "258", "count": "7", "timestamp": "5000"}},
	}
	if d := cmp.Diff(want, rows); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
}

// A family of which some columns are named by the rule and others by the record, by no text,
// is read whole: names of either kind.
func TestNamedBesideBytes(t *testing.T) {
	t.Parallel()
	table := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{family("n", "COUNTER")}}
	spec := &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rules: []mapping.RuleSpec{{
		Table: "t", Row: "id", Increment: []mapping.IncrementSpec{{Family: "n", Qualifier: "u16(partition)"}, {Family: "n", Qualifier: `"all"`}},
	}}}
	_, rows := roundTrip(t, spec, table, []mapping.Record{{Topic: "t", Partition: 258, Timestamp: 5, Value: []byte(`{"id": "a"}`)}})
	want := [][]map[string]string{
		{{"id": `"a"`, "all": "1", "timestamp": "5000"}},
		{
			{"id": `"a"`, "family": `"n"`, "qualifier": `"\x01\x02"`, "count": "1", "timestamp": "5000"},
			{"id": `"a"`, "family": `"n"`, "qualifier": `"all"`, "count": "1", "timestamp": "5000"},
		},
	}
	if d := cmp.Diff(want, rows); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
}

// TestNotWritten: of a table that no rule writes there is nothing to derive.
func TestNotWritten(t *testing.T) {
	t.Parallel()
	_, err := inverse.Jobs(&store.TableDescriptor{Name: "x", Families: []store.FamilyDescriptor{family("f", "")}}, []inverse.Rules{{Pipeline: "p", Spec: &mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "json"}, Rules: []mapping.RuleSpec{{Table: "x", Row: "id", Delete: []mapping.DeleteSpec{{What: "row"}}}},
	}}})
	if !errors.Is(err, inverse.ErrNotWritten) || !strings.HasSuffix(err.Error(), ": x") {
		t.Errorf("Got %v", err)
	}
}
