package counters

import (
	"bytes"
	"fmt"
	"testing"
)

// TestSketchElements: the texts of a sketch make it again, in both forms, with the
// highest rank that there is.
func TestSketchElements(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 100, 5000, 20_000} {
		s := new(Sketch)
		for i := range n {
			s.Add(fmt.Appendf(nil, "user-%d", i))
		}
		if n > 0 {
			s.SetRegister(registers-1, maxRank)
			s.SetRegister(0, maxRank-1)
		}
		again, texts := new(Sketch), 0
		for text := range s.Elements() {
			if texts++; !again.Add(text) {
				t.Fatalf("%d elements: text %d raises nothing", n, texts)
			}
		}
		if !bytes.Equal(again.Append(nil), s.Append(nil)) || texts != s.Registers() {
			t.Errorf("%d elements: Got another sketch, of %d texts; want %d", n, texts, s.Registers())
		}
	}
}

// TestHashOf: every rank has a hash, and a text of that hash.
func TestHashOf(t *testing.T) {
	t.Parallel()
	for rank := uint8(1); rank <= maxRank; rank++ {
		s := new(Sketch)
		s.SetRegister(int(rank)*311, rank)
		for text := range s.Elements() {
			if i, got := Rank(text); i != int(rank)*311 || got != rank {
				t.Errorf("Got register %d with rank %d, want %d with %d", i, got, int(rank)*311, rank)
			}
		}
	}
}
