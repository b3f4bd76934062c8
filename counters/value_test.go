package counters

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice/cell"
)

// block returns the lines of the fenced block with this name in
// docs/format/counter.md.
func block(t *testing.T, name string) []string {
	t.Helper()
	return pageBlock(t, "counter.md", name)
}

// pageBlock is block of another page.
func pageBlock(t *testing.T, page, name string) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/format/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n```"+name+"\n")
	lines, _, closed := strings.Cut(rest, "\n```")
	if !ok || !closed {
		t.Fatalf("docs/format/%s has no block %s", page, name)
	}
	return strings.Split(lines, "\n")
}

func TestValueVectors(t *testing.T) {
	t.Parallel()
	for _, line := range block(t, "values") {
		var want Value
		if _, err := fmt.Sscan(line, &want.Count, &want.Time, &want.Sequence); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		stored, err := hex.DecodeString(strings.Join(strings.Fields(line)[3:], ""))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if got := AppendValue(nil, want); !bytes.Equal(got, stored) {
			t.Errorf("AppendValue(%+v) = %x, want %x", want, got, stored)
		}
		if got, err := DecodeValue(stored); err != nil || got != want {
			t.Errorf("DecodeValue(%x) = %+v, %v; want %+v", stored, got, err, want)
		}
	}
}

func TestMergeVectors(t *testing.T) {
	t.Parallel()
	for _, line := range block(t, "merges") {
		var v, want Value
		var delta int64
		var at cell.Timestamp
		if _, err := fmt.Sscan(line, &v.Count, &v.Time, &delta, &at, &want.Sequence, &want.Count, &want.Time); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if got := Merge(v, delta, at, want.Sequence); got != want {
			t.Errorf("Merge(%+v, %d, %d, %d) = %+v, want %+v", v, delta, at, want.Sequence, got, want)
		}
	}
}

func TestCorruptVectors(t *testing.T) {
	t.Parallel()
	for _, line := range block(t, "corrupt") {
		digits, why, _ := strings.Cut(line, "  ") // two spaces: bytes come in groups
		b, err := hex.DecodeString(strings.NewReplacer(" ", "", "-", "").Replace(digits))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if v, err := DecodeValue(b); !errors.Is(err, ErrCorrupt) || v != (Value{}) {
			t.Errorf("DecodeValue(%x) (%s) = %+v, %v; want ErrCorrupt", b, strings.TrimSpace(why), v, err)
		}
	}
}

// TestMergeOrder: increments give the same count and time in any order and any
// grouping, which is what lets a batch be coalesced.
func TestMergeOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type increment struct {
			Delta int64
			Time  int64
		}
		draw := rapid.Custom(func(t *rapid.T) increment {
			return increment{rapid.Int64().Draw(t, "delta"), rapid.Int64Min(0).Draw(t, "time")}
		})
		increments := rapid.SliceOfN(draw, 1, 20).Draw(t, "increments")
		shuffled := rapid.Permutation(increments).Draw(t, "shuffled")
		cut := rapid.IntRange(0, len(shuffled)).Draw(t, "cut")

		var one, two Value
		for i, x := range increments {
			one = Merge(one, x.Delta, cell.Timestamp(x.Time), uint64(i))
		}
		for _, part := range [][]increment{shuffled[:cut], shuffled[cut:]} {
			var sum Value
			for _, x := range part {
				sum = Merge(sum, x.Delta, cell.Timestamp(x.Time), 0)
			}
			two = Merge(two, sum.Count, sum.Time, one.Sequence)
		}
		if one != two {
			t.Fatalf("one by one %+v, in two groups %+v", one, two)
		}
	})
}

func FuzzDecodeValue(f *testing.F) {
	f.Add(AppendValue(nil, Value{Count: -5, Time: 1_700_000_000_000, Sequence: 9}))
	f.Add(make([]byte, ValueLength-1))
	f.Add(bytes.Repeat([]byte{0xFF}, ValueLength))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := DecodeValue(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("DecodeValue(%x): %v does not wrap ErrCorrupt", b, err)
			}
			return
		}
		if again := AppendValue(nil, v); !bytes.Equal(again, b) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", b, v, again)
		}
	})
}
