package jobs

import (
	"context"
	"errors"
	"fmt"

	"sluice/jobs/instant"
	"sluice/jobs/target"
	"sluice/store"
)

// publication is what exports, joins and backups have in common: an upload that becomes
// visible with its manifest, whole, or ends, and in which another process finds what is
// finished.
type publication struct {
	dir    string // below the target, where it becomes visible
	id     string // names it until then
	upload target.Upload
	notes  target.Resumable // the upload, where it can be left to others; nil = not
}

// begin begins the upload, with the first note for those who are to go on with it; state
// nil = nobody is.
func (p *publication) begin(ctx context.Context, t target.Target, name string, state any) (err error) {
	if p.upload, err = t.Begin(ctx, p.dir, p.id); err != nil {
		return err
	}
	if notes, ok := p.upload.(target.Resumable); ok && state != nil {
		p.notes = notes
		if err := p.note(ctx, name, state); err != nil {
			return errors.Join(err, p.upload.Abort())
		}
	}
	return nil
}

// left takes over the upload as another process has left it, where that takes waiting
// until that process is known to have ended. Its error is that of target.Resumer.
func (p *publication) left(ctx context.Context, t target.Resumer) (target.Resumable, error) {
	left, err := t.Resume(ctx, p.dir, p.id)
	if a, ok := t.(target.Awaiter); ok && errors.Is(err, target.ErrBusy) {
		if err = a.Await(ctx, p.dir); err == nil {
			left, err = t.Resume(ctx, p.dir, p.id)
		}
	}
	return left, err
}

// goOn makes what was left the upload.
func (p *publication) goOn(left target.Resumable) { p.upload, p.notes = left, left }

// note keeps content with the upload, where anybody is to go on with it.
func (p *publication) note(ctx context.Context, name string, content any) error {
	if p.notes == nil {
		return nil
	}
	data, err := encodeJSON(content)
	if err != nil {
		return err
	}
	return p.notes.Note(ctx, name, data)
}

// commit publishes the upload with its manifest, which has so many files, once confirm,
// which may be nil, agrees. It returns the manifest's bytes. Its error wraps
// errManifestSize where nobody could read them again; hint says what helps.
func (p *publication) commit(ctx context.Context, s instant.Source, name string, m publishable, files int, hint string, confirm func(context.Context) error) ([]byte, error) {
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("its own manifest is wrong: %w", err)
	}
	data, err := m.Encode()
	if err != nil {
		return nil, err
	}
	if err := checkManifestSize(files, len(data), hint); err != nil {
		return nil, err
	}
	if confirm != nil {
		if err := confirm(ctx); err != nil {
			return nil, fmt.Errorf("not published: %w", err)
		}
	}
	if err := instant.Check(ctx, s); err != nil {
		return nil, fmt.Errorf("what was read is not to be trusted: %w", err)
	}
	return data, p.upload.Commit(ctx, name, data)
}

// publishable is a manifest.
type publishable interface {
	validate() error
	Encode() ([]byte, error)
}

// end ends the upload after err. Where it may go better another time, what is finished
// stays: not after a cancellation, where somebody wants it to end (unless its cause says
// otherwise), not where the data is at fault, or, as hopeless says, the job, and not on a
// full disk, whose space others need more.
func (p *publication) end(ctx context.Context, s instant.Source, err error, hopeless bool) error {
	if lost := instant.Lost(s); lost != nil { // why files were not there
		return errors.Join(lost, err, p.upload.Abort())
	}
	unwanted := ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrResumable)
	if p.notes == nil || unwanted || hopeless || errors.Is(err, target.ErrExists) || errors.Is(err, instant.ErrAnother) || errors.Is(err, store.ErrCorrupt) || store.NoSpace(err) {
		return errors.Join(err, p.upload.Abort())
	}
	if leave := p.notes.Leave(); leave != nil {
		return errors.Join(err, leave)
	}
	return fmt.Errorf("%w: %w", ErrResumable, err)
}
