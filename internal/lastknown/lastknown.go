// Package lastknown holds answers that may be long in coming, as where a disk or a network
// directory does not answer, for who must not wait for them: a scrape of metrics tells much
// more.
package lastknown

import (
	"sync"
	"time"
)

// Answer is an answer that may be long in coming: who asks waits for it for a while, and gets
// the one before then. The zero value has none. It is safe for concurrent use.
type Answer[T any] struct {
	mu     sync.Mutex // not held while it is asked
	last   T
	at     time.Time
	asking chan struct{} // closed with the answer; nil = nobody asks
	since  time.Time     // of asking
}

// Ask returns what look answers, or has answered last, where that is younger than maxAge, or
// where look takes longer than patience. One look is under way at a time.
func (k *Answer[T]) Ask(maxAge, patience time.Duration, look func() T) T {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for mine := false; !mine; {
		k.mu.Lock()
		if !k.at.IsZero() && time.Since(k.at) < maxAge {
			defer k.mu.Unlock()
			return k.last
		}
		if mine = k.asking == nil; mine {
			k.asking, k.since = make(chan struct{}), time.Now()
			go k.answer(look, k.asking) // ends with look
		}
		answered := k.asking
		k.mu.Unlock()
		select {
		case <-answered:
		case <-timer.C:
			mine = true // as good as any
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// Known reports whether there is an answer.
func (k *Answer[T]) Known() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.at.IsZero()
}

// Held returns for how long the answer has been awaited; 0 = nobody asks.
func (k *Answer[T]) Held() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asking == nil {
		return 0
	}
	return time.Since(k.since)
}

func (k *Answer[T]) answer(look func() T, answered chan struct{}) {
	last := look()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last, k.at, k.asking = last, time.Now(), nil
	close(answered)
}
