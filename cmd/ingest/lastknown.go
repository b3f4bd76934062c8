package main

import (
	"sync"
	"time"
)

// lastKnown is an answer that may be long in coming, as where a disk or a network directory
// does not answer: who asks waits for it for a while, and gets the one before then. It is safe
// for concurrent use.
type lastKnown[T any] struct {
	mu     sync.Mutex // not held while it is asked
	last   T
	at     time.Time
	asking chan struct{} // closed with the answer; nil = nobody asks
}

// ask returns what look answers, or has answered last, where that is younger than maxAge, or
// where look takes longer than patience. One look is under way at a time.
func (k *lastKnown[T]) ask(maxAge, patience time.Duration, look func() T) T {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for mine := false; !mine; {
		k.mu.Lock()
		if !k.at.IsZero() && time.Since(k.at) < maxAge {
			defer k.mu.Unlock()
			return k.last
		}
		if mine = k.asking == nil; mine {
			k.asking = make(chan struct{})
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

func (k *lastKnown[T]) answer(look func() T, answered chan struct{}) {
	last := look()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last, k.at, k.asking = last, time.Now(), nil
	close(answered)
}
