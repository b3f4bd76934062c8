package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"sluice/jobs/target"
	"sluice/store"
)

// Keep is how long the published runs of a job are kept. The zero value keeps all
// of them.
type Keep struct {
	// Runs is how many of the newest runs are kept, by the time that they are
	// for. Default: age alone decides.
	Runs int `yaml:"runs,omitempty"`
	// Age is how long a run is kept after it was published. Default: runs
	// alone decides; with both, a run goes when both let it go.
	Age time.Duration `yaml:"age,omitempty"`
}

// check returns what is wrong with k, by key.
func (k *Keep) check(bad func(path, format string, args ...any)) {
	if k.Runs < 0 {
		bad("keep.runs", "%d is negative", k.Runs)
	}
	if k.Age < 0 {
		bad("keep.age", "%v is negative", k.Age)
	}
}

// lets reports whether a run goes that is the rank-th newest, from 0, and was
// published age ago, and why.
func (k *Keep) lets(rank int, age time.Duration) (reason string, goes bool) {
	switch {
	case k.Runs == 0 && k.Age == 0, k.Runs > 0 && rank < k.Runs, k.Age > 0 && age <= k.Age:
		return "", false
	case k.Age == 0:
		return fmt.Sprintf("beyond the newest %d runs", k.Runs), true
	case k.Runs == 0:
		return fmt.Sprintf("older than %v", k.Age), true
	}
	return fmt.Sprintf("beyond the newest %d runs and older than %v", k.Runs, k.Age), true
}

// CollectOptions configures Collect. Target must be set.
type CollectOptions struct {
	Target target.Target
	// Keep is the retention of each job by name; runs of jobs that are not in
	// it stay.
	Keep map[string]Keep
	// Awaited returns runs, by job and by what they are for, that a schedule has begun and
	// will go on with: what they have left stays. It is asked after what was left has been
	// listed, if there is any, so that a run which has begun before it left something is
	// among them; its error ends the collection. Of other runs that could be resumed,
	// whoever collects decides that they are not. nil = there are none.
	Awaited func(ctx context.Context) (map[string][]time.Time, error)
	// Job, where it is not empty, is the only one whose runs are looked at, and what is left
	// of those that were removed; what killed exports have left is not.
	Job string
	// Made is the id of a run of Job that stays, however old it is for.
	Made string
	// DryRun says what would be removed and removes nothing.
	DryRun bool
	// Logger tells of each removal. nil discards.
	Logger *slog.Logger
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// Garbage is one thing that Collect looked at and removed, would remove, or left
// for a reason worth telling.
type Garbage struct {
	Job    string // of a published run; empty for what never was one
	Name   string // below the target: a run's directory, or what an upload left
	Bytes  int64
	Reason string // why it goes, or stays
	// Stays says that it is not to be removed: an upload at work, a run whose
	// manifest cannot be read.
	Stays bool
	// Err is why it could not be removed.
	Err error
}

// Collect removes what exports have left that were killed, and the published runs
// beyond their job's retention: never what may still be written (see
// target.Collector), never the run that _latest.json names nor one for a later
// time, nor one that an increment which stays goes on from, and nothing that it cannot read. It may run at any time, beside exports
// and beside itself. It returns what it found, leftovers first; its error joins
// those of what could not be removed, and wraps store.ErrUnsupported where the
// target is no Collector.
func Collect(ctx context.Context, o *CollectOptions) ([]Garbage, error) {
	t, ok := o.Target.(target.Collector)
	if !ok {
		return nil, fmt.Errorf("collect garbage: %w: a target of type %T", store.ErrUnsupported, o.Target)
	}
	c := &collection{CollectOptions: *o, target: t}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if err := c.leftovers(ctx); err != nil {
		return c.found, fmt.Errorf("collect garbage: %w", err)
	}
	if err := c.runs(ctx); err != nil {
		return c.found, fmt.Errorf("collect garbage: %w", err)
	}
	var errs []error
	for i := range c.found {
		if err := c.found[i].Err; err != nil {
			errs = append(errs, err)
		}
	}
	return c.found, errors.Join(errs...)
}

// collection is one execution of Collect.
type collection struct {
	CollectOptions
	target target.Collector
	found  []Garbage
}

// leftovers removes what killed exports and removals have left.
func (c *collection) leftovers(ctx context.Context) error {
	all, err := c.target.Leftovers(ctx)
	if err != nil {
		return err
	}
	var awaited []string // ids
	if c.Awaited != nil && c.Job == "" && slices.ContainsFunc(all, func(l target.Leftover) bool { return !l.Busy && !l.Removal() && !l.Record() }) {
		runs, err := c.Awaited(ctx)
		if err != nil {
			return fmt.Errorf("runs that schedules go on with: %w", err)
		}
		for job, times := range runs {
			for _, at := range times {
				awaited = append(awaited, runID(job, at.UTC()))
			}
		}
	}
	for _, l := range all {
		if c.Job != "" && !target.OfRemoval(l.Name, c.Job) {
			continue
		}
		g := Garbage{Name: l.Name, Bytes: l.Bytes, Reason: "never published, and nobody is writing it"}
		switch {
		case l.Removal() && l.Busy:
			g.Reason, g.Stays = "a run that is being removed", true
		case l.Removal():
			g.Reason = "a run whose removal was cut off"
		case l.Record():
			g.Reason = "the record of a run that is not there"
		case l.Busy:
			g.Reason, g.Stays = "an export is writing it", true
		case slices.ContainsFunc(awaited, func(id string) bool { return strings.Contains(l.Name, id) }):
			g.Reason, g.Stays = "its schedule has begun it, and goes on with it", true
		}
		c.take(ctx, g, func() error { return c.target.Discard(ctx, l.Name) })
	}
	return ctx.Err()
}

// runs removes the runs beyond retention.
func (c *collection) runs(ctx context.Context) error {
	all, err := c.list(ctx)
	if err != nil {
		return err
	}
	rank, latest := 0, false
	needed := map[string]bool{}    // by increments that stay: a base is older
	unknown := map[string]string{} // by job, the second of the last run that may be an increment
	for i := range all {
		if r := &all[i]; r.Err != nil {
			unknown[r.Job] = max(unknown[r.Job], secondOf(r.Dir))
		}
	}
	var found, beyond []judged // of the job; beyond keep, where none of them is the latest
	end := func() {
		if !latest {
			found = append(found, c.undecided(ctx, beyond)...)
		}
		c.takeRuns(ctx, found)
	}
	for i := range all {
		r := &all[i]
		if i == 0 || all[i-1].Job != r.Job {
			end()
			rank, latest, found, beyond = 0, false, nil, nil
		}
		keep, ok := c.Keep[r.Job]
		if !ok {
			continue
		}
		if r.Err != nil {
			found = append(found, judged{r, fmt.Sprintf("its manifest cannot be read: %v", r.Err), true})
			continue
		}
		// The newest come first. Until the latest one was met, a run is newer:
		// its export may be about to point at it, or was killed before it did.
		reason, goes := keep.lets(rank, c.Now().Sub(r.FinishedAt))
		goes = goes && r.RunID != c.Made
		if latest && goes && secondOf(r.Dir) <= unknown[r.Job] {
			found = append(found, judged{r, "a later run, whose manifest cannot be read, may go on from it", true})
			goes = false
		}
		if latest && goes && !needed[r.Dir] {
			found = append(found, judged{r, reason, false})
		}
		if !latest && goes {
			beyond = append(beyond, judged{r, reason, true})
		}
		if r.Base != "" && (!latest || !goes || needed[r.Dir]) {
			needed[r.Base] = true
		}
		rank++
		latest = latest || r.Latest
	}
	end()
	return ctx.Err()
}

// undecided says of the runs of a job that are beyond keep why they stay, where none of the
// job's runs is the latest one, so that each of them may be.
func (c *collection) undecided(ctx context.Context, runs []judged) []judged {
	if len(runs) == 0 {
		return nil
	}
	name := path.Join(runs[0].Job, LatestName)
	why := name + " is not there"
	switch l, err := readLatest(ctx, c.target, runs[0].Job); {
	case err == nil:
		why = name + " names " + path.Dir(l.Manifest) + ", which was not there"
	case !errors.Is(err, target.ErrNotFound):
		why = err.Error()
	}
	for i := range runs {
		runs[i].reason += ", but which run is the latest is not known: " + why
	}
	return runs
}

// judged is a run that goes or stays, and why.
type judged struct {
	*RunSummary
	reason string
	stays  bool
}

// takeRuns removes those runs of one job that go, once its Iceberg table knows them no more.
func (c *collection) takeRuns(ctx context.Context, runs []judged) {
	err := c.expire(ctx, runs)
	for _, r := range runs {
		g := Garbage{Job: r.Job, Name: r.Dir, Bytes: r.Bytes, Reason: r.reason, Stays: r.stays}
		c.take(ctx, g, func() error {
			if r.Iceberg && err != nil {
				return err
			}
			return c.target.Remove(ctx, r.Dir)
		})
	}
}

// expire takes the runs of one job that go, of which the newest come first, from its Iceberg
// table, where that has any of them, and has those stay that the table is made of.
func (c *collection) expire(ctx context.Context, runs []judged) error {
	goes := func(r judged) bool { return r.Iceberg && !r.stays }
	if !slices.ContainsFunc(runs, goes) || ctx.Err() != nil {
		return nil
	}
	table := icebergTable(c.target, runs[0].Job)
	current, err := table.Current(ctx)
	if err != nil {
		return err
	}
	var ids []string
	base := "" // of the newest that the table is made of
	for i := range runs {
		r := &runs[i]
		switch {
		case goes(*r) && r.RunID == current:
			r.reason, r.stays, base = "the Iceberg table is this run: what comes later is no snapshot of it", true, r.Base
		case base != "" && r.Dir == base:
			r.reason, r.stays, base = "the Iceberg table goes on from this run: what comes later is no snapshot of it", true, r.Base
		case goes(*r):
			ids = append(ids, r.RunID)
		}
	}
	if c.DryRun || len(ids) == 0 {
		return nil
	}
	return table.Expire(ctx, ids)
}

// list returns the runs that are looked at.
func (c *collection) list(ctx context.Context) ([]RunSummary, error) {
	if c.Job != "" {
		return listJob(ctx, c.target, c.Job)
	}
	return ListTarget(ctx, c.target)
}

// secondOf returns the second that the run in this directory is for (runDir), as text that
// sorts as time does.
func secondOf(dir string) string {
	name := path.Base(dir)
	return name[:min(len(name), len("run="+runTime))]
}

// take removes g, unless it stays.
func (c *collection) take(ctx context.Context, g Garbage, remove func() error) {
	if !g.Stays && !c.DryRun && ctx.Err() == nil {
		err := remove()
		switch {
		case errors.Is(err, target.ErrNotFound):
			return // another collector was faster
		case errors.Is(err, target.ErrBusy):
			g.Reason, g.Stays = "an export is writing it", true
		case err != nil:
			g.Err = err
		default:
			c.Logger.Info("export garbage removed", "name", g.Name, "bytes", g.Bytes, "reason", g.Reason)
		}
	}
	c.found = append(c.found, g)
}
