// Package lastknown keeps the last answer to a question that may hang, as where a disk or a
// network directory does not answer, so that who asks need not hang with it.
package lastknown

import (
	"sync"
	"time"
)

// Value is an answer that may be long in coming: who asks waits for it for a while, and gets
// the one before then. The zero value has been asked nothing. It is safe for concurrent use,
// and has a goroutine while it is asked, which ends with the answer.
type Value[T any] struct {
	mu     sync.Mutex // not held while it is asked
	last   T
	at     time.Time
	asking chan struct{} // closed with the answer; nil = nobody asks
	since  time.Time     // of asking
}

// Ask returns what look answers, or has answered last, where that is younger than maxAge, or
// where look takes longer than patience; the zero T where it has answered nothing yet. One
// look is under way at a time, and what one answers that had begun before the call is asked
// again.
func (v *Value[T]) Ask(maxAge, patience time.Duration, look func() T) T {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for mine := false; !mine; {
		v.mu.Lock()
		if !v.at.IsZero() && time.Since(v.at) < maxAge {
			defer v.mu.Unlock()
			return v.last
		}
		if mine = v.asking == nil; mine {
			v.asking, v.since = make(chan struct{}), time.Now()
			go v.answer(look, v.asking) // ends with look
		}
		answered := v.asking
		v.mu.Unlock()
		select {
		case <-answered:
		case <-timer.C:
			mine = true // as good as any
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last
}

// Known reports whether there is an answer.
func (v *Value[T]) Known() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.at.IsZero()
}

// Held returns for how long the answer has been awaited; 0 = nobody asks.
func (v *Value[T]) Held() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.asking == nil {
		return 0
	}
	return time.Since(v.since)
}

func (v *Value[T]) answer(look func() T, answered chan struct{}) {
	last := look()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last, v.at, v.asking = last, time.Now(), nil
	close(answered)
}
