// Package target is where the files of an export go, and the moment at which they
// become visible.
//
// A Target holds published runs, each a directory of files that never change
// again. An Upload collects the files of one run out of sight; its Commit writes
// the manifest last and makes the run visible whole, if no other run has its
// directory, or not at all (invariant I6). Names are slash-separated paths below
// the target's root, without ".." and without a leading slash.
//
// Targets and Uploads are safe for concurrent use; each file being written
// belongs to one goroutine. The package knows nothing of what the files hold.
// There are the local directory (Local) and object storage that speaks S3's protocol
// (S3); their contract is in targettest.
package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// Errors that targets wrap.
var (
	// ErrExists: the run was published before.
	ErrExists = errors.New("target: run exists")
	// ErrNotFound: there is no such file or directory.
	ErrNotFound = errors.New("target: not found")
	// ErrBusy: another process, or another part of this one, works on it.
	ErrBusy = errors.New("target: in use")
)

// Target is a place for runs.
type Target interface {
	// Begin starts the upload of a run, to become visible as directory dir. id
	// names it where it lies until then. Its error wraps ErrExists where dir
	// is published already. Commit or Abort ends the upload.
	Begin(ctx context.Context, dir, id string) (Upload, error)
	// Update makes name hold what change makes of its content, atomically and
	// durably: a reader finds the old content or the new, and what another Update
	// has written between is not lost, as change is called again with that. old
	// is nil where there is no such file; a nil result leaves it as it is, and so
	// does an error, which Update returns. Where an answer is lost, change may be
	// called with what it has made before: done twice, it must be as done once.
	// After another error than change's nobody knows whether name was changed.
	// Its error wraps ErrBusy where others do not let it get its turn.
	Update(ctx context.Context, name string, change func(old []byte) ([]byte, error)) error
	// Open opens a visible file; where ctx ends, reading it may end, too. Its
	// error wraps ErrNotFound.
	Open(ctx context.Context, name string) (File, error)
	// List returns what lies directly in dir ("." is the root), sorted by
	// name. Its error wraps ErrNotFound.
	List(ctx context.Context, dir string) ([]Entry, error)
	// URL returns what other programs call a file or directory, which need not be there,
	// as it is and without escapes: file:///DIR/NAME, or s3://BUCKET/PREFIX/NAME.
	URL(name string) string
	// Close releases the target; uploads must have ended.
	Close() error
}

// Collector is a Target that can be tidied. All that it does is safe while other
// processes publish runs.
type Collector interface {
	Target
	// Leftovers returns what uploads, replacements and removals have left
	// that were not ended, sorted by name, together with those at work, which
	// are Busy.
	Leftovers(ctx context.Context) ([]Leftover, error)
	// Discard removes a leftover by its name. Its error wraps ErrBusy where
	// somebody works on it, ErrNotFound where it is gone, and
	// errors.ErrUnsupported where that cannot be known.
	Discard(ctx context.Context, name string) error
	// Remove removes a published run: it disappears whole, in one step, and
	// then its space is freed. After a crash between the two the rest is a
	// leftover. Its error wraps ErrNotFound.
	Remove(ctx context.Context, dir string) error
	// RemoveFile removes a file that Update has made and that is of no use any more; it
	// is no error where there is none. After a crash it may be there again.
	RemoveFile(ctx context.Context, name string) error
}

// Leftover is an upload that was not ended, or is not yet.
type Leftover struct {
	Name     string // for Discard
	Bytes    int64
	Modified time.Time // when something was last added to it
	// Busy says that it is not known to be abandoned: somebody works on it, or
	// the file system has no locks that would tell.
	Busy bool
	// Resumable says that it has notes, so that Resume may take it over.
	Resumable bool
}

// Upload is a run that is being written.
type Upload interface {
	// Create returns a new file of the run. It is whole once its Close has returned
	// nil, and durable once Commit has, or a Note behind Close; these, and Create, say
	// where it could not be made so. A second Create of a name is an error.
	Create(ctx context.Context, name string) (io.WriteCloser, error)
	// Commit writes the last file, the run's manifest, and makes all of them
	// visible together. Its error wraps ErrExists where another upload of the
	// same directory was faster. After another error the run may be visible:
	// look before trying again.
	Commit(ctx context.Context, name string, data []byte) error
	// Abort removes what was written. After Commit it does nothing.
	Abort() error
}

// Resumer is a Target whose uploads can outlive the process that began them: the
// Uploads of its Begin are Resumable.
type Resumer interface {
	Target
	// Resume takes over the upload that was begun with id, to become visible as
	// dir, and was left: by Leave, or because its process ended in whatever
	// way. Its error wraps ErrExists where dir is published, ErrNotFound where
	// nothing was left, ErrBusy where somebody works on it, and
	// errors.ErrUnsupported where that cannot be known.
	Resume(ctx context.Context, dir, id string) (Resumable, error)
	// Unfinished returns the uploads that have notes, by id, those at work too.
	Unfinished(ctx context.Context) ([]Unfinished, error)
}

// Awaiter is a Resumer that learns only after a while that a process has ended: until
// then the uploads that it has not left are Busy.
type Awaiter interface {
	Resumer
	// Await waits until the upload of dir is not Busy. Its error wraps ErrBusy
	// where somebody turns out to work on it.
	Await(ctx context.Context, dir string) error
}

// Unfinished is an upload that Resume may take over.
type Unfinished struct {
	ID    string
	Busy  bool // somebody works on it, or that cannot be known
	Notes map[string][]byte
}

// Resumable is an Upload that can be left and taken over.
type Resumable interface {
	Upload
	// Note keeps data with the upload until it ends, atomically: after a crash
	// the note is there whole or not at all, and where it is there, so is every
	// file that was closed before. It is never visible. name is one element of a
	// path; a second Note of a name replaces the first.
	Note(ctx context.Context, name string, data []byte) error
	// Notes returns the notes by name.
	Notes(ctx context.Context) (map[string][]byte, error)
	// Retain removes the files that are not in keep, which has names and sizes
	// in bytes; what its process was still writing when it ended is among them.
	// Its error wraps ErrNotFound where a file is missing or has another size.
	Retain(ctx context.Context, keep map[string]int64) error
	// Leave ends the upload and keeps its notes and closed files for Resume.
	// After Commit or Abort it does nothing.
	Leave() error
}

// File is a visible file.
type File interface {
	io.ReaderAt
	io.Closer
	// Size returns the length in bytes.
	Size() int64
}

// Entry is one file or directory of a List.
type Entry struct {
	Name string // without the directory
	Dir  bool
	Size int64 // bytes; of files
}

// ReadFile returns the content of a visible file, which must not be larger than
// limit bytes. Its error wraps ErrNotFound.
func ReadFile(ctx context.Context, t Target, name string, limit int64) ([]byte, error) {
	f, err := t.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Size() > limit {
		return nil, fmt.Errorf("read %s: it has %d bytes, at most %d are expected", name, f.Size(), limit)
	}
	data := make([]byte, f.Size())
	if _, err := f.ReadAt(data, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

// maxUpdateBytes bounds a file that is updated: it names others.
const maxUpdateBytes = 16 << 20

// checkName refuses names that are not plain paths below the root.
func checkName(name string) error {
	if !fs.ValidPath(name) {
		return fmt.Errorf("target: %q is not a path below the root", name)
	}
	return nil
}
