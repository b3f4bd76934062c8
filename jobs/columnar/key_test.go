package columnar_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
	"sluice/rowkey"
)

// drawnField is a field of a row key, its column, and what that holds.
type drawnField struct {
	field  columnar.KeyField
	column columnar.ColumnSpec
	want   string // as columnartest.Texts has it
}

// drawField adds a field to the key.
func drawField(t *rapid.T, e *rowkey.Encoder, n int) drawnField {
	d := drawnField{field: columnar.KeyField{Name: fmt.Sprint("f", n)}}
	is := func(width int, typ, coding string, want any) {
		d.field.Width, d.want = width, fmt.Sprint(want)
		d.column = columnar.ColumnSpec{Name: d.field.Name, From: "$row." + d.field.Name, Type: typ, Coding: coding}
	}
	ms := rapid.OneOf(rapid.Int64Range(math.MinInt64/1000, math.MaxInt64/1000), rapid.SampledFrom([]int64{0, -1, 1431857103123}))
	switch rapid.IntRange(0, 8).Draw(t, "kind") {
	case 0:
		v := rapid.Uint8().Draw(t, "u8")
		e.Uint8(v)
		is(1, "int64", "u8", v)
	case 1:
		v := rapid.Uint16().Draw(t, "u16")
		e.Uint16(v)
		is(2, "int64", "u16", v)
	case 2:
		v := rapid.Uint32().Draw(t, "u32")
		e.Uint32(v)
		is(4, "int64", "u32", v)
	case 3:
		v := rapid.Uint64Max(math.MaxInt64).Draw(t, "u64")
		e.Uint64(v)
		is(8, "int64", "u64", v)
	case 4:
		v := rapid.Int64().Draw(t, "i64")
		e.Int64(v)
		is(8, "int64", "i64", v)
	case 5:
		v := ms.Draw(t, "time")
		e.Time(cell.Timestamp(v))
		is(8, "timestamp", "i64", v*1000)
	case 6:
		v := ms.Draw(t, "reversed time")
		e.ReverseTime(cell.Timestamp(v))
		is(8, "timestamp", "reverse_ts", v*1000)
	case 7:
		v := rapid.StringMatching(`[a-zäß\x00]{0,4}`).Filter(func(s string) bool { return !strings.HasSuffix(s, "\x00") }).Draw(t, "text")
		e.Text(v, 8)
		is(8, "string", "fixed", fmt.Sprintf("%q", v))
	default:
		v := rapid.SliceOfN(rapid.Byte(), 3, 3).Draw(t, "bytes")
		e.Bytes(v, 3)
		is(3, "bytes", "raw", fmt.Sprintf("%q", v))
	}
	return d
}

// TestKeyIsEncoders: the fields of a key that package rowkey has made come out as the
// values that went in, in both modes and of rows that are gone.
func TestKeyIsEncoders(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var e rowkey.Encoder
		var spec columnar.KeySpec
		var columns []columnar.ColumnSpec
		var want []string
		for n := range rapid.IntRange(1, 5).Draw(t, "fields") {
			d := drawField(t, &e, n)
			spec.Fields, columns, want = append(spec.Fields, d.field), append(columns, d.column), append(want, d.want)
		}
		if rapid.Bool().Draw(t, "rest") {
			rest := rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "the rest")
			e.Rest(rest)
			spec.Fields = append(spec.Fields, columnar.KeyField{Name: "rest"})
			columns = append(columns, columnar.ColumnSpec{Name: "rest", From: "$row.rest", Type: "bytes", Coding: "hex"}, columnar.ColumnSpec{Name: "rest again", From: "$row.rest", Type: "bytes"})
			columns[len(columns)-2].OnError = "null" // of no use as hex, in general
			want = append(want, "null", fmt.Sprintf("%q", rest))
			if len(rest) == 0 {
				want[len(want)-2] = `""`
			}
		}
		key, err := e.Key()
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "salted") {
			spec.Salt = rapid.IntRange(1, rowkey.MaxBuckets).Draw(t, "buckets")
			salt, err := rowkey.NewSalt(spec.Salt)
			if err != nil {
				t.Fatal(err)
			}
			key = salt.Append(nil, key)
		}
		mode := rapid.SampledFrom([]columnar.RowsMode{columnar.PerRow, columnar.PerCell}).Draw(t, "mode")
		s, err := columnar.CompileKeyed(columns, mode, &spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := columnar.NewBuilder(s)
		if err := b.Append(&cell.Row{Key: key, Cells: []cell.Cell{put("f", "q", 1, "")}}); err != nil {
			t.Fatal(err)
		}
		if err := b.AppendGone(key); err != nil {
			t.Fatal(err)
		}
		got := columnartest.Texts(b.Batch())
		if n := len(want) - 2; spec.Fields[len(spec.Fields)-1].Width == 0 && got[0][n] != "null" {
			want[n] = got[0][n] // bytes that happen to be hex digits, of which TestConvert has some
		}
		if d := cmp.Diff([][]string{want, want}, got); d != "" {
			t.Fatalf("key %q: %s", key, d)
		}
	})
}

// TestKeyUnlike: of a key that is made in another way no field is taken.
func TestKeyUnlike(t *testing.T) {
	t.Parallel()
	spec := &columnar.KeySpec{Salt: 4, Fields: []columnar.KeyField{
		{Name: "country", Width: 2, Until: "|"}, {Name: "user", Until: `\x00\xff`}, {Width: 2}, {Name: "n", Until: "!"},
	}}
	for key, want := range map[string]string{
		"\x03de|ann\x00\xff..-7!":   "",
		"\x03de|\x00\xff\x00\xff7!": "", // an empty user
		"":                          "it does not begin with the salt",
		"\x04de|ann\x00\xff..7!":    "it does not begin with the salt",
		"\x00d":                     "field country has not 2 bytes",
		"\x00deu|ann\x00\xff..7!":   `"|" does not stand behind field country`,
		"\x00de":                    `"|" does not stand behind field country`,
		"\x00de|ann\x00..7!":        `"\\x00\\xff" does not stand behind field user`,
		"\x00de|ann\x00\xff.":       "field 3 has not 2 bytes",
		"\x00de|ann\x00\xff..7":     `"!" does not stand behind field n`,
	} {
		for _, onError := range []string{"fail", "null"} {
			s, err := columnar.CompileKeyed([]columnar.ColumnSpec{
				{Name: "country", From: "$row.country", Type: "string", OnError: onError},
				{Name: "user", From: "$row.user", Type: "string", OnError: onError},
				{Name: "n", From: "$row.n", Type: "int64", OnError: onError},
			}, "", spec, table())
			if err != nil {
				t.Fatal(err)
			}
			b := columnar.NewBuilder(s)
			err = b.Append(&cell.Row{Key: []byte(key), Cells: []cell.Cell{put("info", "q", 1, "")}})
			refused := (*columnar.ConvertError)(nil)
			switch {
			case want == "" || onError == "null":
				if err != nil {
					t.Errorf("%q: %v", key, err)
				} else if row := columnartest.Texts(b.Batch())[0]; (cmp.Diff([]string{"null", "null", "null"}, row) == "") != (want != "") {
					t.Errorf("%q: got %v", key, row)
				}
			case !errors.As(err, &refused) || refused.Reason != "the row key is not as row_key says: "+want:
				t.Errorf("%q: got %v, want %s", key, err, want)
			case string(refused.Row) != key || refused.Column != "country" || refused.From != "$row.country":
				t.Errorf("%q: got %+v", key, refused)
			}
		}
	}
}

// Of a field behind which all have widths the end of the key tells where it ends: it may hold
// what stands behind it, or nothing need stand there.
func TestKeyFromTheEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fields []columnar.KeyField
		keys   map[string]string // the field u, or why there is none
	}{
		"a separator": {
			[]columnar.KeyField{{Name: "u", Until: "/"}, {Width: 2, Until: "-"}, {Width: 1}},
			map[string]string{
				"a/12-3": `"a"`, "a/b/12-3": `"a/b"`, "/12-3": `""`, "//12-3": `"/"`, "a//2-3": `"a"`,
				"a/12-": `"/" does not stand behind field u`, "a/12+3": `"-" does not stand behind field 2`, "a/12-34": `"/" does not stand behind field u`,
				"12-3": "there are not 5 bytes behind field u",
			},
		},
		"none": {
			[]columnar.KeyField{{Width: 1, Until: "|"}, {Name: "u"}, {Width: 2}},
			map[string]string{"s|ab12": `"ab"`, "s|12": `""`, "s||12": `"|"`, "s|1": "there are not 2 bytes behind field u", "s": `"|" does not stand behind field 1`},
		},
		"the last": {
			[]columnar.KeyField{{Name: "u", Until: "!"}},
			map[string]string{"a!": `"a"`, "a!!": `"a!"`, "!": `""`, "a!b": `"!" does not stand behind field u`, "": "there are not 1 bytes behind field u"},
		},
		"not the last": {
			[]columnar.KeyField{{Name: "u", Until: "!"}, {Until: "!"}, {Width: 1}},
			map[string]string{"a!b!1": `"a"`, "a!b!!1": `"a"`, "a!b!12": `"!" does not stand behind field 2`},
		},
		"too long": {
			[]columnar.KeyField{{Name: "u", Width: 1}, {Width: 1}},
			map[string]string{"a1": `"a"`, "a12": "there are bytes behind the last field"},
		},
	} {
		s, err := columnar.CompileKeyed([]columnar.ColumnSpec{{Name: "u", From: "$row.u", Type: "bytes"}}, "", &columnar.KeySpec{Fields: tt.fields}, table())
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range tt.keys {
			b := columnar.NewBuilder(s)
			err := b.Append(&cell.Row{Key: []byte(key), Cells: []cell.Cell{put("info", "q", 1, "")}})
			refused := (*columnar.ConvertError)(nil)
			switch {
			case errors.As(err, &refused):
				if refused.Reason != "the row key is not as row_key says: "+want {
					t.Errorf("%s: %q: got %v, want %s", name, key, err, want)
				}
			case err != nil:
				t.Errorf("%s: %q: %v", name, key, err)
			default:
				if got := columnartest.Texts(b.Batch())[0][0]; got != want {
					t.Errorf("%s: %q: got %s, want %s", name, key, got, want)
				}
			}
		}
	}
}

// A key that is right in its form may have a field that its column cannot take.
func TestKeyFieldRefused(t *testing.T) {
	t.Parallel()
	s, err := columnar.CompileKeyed([]columnar.ColumnSpec{{Name: "n", From: "$row.n", Type: "int64"}}, "",
		&columnar.KeySpec{Fields: []columnar.KeyField{{Until: "/"}, {Name: "n"}}}, table())
	if err != nil {
		t.Fatal(err)
	}
	err = columnar.NewBuilder(s).Append(&cell.Row{Key: []byte("a/x"), Cells: []cell.Cell{put("info", "q", 1, "")}})
	const want = `table t, row "a/x", column n ($row.n): value "x" is not int64 in coding text: not a decimal number (on_error: null would export null)`
	if err == nil || err.Error() != want {
		t.Errorf("Got %v, want %s", err, want)
	}
	if columns := s.Columns(); columns[0].Nullable || len(s.Order()) > 0 {
		t.Errorf("Got %+v, sorted by %v", columns, s.Order())
	}
}

func TestKeySpecErrors(t *testing.T) {
	t.Parallel()
	good := []columnar.KeyField{{Name: "a", Until: "|"}, {Name: "b"}}
	for name, tt := range map[string]struct {
		key  *columnar.KeySpec
		from string
		want string
	}{
		"good":          {&columnar.KeySpec{Salt: 256, Fields: good}, "$row.b", ""},
		"none":          {nil, "$row.a", `columns[0].from: "$row.a" is a field of the row key: row_key is missing, which says how keys are made`},
		"zero":          {&columnar.KeySpec{}, "$row.a", `columns[0].from: "$row.a" is a field of the row key: row_key is missing, which says how keys are made`},
		"unknown":       {&columnar.KeySpec{Fields: []columnar.KeyField{{Name: "user", Width: 2}, {}}}, "$row.usr", `columns[0].from: row_key has no field "usr" (did you mean "user"?); it has user`},
		"unnamed":       {&columnar.KeySpec{Fields: []columnar.KeyField{{Width: 1}, {Name: "b"}}}, "$row.", `columns[0].from: row_key has no field "" (did you mean "b"?); it has b`},
		"no fields":     {&columnar.KeySpec{Salt: 2}, "$row", "row_key.fields: row_key.fields names none; a row key has at least one field"},
		"salt":          {&columnar.KeySpec{Salt: 257, Fields: good}, "$row", "row_key.salt: it has 1 to 256 buckets, not 257"},
		"width":         {&columnar.KeySpec{Fields: []columnar.KeyField{{Width: -1, Until: "x"}}}, "$row", "row_key.fields[0].width: -1 is not from 1 to 32767 bytes"},
		"endless":       {&columnar.KeySpec{Fields: []columnar.KeyField{{Name: "a"}, {Name: "b"}}}, "$row", "row_key.fields[0]: where does it end? Give it a width, or until what; only the last field, or one behind which all have widths, is all that is left"},
		"endless twice": {&columnar.KeySpec{Fields: []columnar.KeyField{{Name: "a"}, {Name: "b"}, {Name: "c", Width: 2}}}, "$row", "row_key.fields[0]: where does it end? Give it a width, or until what; only the last field, or one behind which all have widths, is all that is left"},
		"from the end":  {&columnar.KeySpec{Fields: []columnar.KeyField{{Name: "a"}, {Name: "b", Width: 2, Until: "|"}, {Name: "c", Width: 2}}}, "$row.a", ""},
		"until":         {&columnar.KeySpec{Fields: []columnar.KeyField{{Until: `\x0`}}}, "$row", `row_key.fields[0].until: "\\x0": a backslash begins \xNN, two hex digits; itself it is \x5C`},
		"name":          {&columnar.KeySpec{Fields: []columnar.KeyField{{Name: "a.b"}}}, "$row", `row_key.fields[0].name: "a.b" has something else than letters, digits and _`},
		"same name":     {&columnar.KeySpec{Fields: []columnar.KeyField{{Name: "a", Width: 1}, {Name: "a"}}}, "$row", `row_key.fields[1].name: "a" is also the name of fields[0]`},
		"used twice":    {&columnar.KeySpec{Fields: good}, "$row.a", ""},
	} {
		got := ""
		if _, err := columnar.CompileKeyed([]columnar.ColumnSpec{{Name: "c", From: tt.from, Type: "bytes"}, {Name: "d", From: tt.from, Type: "string"}}, "", tt.key, table()); err != nil {
			got, _, _ = strings.Cut(err.Error(), "\n")
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", name, got, tt.want)
		}
	}
}

// FuzzKey splits any key by any fields: the fields and what stands between them make
// the key again.
func FuzzKey(f *testing.F) {
	f.Add([]byte("de|user-1|7"), "|", uint8(0), uint8(2))
	f.Add([]byte("\x01ab\x00\xffrest"), `\x00\xff`, uint8(4), uint8(0))
	f.Add([]byte{}, "", uint8(1), uint8(1))
	f.Fuzz(func(t *testing.T, key []byte, until string, salt, width uint8) {
		spec := &columnar.KeySpec{Salt: int(salt), Fields: []columnar.KeyField{{Name: "a", Until: until}, {Name: "b", Width: int(width), Until: until}, {Name: "c"}}}
		s, err := columnar.CompileKeyed([]columnar.ColumnSpec{
			{Name: "a", From: "$row.a", Type: "bytes", OnError: "null"},
			{Name: "b", From: "$row.b", Type: "bytes", OnError: "null"},
			{Name: "c", From: "$row.c", Type: "bytes", OnError: "null"},
		}, "", spec, nil)
		if err != nil {
			return
		}
		b := columnar.NewBuilder(s)
		if err := b.Append(&cell.Row{Key: key, Cells: []cell.Cell{{}}}); err != nil {
			t.Fatal(err)
		}
		between, err := columnar.UnescapeKey(until)
		if err != nil {
			t.Fatal(err)
		}
		parts := make([][]byte, 3)
		for i := range parts {
			v := b.Batch().Vector(i)
			if v.IsNull(0) {
				if b.Batch().Vector(0).IsNull(0) && b.Batch().Vector(1).IsNull(0) && b.Batch().Vector(2).IsNull(0) {
					return
				}
				t.Fatalf("%q: some fields are null", key)
			}
			parts[i] = v.Bytes(0)
		}
		if salt > 0 {
			if key[0] >= salt {
				t.Fatalf("%q has a salt of %d", key, salt)
			}
			key = key[1:]
		}
		if again := bytes.Join(parts, between); !bytes.Equal(again, key) || bytes.Contains(parts[0], between) || width > 0 && len(parts[1]) != int(width) {
			t.Fatalf("%q is %q with %q between", key, parts, between)
		}
	})
}
