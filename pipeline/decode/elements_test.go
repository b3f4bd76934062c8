package decode_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/decode"
)

// elements returns what is read of an array: each element and its fields.
func elements(e *decode.Elements, array string) (out []string, err error) {
	e.Reset()
	err = e.Each([]byte(array), func(whole decode.Value, fields *decode.Document) error {
		s := fmt.Sprintf("%v %s", whole.Kind, whole.Bytes)
		for i := range fields.Len() - 1 {
			if v := fields.Value(i); v.Kind != decode.Missing {
				s += fmt.Sprintf(" %d=%v %s", i, v.Kind, v.Bytes)
			}
		}
		out = append(out, s)
		return nil
	})
	return out, err
}

func TestElements(t *testing.T) {
	t.Parallel()
	f, err := decode.NewFields([]string{"sku", "size.w", "[1]"})
	if err != nil {
		t.Fatal(err)
	}
	e := decode.NewElements(f)
	for array, want := range map[string][]string{
		`[]`:                    {},
		` [ ] `:                 {},
		`[1, "a\n", null,true]`: {"number 1", "string a\n", "null ", "bool true"},
		`[{"sku":"x","size":{"w":2}},{"size":{}},{"sku":null}]`: {
			`object {"sku":"x","size":{"w":2}} 0=string x 1=number 2`, `object {"size":{}}`, `object {"sku":null} 0=null `,
		},
		`[[1,[2]],[]]`: {`array [1,[2]] 2=array [2]`, `array []`},
	} {
		got, err := elements(e, array)
		if err != nil {
			t.Errorf("%s: %v", array, err)
		}
		if d := cmp.Diff(want, got, cmp.Transformer("nil", func(s []string) []string { return append([]string{}, s...) })); d != "" {
			t.Errorf("%s (-want +got):\n%s", array, d)
		}
	}
	for _, bad := range []string{"", "{}", "[", "[1", "[1,]", "[1]x", `[{"a"]`, "[1 2]"} {
		var e1 *decode.Error
		if _, err := elements(e, bad); !errors.As(err, &e1) {
			t.Errorf("%q: got %v, want an *Error", bad, err)
		}
	}
	stop := errors.New("stop")
	n := 0
	if err := e.Each([]byte("[1,2,3]"), func(decode.Value, *decode.Document) error { n++; return stop }); err != stop || n != 1 {
		t.Errorf("got %v after %d elements, want the first one's error", err, n)
	}
}

// FuzzElements reads as encoding/json does.
func FuzzElements(f *testing.F) {
	for _, s := range []string{`[1,{"a":[1,2]},"x"]`, `[]`, `[[[]]]`, `[{"a":1,"a":2}]`, `["\ud800"]`, `[1,2`} {
		f.Add(s)
	}
	fields, err := decode.NewFields([]string{"a"})
	if err != nil {
		f.Fatal(err)
	}
	e := decode.NewElements(fields)
	f.Fuzz(func(t *testing.T, s string) {
		var want []json.RawMessage
		wantErr := json.Unmarshal([]byte(s), &want)
		if s == "null" || wantErr == nil && want == nil {
			return // encoding/json takes null for an empty array
		}
		var got []string
		e.Reset()
		err := e.Each([]byte(s), func(v decode.Value, _ *decode.Document) error {
			got = append(got, v.Kind.String())
			return nil
		})
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("got %v, encoding/json says %v", err, wantErr)
		}
		if err == nil && len(got) != len(want) {
			t.Fatalf("got %d elements, want %d", len(got), len(want))
		}
		if slices.Contains(got, "missing") {
			t.Fatal("an element is missing")
		}
	})
}
