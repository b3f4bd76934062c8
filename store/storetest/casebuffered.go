package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"sluice/store"
)

// buffered runs an operation on the case's write buffer, which the first one makes.
// It gives the failures as lines of row and code.
func (r *caseRun) buffered(o *op) (any, error) {
	ctx := r.t.Context()
	if o.Op == "bufferedOpen" || r.mutator == nil {
		m, err := r.table.BufferedMutator(&store.BufferedMutatorOptions{BufferBytes: o.WriteBufferSize, MaxCellBytes: o.MaxKeyValueSize})
		if err != nil {
			return nil, err
		}
		r.mutator = m
		r.t.Cleanup(func() {
			if err := m.Close(context.Background()); err != nil {
				r.t.Errorf("close the write buffer: %v", err)
			}
		})
	}
	var err error
	switch o.Op {
	case "bufferedMutate":
		ms, merr := r.mutations(o)
		if merr != nil {
			return nil, merr
		}
		err = r.mutator.Mutate(ctx, ms...)
	case "bufferedFlush":
		err = r.mutator.Flush(ctx)
	case "bufferedClose":
		err = r.mutator.Close(ctx)
	}
	failed := []string{}
	var e *store.BufferedError
	if o.Expect == nil || !errors.As(err, &e) {
		return failed, err
	}
	for _, f := range e.Failed {
		failed = append(failed, string(f.Mutation.Row)+" "+errorCode(f.Err))
	}
	return failed, nil
}

// expectedFailures returns what an operation on the write buffer must give.
func expectedFailures(o *op) (any, error) {
	var want struct {
		Failed [][2]string `json:"failed"`
	}
	if err := json.Unmarshal(o.Expect, &want); err != nil {
		return nil, err
	}
	failed := []string{}
	for _, f := range want.Failed {
		failed = append(failed, strings.Join(f[:], " "))
	}
	return failed, nil
}
