package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/serve/client"
)

// How an order is waited for: it is looked at so often, told of at least so often, and
// each time so many entries of the job's history are read: more than runs end between
// two looks.
const (
	awaitEvery   = time.Second
	awaitEntries = 100
)

// orderWait waits for the runs of an order that the daemon has accepted.
type orderWait struct {
	p     *cli.Program
	cfg   *config.Config
	job   string
	order schedule.Order
	json  bool
	quiet bool

	engine config.Engine     // nil = not open
	known  map[entryKey]bool // entries of the order that were seen
	times  int64             // runs of it that have ended since it was given
	bad    int64             // of these, not published
	worst  *schedule.Entry   // the first of these
	open   bool              // it was accepted by a daemon
	gone   bool              // and is not open any more
	told   time.Time         // when something was said the last time
	asked  time.Time         // when the daemon was asked the last time whether it runs the order
	notes  map[string]bool   // what was noted
}

// entryKey tells entries of a history apart.
type entryKey struct{ ended, logical int64 }

// newOrderWait returns a wait for the order that s makes of q, before it is given: what
// an earlier one with the same id has left in the history is not its own.
func newOrderWait(ctx context.Context, p *cli.Program, cfg *config.Config, job string, o *schedule.Order) (*orderWait, error) {
	w := &orderWait{p: p, cfg: cfg, job: job, order: *o, known: map[entryKey]bool{}, notes: map[string]bool{}}
	if _, err := w.read(ctx, awaitEntries); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// connect opens the store of the schedules, unless it is open.
func (w *orderWait) connect(ctx context.Context) (err error) {
	if w.engine == nil {
		w.engine, err = openSchedules(ctx, w.p, w.cfg)
	}
	return err
}

// close closes the store, if it is open.
func (w *orderWait) close() error {
	e := w.engine
	w.engine = nil
	if e == nil {
		return nil
	}
	return e.Close()
}

// run waits until the runs of the order have ended, says what became of each, and
// returns an error that names the first that was not published.
func (w *orderWait) run(ctx context.Context) error {
	w.open = w.cfg.Store.Engine != "hbase" // where it may still wait for a daemon to read it
	w.told = time.Now()
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for {
		done, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			w.p.Note("export", "order %s goes on in the daemon: export cancel %s %s ends it", w.order.ID, w.job, w.order.ID)
			return fmt.Errorf("wait for order %s: %w", w.order.ID, ctx.Err())
		case errors.Is(err, errNobodyRuns):
			return fmt.Errorf("order %s is open, and %w of %s: it is run when one is there that has it again", w.order.ID, err, w.job)
		case err != nil:
			// A daemon that starts again goes on with its orders.
			w.note(fmt.Sprintf("order %s cannot be looked at, and is waited for: %v", w.order.ID, errors.Join(err, w.close())))
		case done:
			return w.result()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// errNobodyRuns: the daemon was started again, with another file.
var errNobodyRuns = errors.New("the daemon that runs now has no schedule")

// isRun looks, now and then, whether the order, which is open, is one of a job that
// the daemon has a schedule of.
func (w *orderWait) isRun(ctx context.Context) error {
	d, ok := w.engine.(*client.Client)
	if !ok || time.Since(w.asked) < logEvery {
		return nil // on HBase it is for whichever daemon there is
	}
	has, err := d.HasSchedule(ctx, w.job)
	if err == nil && !has {
		err = errNobodyRuns
	}
	w.asked = time.Now()
	return err
}

// look reads what has become of the order, and reports whether it has ended.
func (w *orderWait) look(ctx context.Context) (done bool, err error) {
	if err := w.connect(ctx); err != nil {
		return false, err
	}
	st, err := history.State(ctx, w.engine, w.job) // before the history, which gets the end of an order in the same commit
	if err != nil {
		return false, err
	}
	now := (*schedule.Order)(nil)
	for i := range st.Orders {
		if st.Orders[i].ID == w.order.ID {
			now = &st.Orders[i]
		}
	}
	w.gone, w.open = w.open && now == nil, w.open || now != nil
	if now != nil {
		w.order.Times = now.Times
		if err := w.isRun(ctx); err != nil {
			return false, err
		}
	}
	if now != nil && now.Cause == schedule.Backfill && st.Paused {
		w.note(fmt.Sprintf("the schedule of %s is paused, and its backfills wait: export resume %s", w.job, w.job))
	}
	ended, err := w.read(ctx, awaitEntries)
	if err == nil && w.gone && w.times < w.order.Times {
		var more []schedule.Entry
		more, err = w.read(ctx, int(w.order.Times)+awaitEntries)
		ended = append(more, ended...)
	}
	if err != nil {
		return false, err
	}
	for i := len(ended) - 1; i >= 0; i-- {
		if err := w.tell(&ended[i]); err != nil {
			return false, err
		}
	}
	w.progress(len(ended) > 0)
	return w.gone || w.times >= w.order.Times, nil
}

// read returns the entries of the order among the newest n of the job's history that
// were not seen before, the newest first.
func (w *orderWait) read(ctx context.Context, n int) (found []schedule.Entry, err error) {
	if err := w.connect(ctx); err != nil {
		return nil, err
	}
	all, err := history.Entries(ctx, w.engine, w.job, n)
	if err != nil {
		return nil, err
	}
	for i := range all {
		key := entryKey{all[i].Ended.UnixNano(), all[i].Logical.UnixNano()}
		if all[i].Order == w.order.ID && !w.known[key] {
			w.known[key] = true
			found = append(found, all[i])
		}
	}
	return found, nil
}

// tell says that a run of the order has ended.
func (w *orderWait) tell(e *schedule.Entry) error {
	w.times += e.Count
	if e.Result != schedule.OK && e.Result != schedule.Published {
		w.bad += e.Count
		if w.worst == nil {
			w.worst = e
		}
	}
	if w.json {
		return writeJSON(w.p.Stdout, []*schedule.Entry{e})
	}
	what := fmt.Sprintf("%s for %s: %s", w.job, e.Logical.Format(time.RFC3339Nano), e.Result)
	if e.RunID != "" {
		what += fmt.Sprintf(", run %s, %s rows, %s, %.2f s", e.RunID, cli.Count(e.Rows), cli.Bytes(e.Bytes), e.Ended.Sub(e.Started).Seconds())
	}
	_, err := fmt.Fprintln(w.p.Stdout, what)
	return err
}

// progress says how far the order is, where something has changed or much time passed.
func (w *orderWait) progress(changed bool) {
	if w.quiet || (!changed && time.Since(w.told) < logEvery) {
		return
	}
	w.told = time.Now()
	if w.p.JSON {
		w.p.Event("order", "order", w.order.ID, "ended", w.times, "times", w.order.Times, "failed", w.bad)
		return
	}
	w.p.Note("export", "order %s: %s of %s runs have ended", w.order.ID, cli.Count(w.times), cli.Count(w.order.Times))
}

// note says something once.
func (w *orderWait) note(text string) {
	if !w.notes[text] {
		w.notes[text] = true
		w.p.Note("export", "%s", text)
	}
}

// result is the error of an order that has ended.
func (w *orderWait) result() error {
	switch {
	case w.worst != nil && w.worst.Error != "":
		return fmt.Errorf("order %s: %s of %s runs were not published: the one for %s: %s: %s", w.order.ID, cli.Count(w.bad), cli.Count(w.times), w.worst.Logical.Format(time.RFC3339Nano), w.worst.Result, w.worst.Error)
	case w.worst != nil:
		return fmt.Errorf("order %s: %s of %s runs were not published: the one for %s: %s", w.order.ID, cli.Count(w.bad), cli.Count(w.times), w.worst.Logical.Format(time.RFC3339Nano), w.worst.Result)
	case w.times < w.order.Times:
		return fmt.Errorf("order %s has ended, and of %s runs the history names only %s: the schedule of %s was changed", w.order.ID, cli.Count(w.order.Times), cli.Count(w.times), w.job)
	}
	return nil
}
