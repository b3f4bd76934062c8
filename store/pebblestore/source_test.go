package pebblestore

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"sluice/cell"
)

// TestUnescapedIsTheInverse draws bytes that are escaped often, and those that no
// escaping has made: they must not end the process.
func TestUnescapedIsTheInverse(t *testing.T) {
	t.Parallel()
	drawn := rapid.SliceOf(rapid.SampledFrom([]byte{0, 0, 0xff, 1, 'a'}))
	rapid.Check(t, func(t *rapid.T) {
		want := drawn.Draw(t, "bytes")
		if got := appendUnescaped([]byte("x"), cell.AppendEscaped(nil, want)); !bytes.Equal(got[1:], want) || got[0] != 'x' {
			t.Fatalf("Got %x of %x", got, want)
		}
		appendUnescaped(nil, want)
	})
}
