package pebblestore

import (
	"testing"
	"time"

	"sluice/store"
)

func TestSmallCommits(t *testing.T) {
	const commit = 1 << 20
	start := time.Unix(1e9, 0)
	fills := func(s *smallCommits, bytes int, keys uint32, every time.Duration) int {
		for n := range 64 {
			if s.add(bytes, keys, start.Add(time.Duration(n)*every)) {
				return n + 1
			}
		}
		return 0
	}
	for _, c := range []struct {
		name  string
		bytes int
		keys  uint32
		every time.Duration
		want  int // commits until the memtable is flushed; 0 = never
	}{
		{"fast", commit, 0, 10 * time.Millisecond, cachedBytes / commit},
		{"keys count, too", 0, commit / keyBytes, 10 * time.Millisecond, cachedBytes/commit + 1},
		{"slow", commit, 0, time.Second, 0},
		{"large", smallBytes + 1, 0, time.Millisecond, 0},
	} {
		if got := fills(new(smallCommits), c.bytes, c.keys, c.every); got != c.want {
			t.Errorf("%s: flushed after %d commits, want %d", c.name, got, c.want)
		}
	}
	var s smallCommits
	if fills(&s, commit, 0, 0); s.bytes != 0 {
		t.Errorf("%d bytes are counted of a memtable that was flushed", s.bytes)
	}
}

func TestSmallCommitsAreFlushed(t *testing.T) {
	db := open(t, "", memory())
	create(t, db, "t", store.NewFamily("f"))
	memtables := func() int64 { // that have been begun
		m := db.pebble.Metrics()
		return m.Flush.Count + m.MemTable.Count
	}
	before, counted := memtables(), db.loop.small.bytes
	mutate(t, db, put("row", 1, "f", "q", "value"))
	if db.loop.small.bytes <= counted {
		t.Errorf("a commit made %d bytes of small commits %d", counted, db.loop.small.bytes)
	}
	for range cachedBytes / smallBytes {
		if err := db.noteMemtable(smallBytes, 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := memtables() - before; n != 1 {
		t.Errorf("%d memtables were begun, want 1", n)
	}
}
