package columnar_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
	"sluice/store"
)

// packedQualifiers are what columns and rows are drawn from.
var packedQualifiers = []string{"", "a", "b", "c", "cc", "seven_7", "eight_88", "fifteen_letters", "sixteen_letters_", "a longer name of a column", string(slices.Repeat([]byte{'l'}, 130))}

// drawPackedSchema draws columns of two families, of which packed rows have one.
func drawPackedSchema(t *rapid.T) *columnar.Schema {
	kinds := []columnar.ColumnSpec{
		{Type: "string"},
		{Type: "string", OnError: columnar.OnErrorNull},
		{Type: "bytes", Coding: "raw"},
		{Type: "int64", Coding: "text", OnError: columnar.OnErrorNull},
		{Type: "json", OnError: columnar.OnErrorNull},
		{Type: "float64", OnError: columnar.OnErrorNull},
		{Type: "bool", OnError: columnar.OnErrorNull},
		{Type: "decimal(30,1)", OnError: columnar.OnErrorNull},
	}
	var specs []columnar.ColumnSpec
	for i := range rapid.IntRange(1, 7).Draw(t, "columns") {
		spec := rapid.SampledFrom(kinds).Draw(t, "kind")
		nullable := spec.OnError != "" || rapid.IntRange(0, 4).Draw(t, "nullable") > 0
		spec.Name, spec.Nullable = fmt.Sprintf("c%d", i), &nullable
		family := rapid.SampledFrom([]string{"f", "f", "f", "e", "g"}).Draw(t, "family")
		spec.From = family + ":" + rapid.SampledFrom(packedQualifiers).Draw(t, "qualifier")
		specs = append(specs, spec)
	}
	others := []columnar.ColumnSpec{
		{Name: "key", From: columnar.FromRow, Type: "bytes"}, {Name: "part", From: "$row.part", Type: "string"}, {Name: "t", From: columnar.FromTimestamp, Type: "timestamp"}, {Name: "op", From: columnar.FromOp, Type: "string"},
	}
	for _, spec := range others[:rapid.IntRange(0, len(others)).Draw(t, "others")] {
		specs = slices.Insert(specs, rapid.IntRange(0, len(specs)).Draw(t, "at"), spec)
	}
	one := &columnar.KeySpec{Fields: []columnar.KeyField{{Width: 4}, {Name: "part"}}}
	s, err := columnar.CompileKeyed(specs, columnar.PerRow, one, nil)
	if err != nil {
		t.Fatal(err)
	}
	var where []columnar.Predicate
	for range rapid.IntRange(0, 2).Draw(t, "conditions") {
		spec := rapid.SampledFrom(specs).Draw(t, "of")
		p := columnar.Predicate{Column: spec.Name, Op: rapid.SampledFrom([]string{columnar.OpAbsent, columnar.OpPresent, "<", ">=", "!="}).Draw(t, "op")}
		if p.Op != columnar.OpAbsent && p.Op != columnar.OpPresent {
			if p.Value = map[string]string{"bool": "true", "string": "e", "bytes": "row005"}[spec.Type]; p.Value == "" {
				p.Value = "100"
			}
		}
		if spec.From != columnar.FromOp && (spec.Type != "json" || p.Value == "") {
			where = append(where, p)
		}
	}
	if s, err = s.Where(where); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPackedRows appends rows as they are stored, and their cells: the batches must be the
// same, and so must be whether a value is refused.
func TestPackedRows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		schema := drawPackedSchema(t)
		texts := rapid.OneOf(rapid.StringMatching("[a-z0-9]{0,17}"), rapid.StringMatching("[-+]?[0-9]{1,3}"), rapid.StringMatching("[0-9]{17,20}"), rapid.SampledFrom([]string{"true", "false", "1.5", "{}"}), rapid.Just("grün"), rapid.Just("\xff"), rapid.StringMatching("[a-z]{15,40}[a-zü]{0,3}"), rapid.StringN(120, 140, -1))
		packed, cells := columnar.NewBuilder(schema), columnar.NewBuilder(schema)
		alike := rapid.Bool().Draw(t, "alike")
		some := rapid.SliceOfN(rapid.SampledFrom(packedQualifiers), 1, 5)
		columns := some.Draw(t, "qualifiers")
		key, late := 0, rapid.SampledFrom([]cell.Timestamp{5, 5, 5, math.MaxInt64}).Draw(t, "latest")
		for range rapid.IntRange(1, 3).Draw(t, "blocks") {
			var rows cell.PackedRows
			rows.Reset("f")
			for range rapid.IntRange(1, 20).Draw(t, "rows") {
				if !alike {
					columns = some.Draw(t, "qualifiers")
				}
				columns = slices.Compact(slices.Sorted(slices.Values(columns)))
				value := cell.AppendPackedHeader(nil, 0, false)
				for _, q := range columns {
					value = cell.AppendPackedColumn(value, []byte(q), []byte(texts.Draw(t, "value")))
				}
				key++
				rows.Append(fmt.Appendf(nil, "row%03d", key), value, rapid.SampledFrom([]cell.Timestamp{0, 1000, cell.Timestamp(key), math.MaxInt64 / 1000, late}).Draw(t, "time"))
			}
			ok, err := packed.AppendPacked(&rows)
			if !ok && err == nil {
				t.Fatal("The rows were not taken")
			}
			var want error
			var kept []bool
			for i := 0; i < rows.Len() && want == nil; i++ {
				row, err := rows.Row(i, nil)
				if err != nil {
					t.Fatal(err)
				}
				before := cells.Batch().Rows()
				want = cells.Append(&row)
				kept = append(kept, cells.Batch().Rows() > before)
			}
			// Of several that are refused, it is another one: a column's first.
			var refused *columnar.ConvertError
			if (err == nil) != (want == nil) || err != nil && !errors.As(err, &refused) {
				t.Fatalf("Got %v of what is stored, and %v of cells", err, want)
			}
			if err != nil {
				return
			}
			if d := cmp.Diff(columnartest.Texts(cells.Batch()), columnartest.Texts(packed.Batch())); d != "" {
				t.Fatal(d)
			}
			for i := range schema.Columns() {
				if got, want := packed.Batch().Vector(i).Nulls(), cells.Batch().Vector(i).Nulls(); got != want {
					t.Fatalf("Got %d nulls in column %d, and %d of cells", got, i, want)
				}
			}
			if !slices.Contains(kept, false) {
				kept = nil
			}
			if d := cmp.Diff(kept, packed.Kept()); d != "" {
				t.Fatalf("Kept: %s", d)
			}
			if got, want := packed.VariableBytes(), cells.VariableBytes(); got != want {
				t.Fatalf("Got %d bytes that fill the batch, and %d of cells", got, want)
			}
		}
	})
}

// TestPackedFull: what may fill the batch before its last row is not taken at once, so
// that batches end where they end with rows one by one.
func TestPackedFull(t *testing.T) {
	t.Parallel()
	schema, err := columnar.Compile([]columnar.ColumnSpec{{Name: "v", From: "f:v", Type: "bytes", Coding: "raw"}, {Name: "w", From: "f:v", Type: "bytes", Coding: "raw"}}, columnar.PerRow, nil)
	if err != nil {
		t.Fatal(err)
	}
	block := func(rows, size int) *cell.PackedRows {
		var p cell.PackedRows
		p.Reset("f")
		for i := range rows {
			p.Append(fmt.Appendf(nil, "%06d", i), cell.AppendPackedColumn([]byte{0}, []byte("v"), make([]byte, size)), 1)
		}
		return &p
	}
	b := columnar.NewBuilder(schema)
	for i, tt := range []struct {
		rows, size int
		ok         bool
	}{
		{columnar.DefaultBatchRows - 10, 1, true}, {11, 1, false}, {10, columnar.DefaultBatchBytes / 20, false}, {10, 1, true},
	} {
		if ok, err := b.AppendPacked(block(tt.rows, tt.size)); ok != tt.ok || err != nil {
			t.Errorf("Block %d: got %t, %v", i, ok, err)
		}
	}
	if !b.Full() {
		t.Errorf("A batch of %d rows is not full", b.Batch().Rows())
	}
	for name, spec := range map[string]columnar.ColumnSpec{"unmatched": {Name: "m", From: "$unmatched.f", Type: "map"}, "cell": {Name: "v", From: columnar.FromValue, Type: "bytes", Coding: "raw"}} {
		mode := columnar.PerRow
		if name == "cell" {
			mode = columnar.PerCell
		}
		s, err := columnar.Compile([]columnar.ColumnSpec{spec}, mode, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := columnar.NewBuilder(s).AppendPacked(block(1, 1)); ok || err != nil {
			t.Errorf("%s: got %t, %v", name, ok, err)
		}
	}
}

// FuzzAppendPacked reads any bytes as a packed row: as Packed reads them, or with
// ErrCorrupt where that finds damage.
func FuzzAppendPacked(f *testing.F) {
	f.Add([]byte("\x00\x01a\x01v\x01b\x02vv"))
	f.Add([]byte("\x00\x01b\x01v\x01a\x02vv"))
	f.Add([]byte("\x00\x01a\x80\x01v"))
	f.Add([]byte("\x00\x81\x00a\x01v"))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x07\x01a\x01v"))
	f.Add([]byte{0})
	f.Add([]byte{})
	schema, err := columnar.Compile([]columnar.ColumnSpec{
		{Name: "a", From: "f:a", Type: "bytes", Coding: "raw"}, {Name: "b", From: "f:b", Type: "string", OnError: columnar.OnErrorNull}, {Name: "n", From: "f:number_of_it", Type: "bytes", Coding: "raw"},
	}, columnar.PerRow, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		var rows cell.PackedRows
		rows.Reset("f")
		rows.Append([]byte("before"), []byte("\x00\x01a\x01v"), 1)
		rows.Append([]byte("row"), value, 2)
		packed, cells := columnar.NewBuilder(schema), columnar.NewBuilder(schema)
		_, err := packed.AppendPacked(&rows)
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatal(err)
			}
			if _, damage := rows.Row(1, nil); damage == nil && (len(value) == 0 || value[0] == 0) {
				t.Fatalf("%q is whole, and got %v", value, err)
			}
			return
		}
		for i := range rows.Len() {
			row, err := rows.Row(i, nil)
			if err != nil {
				t.Fatalf("%q: %v was not found", value, err)
			}
			if err := cells.Append(&row); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(columnartest.Texts(cells.Batch()), columnartest.Texts(packed.Batch())); d != "" {
			t.Fatalf("%q: %s", value, d)
		}
	})
}
