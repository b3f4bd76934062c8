package cell

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func TestPackedRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ttl := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Min(0)).Draw(t, "ttl")
		perColumn := rapid.Bool().Draw(t, "per column")
		sequence := rapid.Uint64().Draw(t, "sequence")
		n := rapid.IntRange(1, 8).Draw(t, "columns")
		var want []column
		for range n {
			c := column{drawBytes(t, "qualifier"), rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "value"), sequence}
			if perColumn {
				c.Sequence = rapid.Uint64().Draw(t, "own sequence")
			}
			want = append(want, c)
		}
		byQualifier := func(a, b column) int { return bytes.Compare(a.Qualifier, b.Qualifier) }
		slices.SortStableFunc(want, byQualifier)
		want = slices.CompactFunc(want, func(a, b column) bool { return byQualifier(a, b) == 0 })

		stored := appendPacked(ttl, perColumn, want)
		gotTTL, got, err := decodePacked(stored, sequence)
		if err != nil || gotTTL != ttl {
			t.Fatalf("decode: TTL %d, %v; want %d", gotTTL, err, ttl)
		}
		if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("decode (-want +got)\n%s", diff)
		}
		// Every order but the ascending one is refused.
		if len(want) > 1 {
			i := rapid.IntRange(1, len(want)-1).Draw(t, "swap")
			want[i-1], want[i] = want[i], want[i-1]
			if _, _, err := decodePacked(appendPacked(ttl, perColumn, want), sequence); !errors.Is(err, ErrCorruptValue) {
				t.Fatalf("columns out of order: %v; want ErrCorruptValue", err)
			}
		}
	})
}

// TestPackedHugeLengths claims lengths that the value does not have, up to those
// that no machine has memory for. It is not parallel: it measures memory.
func TestPackedHugeLengths(t *testing.T) {
	for _, n := range []uint64{64 << 20, math.MaxInt32 + 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		b := binary.AppendUvarint(AppendPackedHeader(nil, 0, false), n)
		b = append(b, "some bytes"...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var p Packed
		if err := p.Reset(b, 1); err != nil || p.Next() || !errors.Is(p.Err(), ErrCorruptValue) {
			t.Errorf("length %d: %v, %v", n, err, p.Err())
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("length %d: %d bytes allocated", n, got)
		}
	}
}

func TestPackedStopsAtCorruption(t *testing.T) {
	t.Parallel()
	b := appendPacked(0, false, []column{{[]byte("a"), []byte("1"), 0}})
	b = append(b, 1, 'b', 9)
	var p Packed
	if err := p.Reset(b, 1); err != nil {
		t.Fatal(err)
	}
	if !p.Next() || p.Next() || p.Next() || !errors.Is(p.Err(), ErrCorruptValue) {
		t.Errorf("after corruption: %v", p.Err())
	}
	if err := p.Reset(nil, 1); !errors.Is(err, ErrCorruptValue) || p.Next() || p.Err() != err {
		t.Errorf("Reset(nil) = %v, Err = %v", err, p.Err())
	}
	if err := p.Reset(appendPacked(0, false, []column{{[]byte("a"), []byte("1"), 0}}), 1); err != nil || !p.Next() || p.Err() != nil {
		t.Errorf("Reset after corruption: %v", p.Err())
	}
	var zero Packed
	if zero.Next() || zero.Err() != nil {
		t.Errorf("the zero Packed has a column, or %v", zero.Err())
	}
}

func FuzzDecodeValue(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendValue(nil, 0, []byte("v")))
	f.Add(AppendValue(nil, 60_000, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		ttl, value, err := DecodeValue(b)
		if err != nil {
			if !errors.Is(err, ErrCorruptValue) {
				t.Fatalf("DecodeValue(%x): %v does not wrap ErrCorruptValue", b, err)
			}
			return
		}
		if again := AppendValue(nil, ttl, value); !bytes.Equal(again, b) {
			t.Fatalf("%x decodes to %d, %x, which encode to %x", b, ttl, value, again)
		}
	})
}

func FuzzPacked(f *testing.F) {
	f.Add(appendPacked(0, false, []column{{[]byte(""), []byte("1"), 0}, {[]byte("b"), nil, 0}}), uint64(1))
	f.Add(appendPacked(9, true, []column{{[]byte("a"), bytes.Repeat([]byte("x"), 200), 5}}), uint64(1))
	f.Add([]byte{0, 0x81, 0, 'q', 1, 'v'}, uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, sequence uint64) {
		ttl, columns, err := decodePacked(b, sequence)
		if err != nil {
			if !errors.Is(err, ErrCorruptValue) {
				t.Fatalf("decode %x: %v does not wrap ErrCorruptValue", b, err)
			}
			return
		}
		perColumn := b[0]&valueSequences != 0
		for i, c := range columns {
			if i > 0 && bytes.Compare(columns[i-1].Qualifier, c.Qualifier) >= 0 {
				t.Fatalf("%x has qualifiers out of order", b)
			}
			if !perColumn && c.Sequence != sequence {
				t.Fatalf("%x: sequence %d, want the key's %d", b, c.Sequence, sequence)
			}
		}
		if again := appendPacked(ttl, perColumn, columns); len(columns) == 0 || !bytes.Equal(again, b) {
			t.Fatalf("%x decodes to %d columns, which encode to %x", b, len(columns), again)
		}
	})
}

func packedOfSix() []byte {
	var columns []column
	for _, q := range []string{"agent", "country", "duration_ms", "page", "referrer", "user"} {
		columns = append(columns, column{Qualifier: []byte(q), Value: []byte("twenty bytes of text")})
	}
	return appendPacked(0, false, columns)
}

func BenchmarkPackedEncode(b *testing.B) {
	q, v := []byte("country"), []byte("twenty bytes of text")
	buf := make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendPackedHeader(buf[:0], 0, false)
		for range 6 {
			buf = AppendPackedColumn(buf, q, v)
		}
	}
	sink = len(buf)
}

func BenchmarkPackedDecode(b *testing.B) {
	stored := packedOfSix()
	b.ReportAllocs()
	var p Packed
	for b.Loop() {
		if err := p.Reset(stored, 1); err != nil {
			b.Fatal(err)
		}
		for p.Next() {
			sink += len(p.Value)
		}
	}
}
