package jobs

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// The priorities of a job.
const (
	// PriorityNormal takes what the machine has.
	PriorityNormal = "normal"
	// PriorityLow takes what others leave: on Linux the threads that scan and
	// encode have nice value 19.
	PriorityLow = "low"
)

func checkPriority(s string, bad func(path, format string, args ...any)) {
	switch s {
	case "", PriorityNormal, PriorityLow:
	default:
		bad("priority", "%q is not %s or %s", s, PriorityNormal, PriorityLow)
	}
}

// atPriority prepares the calling goroutine, which ends with the work, for a worker
// of the job. Its thread ends with it: what was lowered cannot be raised again.
func (j *Job) atPriority() error {
	if j.spec.Priority != PriorityLow {
		return nil
	}
	runtime.LockOSThread()
	if err := lowerThread(); err != nil {
		return fmt.Errorf("priority %s: %w", PriorityLow, err)
	}
	return nil
}

// asPriority calls do at the priority of the jobs, the lowest of which counts: in a
// goroutine of its own where that is low.
func asPriority(do func() error, jobs ...*Job) error {
	for _, j := range jobs {
		if j == nil || j.spec.Priority != PriorityLow {
			continue
		}
		ended := make(chan error)
		go func() {
			err := j.atPriority()
			if err == nil {
				err = do()
			}
			ended <- err
		}()
		return <-ended
	}
	return do()
}

// pace keeps workers together to a number of rows a second.
type pace struct {
	rate int64 // rows a second; 0 = no bound

	mu   sync.Mutex
	next time.Time // when the next rows may be begun
}

func newPace(rowsPerSecond int) *pace {
	return &pace{rate: int64(max(rowsPerSecond, 0))}
}

// wait returns when the time that rows take has passed, counted from when those
// before had theirs. Time that nobody used is lost: a worker that was held up does
// not make up for it in a burst.
func (p *pace) wait(ctx context.Context, rows int) error {
	if p.rate == 0 {
		return nil
	}
	now := time.Now()
	p.mu.Lock()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(time.Duration(int64(rows) * int64(time.Second) / p.rate))
	wait := p.next.Sub(now)
	p.mu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the time of %d rows, of which rows_per_second allows %d: %w", rows, p.rate, context.Cause(ctx))
	}
}

// pacing keeps one goroutine that reads rows to a pace, in steps: at each row it would
// cost more than to read it. In steps, too, it has it yield to ingest.
type pacing struct {
	*pace
	yielder *yielder
	rows    int // read since the step before
	looked  int // read since the yielder was asked
}

// paceStep is how many rows are read at most before their time is waited for.
const paceStep = 8192

// read counts rows that were read.
func (p *pacing) read(ctx context.Context, rows int) error {
	if p.yielder != nil {
		if p.looked += rows; p.looked >= yieldRows {
			p.looked = 0
			if err := p.yielder.wait(ctx); err != nil {
				return err
			}
		}
	}
	if p.pace == nil || p.rate == 0 {
		return nil
	}
	if p.rows += rows; int64(p.rows) < min(max(p.rate/10, 1), paceStep) {
		return nil
	}
	return p.end(ctx)
}

// end waits for the time of the rows since the last step.
func (p *pacing) end(ctx context.Context) error {
	if p.rows == 0 {
		return nil
	}
	rows := p.rows
	p.rows = 0
	return p.wait(ctx, rows)
}
