package region

import (
	"errors"
	"testing"
)

const mib = 1 << 20

func TestSplitPolicyLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy  SplitPolicy
		regions int
		want    int64 // 0 = never
	}{
		{SplitPolicy{}, 1, 256 * mib},
		{SplitPolicy{}, 2, DefaultMaxBytes},
		{SplitPolicy{Name: SteppingSplitPolicy, FlushBytes: mib}, 1, 2 * mib},
		{SplitPolicy{Name: SteppingSplitPolicy, FlushBytes: mib, MaxBytes: mib}, 1, mib},
		{SplitPolicy{Name: ConstantSizeRegionSplitPolicy}, 1, DefaultMaxBytes},
		{SplitPolicy{Name: ConstantSizeRegionSplitPolicy, MaxBytes: 7}, 50, 7},
		{SplitPolicy{Name: IncreasingToUpperBoundRegionSplitPolicy}, 1, 256 * mib},
		{SplitPolicy{Name: IncreasingToUpperBoundRegionSplitPolicy}, 2, 2048 * mib},
		{SplitPolicy{Name: IncreasingToUpperBoundRegionSplitPolicy}, 3, 6912 * mib},
		{SplitPolicy{Name: IncreasingToUpperBoundRegionSplitPolicy}, 4, DefaultMaxBytes},
		{SplitPolicy{Name: IncreasingToUpperBoundRegionSplitPolicy, FlushBytes: 1}, 101, DefaultMaxBytes},
		{SplitPolicy{Name: IncreasingToUpperBoundRegionSplitPolicy, FlushBytes: 1 << 60}, 100, DefaultMaxBytes},
		{SplitPolicy{Name: KeyPrefixRegionSplitPolicy}, 2, 2048 * mib},
		{SplitPolicy{Name: BusyRegionSplitPolicy}, 2, 2048 * mib},
		{SplitPolicy{Name: DisabledRegionSplitPolicy}, 1, 0},
	} {
		got, ok := c.policy.Limit(c.regions)
		if got != c.want || ok != (c.want != 0) {
			t.Errorf("%+v of %d regions: limit %d, %v; want %d", c.policy, c.regions, got, ok, c.want)
		}
	}
}

func TestSplitPolicyRestrict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy   SplitPolicy
		at, want string
	}{
		{SplitPolicy{PrefixBytes: 2, Delimiter: []byte("_")}, "user_7", "user_7"},
		{SplitPolicy{Name: KeyPrefixRegionSplitPolicy, PrefixBytes: 4}, "user_7", "user"},
		{SplitPolicy{Name: KeyPrefixRegionSplitPolicy, PrefixBytes: 9}, "user_7", "user_7"},
		{SplitPolicy{Name: KeyPrefixRegionSplitPolicy}, "user_7", "user_7"},
		{SplitPolicy{Name: DelimitedKeyPrefixRegionSplitPolicy, Delimiter: []byte("_")}, "user_7_8", "user"},
		{SplitPolicy{Name: DelimitedKeyPrefixRegionSplitPolicy, Delimiter: []byte("#")}, "user_7", "user_7"},
		{SplitPolicy{Name: DelimitedKeyPrefixRegionSplitPolicy}, "user_7", "user_7"},
		{SplitPolicy{Restriction: KeyPrefixSplitRestriction, PrefixBytes: 4}, "user_7", "user"},
		{SplitPolicy{Name: SteppingSplitPolicy, Restriction: DelimitedKeyPrefixSplitRestriction, Delimiter: []byte("_")}, "user_7", "user"},
		{SplitPolicy{Restriction: NoSplitRestriction, PrefixBytes: 4}, "user_7", "user_7"},
	} {
		if got := string(c.policy.Restrict([]byte(c.at))); got != c.want {
			t.Errorf("%+v: %q is cut back to %q, want %q", c.policy, c.at, got, c.want)
		}
	}
}

func TestPolicyName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{SteppingSplitPolicy, "org.apache.hadoop.hbase.regionserver." + SteppingSplitPolicy} {
		if got, err := PolicyName(name); err != nil || got != SteppingSplitPolicy {
			t.Errorf("PolicyName(%s) = %s, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "BusyRegionSplit", "SteppingSplitPolicy.x"} {
		if got, err := PolicyName(name); !errors.Is(err, ErrSplit) {
			t.Errorf("PolicyName(%s) = %s, %v; want ErrSplit", name, got, err)
		}
	}
}
