package columnar_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
	"sluice/store"
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
		{"", columnar.ColumnSpec{From: "$unmatched.info", Type: "bytes"}, "columns[0].type: $unmatched.info is a map or a JSON object; its type is map, map(string), map(int64), map(float64), json or string"},
		{"", columnar.ColumnSpec{From: "$unmatched.info", Type: "string", Coding: "raw"}, `columns[0].coding: "raw" is no coding of $unmatched.info; it is text, or int64be for numbers`},
		{"", columnar.ColumnSpec{From: "$unmatched.n", Type: "string", Coding: "text"}, "columns[0].from: family n is DISTINCT, whose values are sketches; use type map(int64) for the estimates, type map for the sketches, or name its columns"},
		{"", columnar.ColumnSpec{From: "$unmatched.n", Type: "map(string)"}, "columns[0].coding: $unmatched.n comes from a DISTINCT family, whose values are sketches; use type map(int64) with coding distinct for the estimate, or type map"},
		{"", columnar.ColumnSpec{From: "$unmatched.info", Type: "map(string)", Coding: "raw"}, `columns[0].coding: "raw" is no coding of type map(string); it is one of text, fixed, reverse`},
		{"", columnar.ColumnSpec{From: "$unmatched.info", Type: "map", Coding: "text"}, `columns[0].coding: "text" is no coding of type map; it is one of raw, hex`},
		{"cell", columnar.ColumnSpec{From: "$unmatched.info", Type: "map"}, "columns[0].from: $unmatched.info needs rows: row; with rows: cell every cell is an output row"},
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

// TestUnmatchedMaps: what no column names of a family is a map of the newest versions in
// the order of qualifiers, of every type; nothing is null, and not the empty map.
func TestUnmatchedMaps(t *testing.T) {
	t.Parallel()
	d := table()
	sketches := store.NewFamily("s")
	sketches.Distinct = true
	d.Families = append(d.Families, sketches)
	s, err := columnar.Compile([]columnar.ColumnSpec{
		{Name: "raw", From: "$unmatched.info", Type: "map"},
		{Name: "b", From: "info:b", Type: "string"},
		{Name: "text", From: "$unmatched.info", Type: "map(string)", OnError: "null"},
		{Name: "numbers", From: "$unmatched.info", Type: "map(int64)", OnError: "null"},
		{Name: "floats", From: "$unmatched.info", Type: "map(float64)", Coding: "float64be", OnError: "null"},
		{Name: "counts", From: "$unmatched.n", Type: "map(int64)"},
		{Name: "estimates", From: "$unmatched.s", Type: "map(int64)"},
	}, "", d)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Specs()[5].Coding + " " + s.Specs()[6].Coding; got != "int64be distinct" {
		t.Errorf("Got codings %s", got)
	}
	b := columnar.NewBuilder(s)
	for _, row := range []cell.Row{
		{Key: []byte("r"), Cells: []cell.Cell{
			put("info", "", 1, ""), put("info", "a", 9, "\xff"), put("info", "a", 8, "old"), put("info", "b", 1, "1"),
			put("n", "hits", 1, be(7)), put("n", "misses", 1, be(1<<63)),
		}},
		{Key: []byte("s"), Cells: []cell.Cell{put("info", "b", 1, "1"), put("z", "q", 1, "\xff")}},
		{Key: []byte("t"), Cells: []cell.Cell{put("info", "grün", 1, "12"), put("info", "z", 1, "-3")}},
		{Key: []byte("u"), Cells: []cell.Cell{put("info", "x", 1, be(math.Float64bits(1.5)))}},
	} {
		if err := b.Append(&row); err != nil {
			t.Fatal(err)
		}
	}
	want := [][]string{
		{`{"": "", "a": "\xff"}`, `"1"`, "null", "null", "null", `{"hits": 7, "misses": -9223372036854775808}`, "null"},
		{"null", `"1"`, "null", "null", "null", "null", "null"},
		{`{"grün": "12", "z": "-3"}`, "null", `{"grün": "12", "z": "-3"}`, `{"grün": 12, "z": -3}`, "null", "null", "null"},
		{`{"x": "?\xf8\x00\x00\x00\x00\x00\x00"}`, "null", "null", "null", `{"x": 3ff8000000000000}`, "null", "null"},
	}
	if d := cmp.Diff(want, columnartest.Texts(b.Batch())); d != "" {
		t.Error(d)
	}
	for _, c := range []struct {
		cell cell.Cell
		want string
	}{
		{put("info", "\xff", 1, ""), `not UTF-8, the qualifier of info:"\xff"`},
		{put("n", "q", 1, "7"), `value "7" is not map(int64) in coding int64be: not 8 bytes long, the value of n:"q"`},
	} {
		row := cell.Row{Key: []byte("r"), Cells: []cell.Cell{c.cell}}
		if err := columnar.NewBuilder(s).Append(&row); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Got %v, want %q", err, c.want)
		}
	}
}

// TestMapVector: maps in the memory of others before them, copied, hashed and counted;
// as many keys as values make one.
func TestMapVector(t *testing.T) {
	t.Parallel()
	typ, _ := columnar.Map(columnar.String)
	b := columnar.NewBatch([]columnar.Column{{Name: "m", Type: typ, Nullable: true}})
	v := b.Vector(0)
	hash := func() string {
		h := sha256.New()
		b.HashTo(h)
		return string(h.Sum(nil))
	}
	set := func(entries ...string) {
		b.Reset()
		v.AppendNull()
		for i, e := range entries {
			if err := []*columnar.Vector{v.Keys(), v.Values()}[i%2].AppendBytes([]byte(e)); err != nil {
				t.Fatal(err)
			}
		}
		if err := v.AppendEntries(); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string][]string{}
	for _, entries := range [][]string{{}, {"k", "v"}, {"k", ""}, {"", "k"}, {"k", "v", "l", ""}, {"k", "vl", "", ""}} {
		set(entries...)
		if other, ok := seen[hash()]; ok {
			t.Errorf("Got the same hash of %q and %q", entries, other)
		}
		seen[hash()] = entries
		again := columnar.NewBatch(b.Columns())
		for i := range v.Len() {
			if err := again.Vector(0).AppendFrom(v, i); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(columnartest.Texts(b), columnartest.Texts(again)); d != "" {
			t.Error(d)
		}
	}
	if n := v.Size(0) + v.Size(1); n != 3 {
		t.Errorf("Got a size of %d", n)
	}
	if err := v.Keys().AppendBytes(nil); err != nil {
		t.Fatal(err)
	}
	if err := v.AppendEntries(); err == nil || err.Error() != "columnar: a map of 1 keys and 0 values" {
		t.Errorf("Got %v", err)
	}
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
