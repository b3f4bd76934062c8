package columnar

import (
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestIsASCII holds isASCII to its definition at every length of its steps, with the
// byte that decides at every place.
func TestIsASCII(t *testing.T) {
	t.Parallel()
	for n := range 40 {
		b := make([]byte, n)
		if !isASCII(b) {
			t.Errorf("%d zeros are not ASCII", n)
		}
		for i := range b {
			b[i] = 0x7f
			if !isASCII(b) {
				t.Errorf("%x is not ASCII", b)
			}
			b[i] = 0x80
			if isASCII(b) {
				t.Errorf("%x is ASCII", b)
			}
			b[i] = 0
		}
	}
}

// TestValuesAreCheckedAsUTF8 holds the short way of values that are ASCII to
// utf8.Valid.
func TestValuesAreCheckedAsUTF8(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) })).Draw(t, "value")
		b := &Builder{schema: &Schema{columns: []column{{Column: Column{Name: "c", Type: String}, coding: Text}}}, batch: NewBatch([]Column{{Name: "c", Type: String}})}
		err := b.value(0, []byte("row"), value)
		if (err == nil) != utf8.Valid(value) {
			t.Fatalf("value %x: %v", value, err)
		}
		if err == nil && (b.batch.Rows() != 1 || string(b.batch.Vector(0).Bytes(0)) != string(value)) {
			t.Fatalf("value %x became %d rows", value, b.batch.Rows())
		}
	})
}
