package region

import (
	"bytes"
	"fmt"
	"strings"
)

// The split policies, by the names of HBase's classes. A package before the name,
// as HBase writes it, is ignored.
const (
	// SteppingSplitPolicy is HBase's default: 2 × FlushBytes while the table
	// has one region, MaxBytes after.
	SteppingSplitPolicy = "SteppingSplitPolicy"
	// IncreasingToUpperBoundRegionSplitPolicy: 2 × FlushBytes × n³ for n
	// regions, at most MaxBytes.
	IncreasingToUpperBoundRegionSplitPolicy = "IncreasingToUpperBoundRegionSplitPolicy"
	// ConstantSizeRegionSplitPolicy: MaxBytes. HBase's jitter, which keeps
	// servers from splitting all at once, has no purpose here.
	ConstantSizeRegionSplitPolicy = "ConstantSizeRegionSplitPolicy"
	// KeyPrefixRegionSplitPolicy is IncreasingToUpperBound, and a region is
	// never cut between rows whose first PrefixBytes bytes are equal.
	KeyPrefixRegionSplitPolicy = "KeyPrefixRegionSplitPolicy"
	// DelimitedKeyPrefixRegionSplitPolicy is IncreasingToUpperBound, and a
	// region is never cut between rows that are equal up to Delimiter.
	DelimitedKeyPrefixRegionSplitPolicy = "DelimitedKeyPrefixRegionSplitPolicy"
	// BusyRegionSplitPolicy is IncreasingToUpperBound, and regions that are busy
	// (BusyPolicy) are split, whatever their size.
	BusyRegionSplitPolicy = "BusyRegionSplitPolicy"
	// DisabledRegionSplitPolicy never splits.
	DisabledRegionSplitPolicy = "DisabledRegionSplitPolicy"
)

var splitPolicies = []string{
	SteppingSplitPolicy, IncreasingToUpperBoundRegionSplitPolicy, ConstantSizeRegionSplitPolicy,
	KeyPrefixRegionSplitPolicy, DelimitedKeyPrefixRegionSplitPolicy, BusyRegionSplitPolicy, DisabledRegionSplitPolicy,
}

// The split restrictions, by HBase's names: what a policy of any name keeps
// together when it cuts a region.
const (
	NoSplitRestriction                 = "None"
	KeyPrefixSplitRestriction          = "KeyPrefix"          // PrefixBytes
	DelimitedKeyPrefixSplitRestriction = "DelimitedKeyPrefix" // Delimiter
)

// Defaults of SplitPolicy: hbase.hregion.max.filesize and
// hbase.hregion.memstore.flush.size.
const (
	DefaultMaxBytes   = 10 << 30
	DefaultFlushBytes = 128 << 20
)

// SplitPolicy says when a region of a table is too large, and where it may be
// cut.
type SplitPolicy struct {
	Name        string // one of the constants; "" = SteppingSplitPolicy
	MaxBytes    int64  // MAX_FILESIZE; 0 = DefaultMaxBytes
	FlushBytes  int64  // MEMSTORE_FLUSHSIZE; 0 = DefaultFlushBytes
	Restriction string // one of the constants; "" = the policy's own
	PrefixBytes int    // of KeyPrefixRegionSplitPolicy; 0 = no restriction
	Delimiter   []byte // of DelimitedKeyPrefixRegionSplitPolicy; empty = no restriction
	Busy        BusyPolicy
}

// PolicyName returns the constant for a name as HBase writes it. Its error wraps
// ErrSplit and names the policies.
func PolicyName(name string) (string, error) {
	short := name[strings.LastIndexByte(name, '.')+1:]
	for _, p := range splitPolicies {
		if p == short {
			return p, nil
		}
	}
	return "", fmt.Errorf("%w: unknown split policy %q; known are %s", ErrSplit, name, strings.Join(splitPolicies, ", "))
}

// Limit returns the size, in bytes, above which a region of a table with this
// many regions is split; ok is false where none ever is.
func (p *SplitPolicy) Limit(regions int) (limit int64, ok bool) {
	largest, flush := p.MaxBytes, p.FlushBytes
	if largest <= 0 {
		largest = DefaultMaxBytes
	}
	if flush <= 0 {
		flush = DefaultFlushBytes
	}
	switch p.Name {
	case DisabledRegionSplitPolicy:
		return 0, false
	case ConstantSizeRegionSplitPolicy:
		return largest, true
	case "", SteppingSplitPolicy:
		if regions == 1 {
			return min(largest, 2*flush), true
		}
		return largest, true
	}
	n := int64(regions)
	if n < 1 || n > 100 { // as HBase: beyond it the cube is meaningless
		return largest, true
	}
	if flush > largest/(2*n*n*n) {
		return largest, true
	}
	return 2 * flush * n * n * n, true
}

// Restrict returns the split point at cut back to the prefix that the policy keeps
// together, as HBase's RegionSplitRestriction does. at is not changed.
func (p *SplitPolicy) Restrict(at []byte) []byte {
	switch {
	case p.Name == KeyPrefixRegionSplitPolicy || p.Restriction == KeyPrefixSplitRestriction:
		if p.PrefixBytes > 0 {
			return at[:min(len(at), p.PrefixBytes)]
		}
	case p.Name == DelimitedKeyPrefixRegionSplitPolicy || p.Restriction == DelimitedKeyPrefixSplitRestriction:
		if len(p.Delimiter) == 0 {
			break
		}
		if i := bytes.Index(at, p.Delimiter); i >= 0 {
			return at[:i]
		}
	}
	return at
}

// Middle returns the index, 1 or more, of the row that cuts rows of these sizes,
// in key order, into halves of about equal size: it is the first of the second
// half. ok is false where there are fewer than two rows.
func Middle(sizes []int64) (i int, ok bool) {
	if len(sizes) < 2 {
		return 0, false
	}
	var total, left int64
	for _, s := range sizes {
		total += s
	}
	for i = 1; i < len(sizes)-1; i++ {
		left += sizes[i-1]
		if 2*left+sizes[i] > total { // one row further would be farther from half
			break
		}
	}
	return i, true
}
