package columnar_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
)

func unmatched(t testing.TB, onError string) *columnar.Schema {
	t.Helper()
	s, err := columnar.Compile([]columnar.ColumnSpec{
		{Name: "rest", From: "$unmatched.info", Type: "string", OnError: onError},
		{Name: "b", From: "info:b", Type: "string"},
		{Name: "again", From: "info:b", Type: "bytes"},
		{Name: "counts", From: "$unmatched.n", Type: "json"},
		{Name: "named", From: "n:hits", Type: "int64"},
	}, "", table())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestUnmatched: what no column names of a family is one JSON object, of the newest
// versions, in the order of qualifiers; nothing is null.
func TestUnmatched(t *testing.T) {
	t.Parallel()
	s := unmatched(t, "")
	if d := cmp.Diff([]string{"info", "n"}, s.Families()); d != "" {
		t.Error(d)
	}
	b := columnar.NewBuilder(s)
	for _, row := range []cell.Row{
		{Key: []byte("r"), Cells: []cell.Cell{
			put("info", "", 1, ""), put("info", "a\"\\", 9, "grün\n\x00"), put("info", "a\"\\", 8, "old"), put("info", "b", 1, "1"), put("info", "c", 1, "x"),
			put("n", "hits", 1, be(7)), put("n", "misses", 1, be(1<<63)),
		}},
		{Key: []byte("s"), Cells: []cell.Cell{put("info", "b", 1, "1"), put("z", "q", 1, "\xff")}},
	} {
		if err := b.Append(&row); err != nil {
			t.Fatal(err)
		}
	}
	want := [][]string{
		{fmt.Sprintf("%q", `{"":"","a\"\\":"grün\u000a\u0000","c":"x"}`), `"1"`, `"1"`, `"{\"misses\":-9223372036854775808}"`, "7"},
		{"null", `"1"`, `"1"`, "null", "null"},
	}
	if d := cmp.Diff(want, columnartest.Texts(b.Batch())); d != "" {
		t.Error(d)
	}
}

// TestUnmatchedRefused: what JSON cannot say is an error that names it, or null.
func TestUnmatchedRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cell cell.Cell
		want string
	}{
		{put("info", "q", 1, "\xff"), `not UTF-8, the value of info:"q"`},
		{put("info", "\xff", 1, ""), `not UTF-8, the qualifier of info:"\xff"`},
		{put("n", "q", 1, "7"), `1 bytes, not 8, the value of n:"q"`},
	} {
		row := cell.Row{Key: []byte("r"), Cells: []cell.Cell{c.cell}}
		err := columnar.NewBuilder(unmatched(t, "")).Append(&row)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Got %v, want %q", err, c.want)
		}
		b := columnar.NewBuilder(unmatched(t, "null"))
		if c.cell.Family != "info" {
			continue
		}
		if err := b.Append(&row); err != nil || !b.Batch().Vector(0).IsNull(0) {
			t.Errorf("on_error null: %v", err)
		}
	}
}

// TestUnmatchedIsTheRest: the object, read by another decoder, and the columns have
// each column of the row once.
func TestUnmatchedIsTheRest(t *testing.T) {
	t.Parallel()
	s := unmatched(t, "")
	rapid.Check(t, func(t *rapid.T) {
		qualifiers := rapid.SliceOfDistinct(rapid.OneOf(rapid.SampledFrom([]string{"", "a", "b", "ba"}), rapid.String()), rapid.ID[string]).Draw(t, "qualifiers")
		row := cell.Row{Key: []byte("r")}
		want := map[string]string{}
		for _, q := range sorted(qualifiers) {
			v := rapid.String().Draw(t, "value")
			row.Cells = append(row.Cells, put("info", q, 1, v))
			if q != "b" {
				want[q] = v
			}
		}
		if len(row.Cells) == 0 {
			return
		}
		b := columnar.NewBuilder(s)
		if err := b.Append(&row); err != nil {
			t.Fatal(err)
		}
		v := b.Batch().Vector(0)
		if v.IsNull(0) != (len(want) == 0) {
			t.Fatalf("null: %t, of %q", v.IsNull(0), want)
		}
		if len(want) == 0 {
			return
		}
		got := map[string]string{}
		if err := json.Unmarshal(v.Bytes(0), &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestUnmatchedCompileErrors(t *testing.T) {
	t.Parallel()
	distinct := table()
	distinct.Families[1].Counter, distinct.Families[1].Distinct = false, true
	for _, c := range []struct {
		mode columnar.RowsMode
		spec columnar.ColumnSpec
		want string
	}{
		{"", columnar.ColumnSpec{From: "$unmatched.", Type: "string"}, "columns[0].from: $unmatched. names no family; write $unmatched.FAMILY"},
		{"", columnar.ColumnSpec{From: "$unmatched.inf", Type: "string"}, `columns[0].from: table t has no family "inf" (did you mean "info"?); it has info, n`},
		{"", columnar.ColumnSpec{From: "$unmatched.info", Type: "bytes"}, "columns[0].type: $unmatched.info is a JSON object; its type is json or string"},
		{"", columnar.ColumnSpec{From: "$unmatched.info", Type: "string", Coding: "raw"}, `columns[0].coding: "raw" is no coding of $unmatched.info; it is text, or int64be for numbers`},
		{"", columnar.ColumnSpec{From: "$unmatched.n", Type: "string", Coding: "text"}, "columns[0].from: family n is DISTINCT, whose values are sketches; name its columns"},
		{"cell", columnar.ColumnSpec{From: "$unmatched.info", Type: "string"}, "columns[0].from: $unmatched.info needs rows: row; with rows: cell every cell is an output row"},
	} {
		c.spec.Name = "rest"
		if _, err := columnar.Compile([]columnar.ColumnSpec{c.spec}, c.mode, distinct); err == nil || err.Error() != c.want {
			t.Errorf("%+v: got %v, want %s", c.spec, err, c.want)
		}
	}
	if _, err := columnar.Compile([]columnar.ColumnSpec{{Name: "rest", From: "$unmatched.n", Type: "string", Coding: "text"}}, "", table()); err == nil || err.Error() != "columns[0].coding: family n is COUNTER, whose values are 8 bytes big-endian; it is int64be" {
		t.Errorf("Got %v", err)
	}
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
