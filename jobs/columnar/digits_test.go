package columnar

import (
	"encoding/binary"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestParseDigits holds parseDigits to strconv, with whatever lies behind the digits and each
// byte that is none at each place.
func TestParseDigits(t *testing.T) {
	t.Parallel()
	parse := func(b [8]byte, n int) (int64, bool) { return parseDigits(binary.LittleEndian.Uint64(b[:]), n) }
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching("[0-9]{1,8}").Draw(t, "digits")
		var b [8]byte
		copy(b[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "behind them"))
		copy(b[:], text)
		want, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := parse(b, len(text)); !ok || got != want {
			t.Fatalf("Got %d, %t of %q", got, ok, text)
		}
	})
	for n := range 9 {
		for i := range n {
			for c := range 256 {
				b := [8]byte([]byte("12345678"))
				b[i] = byte(c)
				if _, ok := parse(b, n); ok != ('0' <= c && c <= '9') {
					t.Errorf("%q: %t", b[:n], ok)
				}
			}
		}
	}
	if n, ok := parse([8]byte([]byte("12345678")), 0); ok {
		t.Errorf("no digits are %d", n)
	}
}

// TestCopyASCII holds copyASCII to its definition at every length of its steps, with the
// byte that decides at every place.
func TestCopyASCII(t *testing.T) {
	t.Parallel()
	for n := range 140 {
		for i := range n + 1 { // n = none
			for _, c := range []byte{0x7f, 0x80, 0xff} {
				b := make([]byte, n)
				for j := range b {
					b[j] = byte(j%100 + 1)
				}
				if i < n {
					b[i] = c
				}
				dst := make([]byte, n+1)
				if got := copyASCII(dst[:n], b); got != (i == n || c < 0x80) {
					t.Errorf("%x: %t", b, got)
				}
				if string(dst[:n]) != string(b) || dst[n] != 0 {
					t.Errorf("%x was copied as %x", b, dst)
				}
			}
		}
	}
}
