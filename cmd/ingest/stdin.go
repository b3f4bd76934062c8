package main

import (
	"context"
	"io"
)

// interruptible reads r until ctx ends: a read of a terminal or a pipe to which nobody
// writes would wait for longer than somebody who presses Ctrl-C.
type interruptible struct {
	ctx context.Context
	r   io.Reader
	buf []byte // a read that is given up may still fill it
}

func (r *interruptible) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	if len(r.buf) < len(p) {
		r.buf = make([]byte, len(p))
	}
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func(buf []byte) {
		n, err := r.r.Read(buf)
		done <- result{n, err}
	}(r.buf[:len(p)])
	select {
	case got := <-done:
		return copy(p, r.buf[:got.n]), got.err
	case <-r.ctx.Done():
		return 0, r.ctx.Err()
	}
}
