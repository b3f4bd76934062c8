package target

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"time"
)

// What a record says of a run that is neither published nor decided.
const (
	s3Open     = "open"     // an upload is at work, or its process has ended
	s3Left     = "left"     // an upload was left, for Resume
	s3Ended    = "ended"    // nothing is there
	s3Removing = "removing" // it was published, and is being removed
)

// s3Record is what is known of a run: JSON in _runs/DIR. An empty one means that the
// run is published, one without a State that it is decided, and what is left to do.
type s3Record struct {
	// Writer is random: that of a decision.
	Writer   string         `json:"writer,omitempty"`
	Files    []s3RecordFile `json:"files,omitempty"`    // closed
	Manifest string         `json:"manifest,omitempty"` // its name
	Content  []byte         `json:"content,omitempty"`  // of the manifest
	// Replaced are, of a decision, what the record before spoke of and this one
	// does not.
	Replaced []s3RecordFile `json:"replaced,omitempty"`

	State string `json:"state,omitempty"`
	// Attempt is the random name of a write of a record that is no decision.
	Attempt string            `json:"attempt,omitempty"`
	ID      string            `json:"id,omitempty"` // of the upload
	Notes   map[string][]byte `json:"notes,omitempty"`
	// Logs have the notes, and the files that were closed, besides Notes and Files; of
	// a decision, which has all of them itself, they are to be removed.
	Logs []s3Log        `json:"logs,omitempty"`
	Open []s3RecordFile `json:"open,omitempty"` // being written, Name and Upload alone
}

// published reports that a run is there, or that this is decided.
func (r *s3Record) published() bool { return r.State == "" }

// s3Stored is a record as it is stored.
type s3Stored struct {
	s3Record
	etag string
	age  time.Duration // since it was written, by the service's clock; below 0 = unknown

	// What readLogs has found: all notes, all closed files, those that were begun, and
	// the logs that are not empty, each with the last note that was there.
	notes map[string][]byte
	files []s3RecordFile
	begun []s3RecordFile
	logs  []s3Log
}

// uploads returns the multi-part uploads that the record and its logs speak of.
func (r *s3Stored) uploads() []s3RecordFile {
	return slices.Concat(r.files, r.begun, r.Replaced)
}

// open returns the files that were being written when the process ended: those that were
// begun and not closed.
func (r *s3Stored) open() []s3RecordFile {
	return slices.DeleteFunc(slices.Clone(r.begun), func(o s3RecordFile) bool {
		return slices.ContainsFunc(r.files, func(f s3RecordFile) bool { return f.Upload == o.Upload })
	})
}

// busy reports that an upload is not known to be abandoned.
func (r *s3Stored) busy(lease time.Duration) bool { return r.State == s3Open && r.age < lease }

// recordKey is where the record of a run is.
func recordKey(dir string) string { return path.Join(recordsDir, dir) }

// readRecord returns the record of a run. Its error wraps ErrNotFound.
func (s *S3) readRecord(ctx context.Context, dir string) (*s3Stored, error) {
	r, err := s.client.do(ctx, &s3Request{method: http.MethodGet, key: s.key(recordKey(dir)), limit: maxRecordBytes})
	if status(err) == http.StatusNotFound {
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if err != nil {
		return nil, err
	}
	rec := &s3Stored{etag: r.header.Get("ETag"), age: since(r.header)}
	if rec.etag == "" {
		return nil, fmt.Errorf("record of %s: no entity tag", dir)
	}
	if len(r.body) == 0 {
		return rec, nil
	}
	if err := json.Unmarshal(r.body, &rec.s3Record); err != nil {
		return nil, fmt.Errorf("record of %s: %w", dir, err)
	}
	return rec, nil
}

// since returns how old an object is, or -1 where the answer does not tell.
func since(h http.Header) time.Duration {
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return -1
	}
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return -1
	}
	return max(0, now.Sub(modified))
}

// errChanged: an object is not what it was.
var errChanged = errors.New("it was changed by another")

// swap makes rec the record of dir if that has the entity tag etag, or, where that is
// empty, if there is none, and returns the new tag. Where its error wraps errChanged,
// it returns tag and writer of what is there. After other errors nobody knows.
func (s *S3) swap(ctx context.Context, dir, etag string, rec *s3Record) (now, writer string, err error) {
	ours := rand.Text()
	if rec.State == "" {
		rec.Writer = ours
	} else {
		rec.Attempt = ours
	}
	data, err := json.Marshal(rec)
	if err != nil {
		return "", "", fmt.Errorf("encode the record: %w", err)
	}
	if len(data) > maxRecordBytes {
		return "", "", fmt.Errorf("a record of %d bytes, at most %d: make files or parts larger", len(data), maxRecordBytes)
	}
	return s.put(ctx, recordKey(dir), etag, ours, data)
}

// put makes name hold data as swap does a record; ours names the attempt.
func (s *S3) put(ctx context.Context, name, etag, ours string, data []byte) (now, writer string, err error) {
	header := map[string]string{"If-Match": etag, writerHeader: ours}
	if etag == "" {
		header = map[string]string{"If-None-Match": "*", writerHeader: ours}
	}
	r, err := s.client.do(ctx, &s3Request{method: http.MethodPut, key: s.key(name), body: data, limit: maxErrorBytes, header: header})
	if err == nil && r.header.Get("ETag") != "" {
		return r.header.Get("ETag"), ours, nil
	}
	changed := status(err) == http.StatusPreconditionFailed || status(err) == http.StatusNotFound
	if err != nil && !changed && ctx.Err() == nil && !passing(err) && !errors.Is(err, errMaybeDone) {
		return "", "", err
	}
	// It may be ours, of an attempt whose answer was lost.
	_, now, writer, headErr := s.head(context.WithoutCancel(ctx), name)
	switch {
	case headErr == nil && writer == ours:
		return now, ours, nil
	case headErr == nil && now != etag, errors.Is(headErr, ErrNotFound) && etag != "":
		return now, writer, errors.Join(errChanged, err)
	case errors.Is(headErr, ErrNotFound):
		headErr = nil
	}
	return "", ours, errors.Join(err, headErr)
}

// probe finds out once that the service refuses a write whose If-Match is not met. Its
// error wraps errors.ErrUnsupported where it does not.
func (s *S3) probe(ctx context.Context) error {
	s.probeMu.Lock()
	defer s.probeMu.Unlock()
	if s.probed {
		return nil
	}
	key := s.key(recordKey("if-match"))
	_, err := s.client.do(ctx, &s3Request{
		method: http.MethodPut, key: key, body: []byte("{}"), limit: maxErrorBytes, header: map[string]string{"If-Match": `"00000000000000000000000000000000"`},
	})
	switch status(err) {
	case http.StatusPreconditionFailed, http.StatusNotFound:
		s.probed = true
		return nil
	case http.StatusNotImplemented:
		return fmt.Errorf("%w: the service knows no conditional writes (If-Match): %w", errors.ErrUnsupported, err)
	}
	if err != nil {
		return err
	}
	_, err = s.client.do(ctx, &s3Request{method: http.MethodDelete, key: key, limit: maxErrorBytes})
	return errors.Join(fmt.Errorf("%w: the service does not heed the condition of a write (If-Match)", errors.ErrUnsupported), err)
}

// finish does what a decision says. All of it may have been done before, by this
// process or another.
func (s *S3) finish(ctx context.Context, dir string, rec *s3Record, etag string) error {
	if rec.Writer == "" {
		return nil
	}
	for i := range rec.Files {
		f := &rec.Files[i]
		if err := s.complete(ctx, path.Join(dir, f.Name), f); err != nil {
			return fmt.Errorf("complete %s: %w", f.Name, err)
		}
	}
	if err := s.create(ctx, path.Join(dir, rec.Manifest), rec.Content); err != nil {
		return err
	}
	if err := s.abort(ctx, dir, rec.Replaced); err != nil {
		return err
	}
	if err := s.dropLogs(ctx, dir, rec.Logs); err != nil {
		return err
	}
	_, _, err := s.put(ctx, recordKey(dir), etag, rand.Text(), nil)
	if !errors.Is(err, errChanged) {
		return err
	}
	now, err := s.readRecord(ctx, dir)
	if err == nil && !now.published() {
		err = errTaken // by who removes it
	}
	return err // nil: another was faster
}

// create makes name hold data where there is nothing yet. Where there is, or nobody
// knows, it reads what is there, which another process that does the same may have
// written: its error wraps ErrExists where that is something else.
func (s *S3) create(ctx context.Context, name string, data []byte) error {
	_, _, err := s.put(ctx, name, "", rand.Text(), data)
	if err == nil {
		return nil
	}
	there, readErr := s.holds(context.WithoutCancel(ctx), name, data)
	switch {
	case readErr == nil && there:
		return nil
	case readErr == nil:
		return fmt.Errorf("%w: %s holds something else: %w", ErrExists, name, err)
	case errors.Is(readErr, ErrNotFound):
		return err
	}
	return errors.Join(err, readErr)
}

// holds reports whether name holds data. Its error wraps ErrNotFound.
func (s *S3) holds(ctx context.Context, name string, data []byte) (bool, error) {
	f, err := s.Open(ctx, name)
	if err != nil || f.Size() != int64(len(data)) {
		return false, err
	}
	there := make([]byte, len(data))
	if _, err := f.ReadAt(there, 0); err != nil && err != io.EOF {
		return false, err
	}
	return bytes.Equal(there, data), f.Close()
}
