package counters

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/rowkey"
)

const distinctPage = "distinct.md"

func sketchOf(elements ...string) *Sketch {
	s := new(Sketch)
	for _, e := range elements {
		s.Add([]byte(e))
	}
	return s
}

// users returns the sketch of user-0 to user-(n-1).
func users(n int) *Sketch {
	s := new(Sketch)
	for i := range n {
		s.Add(fmt.Appendf(nil, "user-%d", i))
	}
	return s
}

func TestSketchVectors(t *testing.T) {
	t.Parallel()
	for _, line := range pageBlock(t, distinctPage, "sketches") {
		list, digits, _ := strings.Cut(line, "] ")
		var elements []string
		if err := json.Unmarshal([]byte(list+"]"), &elements); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if got := hex.EncodeToString(sketchOf(elements...).Append(nil)); got != digits {
			t.Errorf("sketch of %q = %s, want %s", elements, got, digits)
		}
	}
	for _, line := range pageBlock(t, distinctPage, "large") {
		var n, length, used int
		var hash uint64
		if _, err := fmt.Sscanf(line, "%d %d %d %x", &n, &length, &used, &hash); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		s := users(n)
		b := s.Append(nil)
		got := 0
		for i := range registers {
			if s.Register(i) > 0 {
				got++
			}
		}
		if len(b) != length || got != used || rowkey.Hash64(b) != hash {
			t.Errorf("sketch of %d users: %d bytes, %d registers, %x; want %s", n, len(b), got, rowkey.Hash64(b), line)
		}
	}
}

func TestCorruptSketches(t *testing.T) {
	t.Parallel()
	dense := users(20_000).Append(nil)
	change := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(dense)) }
	few := append([]byte{sketchFormat, SketchPrecision, sketchDense}, make([]byte, denseBytes)...)
	many := []byte{sketchFormat, SketchPrecision, sketchSparse}
	for i := range maxSparse + 1 {
		e := uint32(i)<<6 | 1
		many = append(many, byte(e>>16), byte(e>>8), byte(e))
	}
	bad := map[string][]byte{
		"a byte less":             dense[:len(dense)-1],
		"a byte more":             append(bytes.Clone(dense), 0),
		"rank 52 in a dense one":  change(func(b []byte) []byte { b[3] = 52 << 2; return b }),
		"a dense one without any": few,
		"a sparse one too many":   many,
	}
	for _, line := range pageBlock(t, distinctPage, "corrupt") {
		digits, why, _ := strings.Cut(line, " ")
		b, err := hex.DecodeString(strings.ReplaceAll(digits, "-", ""))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		bad[strings.TrimSpace(why)] = b
	}
	for why, b := range bad {
		if s, err := DecodeSketch(b); !errors.Is(err, ErrCorrupt) || s != nil {
			t.Errorf("%s: %v; want ErrCorrupt", why, err)
		}
		if _, err := DecodeDistinct(append(make([]byte, DistinctHeader), b...)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s, stored: %v; want ErrCorrupt", why, err)
		}
	}
	good := sketchOf("a").Append(nil)
	for why, b := range map[string][]byte{
		"no sketch":    make([]byte, DistinctHeader-1),
		"time below 0": append(bytes.Repeat([]byte{0xFF}, DistinctHeader), good...),
	} {
		if _, err := DecodeDistinct(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v; want ErrCorrupt", why, err)
		}
	}
}

// The estimates of many sketches, of elements that differ from each other, have the
// promised standard error, at every size and between the forms.
func TestSketchError(t *testing.T) {
	t.Parallel()
	const trials = 20
	for _, n := range []int{1, 100, 1000, 5000, 20_000, 50_000} {
		var squares, sum, worst float64
		for trial := range trials {
			s := new(Sketch)
			var element [8]byte
			for i := range n {
				binary.BigEndian.PutUint64(element[:], uint64(trial)<<32|uint64(i))
				s.Add(element[:])
			}
			d := float64(s.Count())/float64(n) - 1
			squares += d * d
			sum += d
			worst = max(worst, math.Abs(d))
		}
		// The root mean square of 20 trials lies within 1.62 of the standard error
		// in 9,999 of 10,000 samples; the elements, and so the result, are fixed.
		if got := math.Sqrt(squares / trials); got > 1.62*SketchError {
			t.Errorf("%d elements: standard error %.4f, want %.4f", n, got, SketchError)
		}
		if bias := sum / trials; math.Abs(bias) > 4*SketchError/math.Sqrt(trials) {
			t.Errorf("%d elements: bias %.4f", n, bias)
		}
		if worst > 4*SketchError {
			t.Errorf("%d elements: an estimate is off by %.4f", n, worst)
		}
	}
}

func TestSketchCounts(t *testing.T) {
	t.Parallel()
	if n := new(Sketch).Count(); n != 0 {
		t.Errorf("an empty sketch counts %d", n)
	}
	s := new(Sketch)
	for i := range 100 {
		s.Add(fmt.Appendf(nil, "user-%d", i))
		if got := s.Count(); got < int64(i) || got > int64(i)+2 {
			t.Errorf("%d elements are counted as %d", i+1, got)
		}
	}
	// The largest that there is: every register at its limit.
	for i := range registers {
		s.SetRegister(i, maxRank)
	}
	if got := s.Count(); got < 1<<50 {
		t.Errorf("a full sketch counts %d", got)
	}
}

// The registers are the maxima, whatever the order, the grouping and the form; what
// was added can be taken back; and the bytes are those of the registers.
func TestSketchProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (*Sketch, map[int]uint8) {
			s, want := new(Sketch), map[int]uint8{}
			// The number of elements is drawn, not each of them: the forms meet at
			// some 5,000.
			first := rapid.IntRange(0, 1<<20).Draw(t, label+" first")
			for i := range rapid.SampledFrom([]int{0, 1, 3, 20, 50, 300, 4800}).Draw(t, label+" elements") {
				e := fmt.Appendf(nil, "%d", first+i)
				register, rank := Rank(e)
				if changed := s.Add(e); changed != (rank > want[register]) {
					t.Fatalf("Add says %v of rank %d at %d", changed, rank, want[register])
				}
				want[register] = max(want[register], rank)
			}
			return s, want
		}
		check := func(s *Sketch, want map[int]uint8) {
			used := 0
			for i := range registers {
				rank := s.Register(i)
				if rank > 0 {
					used++
				}
				if rank > 0 && rank != want[i] {
					t.Fatalf("register %d is %d, want %d", i, rank, want[i])
				}
			}
			if used != len(want) {
				t.Fatalf("%d registers are in use, want %d", used, len(want))
			}
			b := s.Append(nil)
			if len(b) > MaxSketchLength || len(b) == 8 || !IsSketch(b) {
				t.Fatalf("%d bytes", len(b))
			}
			again, err := DecodeSketch(b)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again.Append(nil), b) || again.Count() != s.Count() {
				t.Fatalf("it decodes to another, of %d instead of %d", again.Count(), s.Count())
			}
		}
		x, wantX := draw("x")
		y, wantY := draw("y")
		check(x, wantX)
		left, right := new(Sketch), new(Sketch)
		left.Merge(x)
		left.Merge(y)
		right.Merge(y)
		right.Merge(x)
		if !bytes.Equal(left.Append(nil), right.Append(nil)) {
			t.Fatal("x∪y and y∪x differ")
		}
		check(x, wantX) // merging has left it alone
		both := map[int]uint8{}
		for i, rank := range wantX {
			both[i] = rank
		}
		for i, rank := range wantY {
			both[i] = max(both[i], rank)
		}
		check(left, both)
		// Take back what y added.
		for i := range registers {
			left.SetRegister(i, wantX[i])
		}
		if !bytes.Equal(left.Append(nil), x.Append(nil)) {
			t.Fatal("taken back, x∪y is not x")
		}
	})
}

func FuzzDecodeSketch(f *testing.F) {
	f.Add(sketchOf("a", "b").Append(nil))
	f.Add(users(5500).Append(nil))
	f.Add([]byte{sketchFormat, SketchPrecision, sketchDense})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeSketch(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%v does not wrap ErrCorrupt", err)
			}
			return
		}
		if again := s.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x encodes to %x", b, again)
		}
		if n := s.Count(); n < 0 {
			t.Fatalf("it counts %d", n)
		}
		d, err := DecodeDistinct(AppendDistinct(nil, Distinct{Sketch: s, Time: 5, Sequence: 9}))
		if err != nil || d.Time != cell.Timestamp(5) || d.Sequence != 9 || !bytes.Equal(d.Sketch.Append(nil), b) {
			t.Fatalf("stored it comes back as %+v, %v", d, err)
		}
	})
}

func BenchmarkSketch(b *testing.B) {
	for _, n := range []int{100, 4000, 100_000} {
		s := users(n)
		stored := s.Append(nil)
		b.Run(fmt.Sprintf("add/%d", n), func(b *testing.B) {
			for b.Loop() {
				s.Add([]byte("user-7"))
			}
		})
		b.Run(fmt.Sprintf("append/%d", n), func(b *testing.B) {
			for b.Loop() {
				stored = s.Append(stored[:0])
			}
		})
		b.Run(fmt.Sprintf("decode/%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := DecodeSketch(stored); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("count/%d", n), func(b *testing.B) {
			for b.Loop() {
				s.Count()
			}
		})
	}
}
