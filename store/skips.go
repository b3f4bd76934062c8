package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// SkipReason says why offsets were given up that no retention had taken. It is stored.
type SkipReason uint8

// The reasons to give offsets up.
const (
	SkippedCorrupt  SkipReason = 1 // the record batch fails its checksum, or cannot be decoded
	SkippedTooLarge SkipReason = 2 // it takes more memory than there is
	SkippedOther    SkipReason = 3 // what the operator knows
	// SkippedRecreated: they were unread when the topic was deleted and created anew.
	SkippedRecreated SkipReason = 4
)

var skipReasons = [...]string{SkippedCorrupt: "corrupt", SkippedTooLarge: "too_large", SkippedOther: "other", SkippedRecreated: "recreated"}

// SkipReasons returns the names of the reasons, in a new slice.
func SkipReasons() []string { return slices.Clone(skipReasons[1:]) }

// String names the reason as the command line does.
func (r SkipReason) String() string {
	if r >= SkippedCorrupt && int(r) < len(skipReasons) {
		return skipReasons[r]
	}
	return fmt.Sprintf("SkipReason(%d)", uint8(r))
}

// ParseSkipReason is the inverse of String. Its error wraps ErrInvalidArgument.
func ParseSkipReason(s string) (SkipReason, error) {
	if i := slices.Index(skipReasons[:], s); i > 0 {
		return SkipReason(i), nil
	}
	return 0, fmt.Errorf("%w: no reason %q to skip offsets: there are %s", ErrInvalidArgument, s, strings.Join(SkipReasons(), ", "))
}

// Skip is a range of offsets that were given up, and why.
type Skip struct {
	Gap
	Reason SkipReason
}

// Skips are ranges of offsets that were given up, by hand although Kafka had them or with
// their topic, ascending and apart, the newest MaxGaps of them. It is a value that can be compared:
// From and To of each, 8 bytes big-endian, and the reason (1). The zero value has none.
type Skips string

const skipSize = gapSize + 1

// Skip gives up the offsets from Next up to to: they count as lost.
func (p *Progress) Skip(to int64, reason SkipReason) {
	n := to - p.Next
	p.Lost, p.Skipped = p.Lost+n, p.Skipped+n
	p.Skips = p.Skips.With(p.Next, to, reason)
	p.Next = to
}

// With returns s and the offsets [from, to), which are after all of s.
func (s Skips) With(from, to int64, reason SkipReason) Skips {
	if from >= to {
		return s
	}
	b := binary.BigEndian.AppendUint64([]byte(s), uint64(from))
	b = append(binary.BigEndian.AppendUint64(b, uint64(to)), byte(reason))
	return Skips(b[max(0, len(b)-MaxGaps*skipSize):])
}

// All returns the ranges in a new slice.
func (s Skips) All() []Skip {
	all := make([]Skip, 0, len(s)/skipSize)
	for b := []byte(s); len(b) >= skipSize; b = b[skipSize:] {
		all = append(all, Skip{Gap{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}, SkipReason(b[gapSize])})
	}
	return all
}

// Offsets returns how many offsets of [from, to) they have.
func (s Skips) Offsets(from, to int64) int64 {
	n := int64(0)
	for _, one := range s.All() {
		n += max(0, min(one.To, to)-max(one.From, from))
	}
	return n
}

// After returns the first range that ends after offset; ok is false where there is none.
func (s Skips) After(offset int64) (one Skip, ok bool) {
	for _, one := range s.All() {
		if one.To > offset {
			return one, true
		}
	}
	return Skip{}, false
}

// String lists them as FROM-LAST REASON, apart by commas.
func (s Skips) String() string {
	var all []string
	for _, one := range s.All() {
		all = append(all, fmt.Sprintf("%d-%d %v", one.From, one.To-1, one.Reason))
	}
	return strings.Join(all, ", ")
}

// check says whether they are as With makes them.
func (s Skips) check() error {
	if len(s)%skipSize != 0 || len(s) > MaxGaps*skipSize {
		return fmt.Errorf("skips of %d bytes", len(s))
	}
	last := int64(0)
	for _, one := range s.All() {
		if one.From < last || one.To <= one.From || one.Reason == 0 {
			return fmt.Errorf("skip [%d, %d) for reason %d after offset %d", one.From, one.To, one.Reason, last-1)
		}
		last = one.To
	}
	return nil
}

// jsonSkip is a Skip in JSON.
type jsonSkip struct {
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	Reason string `json:"reason"`
}

// MarshalJSON writes [{"from":…,"to":…,"reason":…}, …].
func (s Skips) MarshalJSON() ([]byte, error) {
	all := make([]jsonSkip, 0, len(s)/skipSize)
	for _, one := range s.All() {
		all = append(all, jsonSkip{one.From, one.To, one.Reason.String()})
	}
	return json.Marshal(all)
}

// UnmarshalJSON reads what MarshalJSON wrote. Its error wraps ErrInvalidArgument.
func (s *Skips) UnmarshalJSON(b []byte) error {
	var all []jsonSkip
	if err := json.Unmarshal(b, &all); err != nil {
		return fmt.Errorf("%w: skips: %w", ErrInvalidArgument, err)
	}
	var out []byte
	for _, one := range all {
		reason, err := ParseSkipReason(one.Reason)
		if err != nil {
			return err
		}
		out = binary.BigEndian.AppendUint64(out, uint64(one.From))
		out = append(binary.BigEndian.AppendUint64(out, uint64(one.To)), byte(reason))
	}
	*s = Skips(out)
	if err := s.check(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidArgument, err)
	}
	return nil
}
