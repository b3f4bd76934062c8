package region

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
)

// The vectors are what HBase 2.6's RegionSplitter and RegionInfo return.

func TestSplitPoints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		algorithm string
		n         int
		want      string
	}{
		{HexStringSplit, 2, "80000000"},
		{HexStringSplit, 4, "40000000 80000000 c0000000"},
		{HexStringSplit, 10, "19999999 33333332 4ccccccb 66666664 7ffffffd 99999996 b333332f ccccccc8 e6666661"},
		{DecimalStringSplit, 4, "25000000 50000000 75000000"},
		{DecimalStringSplit, 10, "10000000 20000000 30000000 40000000 50000000 60000000 70000000 80000000 90000000"},
		{DecimalStringSplit, 3, "33333333 66666666"},
		{UniformSplit, 2, "hex:8000000000000000"},
		{UniformSplit, 4, "hex:4000000000000000 8000000000000000 c000000000000000"},
		{UniformSplit, 10, "hex:1999999999999999 3333333333333332 4ccccccccccccccb 6666666666666664 7ffffffffffffffd 9999999999999996 b33333333333332f ccccccccccccccc8 e666666666666661"},
	} {
		points, err := SplitPoints(c.algorithm, c.n)
		if err != nil {
			t.Errorf("%s into %d: %v", c.algorithm, c.n, err)
		}
		var got []string
		for _, p := range points {
			if c.algorithm == UniformSplit {
				got = append(got, hex.EncodeToString(p))
			} else {
				got = append(got, string(p))
			}
		}
		want := strings.Fields(strings.TrimPrefix(c.want, "hex:"))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s into %d (-want +got)\n%s", c.algorithm, c.n, diff)
		}
	}
	for _, n := range []int{-1, 0, 1, MaxRegions + 1} {
		if _, err := SplitPoints(HexStringSplit, n); !errors.Is(err, ErrSplit) {
			t.Errorf("SplitPoints into %d: %v; want ErrSplit", n, err)
		}
	}
	if _, err := SplitPoints("hexstringsplit", 4); !errors.Is(err, ErrSplit) || !strings.Contains(err.Error(), HexStringSplit) {
		t.Errorf("unknown algorithm: %v; want ErrSplit and the known names", err)
	}
}

func TestSplitPointsMakeMaps(t *testing.T) {
	t.Parallel()
	check := func(t interface{ Fatalf(string, ...any) }, algorithm string, n int) {
		points, err := SplitPoints(algorithm, n)
		if err != nil {
			t.Fatalf("%s into %d: %v", algorithm, n, err)
		}
		m, err := Create("t", points, 1)
		if err != nil || m.Len() != n {
			t.Fatalf("%s into %d: map: %v", algorithm, n, err)
		}
	}
	check(t, DecimalStringSplit, 5000)
	if points, err := SplitPoints(UniformSplit, MaxRegions); err != nil || len(points) != MaxRegions-1 {
		t.Errorf("%d points for %d regions: %v", len(points), MaxRegions, err)
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.SampledFrom([]string{HexStringSplit, UniformSplit, DecimalStringSplit}).Draw(t, "algorithm"), rapid.IntRange(2, 300).Draw(t, "n"))
	})
}

func TestSplitKeys(t *testing.T) {
	t.Parallel()
	given := [][]byte{[]byte("d"), []byte("b"), {0xFF}, []byte("b\x00")}
	got, err := SplitKeys(given)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]byte{[]byte("b"), []byte("b\x00"), []byte("d"), {0xFF}}, got); diff != "" {
		t.Errorf("SplitKeys (-want +got)\n%s", diff)
	}
	if string(given[0]) != "d" {
		t.Error("SplitKeys sorted its argument")
	}
	for name, keys := range map[string][][]byte{
		"empty":    {[]byte("a"), {}},
		"nil":      {nil},
		"repeated": {[]byte("a"), []byte("b"), []byte("a")},
		"too long": {make([]byte, cell.MaxRowLength+1)},
		"too many": make([][]byte, MaxRegions),
	} {
		if _, err := SplitKeys(keys); !errors.Is(err, ErrSplit) {
			t.Errorf("%s: %v; want ErrSplit", name, err)
		}
	}
	if got, err := SplitKeys(nil); err != nil || len(got) != 0 {
		t.Errorf("SplitKeys(nil) = %q, %v", got, err)
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		info          Info
		name, encoded string
	}{
		{Info{Table: "t1", ID: 1700000000000}, "t1,,1700000000000.43ae7364b4a555b93267937f9bc49ec1.", "43ae7364b4a555b93267937f9bc49ec1"},
		{Info{Table: "ns:t1", Start: []byte("m"), ID: 1700000000000, Stop: []byte("z")}, "ns:t1,m,1700000000000.0bfc0f621c341c12734074f075a0bde8.", "0bfc0f621c341c12734074f075a0bde8"},
	} {
		if got := c.info.Name(); got != c.name {
			t.Errorf("Name() = %s, want %s", got, c.name)
		}
		if got := c.info.EncodedName(); got != c.encoded {
			t.Errorf("EncodedName() = %s, want %s", got, c.encoded)
		}
	}
}
