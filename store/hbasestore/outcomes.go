package hbasestore

import (
	"sync"
	"time"
)

// outcomes are the rows of which the outcome of the last check-and-put is not known.
type outcomes struct {
	mu   sync.Mutex
	rows map[string]streak
}

type streak struct {
	n     int
	since time.Time // the first of n calls began
}

// note notes a call for key that began at began. It returns how many in a row were
// unknown, and since when.
func (o *outcomes) note(key string, began time.Time, unknown bool) (n int, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s, ok := o.rows[key]
	switch {
	case !unknown:
		delete(o.rows, key)
		return 0, began
	case !ok:
		s.since = began
	}
	if o.rows == nil {
		o.rows = map[string]streak{}
	}
	s.n++
	o.rows[key] = s
	return s.n, s.since
}
