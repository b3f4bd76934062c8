package store

import (
	"context"
	"time"
	"unsafe"

	"sluice/cell"
)

// bufferFlush is what a BufferedMutator sends at once. Its mutator's mu guards it
// until it is taken, and failed until done is closed.
type bufferFlush struct {
	mutations []Mutation    // the offset of each is its place
	bytes     int           // their memory
	begun     time.Time     // when the first was added
	wanted    bool          // it is to be sent
	failed    int           // the mutator's failed with this flush
	taken     chan struct{} // closed when nothing can be added any more
	done      chan struct{} // closed when it has been sent
}

func newBufferFlush() *bufferFlush {
	return &bufferFlush{taken: make(chan struct{}), done: make(chan struct{})}
}

// add appends ms, of size bytes, and reports whether they are the first.
func (f *bufferFlush) add(ms []Mutation, size int) (first bool) {
	if first = len(f.mutations) == 0 && len(ms) > 0; first {
		f.begun = time.Now()
	}
	for i := range ms {
		ms[i].Offset = int64(len(f.mutations) + i)
	}
	f.mutations = append(f.mutations, ms...)
	f.bytes += size
	return first
}

// retryPause returns the pause before an attempt is followed by the next, as
// HBase's client has it (HConstants.RETRY_BACKOFF). first is the unit.
func retryPause(first time.Duration, attempt int) time.Duration {
	backoff := [...]time.Duration{1, 2, 3, 5, 10, 20, 40, 100, 100, 100, 100, 200, 200}
	return first * backoff[min(attempt, len(backoff))-1]
}

// pause waits for d and reports whether ctx has not ended by then.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// mutationBytes is the memory of m's copy in a buffer. Names of families are
// shared.
func mutationBytes(m *cell.Mutation) int {
	n := int(unsafe.Sizeof(Mutation{})) + len(m.Row) + len(m.Ops)*int(unsafe.Sizeof(cell.Op{}))
	if m.Read != nil {
		n += int(unsafe.Sizeof(*m.Read))
	}
	for i := range m.Ops {
		n += len(m.Ops[i].Qualifier) + len(m.Ops[i].Value)
	}
	return n
}

// cloneMutation returns a deep copy of m for a table.
func cloneMutation(m *cell.Mutation, table string) cell.Mutation {
	size := len(m.Row)
	for i := range m.Ops {
		size += len(m.Ops[i].Qualifier) + len(m.Ops[i].Value)
	}
	// One piece of memory for all bytes: a mutation of six columns would be
	// thirteen.
	arena := make([]byte, 0, size)
	clone := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		n := len(arena)
		arena = append(arena, b...)
		return arena[n:len(arena):len(arena)]
	}
	c := *m
	c.Table, c.Row, c.Ops = table, clone(m.Row), append([]cell.Op(nil), m.Ops...)
	if m.Read != nil {
		read := *m.Read
		c.Read = &read
	}
	for i := range c.Ops {
		c.Ops[i].Qualifier, c.Ops[i].Value = clone(c.Ops[i].Qualifier), clone(c.Ops[i].Value)
	}
	return c
}
