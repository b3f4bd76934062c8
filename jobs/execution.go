package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"sync"
	"time"

	"sluice/jobs/columnar"
	"sluice/jobs/iceberg"
	"sluice/jobs/join"
	"sluice/jobs/rowsort"
	"sluice/jobs/schedule"
	"sluice/jobs/spill"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
)

// execution is what a run of a job and one of a join have in common: what it is for and
// where it goes, its upload, the files in it, and how it becomes visible or ends.
type execution struct {
	RunOptions // a join's have no Job, and nothing here asks for it
	publication
	kind, name string // export or join, and of which
	started    time.Time
	metadata   map[string]string
	yielder    *yielder // nil = it does not pause

	mu       sync.Mutex
	progress work.Progress
	files    []File
	listed   fileList // but for files of the run that this one goes on with
}

// steps is what a run of a job and one of a join do each in its own way.
type steps interface {
	// usable makes of the run what the one was that was cut off. Its error is an
	// uselessError where what that has finished is of no use.
	usable(ctx context.Context, w *finishedWork, m *Manifest) error
	// begun is called once there is an upload: w is what is finished of it, nil = nothing.
	begun(w *finishedWork) error
	// write writes the files.
	write(ctx context.Context) error
	// atFault reports whether the run ends no better another time after err: what it reads
	// is at fault, or the job.
	atFault(err error) bool
}

// start checks what every run needs, and sets defaults; out is the job's own.
func (x *execution) start(out string) error {
	if x.Out == "" {
		x.Out = out
	}
	if x.Target == nil && x.Out == "" {
		return fmt.Errorf("%s %s: no directory to write to: set its out", x.kind, x.name)
	}
	if x.Now == nil {
		x.Now = time.Now
	}
	if x.Logger == nil {
		x.Logger = slog.New(slog.DiscardHandler)
	}
	if x.Recorder == nil {
		x.Recorder = new(Recorder)
	}
	x.started = x.Now().UTC()
	if x.LogicalTime.IsZero() {
		x.LogicalTime = x.started
	}
	x.LogicalTime = x.LogicalTime.UTC()
	if err := schedule.CheckLogical(x.LogicalTime); err != nil {
		return fmt.Errorf("%s %s: %w: it is for %w", x.kind, x.name, store.ErrInvalidArgument, err)
	}
	x.id, x.dir = runID(x.name, x.LogicalTime), runDir(x.name, x.LogicalTime)
	return nil
}

// runID is a hash of the job and the time that the run is for, so that a schedule
// cannot publish one run twice.
func runID(job string, t time.Time) string {
	h := sha256.Sum256([]byte(job + "\x00" + t.Format(time.RFC3339Nano)))
	return hex.EncodeToString(h[:6])
}

// runDir is where the run of a job for a time, in UTC, becomes visible.
func runDir(job string, t time.Time) string {
	return path.Join(job, "run="+t.Format(runTime)+"-"+runID(job, t))
}

// runTime is how names of directories tell the second that a run is for.
const runTime = "20060102T150405Z"

// openTarget makes the local directory Out the Target, where there is none, until what it
// returns is called.
func (x *execution) openTarget() (closeTarget func() error, err error) {
	if x.Target != nil {
		return func() error { return nil }, nil
	}
	local, err := target.CreateLocal(x.Out)
	if err != nil {
		return nil, err
	}
	x.Target = local
	return local.Close, nil
}

// publish writes the files of m, publishes the run, and points at it. Others may go on
// with it as want says, nil = nobody; parts is whether files of unfinished regions can be
// gone on with. Where the run is published and the pointer is not replaced, it returns m
// and an error.
func (x *execution) publish(ctx context.Context, m *Manifest, want *runState, parts bool, s steps) (*Manifest, error) {
	if m.Iceberg { // known before the files are written, and before anybody has them
		if err := iceberg.CheckLocation(x.Target.URL(x.name)); err != nil {
			return nil, err
		}
	}
	w, err := x.beginOrGoOn(ctx, m, want, parts, s)
	if errors.Is(err, target.ErrExists) {
		err = errors.Join(publishedBefore(x.LogicalTime, err), pointAgain(ctx, x.Target, x.dir))
	}
	if err != nil {
		return nil, err
	}
	if err := s.begun(w); err != nil {
		return nil, errors.Join(err, x.upload.Abort())
	}
	if err := s.write(ctx); err != nil {
		return nil, x.end(ctx, s, err)
	}
	m.Files, m.FinishedAt, m.PausedSeconds = x.files, x.Now().UTC(), pausedSeconds(x.yielder.total())
	m.sortFiles()
	data, err := x.commit(ctx, x.Source, ManifestName, m, len(m.Files), filesHint, func(ctx context.Context) error { return x.confirm(ctx, m) })
	if err != nil {
		return nil, x.end(ctx, s, err)
	}
	return m, announce(ctx, x.Target, x.dir, m, data, x.Published)
}

// confirm asks, right before the run is published, whether it may be.
func (x *execution) confirm(ctx context.Context, m *Manifest) error {
	if x.Confirm != nil {
		if err := x.Confirm(ctx); err != nil {
			return err
		}
	}
	return m.checkBase(ctx, x.Target)
}

// beginOrGoOn begins the upload, or goes on with what another process has left of the run
// that want describes, and returns what is finished of that. What is not of the same
// instant and the same job, or not whole, it removes: instants are never mixed.
func (x *execution) beginOrGoOn(ctx context.Context, m *Manifest, want *runState, parts bool, s steps) (*finishedWork, error) {
	t, ok := x.Target.(target.Resumer)
	if want == nil || !ok {
		return nil, x.begin(ctx, x.Target, "", nil)
	}
	left, err := x.left(ctx, t)
	switch {
	case err == nil:
		w, err := x.takeUp(ctx, left, m, want, parts, s)
		if w != nil || err != nil {
			return w, err
		}
	case !errors.Is(err, target.ErrNotFound) && !errors.Is(err, errors.ErrUnsupported):
		return nil, err
	}
	return nil, x.begin(ctx, t, noteRun, want)
}

// takeUp makes left the upload, and returns what is finished of it; nil where that is of no
// use, and removed. What cannot be told now stays as it was left.
func (x *execution) takeUp(ctx context.Context, left target.Resumable, m *Manifest, want *runState, parts bool, s steps) (*finishedWork, error) {
	w, err := readWork(ctx, left, parts)
	if err == nil {
		if why := w.state.differs(want); why != "" {
			err = useless(errors.New(why))
		} else {
			err = s.usable(ctx, w, m)
		}
	}
	why := (*uselessError)(nil)
	switch {
	case ctx.Err() != nil: // that may be why
		err = context.Cause(ctx)
	case errors.As(err, &why):
		x.Logger.Warn(x.kind+" begins anew: what was left of the run is of no use", "job", x.name, "run", x.id, "reason", why)
		return nil, left.Abort()
	}
	x.goOn(left)
	if err != nil {
		return nil, x.end(ctx, s, fmt.Errorf("take up what was left of the run: %w", err))
	}
	m.StartedAt, m.PreviousRunID = w.state.StartedAt, w.state.PreviousRunID
	x.files = w.all()
	x.report(func(p *work.Progress) {
		for i := range x.files {
			p.Files++
			p.Bytes += x.files[i].Bytes
		}
	})
	return w, nil
}

// note keeps with the upload that a file, or else a region, is finished.
func (x *execution) note(ctx context.Context, n *workNote) error {
	name := splitNote(n.Region)
	if n.File != nil {
		name = fileNote(n.File.Path)
	}
	n.FormatVersion = ManifestVersion
	return x.publication.note(ctx, name, n)
}

// hopeless are errors after which a run ends no better another time.
var hopeless = []error{errOtherRows, errManifestSize, rowsort.ErrMemory, spill.ErrFull, spill.ErrDamaged, join.ErrMemory, join.ErrNotSorted}

// isHopeless reports whether err is one of them, or a value, or so many partitions, that
// the run cannot write.
func isHopeless(err error) bool {
	refused, many := (*columnar.ConvertError)(nil), (*PartitionsError)(nil)
	return errors.As(err, &refused) || errors.As(err, &many) || slices.ContainsFunc(hopeless, func(e error) bool { return errors.Is(err, e) })
}

// end ends the upload after err.
func (x *execution) end(ctx context.Context, s steps, err error) error {
	return x.publication.end(ctx, x.Source, err, s.atFault(err))
}

// done takes over a finished file. Its error wraps errManifestSize where there are too
// many.
func (x *execution) done(f File) (err error) {
	x.Recorder.files.Add(1)
	x.Recorder.bytes.Add(f.Bytes)
	x.report(func(p *work.Progress) {
		x.files = append(x.files, f)
		err = x.listed.add(&f)
		p.Files++
		p.Bytes += f.Bytes
	})
	return err
}

// report changes the progress and tells it.
func (x *execution) report(change func(p *work.Progress)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change(&x.progress)
	x.progress.Elapsed = x.Now().Sub(x.started)
	if x.Progress != nil {
		x.Progress(x.progress)
	}
}
