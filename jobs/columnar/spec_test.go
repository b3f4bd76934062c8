package columnar_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs/columnar"
	"sluice/store"
)

// table has an ordinary family and a counter family.
func table() *store.TableDescriptor {
	n := store.NewFamily("n")
	n.Counter = true
	return &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("info"), n}}
}

// Columns of DISTINCT families are estimates, or the sketches' bytes.
func TestDistinctColumns(t *testing.T) {
	t.Parallel()
	u := store.NewFamily("u")
	u.Distinct = true
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{u}}
	for _, c := range []struct {
		spec columnar.ColumnSpec
		mode columnar.RowsMode
		want string // of the error; "" = none
	}{
		{columnar.ColumnSpec{Name: "n", From: "u:total", Type: "int64"}, "", ""},
		{columnar.ColumnSpec{Name: "n", From: "$value", Type: "int64", Coding: "distinct"}, "cell", ""},
		{columnar.ColumnSpec{Name: "n", From: "u:total", Type: "bytes"}, "", ""},
		{columnar.ColumnSpec{Name: "n", From: "u:total", Type: "int64", Coding: "int64be"}, "", "columns[0].coding: u:total comes from a DISTINCT family, whose values are sketches; use type int64 with coding distinct for the estimate, or type bytes"},
		{columnar.ColumnSpec{Name: "n", From: "u:total", Type: "string"}, "", "columns[0].coding: u:total comes from a DISTINCT family, whose values are sketches; use type int64 with coding distinct for the estimate, or type bytes"},
		{columnar.ColumnSpec{Name: "n", From: "u:total", Type: "float64", Coding: "distinct"}, "", `columns[0].coding: "distinct" is no coding of type float64; it is one of text, float64be`},
	} {
		got := ""
		if _, err := columnar.Compile([]columnar.ColumnSpec{c.spec}, c.mode, d); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.spec, got, c.want)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	good := columnar.ColumnSpec{Name: "a", From: "info:a", Type: "string"}
	for name, tt := range map[string]struct {
		mode  columnar.RowsMode
		specs []columnar.ColumnSpec
		want  []string
	}{
		"none":      {"", nil, []string{"columns: columns names none; an export needs at least one column"}},
		"mode":      {"cells", []columnar.ColumnSpec{good}, []string{`rows: "cells" is no mode (did you mean "cell"?); it is row or cell`}},
		"missing":   {"", []columnar.ColumnSpec{{}}, []string{"columns[0].name: it is missing", "columns[0].from: it is missing; it is family:qualifier, $row or $timestamp, or with rows: cell also $family, $qualifier and $value", "columns[0].type: it is missing; it is one of string, int64, float64, bool, timestamp, bytes, json and decimal(P,S), or from $unmatched.FAMILY one of map, map(string), map(int64) and map(float64)"}},
		"type":      {"", []columnar.ColumnSpec{{Name: "a", From: "info:a", Type: "strin"}}, []string{`columns[0].type: "strin" is no type (did you mean "string"?); it is one of string, int64, float64, bool, timestamp, bytes, json and decimal(P,S)`}},
		"decimal":   {"", []columnar.ColumnSpec{{Name: "a", From: "info:a", Type: "decimal(39,2)"}}, []string{`columns[0].type: "decimal(39,2)" is no type; decimals are decimal(P,S) with P digits, 1 to 38, of which S, 0 to P, are behind the point`}},
		"unquoted":  {"", []columnar.ColumnSpec{{Name: "a", From: "info:a", Type: "decimal(9"}}, []string{`columns[0].type: "decimal(9" is no type; decimals are decimal(P,S) with P digits, 1 to 38, of which S, 0 to P, are behind the point, in quotes within braces, where the comma ends a text`}},
		"map":       {"", []columnar.ColumnSpec{{Name: "a", From: "$unmatched.info", Type: "map(bool)"}}, []string{`columns[0].type: "map(bool)" is no type; maps of qualifier and value are map, map(string), map(int64) and map(float64)`}},
		"map typo":  {"", []columnar.ColumnSpec{{Name: "a", From: "$unmatched.info", Type: "map(strin)"}}, []string{`columns[0].type: "map(strin)" is no type (did you mean "map(string)"?); maps of qualifier and value are map, map(string), map(int64) and map(float64)`}},
		"one cell":  {"", []columnar.ColumnSpec{{Name: "a", From: "info:a", Type: "map"}}, []string{`columns[0].type: a map holds many columns: it is for columns from $unmatched.FAMILY, not from info:a`}},
		"coding":    {"", []columnar.ColumnSpec{good, {Name: "b", From: "info:b", Type: "int64", Coding: "int64"}}, []string{`columns[1].coding: "int64" is no coding of type int64 (did you mean "int64be"?); it is one of text, int64be, distinct, u8, u16, u32, u64, i64, reverse_ts, hex, varint, zigzag`}},
		"other":     {"", []columnar.ColumnSpec{{Name: "b", From: "info:b", Type: "string", Coding: "int64be"}}, []string{`columns[0].coding: "int64be" is no coding of type string; it is one of text, fixed, reverse`}},
		"family":    {"", []columnar.ColumnSpec{{Name: "b", From: "inof:b", Type: "string"}}, []string{`columns[0].from: table t has no family "inof" (did you mean "info"?); it has info, n`}},
		"colon":     {"", []columnar.ColumnSpec{{Name: "b", From: "info", Type: "string"}}, []string{`columns[0].from: "info" has no colon; write family:qualifier, or "info:" for the empty qualifier`}},
		"special":   {"", []columnar.ColumnSpec{{Name: "b", From: "$rows", Type: "string"}}, []string{`columns[0].from: "$rows" is none of $row, $timestamp, $family, $qualifier, $value, $op (did you mean "$row"?)`}},
		"value":     {"", []columnar.ColumnSpec{{Name: "b", From: "$value", Type: "string"}}, []string{"columns[0].from: $value needs rows: cell; with rows: row a column is filled from family:qualifier"}},
		"cell mode": {"cell", []columnar.ColumnSpec{good}, []string{`columns[0].from: "info:a" names a column; with rows: cell it is $row, $timestamp, $family, $qualifier or $value`}},
		"twice":     {"", []columnar.ColumnSpec{good, {Name: "A", From: "info:b", Type: "string"}}, []string{`columns[1].name: "A" is also the name of columns[0] (upper and lower case count as equal)`}},
		"dot":       {"", []columnar.ColumnSpec{{Name: "a.b", From: "info:b", Type: "string"}}, []string{`columns[0].name: "a.b" has a dot or a control character`}},
		"counter":   {"", []columnar.ColumnSpec{{Name: "b", From: "n:b", Type: "string"}}, []string{"columns[0].coding: n:b comes from a COUNTER family, whose values are 8 bytes big-endian; use type int64 with coding int64be"}},
		"timestamp": {"", []columnar.ColumnSpec{{Name: "b", From: "$timestamp", Type: "string"}, {Name: "c", From: "$timestamp", Type: "timestamp", Coding: "text"}}, []string{"columns[0].type: $timestamp is a timestamp; its type is timestamp (µs), or int64 (ms), not string", "columns[1].coding: $timestamp has none, it is a number already; leave it out"}},
		"on_error":  {"", []columnar.ColumnSpec{{Name: "b", From: "info:b", Type: "int64", OnError: "nul"}}, []string{`columns[0].on_error: "nul" is no policy (did you mean "null"?); it is fail or null`}},
		"nullable":  {"", []columnar.ColumnSpec{{Name: "b", From: "info:b", Type: "int64", OnError: "null", Nullable: ptr(false)}}, []string{"columns[0].nullable: it is false, but on_error: null makes nulls"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := columnar.Compile(tt.specs, tt.mode, table())
			if err == nil {
				t.Fatal("Got no error")
			}
			if d := cmp.Diff(tt.want, strings.Split(err.Error(), "\n")); d != "" {
				t.Error(d)
			}
			var se *columnar.SpecError
			if !errors.As(err, &se) || !strings.HasPrefix(tt.want[0], se.Path+": ") {
				t.Errorf("Got %v, want a SpecError of %s", se, tt.want[0])
			}
		})
	}
}

func TestCompileDefaults(t *testing.T) {
	t.Parallel()
	s, err := columnar.Compile([]columnar.ColumnSpec{
		{Name: "key", From: "$row", Type: "string"},
		{Name: "n", From: "n:x", Type: "int64"},
		{Name: "text", From: "info:", Type: "int64", OnError: "null"},
		{Name: "must", From: "info:m", Type: "bytes", Nullable: ptr(false)},
		{Name: "at", From: "$timestamp", Type: "timestamp"},
	}, "", table())
	if err != nil {
		t.Fatal(err)
	}
	want := []columnar.ColumnSpec{
		{Name: "key", From: "$row", Type: "string", Coding: "text", Nullable: ptr(false), OnError: "fail"},
		{Name: "n", From: "n:x", Type: "int64", Coding: "int64be", Nullable: ptr(true), OnError: "fail"},
		{Name: "text", From: "info:", Type: "int64", Coding: "text", Nullable: ptr(true), OnError: "null"},
		{Name: "must", From: "info:m", Type: "bytes", Coding: "raw", Nullable: ptr(false), OnError: "fail"},
		{Name: "at", From: "$timestamp", Type: "timestamp", Nullable: ptr(false), OnError: "fail"},
	}
	if d := cmp.Diff(want, s.Specs()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"info", "n"}, s.Families()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"key"}, s.Order()); d != "" {
		t.Error(d)
	}
}

// TestCompileAgain: what Specs returns compiles to the same.
func TestCompileAgain(t *testing.T) {
	t.Parallel()
	s, err := columnar.Compile([]columnar.ColumnSpec{
		{Name: "path", From: "$row", Type: "string"}, {Name: "family", From: "$family", Type: "string"}, {Name: "v", From: "$value", Type: "bytes"},
	}, columnar.PerCell, table())
	if err != nil {
		t.Fatal(err)
	}
	again, err := columnar.Compile(s.Specs(), s.Mode(), table())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s.Specs(), again.Specs()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"path", "family"}, s.Order()); d != "" {
		t.Error(d)
	}
}
