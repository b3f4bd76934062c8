package pebblestore

import (
	"bytes"
	"errors"
	"testing"

	"sluice/cell"
	"sluice/store"
)

// FuzzDecodeRecent: what is read of an event id's key is what was written into it, and any
// bytes are read as a key that has them, or refused as corrupt.
func FuzzDecodeRecent(f *testing.F) {
	head := len(cell.AppendFamilyPrefix(nil, cell.TagSystem, recentID, systemFamily))
	key := func(at oncePeriod, id []byte) []byte { return appendOnceID(at.prefix(), id)[head:] }
	for _, at := range []oncePeriod{{1, 0}, {86_400_000, 20_000}, {256, -1}} {
		for _, id := range []string{"", "p\x00\xff\x00\x01id", "\x00", "\xff"} {
			f.Add(key(at, []byte(id)), at.ttl, at.period, []byte(id))
		}
	}
	f.Add([]byte("\x00\x01"), int64(0), int64(0), []byte(nil))
	f.Fuzz(func(t *testing.T, rest []byte, ttl, period int64, id []byte) {
		if ttl > 0 {
			want := oncePeriod{ttl, period}
			at, got, err := decodeRecent(key(want, id))
			if err != nil || at != want || !bytes.Equal(got, id) {
				t.Errorf("Got %v %q, %v, want %v %q", at, got, err, want, id)
			}
		}
		at, got, err := decodeRecent(rest)
		switch {
		case err != nil && !errors.Is(err, store.ErrCorrupt):
			t.Errorf("Got %v, which says not that it is corrupt", err)
		case err == nil && at.ttl <= 0:
			t.Errorf("Got %v", at)
		case err == nil:
			again := key(at, got)
			if part := again[:len(again)-2]; !bytes.HasPrefix(rest, part) { // without the qualifier
				t.Errorf("Got %v %q of %x, whose key is %x", at, got, rest, part)
			}
		}
	})
}
