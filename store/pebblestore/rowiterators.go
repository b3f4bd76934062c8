package pebblestore

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

const (
	// maxIdleIterators is how many iterators wait for the next get.
	maxIdleIterators = 16
	// idleIterators is how long they wait at most: while it is open, an iterator
	// keeps files and memtables that flushes and compactions have replaced.
	idleIterators = time.Second
)

// rowIterators keeps iterators for reads of single rows: to make one and to close
// it costs more than to find that a row is not there. An iterator shows the store
// as it was when it was made, so that one is used again only while nothing has
// been written since.
type rowIterators struct {
	open    func() (*pebble.Iterator, error)
	closing func(*pebble.Iterator) error

	// Writes that have begun and ended. Where they are equal, no write is under
	// way, and a number of begun writes names a state of the store.
	begun, ended atomic.Uint64

	mu     sync.Mutex
	idle   []*pebble.Iterator
	state  uint64 // of all of idle
	timed  bool   // drop is to come
	closed bool
}

// writing makes every iterator that was made so far old; written ends the write.
// Only the commit loop calls them, before the write can be seen and before
// anybody is told of it.
func (r *rowIterators) writing() { r.begun.Add(1) }
func (r *rowIterators) written() { r.ended.Add(1) }

// noState is the state of an iterator that is used once.
const noState = ^uint64(0)

// take returns an iterator over what is written, and the state that give asks for.
func (r *rowIterators) take() (it *pebble.Iterator, state uint64, err error) {
	if state = r.ended.Load(); state != r.begun.Load() {
		state = noState // a write is under way: who knows whether the iterator shows it
	}
	r.mu.Lock()
	if n := len(r.idle); n > 0 && r.state == state && r.begun.Load() == state {
		it, r.idle = r.idle[n-1], r.idle[:n-1]
	}
	r.mu.Unlock()
	if it == nil {
		it, err = r.open()
	}
	return it, state, err
}

// give takes an iterator back.
func (r *rowIterators) give(it *pebble.Iterator, state uint64) error {
	if err := it.Error(); err != nil || state != r.begun.Load() {
		return r.closing(it)
	}
	r.mu.Lock()
	var old []*pebble.Iterator
	if r.state != state {
		old, r.idle, r.state = r.idle, nil, state
	}
	if keep := !r.closed && len(r.idle) < maxIdleIterators; keep {
		r.idle, it = append(r.idle, it), nil
		if !r.timed {
			r.timed = true
			time.AfterFunc(idleIterators, r.drop)
		}
	}
	r.mu.Unlock()
	err := r.closeAll(old)
	if it != nil {
		err = cmp.Or(err, r.closing(it))
	}
	return err
}

// drop closes the idle iterators. An error of one that nobody reads with is
// nobody's.
func (r *rowIterators) drop() {
	r.mu.Lock()
	defer r.mu.Unlock() // close waits
	_ = r.closeAll(r.idle)
	r.idle, r.timed = nil, false
}

// close closes the idle iterators, and those that come later.
func (r *rowIterators) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	_ = r.closeAll(r.idle)
	r.idle = nil
}

// foundRow is a row that is stored: an iterator on its first key.
type foundRow struct {
	it     *pebble.Iterator
	family int // that the key is of, by its place in the selection
	rows   *rowIterators
	state  uint64
}

// findRow looks for the only row of a selection, mostly in bloom filters, and
// returns nil where nothing is stored of it. Close the row.
func (db *DB) findRow(t *table, sel *store.Selection) (*foundRow, error) {
	it, state, err := db.rows.take()
	if err != nil {
		return nil, fmt.Errorf("scan %s: %w", t.desc.Name, engineError(err))
	}
	db.gate.reads.Add(1)
	row := sel.Rows().Start
	prefix := make([]byte, 0, prefixBytes+len(row)+partSlack)
	fams := sel.Families()
	for i := range fams {
		f := &t.fams[fams[i].Index]
		if prefix = cell.AppendRowPrefix(prefix[:0], f.tag, t.id, f.id, row); it.SeekPrefixGE(prefix) {
			return &foundRow{it, i, &db.rows, state}, nil
		}
		if err := it.Error(); err != nil {
			break
		}
	}
	if err := cmp.Or(it.Error(), db.rows.give(it, state)); err != nil {
		return nil, fmt.Errorf("scan %s: %w", t.desc.Name, engineError(err))
	}
	return nil, nil
}

func (f *foundRow) close() error { return f.rows.give(f.it, f.state) }

func (r *rowIterators) closeAll(its []*pebble.Iterator) (err error) {
	for _, it := range its {
		err = cmp.Or(err, r.closing(it))
	}
	return err
}
