package target

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"
)

// writerHeader names the upload that has written an object, so that what was done by
// a request without an answer is known.
const writerHeader = "X-Amz-Meta-Sluice-Upload"

// maxParts is the most parts of a multi-part upload.
const maxParts = 10_000

// maxRecordBytes bounds a record: about 100 bytes a part.
const maxRecordBytes = 256 << 20

// s3Record is what a Commit has decided: everything that is left to do. It is JSON in
// _runs/DIR; an empty one means that it is done.
type s3Record struct {
	Writer   string         `json:"writer"` // random
	Files    []s3RecordFile `json:"files"`
	Manifest string         `json:"manifest"` // its name
	Content  []byte         `json:"content"`  // of the manifest
}

// s3RecordFile is a multi-part upload that is to be completed.
type s3RecordFile struct {
	Name   string   `json:"name"`
	Upload string   `json:"upload"` // empty for a file without bytes
	Writer string   `json:"writer"`
	Size   int64    `json:"size"`
	Parts  []string `json:"parts"` // entity tags
}

// s3Upload is some multi-part uploads.
type s3Upload struct {
	target *S3
	dir    string

	mu    sync.Mutex
	files map[string]*s3File
	done  bool
}

// Create begins a multi-part upload when the first part is full, or at Close.
func (u *s3Upload) Create(ctx context.Context, name string) (io.WriteCloser, error) {
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.done:
		return nil, errEnded
	case u.files[name] != nil:
		return nil, fmt.Errorf("create %s: %w", name, os.ErrExist)
	}
	f := &s3File{ctx: ctx, upload: u, s3RecordFile: s3RecordFile{Name: name, Writer: rand.Text()}}
	u.files[name] = f
	return f, nil
}

// Commit decides by the record, which only one upload can make, and then does what
// it says.
func (u *s3Upload) Commit(ctx context.Context, name string, data []byte) error {
	rec, err := u.record(ctx, name, data)
	if err != nil {
		return fmt.Errorf("commit %s: %w", u.dir, err)
	}
	s := u.target
	if err := s.writeRecord(ctx, u.dir, rec); err != nil {
		return fmt.Errorf("commit %s: %w", u.dir, err)
	}
	// It is decided: nothing may be taken back from here on.
	u.mu.Lock()
	u.done = true
	u.mu.Unlock()
	if err := s.finish(ctx, u.dir, rec); err != nil {
		return fmt.Errorf("commit %s: it is decided, and the next Begin of it finishes it: %w", u.dir, err)
	}
	return nil
}

// record returns the record of the upload, whose files must be closed.
func (u *s3Upload) record(ctx context.Context, name string, data []byte) (*s3Record, error) {
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.done {
		return nil, errEnded
	}
	rec := &s3Record{Writer: rand.Text(), Manifest: name, Content: data}
	for _, file := range slices.Sorted(maps.Keys(u.files)) {
		f := u.files[file]
		if !f.closed {
			return nil, fmt.Errorf("%s is not closed", file)
		}
		rec.Files = append(rec.Files, f.s3RecordFile)
	}
	return rec, nil
}

// recordKey is where the record of a run is.
func recordKey(dir string) string { return path.Join(recordsDir, dir) }

// writeRecord makes rec the record of dir, if there is none. Its error wraps
// ErrExists where there is another. Where no answer came, the record is looked at:
// a request that was given up may still have been done.
func (s *S3) writeRecord(ctx context.Context, dir string, rec *s3Record) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encode the record: %w", err)
	}
	_, err = s.client.do(ctx, &s3Request{
		method: http.MethodPut, key: s.key(recordKey(dir)), body: data, limit: maxErrorBytes,
		header: map[string]string{"If-None-Match": "*", writerHeader: rec.Writer},
	})
	if err == nil {
		return nil
	}
	if status(err) != http.StatusPreconditionFailed && ctx.Err() == nil && !passing(err) {
		return err
	}
	// There is one; it may be ours, of an attempt whose answer was lost.
	_, _, writer, headErr := s.head(context.WithoutCancel(ctx), recordKey(dir))
	switch {
	case headErr == nil && writer == rec.Writer:
		return nil
	case headErr == nil:
		return fmt.Errorf("%w: another upload was faster", ErrExists)
	}
	return errors.Join(err, headErr)
}

// readRecord returns the record of a run, an empty one where it is done. Its error
// wraps ErrNotFound.
func (s *S3) readRecord(ctx context.Context, dir string) (*s3Record, error) {
	data, err := s.get(ctx, recordKey(dir), maxRecordBytes)
	if err != nil {
		return nil, err
	}
	rec := new(s3Record)
	if len(data) == 0 {
		return rec, nil
	}
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, fmt.Errorf("record of %s: %w", dir, err)
	}
	return rec, nil
}

// finish does what a record says. All of it may have been done before, by this
// process or another.
func (s *S3) finish(ctx context.Context, dir string, rec *s3Record) error {
	if rec.Writer == "" {
		return nil
	}
	for i := range rec.Files {
		f := &rec.Files[i]
		if err := s.complete(ctx, path.Join(dir, f.Name), f); err != nil {
			return fmt.Errorf("complete %s: %w", f.Name, err)
		}
	}
	for _, put := range []struct {
		name string
		data []byte
	}{{path.Join(dir, rec.Manifest), rec.Content}, {recordKey(dir), nil}} {
		if err := s.Replace(ctx, put.name, put.data); err != nil {
			return err
		}
	}
	return nil
}

// completion is the body of CompleteMultipartUpload.
type completion struct {
	XMLName xml.Name         `xml:"CompleteMultipartUpload"`
	Parts   []completionPart `xml:"Part"`
}

type completionPart struct {
	PartNumber int
	ETag       string
}

// complete makes a file visible, if it is not yet.
func (s *S3) complete(ctx context.Context, name string, f *s3RecordFile) error {
	if f.Upload == "" {
		return s.Replace(ctx, name, nil)
	}
	body := completion{}
	for i, tag := range f.Parts {
		body.Parts = append(body.Parts, completionPart{i + 1, tag})
	}
	data, err := xml.Marshal(&body)
	if err != nil {
		return err
	}
	_, err = s.client.do(ctx, &s3Request{
		method: http.MethodPost, key: s.key(name), query: map[string]string{"uploadId": f.Upload}, body: data, limit: maxErrorBytes,
	})
	if err == nil {
		return nil
	}
	// An upload that was completed is no upload any more.
	size, _, writer, headErr := s.head(ctx, name)
	if headErr == nil && size == f.Size && writer == f.Writer {
		return nil
	}
	return errors.Join(err, headErr)
}

// Abort removes the parts. What cannot be removed is left to the bucket's rule for
// incomplete uploads, and reported.
func (u *s3Upload) Abort() error {
	u.mu.Lock()
	if u.done {
		u.mu.Unlock()
		return nil
	}
	u.done = true
	u.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), u.target.client.o.Timeout)
	defer cancel()
	var errs []error
	for _, f := range u.files { // nobody adds to them any more
		if f.Upload == "" {
			continue
		}
		_, err := u.target.client.do(ctx, &s3Request{
			method: http.MethodDelete, key: u.target.key(path.Join(u.dir, f.Name)), query: map[string]string{"uploadId": f.Upload}, limit: maxErrorBytes,
		})
		if err != nil && status(err) != http.StatusNotFound {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("abort %s: %w", u.dir, err)
	}
	return nil
}

// s3File is a multi-part upload that is being written. It belongs to one goroutine,
// but for closed, which Commit reads.
type s3File struct {
	s3RecordFile
	ctx    context.Context // of Create: Write and Close have none
	upload *s3Upload
	part   []byte // not sent yet
	failed error
	closed bool // under upload.mu
}

// Write sends a part when it is full.
func (f *s3File) Write(b []byte) (n int, err error) {
	if f.failed != nil {
		return 0, f.failed
	}
	size := f.upload.target.client.o.PartBytes
	for len(b) > 0 {
		k := min(len(b), size-len(f.part))
		f.part = append(f.part, b[:k]...)
		b, n = b[k:], n+k
		if len(f.part) < size {
			continue
		}
		if f.failed = f.send(); f.failed != nil {
			return n, f.failed
		}
	}
	return n, nil
}

// send sends what is gathered as a part.
func (f *s3File) send() error {
	c, key := f.upload.target.client, f.upload.target.key(path.Join(f.upload.dir, f.Name))
	if len(f.Parts) == maxParts {
		return fmt.Errorf("write %s: more than %d parts of %d bytes; make files smaller", f.Name, maxParts, c.o.PartBytes)
	}
	if f.Upload == "" {
		r, err := c.do(f.ctx, &s3Request{
			method: http.MethodPost, key: key, query: map[string]string{"uploads": ""}, limit: maxErrorBytes,
			header: map[string]string{writerHeader: f.Writer},
		})
		if err != nil {
			return fmt.Errorf("write %s: %w", f.Name, err)
		}
		var begun struct{ UploadId string }
		if err := xml.Unmarshal(r.body, &begun); err != nil || begun.UploadId == "" {
			return fmt.Errorf("write %s: an upload without an id: %w", f.Name, err)
		}
		f.Upload = begun.UploadId
	}
	// A part that is sent twice is the same part.
	r, err := c.do(f.ctx, &s3Request{
		method: http.MethodPut, key: key, body: f.part, limit: maxErrorBytes,
		query: map[string]string{"uploadId": f.Upload, "partNumber": strconv.Itoa(len(f.Parts) + 1)},
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", f.Name, err)
	}
	tag := r.header.Get("ETag")
	if tag == "" {
		return fmt.Errorf("write %s: a part without an entity tag", f.Name)
	}
	f.Parts = append(f.Parts, tag)
	f.Size += int64(len(f.part))
	f.part = f.part[:0]
	return nil
}

// Close sends the last part: what is sent is durable.
func (f *s3File) Close() error {
	f.upload.mu.Lock()
	closed, done := f.closed, f.upload.done
	f.upload.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("close %s: %w", f.Name, os.ErrClosed)
	case done:
		return errEnded
	case f.failed != nil:
		return f.failed
	}
	if len(f.part) > 0 {
		if f.failed = f.send(); f.failed != nil {
			return f.failed
		}
	}
	f.part = nil
	f.upload.mu.Lock()
	defer f.upload.mu.Unlock()
	f.closed = true
	return nil
}
