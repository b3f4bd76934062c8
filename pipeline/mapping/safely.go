package mapping

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// ClassPanic is the class of a record at which the mapping panicked.
const ClassPanic = "panic"

// Safely returns what do, which maps r, does. A mapping that panics is a bug, but one record
// must not stop its partition for ever, as it would: each restart would begin with it. Where
// Panicked says so of the error, the Mapper of do is of no more use. log tells where it was.
func Safely(r *Record, log *slog.Logger, do func(r *Record) (*Output, error)) (out *Output, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			log.Error("mapping panicked", "offset", r.Offset, "err", cause, "stack", string(debug.Stack()))
			out, err = nil, &Error{Stage: StageMap, Class: ClassPanic, Err: fmt.Errorf("the mapping panicked: %v", cause)}
		}
	}()
	return do(r)
}

// Panicked reports whether err is of a mapping that panicked.
func Panicked(err error) bool {
	if err == nil {
		return false // of every record: e would be allocated for it
	}
	var e *Error
	return errors.As(err, &e) && e.Class == ClassPanic
}
