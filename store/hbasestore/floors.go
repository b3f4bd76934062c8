package hbasestore

import (
	"encoding/binary"
	"fmt"
	"slices"

	"sluice/store"
)

// span is columns of a family: those in [startColumn, stopColumn) of the rows in
// [start, stop). An end that is empty is unbounded.
type span struct {
	table, family           string
	start, stop             string
	startColumn, stopColumn string
}

// has reports whether a column is in the span.
func (s *span) has(table, family, row, column string) bool {
	return s.table == table && s.family == family &&
		row >= s.start && (s.stop == "" || row < s.stop) &&
		column >= s.startColumn && (s.stopColumn == "" || column < s.stopColumn)
}

// floor is what the state of a partition, or of a journal, says of counters that are
// being removed: increments below an offset do not count, and cells whose timestamp is
// not above it are as if they were not there.
type floor struct {
	span
	at int64 // the offset, of a journal the revision; floorWanted = it is not decided yet
}

// floorWanted is of a floor without effect: whoever next completes all that is begun
// puts it where the partition stands then.
const floorWanted int64 = -1

// floors are those of a state. A span has at most one that is decided, and one that is
// wanted.
type floors []floor

// of returns the floor of a counter, 0 where it has none.
func (fs floors) of(c *counter) int64 {
	at := int64(0)
	for i := range fs {
		if f := &fs[i]; f.at > at && f.has(c.table, c.family, string(c.row), string(c.column)) {
			at = f.at
		}
	}
	return at
}

// at returns the floor of a span that is decided, floorWanted where none is.
func (fs floors) at(s span) int64 {
	at := floorWanted
	for i := range fs {
		if fs[i].span == s {
			at = max(at, fs[i].at)
		}
	}
	return at
}

// wants reports whether a span's floor is wanted.
func (fs floors) wants(s span) bool { return slices.Contains(fs, floor{s, floorWanted}) }

// without returns the floors without those of a span up to at.
func (fs floors) without(s span, at int64) floors {
	return slices.DeleteFunc(slices.Clone(fs), func(f floor) bool { return f.span == s && f.at != floorWanted && f.at <= at })
}

// withdraw returns the floors without the one of a span that is wanted.
func (fs floors) withdraw(s span) floors {
	return slices.DeleteFunc(slices.Clone(fs), func(f floor) bool { return f == floor{s, floorWanted} })
}

// decide returns the floors with that of a span at an offset.
func (fs floors) decide(s span, at int64) floors {
	return append(fs.withdraw(s).without(s, at), floor{s, at})
}

// settleFloors decides what is wanted, where a partition stands at an offset and
// nothing beyond is begun. encoded was decoded before.
func settleFloors(encoded string, at int64) string {
	fs, err := decodeFloors(encoded)
	if err != nil || !slices.ContainsFunc(fs, func(f floor) bool { return f.at == floorWanted }) {
		return encoded
	}
	settled := fs
	for _, f := range fs {
		if f.at == floorWanted {
			settled = settled.decide(f.span, at)
		}
	}
	return settled.encode()
}

// encode returns the stored form: for each floor the offset (8 bytes big-endian, -1 =
// wanted), then table, family, first row, row behind the last, first column and column
// behind the last, each with its length (4) in front.
func (fs floors) encode() string {
	var b []byte
	for i := range fs {
		f := &fs[i]
		b = binary.BigEndian.AppendUint64(b, uint64(f.at))
		for _, text := range f.texts() {
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(*text))), *text...)
		}
	}
	return string(b)
}

func (s *span) texts() [6]*string {
	return [6]*string{&s.table, &s.family, &s.start, &s.stop, &s.startColumn, &s.stopColumn}
}

// decodeFloors is the reverse of encode. Its error wraps store.ErrCorrupt.
func decodeFloors(encoded string) (floors, error) {
	if encoded == "" {
		return nil, nil
	}
	var fs floors
	r := entryReader{rest: []byte(encoded)}
	for len(r.rest) > 0 && !r.bad {
		f := floor{at: int64(r.number(8))}
		for _, text := range f.texts() {
			*text = string(r.text())
		}
		r.bad = r.bad || f.at < floorWanted || f.table == "" || f.family == ""
		fs = append(fs, f)
	}
	if r.bad {
		return nil, fmt.Errorf("%w: floors of counters: %.100x", store.ErrCorrupt, encoded)
	}
	return fs, nil
}
