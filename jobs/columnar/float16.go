package columnar

import "math"

// Float16 returns the value of IEEE 754's binary16 with these bits, which a float64
// holds exactly: subnormal numbers, infinities and the sign of zero too. A NaN is one, with
// other bits.
func Float16(bits uint16) float64 {
	fraction, exponent := float64(bits&(1<<10-1)), int(bits>>10&(1<<5-1))
	v := math.Ldexp(1<<10+fraction, exponent-25)
	switch {
	case exponent == 0:
		v = math.Ldexp(fraction, -24)
	case exponent == 1<<5-1 && fraction == 0:
		v = math.Inf(1)
	case exponent == 1<<5-1:
		return math.NaN()
	}
	if bits>>15 == 1 {
		v = -v
	}
	return v
}
