package region

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"sluice/cell"
)

// The pre-split algorithms, by the names of HBase's RegionSplitter.
const (
	HexStringSplit     = "HexStringSplit"     // keys begin with 8 lower-case hex digits
	UniformSplit       = "UniformSplit"       // keys begin with 8 bytes of any value
	DecimalStringSplit = "DecimalStringSplit" // keys begin with 8 decimal digits
)

// MaxRegions is the most regions that a table is created with. A map is held in
// memory and copied at every split; a million is far beyond what HBase bears.
const MaxRegions = 1 << 20

// SplitPoints returns the n-1 keys that cut a table into n regions, 2..MaxRegions,
// by one of HBase's algorithms: evenly spaced, with integer division. The error
// wraps ErrSplit and names the algorithms where it is another.
func SplitPoints(algorithm string, n int) ([][]byte, error) {
	if n < 2 || n > MaxRegions {
		return nil, fmt.Errorf("%w: %s into %d regions, want 2..%d", ErrSplit, algorithm, n, MaxRegions)
	}
	var point func(i uint64) []byte
	switch algorithm {
	case HexStringSplit:
		size := uint64(1<<32) / uint64(n)
		point = func(i uint64) []byte { return fmt.Appendf(nil, "%08x", i*size) }
	case DecimalStringSplit:
		size := uint64(1e8) / uint64(n)
		point = func(i uint64) []byte { return fmt.Appendf(nil, "%08d", i*size) }
	case UniformSplit:
		size, _ := bits.Div64(1, 0, uint64(n)) // 2⁶⁴ / n
		point = func(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i*size) }
	default:
		return nil, fmt.Errorf("%w: unknown algorithm %q; known are %s, %s, %s", ErrSplit, algorithm, HexStringSplit, UniformSplit, DecimalStringSplit)
	}
	points := make([][]byte, n-1)
	for i := range points {
		points[i] = point(uint64(i) + 1)
	}
	return points, nil
}

// SplitKeys returns the user's split keys in ascending order, in a new slice that
// shares their bytes. As in HBase they may come in any order; an empty, overlong
// or repeated one is an error, which wraps ErrSplit.
func SplitKeys(keys [][]byte) ([][]byte, error) {
	if len(keys) >= MaxRegions {
		return nil, fmt.Errorf("%w: %d split keys, at most %d", ErrSplit, len(keys), MaxRegions-1)
	}
	sorted := slices.Clone(keys)
	slices.SortFunc(sorted, bytes.Compare)
	for i, k := range sorted {
		if err := cell.CheckRow(k); err != nil {
			return nil, fmt.Errorf("%w: split key %q: %w", ErrSplit, k, err)
		}
		if i > 0 && string(k) == string(sorted[i-1]) {
			return nil, fmt.Errorf("%w: split key %q is given twice", ErrSplit, k)
		}
	}
	return sorted, nil
}
