package prefetch

import "testing"

// TestAnyAddress asks for memory of every length, and for none: nothing is read or
// written.
func TestAnyAddress(t *testing.T) {
	b := make([]byte, 300)
	for i := range b {
		b[i] = byte(i)
	}
	for i := range b {
		Bytes(b[i:])
		Bytes(b[:i+1])
	}
	Bytes(nil)
	String("")
	String(string(b))
	Value[[3]uint64](nil)
	Value(&b)
	Value(new([100]uint64))
	for i := range b {
		if b[i] != byte(i) {
			t.Fatalf("Byte %d has become %d.", i, b[i])
		}
	}
}
