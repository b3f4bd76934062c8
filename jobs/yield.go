package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"sluice/jobs/work"
)

// DefaultMaxPause is for how long a run pauses in all for ingest.
const DefaultMaxPause = time.Hour

// YieldToLag makes the runs of a job pause while ingest is behind. The zero value: they
// never do.
type YieldToLag struct {
	// Time has a run pause while a record of a pipeline waits for longer than this, at
	// least 1s, by its timestamp. Default: however long.
	Time time.Duration `yaml:"time,omitempty"`
	// Records has a run pause while more records of a pipeline wait than this. Default:
	// however many.
	Records int64 `yaml:"records,omitempty"`
	// MaxPause is for how long a run pauses in all; after that it goes on, whatever lags.
	// Default: 1h.
	MaxPause time.Duration `yaml:"max_pause,omitempty"`
}

// compileYield checks the job's yield_to_lag.
func (j *Job) compileYield(bad func(path, format string, args ...any)) {
	y := &j.spec.YieldToLag
	switch {
	case *y == (YieldToLag{}):
		return
	case y.Time == 0 && y.Records == 0:
		bad("yield_to_lag", "it says for how long a run pauses, and not at which lag: add time or records")
	case y.Time != 0 && y.Time < time.Second:
		bad("yield_to_lag.time", "%v is less than 1s, how often lag is looked at", y.Time)
	case y.Records < 0:
		bad("yield_to_lag.records", "it is negative")
	case y.MaxPause < 0:
		bad("yield_to_lag.max_pause", "it is negative")
	}
	if y.MaxPause == 0 {
		y.MaxPause = DefaultMaxPause
	}
}

// Yields reports whether runs of the job pause while ingest is behind.
func (j *Job) Yields() bool { return j.spec.YieldToLag != YieldToLag{} }

// Yields reports whether runs of the join pause while ingest is behind, as those of one of
// its jobs do.
func (j *Join) Yields() bool { return j.yieldToLag() != YieldToLag{} }

// yieldToLag is the least that one of the join's jobs says.
func (j *Join) yieldToLag() (least YieldToLag) {
	for _, side := range j.sides {
		if side == nil || !side.Yields() {
			continue
		}
		y := side.spec.YieldToLag
		if least == (YieldToLag{}) {
			least = y
			continue
		}
		if least.Time == 0 || y.Time != 0 && y.Time < least.Time {
			least.Time = y.Time
		}
		if least.Records == 0 || y.Records != 0 && y.Records < least.Records {
			least.Records = y.Records
		}
		least.MaxPause = min(least.MaxPause, y.MaxPause)
	}
	return least
}

// PipelineLag is how far a pipeline is behind, of the partitions that it applies: what it
// does not apply, as a breaker is open or a broker is away, no pause of an export helps.
type PipelineLag struct {
	Pipeline string
	Age      time.Duration // of the oldest record that waits, by its timestamp
	Records  int64         // that wait
}

// Yielding is that a run pauses for ingest, or has paused.
type Yielding struct {
	Why    string        // it pauses; empty = it has gone on
	Paused time.Duration // in all so far
}

const (
	// lagEvery is how often lag is looked at, while a run pauses too.
	lagEvery = time.Second
	// lagPatience is for how long a run that pauses waits for an answer: a daemon that is
	// behind may be slow to give one, and behind one that is gone is nobody.
	lagPatience = 30 * time.Second
	// yieldRows is how many rows are read at most from one look to the next: a look that
	// is not due costs what ten rows do.
	yieldRows = 1024
)

// yielder has the goroutines of a run pause together while ingest is behind. nil = they
// never do. It is safe for concurrent use.
type yielder struct {
	limits YieldToLag
	lag    func(ctx context.Context) ([]PipelineLag, error)
	tell   func(Yielding)
	log    *slog.Logger // with what the run is

	turn    chan struct{} // of one: has a token while somebody looks, and for as long as the run pauses
	next    time.Time     // when to look again; this and the rest is whose turn it is
	paused  time.Duration
	over    bool // it has paused for as long as it may
	unknown bool // that lag is not known was said
}

// newYielder returns what x pauses by.
func (x *execution) newYielder(limits YieldToLag) *yielder {
	if limits == (YieldToLag{}) {
		return nil
	}
	log := x.Logger.With("job", x.name, "run", x.id)
	if x.Lag == nil {
		log.Info(x.kind + " does not yield to ingest: nothing here tells how far that is behind")
		return nil
	}
	return &yielder{limits: limits, lag: x.Lag, log: log, turn: make(chan struct{}, 1), tell: func(y Yielding) {
		x.report(func(p *work.Progress) { p.Paused, p.PausedFor = y.Paused, y.Why })
		if x.Yielding != nil {
			x.Yielding(y)
		}
	}}
}

// total is for how long the run has paused.
func (y *yielder) total() time.Duration {
	if y == nil {
		return 0
	}
	y.turn <- struct{}{}
	defer func() { <-y.turn }()
	return y.paused
}

// wait returns at once where ingest is not behind, or was not a moment ago, and otherwise
// when it has caught up to half of what the job allows, or the run has paused for as long as
// it may. Its error is that of ctx only.
func (y *yielder) wait(ctx context.Context) error {
	if y == nil {
		return nil
	}
	cancelled := func() error { return fmt.Errorf("wait for ingest, which is behind: %w", context.Cause(ctx)) }
	select {
	case y.turn <- struct{}{}:
		defer func() { <-y.turn }()
	case <-ctx.Done():
		return cancelled()
	}
	started := time.Now()
	if y.over || started.Before(y.next) {
		return nil
	}
	y.next = started.Add(lagEvery)
	why, err := y.behind(ctx, 1)
	if err != nil || why == "" {
		if err != nil && !y.unknown && ctx.Err() == nil {
			y.unknown = true
			y.log.Warn("export does not yield to ingest as long as its lag is not known", "err", err)
		}
		return nil // that ctx has ended the scan says
	}
	y.log.Info("export pauses: ingest is behind", "reason", why)
	before := y.paused
	answered := started
	for err == nil && why != "" {
		y.tell(Yielding{Why: why, Paused: y.paused})
		t := time.NewTimer(min(lagEvery, y.limits.MaxPause-y.paused))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			err = cancelled()
		}
		now := time.Now()
		y.paused = before + now.Sub(started)
		if err != nil {
			break
		}
		if y.over = y.paused >= y.limits.MaxPause; y.over {
			break
		}
		look, lookErr := y.behind(ctx, 2)
		switch {
		case lookErr == nil:
			why, answered = look, now
		case now.Sub(answered) >= lagPatience:
			y.log.Warn("export goes on: how far ingest is behind is not known any more", "err", lookErr)
			why = ""
		}
	}
	y.next = time.Now().Add(lagEvery)
	y.tell(Yielding{Paused: y.paused})
	switch {
	case err != nil:
	case y.over:
		y.log.Warn("export goes on although ingest is behind: it has paused for as long as max_pause allows, and pauses no more", "reason", why, "paused", y.paused)
	default:
		y.log.Info("export goes on: ingest has caught up", "paused", time.Since(started))
	}
	return err
}

// behind says which pipeline is behind by more than one in parts of what the job allows, and
// how far, or nothing.
func (y *yielder) behind(ctx context.Context, parts int64) (string, error) {
	all, err := y.lag(ctx)
	if err != nil {
		return "", err
	}
	for _, l := range all {
		if t := y.limits.Time / time.Duration(parts); t > 0 && l.Age > t {
			return fmt.Sprintf("pipeline %s is %s behind", l.Pipeline, l.Age.Round(time.Second)), nil
		}
		if n := y.limits.Records; n > 0 && l.Records > n/parts {
			return fmt.Sprintf("%d records of pipeline %s wait", l.Records, l.Pipeline), nil
		}
	}
	return "", nil
}

// pausedSeconds is a time as manifests and histories have it.
func pausedSeconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }
