package target

import (
	"cmp"
	"context"
	"crypto/rand"
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
	target  *S3
	dir, id string
	stop    context.CancelFunc // ends the renewal

	recordMu sync.Mutex // over writes of the record; before mu
	etag     string     // of the record; empty = it is another upload's
	ended    error      // why it is not to be written any more
	// unsure are the writers of attempts of which nobody knows whether they
	// were done.
	unsure map[string]bool
	// base has the notes and files that the record had itself when it was taken over:
	// of a program that knew no logs.
	base    s3Record
	logs    []s3Log // of the upload's notes, but for its own
	log     string  // the name of its own
	entries int     // numbers of it that were used
	told    string  // the log that the record names

	mu    sync.Mutex
	files map[string]*s3File
	notes map[string][]byte
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
	rec, unrecorded, err := u.decision(ctx, name, data)
	if err != nil {
		return fmt.Errorf("commit %s: %w", u.dir, err)
	}
	if err := u.decide(ctx, rec); err != nil {
		if notOurs(err) { // then nobody has learned of these
			u.mu.Lock()
			for _, f := range unrecorded {
				f.recorded = false
			}
			u.mu.Unlock()
		}
		return fmt.Errorf("commit %s: %w", u.dir, err)
	}
	// It is decided: nothing may be taken back from here on, and a cancellation comes too
	// late. What it would leave is no run, and becomes one when somebody begins it again.
	u.mu.Lock()
	u.done = true
	u.mu.Unlock()
	u.stop()
	if err := u.target.finish(context.WithoutCancel(ctx), u.dir, rec, u.etag); err != nil {
		return fmt.Errorf("commit %s: it is decided, and the next Begin of it finishes it: %w", u.dir, err)
	}
	return nil
}

// decision returns the record that publishes the upload, whose files must be closed,
// and those of them that no record had.
func (u *s3Upload) decision(ctx context.Context, name string, data []byte) (rec *s3Record, unrecorded []*s3File, err error) {
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return nil, nil, err
	}
	u.recordMu.Lock()
	logs := u.allLogs()
	u.recordMu.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.done {
		return nil, nil, errEnded
	}
	rec = &s3Record{ID: u.id, Notes: maps.Clone(u.notes), Manifest: name, Content: data, Logs: logs}
	for _, file := range slices.Sorted(maps.Keys(u.files)) {
		f := u.files[file]
		if !f.closed {
			return nil, nil, fmt.Errorf("%s is not closed", file)
		}
		rec.Files = append(rec.Files, f.s3RecordFile)
	}
	for _, f := range u.files {
		if !f.recorded {
			f.recorded = true
			unrecorded = append(unrecorded, f)
		}
	}
	return rec, unrecorded, nil
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
		_, err := s.client.do(ctx, &s3Request{method: http.MethodPut, key: s.key(name), limit: maxErrorBytes})
		return err
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

// Abort takes the run from the record, so that nobody goes on with its files, and
// removes the notes and the parts. Where another process has the run, the files that it knows of are
// its own. What cannot be removed stays for Discard, and is reported.
func (u *s3Upload) Abort() error {
	if !u.end() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), u.target.client.o.Timeout)
	defer cancel()
	var logs []s3Log
	err := u.close(ctx, func() *s3Record {
		logs = u.allLogs()
		return &s3Record{State: s3Ended}
	})
	ours := err == nil
	if notOurs(err) {
		err = nil
	}
	if ours {
		err = u.target.dropLogs(ctx, u.dir, logs)
	}
	if err := errors.Join(err, u.target.abort(ctx, u.dir, u.uploads(func(f *s3File) bool { return ours || !f.recorded }))); err != nil {
		return fmt.Errorf("abort %s: %w", u.dir, err)
	}
	return nil
}

// end ends the upload and reports whether it was at work.
func (u *s3Upload) end() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.done {
		return false
	}
	u.done = true
	u.stop()
	return true
}

// uploads returns the files that have begun and that which says.
func (u *s3Upload) uploads(which func(f *s3File) bool) (files []s3RecordFile) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range u.files {
		if id := f.begun; id != "" && which(f) {
			files = append(files, s3RecordFile{Name: f.Name, Upload: id})
		}
	}
	return files
}

// abort removes multi-part uploads, as far as they are there.
func (s *S3) abort(ctx context.Context, dir string, files []s3RecordFile) error {
	var errs []error
	for i := range files {
		if files[i].Upload == "" {
			continue
		}
		_, err := s.client.do(ctx, &s3Request{
			method: http.MethodDelete, key: s.key(path.Join(dir, files[i].Name)), query: map[string]string{"uploadId": files[i].Upload}, limit: maxErrorBytes,
		})
		if err != nil && status(err) != http.StatusNotFound {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// s3File is a multi-part upload that is being written. It belongs to one goroutine,
// but for what is under the upload's mu.
type s3File struct {
	s3RecordFile
	ctx    context.Context // of Create: Write and Close have none
	upload *s3Upload
	part   []byte // not sent yet
	failed error

	// Under upload.mu.
	begun    string // Upload, for others
	closed   bool   // what it consists of is sent
	recorded bool   // it is, or may be, in a note or a record
	logged   bool   // it is in a note
	told     bool   // that it was begun is in a note or a record
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

// errNoUploadID: an answer that can be read says nothing.
var errNoUploadID = errors.New("the answer has no UploadId")

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
			return fmt.Errorf("write %s: the service began an upload and told no id: %w", f.Name, cmp.Or(err, errNoUploadID))
		}
		f.Upload = begun.UploadId
		f.upload.mu.Lock()
		f.begun = f.Upload
		f.upload.mu.Unlock()
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
