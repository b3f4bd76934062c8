package columnar_test

import (
	"crypto/sha256"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/columnar"
)

var whereColumns = []columnar.ColumnSpec{
	{Name: "key", From: "$row", Type: "bytes"},
	{Name: "b", From: "f:b", Type: "bool"},
	{Name: "d", From: "f:d", Type: "decimal(6,2)"},
	{Name: "f", From: "f:f", Type: "float64"},
	{Name: "i", From: "f:i", Type: "int64"},
	{Name: "j", From: "f:j", Type: "json"},
	{Name: "s", From: "f:s", Type: "string"},
	{Name: "t", From: "f:t", Type: "timestamp"},
	{Name: "rest", From: "$unmatched.f", Type: "map(string)"},
}

// Values of one type compare as that type does; null is only absent.
func TestWhere(t *testing.T) {
	t.Parallel()
	schema, err := columnar.Compile(whereColumns, columnar.PerRow, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		where  string // column, op, value or values
		values string // of the column's cell, by ;, - = no cell
		pass   string
	}{
		{"i >= 500", "1000;500;499;-7;-", "1000;500"},
		{"i < 0", "0;-1;-1000;-", "-1;-1000"},
		{"i != 3", "3;4;-", "4"},
		{"i in 1,30", "1;3;30;-", "1;30"},
		{"i absent", "1;-", "-"},
		{"i present", "1;-", "1"},
		{"d > 9.5", "9.5;9.51;10;-1;-", "9.51;10"},
		{"d == 1", "1.00;1;1.01", "1.00;1"},
		{"f > 1e1", "9.99;10.1;NaN;-Inf;-", "10.1;NaN"},
		{"f == 0", "-0;0;1", "-0;0"},
		{"b == true", "true;false;-", "true"},
		{"s < b", "a;aa;b;B;;-", "a;aa;B;"},
		{"s == ", ";a;-", ""},
		{"t > 2026-01-31T12:00:00Z", "1769860800000;1769860800001;-", "1769860800001"},
		{"t <= 1769860800000", "1769860800000;1769860800001;-", "1769860800000"},
		{"j present", "{};-", "{}"},
		{"key > k\\x00", "1;2;3", "2;3"}, // keys are k, k\x01, ...
	} {
		t.Run(tt.where, func(t *testing.T) {
			t.Parallel()
			part := strings.SplitN(tt.where, " ", 3)
			p := columnar.Predicate{Column: part[0], Op: part[1]}
			switch {
			case p.Op == columnar.OpIn:
				p.Values = strings.Split(part[2], ",")
			case len(part) > 2:
				p.Value = part[2]
			}
			s, err := schema.Where([]columnar.Predicate{p})
			if err != nil {
				t.Fatal(err)
			}
			b := columnar.NewBuilder(s)
			var got []string
			for i, v := range strings.Split(tt.values, ";") {
				row := cell.Row{Key: []byte("k"), Cells: []cell.Cell{put("f", "zz", 1, "x")}}
				if i > 0 {
					row.Key = append(row.Key, byte(i))
				}
				if v != "-" && p.Column != "key" {
					row.Cells = append([]cell.Cell{put("f", p.Column, 1, v)}, row.Cells...)
				}
				before := b.Batch().Rows()
				if err := b.Append(&row); err != nil {
					t.Fatal(err)
				}
				if b.Batch().Rows() > before {
					got = append(got, v)
				}
			}
			if d := cmp.Diff(strings.Split(tt.pass, ";"), got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// A batch from which rows were left out is as if they had never been there, with rows that
// are gone between them.
func TestWhereLeavesNothing(t *testing.T) {
	t.Parallel()
	schema, err := columnar.Compile(whereColumns, columnar.PerRow, nil)
	if err != nil {
		t.Fatal(err)
	}
	sifting, err := schema.Where([]columnar.Predicate{{Column: "i", Op: "<", Value: "5"}, {Column: "s", Op: "!=", Value: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		sifted, all := columnar.NewBuilder(sifting), columnar.NewBuilder(schema)
		for k := range rapid.IntRange(0, 40).Draw(rt, "rows") {
			row := &cell.Row{Key: fmt.Appendf(nil, "row-%03d", k)}
			add := func(qualifier string, values ...string) string {
				v := rapid.SampledFrom(append(values, "")).Draw(rt, qualifier)
				if v != "" {
					row.Cells = append(row.Cells, put("f", qualifier, 1, v))
				}
				return v
			}
			add("b", "true", "false")
			add("d", "1.5", "-2")
			add("f", "1", "NaN")
			i := add("i", "1", "4", "5", "77")
			add("j", "{}")
			s := add("s", "x", "y")
			add("t", "1")
			add("z", "1", "other")
			if len(row.Cells) == 0 {
				continue
			}
			if err := sifted.Append(row); err != nil {
				rt.Fatal(err)
			}
			if (i == "1" || i == "4") && s == "y" {
				if err := all.Append(row); err != nil {
					rt.Fatal(err)
				}
			}
		}
		a, b := sha256.New(), sha256.New()
		sifted.Batch().HashTo(a)
		all.Batch().HashTo(b)
		if got, want := fmt.Sprintf("%x", a.Sum(nil)), fmt.Sprintf("%x", b.Sum(nil)); got != want || sifted.Batch().Bytes() != all.Batch().Bytes() {
			rt.Fatalf("Got %d rows of %d bytes, want %d of %d, or other values", sifted.Batch().Rows(), sifted.Batch().Bytes(), all.Batch().Rows(), all.Batch().Bytes())
		}
	})
}

// With rows: cell a condition is about each cell.
func TestWhereOfCells(t *testing.T) {
	t.Parallel()
	schema, err := columnar.Compile([]columnar.ColumnSpec{
		{Name: "q", From: "$qualifier", Type: "string"}, {Name: "v", From: "$value", Type: "int64", Coding: "int64be"},
	}, columnar.PerCell, nil)
	if err == nil {
		schema, err = schema.Where([]columnar.Predicate{{Column: "v", Op: ">", Value: "1000"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	b := columnar.NewBuilder(schema)
	row := &cell.Row{Key: []byte("k"), Cells: []cell.Cell{put("c", "a", 1, be(5)), put("c", "b", 1, be(1001)), put("c", "c", 1, be(math.MaxInt64)), put("c", "d", 1, be(math.MaxUint64))}}
	if err := b.Append(row); err != nil {
		t.Fatal(err)
	}
	if n := b.Batch().Rows(); n != 2 || string(b.Batch().Vector(0).Bytes(0)) != "b" || string(b.Batch().Vector(0).Bytes(1)) != "c" {
		t.Errorf("Got %d rows", n)
	}
}

func TestWhereMistakes(t *testing.T) {
	t.Parallel()
	schema, err := columnar.Compile(append([]columnar.ColumnSpec{{Name: "op", From: "$op", Type: "string"}}, whereColumns...), columnar.PerRow, nil)
	if err != nil {
		t.Fatal(err)
	}
	for want, p := range map[string]columnar.Predicate{
		`where[0].column: there is no column "ii" (did you mean "i"?)`:                                                                   {Column: "ii", Op: "==", Value: "1"},
		`where[0].column: what is left out cannot depend on whether a row is there ($op)`:                                                {Column: "op", Op: "==", Value: "upsert"},
		`where[0].op: "=" is none of == != < <= > >= in absent present`:                                                                  {Column: "i", Op: "=", Value: "1"},
		`where[0].value: "x" is no value of column i, int64: not a decimal number`:                                                       {Column: "i", Op: "==", Value: "x"},
		`where[0].values[1]: "1.5" is no value of column i, int64: not a decimal number`:                                                 {Column: "i", Op: "in", Values: []string{"1", "1.5"}},
		`where[0].values: op: in looks among values, and there are none`:                                                                 {Column: "i", Op: "in"},
		`where[0].value: op: in takes values`:                                                                                            {Column: "i", Op: "in", Value: "1", Values: []string{"1"}},
		`where[0].values: op: < takes value`:                                                                                             {Column: "i", Op: "<", Value: "1", Values: []string{"1"}},
		`where[0].value: op: absent takes none`:                                                                                          {Column: "i", Op: "absent", Value: "1"},
		`where[0].op: values of type json are not compared: absent or present`:                                                           {Column: "j", Op: "==", Value: "{}"},
		`where[0].op: values of type map(string) are not compared: absent or present`:                                                    {Column: "rest", Op: "==", Value: "{}"},
		`where[0].value: "2026" is no value of column b, bool: neither true nor false`:                                                   {Column: "b", Op: "==", Value: "2026"},
		`where[0].value: "2026-01-31" is no value of column t, timestamp: neither a time such as 2006-01-02T15:04:05Z nor ms since 1970`: {Column: "t", Op: "==", Value: "2026-01-31"},
		`where[0].value: "9223372036854776" is no value of column t, timestamp: out of range for a timestamp in µs`:                      {Column: "t", Op: "==", Value: "9223372036854776"},
		`where[0].value: "2026-01-31Tx" is no value of column t, timestamp: not a time such as 2006-01-02T15:04:05Z`:                     {Column: "t", Op: "==", Value: "2026-01-31Tx"},
	} {
		if _, err := schema.Where([]columnar.Predicate{p}); err == nil || err.Error() != want {
			t.Errorf("Got %v, want %s", err, want)
		}
	}
}
