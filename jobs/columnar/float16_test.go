package columnar

import (
	"math"
	"testing"
)

// The examples are those of IEEE 754's binary16, at each of its edges.
func TestFloat16(t *testing.T) {
	t.Parallel()
	for bits, want := range map[uint16]float64{
		0x0000: 0, 0x3c00: 1, 0xc000: -2, 0x3555: 0.333251953125, 0x4248: 3.140625,
		0x0001: 0x1p-24, 0x8001: -0x1p-24, 0x03ff: 0x3ffp-24, 0x0400: 0x1p-14,
		0x7bff: 65504, 0xfbff: -65504, 0x7c00: math.Inf(1), 0xfc00: math.Inf(-1),
	} {
		if got := Float16(bits); got != want {
			t.Errorf("%#04x: Got %v, want %v", bits, got, want)
		}
	}
	if got := Float16(0x8000); got != 0 || !math.Signbit(got) {
		t.Errorf("Got %v of -0", got)
	}
	for _, bits := range []uint16{0x7c01, 0x7e00, 0xffff} {
		if got := Float16(bits); !math.IsNaN(got) {
			t.Errorf("%#04x: Got %v, want NaN", bits, got)
		}
	}
	// From each number to the next above it, all through, there is one step of its size.
	for bits := uint16(0); bits < 0x7bff; bits++ {
		step := math.Ldexp(1, max(int(bits>>10), 1)-25)
		if d := Float16(bits+1) - Float16(bits); d != step {
			t.Fatalf("%#04x: the next is %v above, want %v", bits, d, step)
		}
	}
}
