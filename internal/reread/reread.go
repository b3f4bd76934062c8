// Package reread holds what is read from files that something else replaces while a
// process runs: certificates and credentials that expire. It is not a watcher: the files
// are looked at when the value is asked for.
package reread

import (
	"errors"
	"os"
	"slices"
	"sync"
)

// Value is a value that was read from files. It is safe for concurrent use, and prints
// without the value.
type Value[T any] struct {
	files []string
	read  func() (T, error)

	mu    sync.Mutex // guards below
	value func() T   // a function so that fmt, which looks into every field, finds nothing
	state []fileState
}

// fileState tells a file from the one that replaces it.
type fileState struct {
	modified int64 // Unix time in ns
	size     int64 // in bytes
}

// New returns what read makes of the files with these names. Its error is read's, or that a
// file is not there.
func New[T any](read func() (T, error), files ...string) (*Value[T], error) {
	v := &Value[T]{files: files, read: read}
	state, err := v.stat()
	if err != nil {
		return nil, err
	}
	value, err := read()
	if err != nil {
		return nil, err
	}
	v.value, v.state = func() T { return value }, state
	return v, nil
}

// Get returns the value, which it reads again where a file has another time or size than
// before. What cannot be read then, as amid the replacement of several files, is passed
// over for the last value that could be; the next call looks again.
func (v *Value[T]) Get() T {
	value, _ := v.Now() // which says what is wrong
	return value
}

// Now returns what Get does, and the error of Look.
func (v *Value[T]) Now() (T, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	err := v.look()
	return v.value(), err
}

// Look does what Get does, and returns why the files as they are now cannot be read, so that
// the value is the one of before; nil = it is theirs.
func (v *Value[T]) Look() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.look()
}

// look is called with mu held.
func (v *Value[T]) look() error {
	// The state is taken before the files are read: a change in between is seen next time.
	state, err := v.stat()
	if err != nil || slices.Equal(state, v.state) {
		return err
	}
	value, err := v.read()
	if err == nil {
		v.value, v.state = func() T { return value }, state
	}
	return err
}

func (v *Value[T]) stat() (state []fileState, err error) {
	for _, name := range v.files {
		info, statErr := os.Stat(name)
		if statErr != nil {
			err = errors.Join(err, statErr)
			continue
		}
		state = append(state, fileState{modified: info.ModTime().UnixNano(), size: info.Size()})
	}
	return state, err
}
