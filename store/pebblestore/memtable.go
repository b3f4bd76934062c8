package pebblestore

import "time"

const (
	// cachedBytes is how much of small commits a memtable takes before it is flushed: a
	// skiplist that fits the processor's cache takes keys in no order in two thirds of
	// the time that one of 64 MiB takes. Half as much would be twice as many tables.
	cachedBytes = 16 << 20
	// smallBytes bounds small commits. The sorted keys of larger ones lie so close
	// together in a memtable that most steps from one to the next are in the cache
	// anyway, and they need room: Pebble makes a commit of more than half a memtable a
	// table of its own.
	smallBytes = cachedBytes / 8
	// keyBytes is about what a key takes in a memtable beside its bytes and its value's.
	keyBytes = 80
)

// smallCommits is what small commits have written into the memtable.
type smallCommits struct {
	bytes int
	since time.Time // of the first of bytes
}

// add counts a commit of so many bytes and keys, and reports whether the memtable should
// be flushed. Where small commits come slowly it need not: nobody waits for the skiplist,
// and the flushes would come too far apart for the gate to gather, so that level 0 would
// be compacted at every second small table.
func (s *smallCommits) add(bytes int, keys uint32, now time.Time) bool {
	if bytes += int(keys) * keyBytes; bytes > smallBytes {
		s.bytes = 0
		return false
	}
	if s.bytes == 0 {
		s.since = now
	}
	if s.bytes += bytes; s.bytes < cachedBytes {
		return false
	}
	s.bytes = 0
	return now.Sub(s.since) < GatherRest/2
}

// noteMemtable is called after each commit that went into the memtable.
func (db *DB) noteMemtable(bytes int, keys uint32) error {
	if !db.loop.small.add(bytes, keys, time.Now()) {
		return nil
	}
	_, err := db.pebble.AsyncFlush()
	return err
}
