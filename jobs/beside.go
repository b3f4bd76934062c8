package jobs

// beside writes what one goroutine fills in another: two values take turns, so that one
// is filled while the one before is written.
type beside[T any] struct {
	full, empty chan T
	ended       chan struct{}
	err         error // once ended is closed
}

// writeBeside begins to write what take is given, at the lowest priority of the jobs, until
// end is called or something cannot be written. What was written is taken for empty, as
// spare is.
func writeBeside[T any](spare T, write func(T) error, jobs ...*Job) *beside[T] {
	w := &beside[T]{full: make(chan T), empty: make(chan T, 2), ended: make(chan struct{})} // has room for both
	w.empty <- spare
	go func() {
		defer close(w.ended)
		w.err = asPriority(func() error {
			for v := range w.full {
				if err := write(v); err != nil {
					return err
				}
				w.empty <- v
			}
			return nil
		}, jobs...)
	}()
	return w
}

// take gives v away, and returns another to fill. Its error is that of what was taken
// before.
func (w *beside[T]) take(v T) (next T, err error) {
	select {
	case w.full <- v:
	case <-w.ended:
		return v, w.err
	}
	select {
	case next = <-w.empty:
		return next, nil
	case <-w.ended:
		return next, w.err
	}
}

// end waits until all is written, and returns why it is not.
func (w *beside[T]) end() error {
	close(w.full)
	<-w.ended
	return w.err
}
