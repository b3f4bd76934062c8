package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"strings"

	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/join"
	"sluice/jobs/rowsort"
	"sluice/jobs/schedule"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
)

// errOtherRows: a join, or a sort, that was resumed does not make the rows that are in its
// finished files.
var errOtherRows = errors.New("the rows are not those that the run had when it was cut off (cells with a TTL may have expired); run it again without --resume")

// instant names what is read, so that a run that goes on reads the same: the
// checkpoint, or the manifests of both runs. Empty = it has no name.
func (r *joinRun) instant() string {
	sums := []string{"runs"}
	for _, in := range r.inputs {
		if in, ok := in.(*runInput); ok {
			sums = append(sums, in.sum)
		}
	}
	if len(sums) == 1 && instant.UnfrozenOf(r.Source) != nil {
		return "" // what it joins again would not be what it has joined
	}
	if len(sums) == 1 {
		return r.Checkpoint
	}
	return strings.Join(sums, " ")
}

// definition hashes what decides, besides the instant, which bytes the files hold.
func (j *Join) definition(version string) (string, error) {
	s := j.spec
	s.Out, s.SpillDir, s.Keep, s.Schedule = "", "", Keep{}, schedule.Spec{}
	s.TargetFileBytes, s.RowGroupBytes = j.layout.targetFileBytes, j.layout.rowGroupBytes
	var sides []string
	for _, side := range j.sides {
		if side == nil {
			continue
		}
		d, err := side.definition(version)
		if err != nil {
			return "", err
		}
		sides = append(sides, d)
	}
	data, err := json.Marshal(struct {
		Spec    JoinSpec
		Sides   []string
		Version string
	}{s, sides, version})
	if err != nil {
		return "", fmt.Errorf("encode the join: %w", err)
	}
	return hexSHA256(data), nil
}

// begin begins the upload of r, or goes on with what another process has left of it,
// where that is of the same instant.
func (r *joinRun) begin(ctx context.Context, m *Manifest) error {
	for i := range r.Join.format {
		f := &r.Join.format[i]
		r.outputs = append(r.outputs, &replayOutput{fileWriter: fileWriter{layout: &r.Join.layout, format: f, metadata: r.metadata}})
	}
	t, ok := r.Target.(target.Resumer)
	instant := r.instant()
	if instant == "" || !ok {
		var err error
		r.upload, err = r.Target.Begin(ctx, r.dir, r.id)
		return err
	}
	definition, err := r.Join.definition(r.Version)
	if err != nil {
		return err
	}
	want := newRunState(m, instant, definition)
	want.Join = true
	fresh, err := resumeOrBegin(ctx, t, r.dir, want, func(left target.Resumable) (bool, error) { return r.takeUp(ctx, left, want, m) })
	if fresh != nil {
		r.upload, r.notes = fresh, fresh
	}
	if r.notes != nil {
		for _, o := range r.outputs {
			o.digest = sha256.New()
		}
	}
	return err
}

// takeUp makes left the upload of r and reports true; where its files are not of the
// instant and the join of want, or not whole, it removes them.
func (r *joinRun) takeUp(ctx context.Context, left target.Resumable, want *runState, m *Manifest) (bool, error) {
	w, why, err := workOf(ctx, left, true, want)
	if err != nil {
		return false, err
	}
	if why != "" {
		r.Logger.Warn("join begins anew: what was left of the run is of no use", "job", r.Join.name, "run", r.id, "reason", why)
		return false, left.Abort()
	}
	r.upload, r.notes = left, left
	m.StartedAt, m.PreviousRunID = w.state.StartedAt, w.state.PreviousRunID
	for _, o := range r.outputs {
		o.done, o.digests = w.files[0][fileSet{o.format.name, "."}], w.digests
		m.Files = append(m.Files, o.done...)
	}
	r.report(func(p *work.Progress) {
		for i := range m.Files {
			p.Files++
			p.Bytes += m.Files[i].Bytes
		}
	})
	r.Logger.Info("join resumed", "job", r.Join.name, "run", r.id, "files", len(m.Files))
	return true, nil
}

// end ends the upload after err. Where it may go better another time, what is
// finished stays, as that of an export does.
func (r *joinRun) end(ctx context.Context, err error) error {
	refused := (*columnar.ConvertError)(nil)
	unwanted := ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrResumable)
	if lost := instant.Lost(r.Source); lost != nil {
		return errors.Join(lost, err, r.upload.Abort())
	}
	if r.notes == nil || unwanted || store.NoSpace(err) || errors.As(err, &refused) {
		return errors.Join(err, r.upload.Abort())
	}
	for _, final := range []error{
		target.ErrExists, target.ErrNotFound, store.ErrCorrupt, errOtherRows, errManifestSize, join.ErrMemory, join.ErrNotSorted, join.ErrDisk, join.ErrSpill, rowsort.ErrMemory,
	} {
		if errors.Is(err, final) {
			return errors.Join(err, r.upload.Abort())
		}
	}
	if leave := r.notes.Leave(); leave != nil {
		return errors.Join(err, leave)
	}
	return fmt.Errorf("%w: %w", ErrResumable, err)
}

// replayOutput is the files of one format of a run that makes all rows again when it is
// resumed: a join, or one that is sorted.
type replayOutput struct {
	fileWriter
	digest hash.Hash // of the batches of the current file; nil where nobody goes on
	// done are the files of the run that was cut off whose rows did not come
	// again yet, and passed the rows of the first that did.
	done    []File
	passed  int64
	digests map[string]string // by path
	resumed bool              // there were such files
	chunk   int               // of a run that is sorted: of the current file, in its partition
}

// pass takes rows that are in a finished file, and compares them with it.
func (o *replayOutput) pass(b *columnar.Batch) error {
	b.HashTo(o.digest)
	o.passed += int64(b.Rows())
	f := &o.done[0]
	if o.passed < f.Rows {
		return nil
	}
	if o.passed > f.Rows || o.takeDigest() != o.digests[f.Path] {
		return fmt.Errorf("%s: %w", f.Path, errOtherRows)
	}
	o.done, o.passed, o.resumed = o.done[1:], 0, true
	return nil
}

// takeDigest returns the digest of the batches so far and begins anew.
func (o *replayOutput) takeDigest() string {
	sum := hex.EncodeToString(o.digest.Sum(nil))
	o.digest.Reset()
	return sum
}
