package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
)

// Gap is a range of offsets, [From, To).
type Gap struct{ From, To int64 }

// MaxGaps is how many ranges a Gaps keeps: the newest. An operator looks at the last
// losses; a pipeline that loses records more often than that has lost its log.
const MaxGaps = 64

// Gaps are ranges of offsets that Kafka no longer had when they were to be applied,
// ascending and apart, the newest MaxGaps of them. It is a value that can be
// compared: From and To of each, 8 bytes big-endian. The zero value has none.
type Gaps string

const gapSize = 16

// With returns g and the offsets [from, to), which are after all of g.
func (g Gaps) With(from, to int64) Gaps {
	if from >= to {
		return g
	}
	all := g.All()
	if n := len(all); n > 0 && all[n-1].To == from {
		from, g = all[n-1].From, g[:len(g)-gapSize]
	}
	b := binary.BigEndian.AppendUint64([]byte(g), uint64(from))
	b = binary.BigEndian.AppendUint64(b, uint64(to))
	return Gaps(b[max(0, len(b)-MaxGaps*gapSize):])
}

// All returns the ranges in a new slice.
func (g Gaps) All() []Gap {
	all := make([]Gap, 0, len(g)/gapSize)
	for b := []byte(g); len(b) >= gapSize; b = b[gapSize:] {
		all = append(all, Gap{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))})
	}
	return all
}

// Offsets returns how many offsets they are.
func (g Gaps) Offsets() int64 {
	n := int64(0)
	for _, one := range g.All() {
		n += one.To - one.From
	}
	return n
}

// String lists them as FROM-LAST, apart by spaces.
func (g Gaps) String() string {
	var b strings.Builder
	for i, one := range g.All() {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d-%d", one.From, one.To-1)
	}
	return b.String()
}

// check says whether they are as With makes them.
func (g Gaps) check() error {
	if len(g)%gapSize != 0 || len(g) > MaxGaps*gapSize {
		return fmt.Errorf("gaps of %d bytes", len(g))
	}
	last := int64(-1)
	for _, one := range g.All() {
		if one.From <= last || one.To <= one.From {
			return fmt.Errorf("gap [%d, %d) after offset %d", one.From, one.To, last)
		}
		last = one.To
	}
	return nil
}

// MarshalJSON writes [[from, to], …].
func (g Gaps) MarshalJSON() ([]byte, error) {
	all := g.All()
	pairs := make([][2]int64, len(all))
	for i, one := range all {
		pairs[i] = [2]int64{one.From, one.To}
	}
	return json.Marshal(pairs)
}

// UnmarshalJSON reads what MarshalJSON wrote. Its error wraps ErrInvalidArgument.
func (g *Gaps) UnmarshalJSON(b []byte) error {
	var pairs [][2]int64
	if err := json.Unmarshal(b, &pairs); err != nil {
		return fmt.Errorf("%w: gaps: %w", ErrInvalidArgument, err)
	}
	var out []byte
	for _, p := range pairs {
		out = binary.BigEndian.AppendUint64(out, uint64(p[0]))
		out = binary.BigEndian.AppendUint64(out, uint64(p[1]))
	}
	*g = Gaps(out)
	if err := g.check(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidArgument, err)
	}
	return nil
}
