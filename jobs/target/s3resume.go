package target

import (
	"context"
	"crypto/rand"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"time"
)

var (
	_ Resumer   = (*S3)(nil)
	_ Awaiter   = (*S3)(nil)
	_ Resumable = (*s3Upload)(nil)
)

// maxSwaps bounds how often a record is read again that others have changed; each time
// one of them got further.
const maxSwaps = 100

// errTaken: another process has the record.
var errTaken = fmt.Errorf("%w: another process has taken it", ErrBusy)

func (s *S3) begin(ctx context.Context, dir, id string) (*s3Upload, error) {
	for range maxSwaps {
		old, err := s.readRecord(ctx, dir)
		switch {
		case errors.Is(err, ErrNotFound):
			old = &s3Stored{s3Record: s3Record{State: s3Ended}}
		case err != nil:
			return nil, err
		case old.published():
			return nil, s.finishFound(ctx, dir, old)
		case old.State == s3Removing:
			return nil, fmt.Errorf("%w: the run before is being removed", ErrBusy)
		case old.busy(s.client.o.Lease):
			return s.newUpload(dir, id), nil
		}
		if err := s.readLogs(ctx, dir, old); err != nil {
			return nil, err
		}
		u, err := s.take(ctx, dir, old, id, false)
		if errors.Is(err, errChanged) {
			continue
		}
		if err != nil {
			return nil, err
		}
		_ = s.abort(ctx, dir, old.uploads()) // what stays costs space only
		_ = s.dropLogs(ctx, dir, old.logs)   // likewise
		return u, nil
	}
	return nil, errTaken
}

// finishFound does what is left of a run that another process has decided, and
// returns ErrExists.
func (s *S3) finishFound(ctx context.Context, dir string, rec *s3Stored) error {
	if err := s.finish(ctx, dir, &rec.s3Record, rec.etag); err != nil {
		return fmt.Errorf("finish what was committed before: %w", err)
	}
	return ErrExists
}

func (s *S3) newUpload(dir, id string) *s3Upload {
	return &s3Upload{
		target: s, dir: dir, id: id, stop: func() {},
		files: map[string]*s3File{}, notes: map[string][]byte{}, unsure: map[string]bool{},
	}
}

// take makes the record the upload's of id, in the place of old, whose logs were read,
// and returns the upload, with the files and notes of old where it goes on with them. Its
// error wraps errChanged where another was faster.
func (s *S3) take(ctx context.Context, dir string, old *s3Stored, id string, goOn bool) (*s3Upload, error) {
	if err := s.probe(ctx); err != nil {
		return nil, err
	}
	u := s.newUpload(dir, id)
	u.log = rand.Text()
	if goOn {
		u.base, u.logs = s3Record{Notes: old.Notes, Files: old.Files}, old.logs
		for _, f := range old.files {
			u.files[f.Name] = &s3File{upload: u, s3RecordFile: f, begun: f.Upload, closed: true, recorded: true, logged: true}
		}
		maps.Copy(u.notes, old.notes)
	}
	etag, _, err := s.swap(ctx, dir, old.etag, u.record(s3Open))
	if err != nil {
		return nil, err
	}
	u.etag, u.told = etag, u.log
	renew, stop := context.WithCancel(context.WithoutCancel(ctx))
	u.stop = stop
	go u.renew(renew) // until the upload ends
	return u, nil
}

// renew writes the record again before others may think that nobody does.
func (u *s3Upload) renew(ctx context.Context) {
	t := time.NewTicker(u.target.client.o.Lease / 4)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		// Where it fails, the next one or whoever needs the record learns it.
		_ = u.write(ctx, func() {})
	}
}

// write writes what the upload is after change to the record.
func (u *s3Upload) write(ctx context.Context, change func()) error {
	u.recordMu.Lock()
	defer u.recordMu.Unlock()
	if u.ended != nil {
		return u.ended
	}
	if u.etag == "" {
		return errTaken
	}
	change()
	return u.change(ctx, u.record(s3Open))
}

// record returns the record of the upload as it is. The caller has recordMu, or is alone.
func (u *s3Upload) record(state string) *s3Record {
	rec := &s3Record{State: state, ID: u.id, Notes: u.base.Notes, Files: u.base.Files}
	if state != s3Open {
		rec.Logs = u.allLogs()
		return rec
	}
	rec.Logs = append(slices.Clone(u.logs), s3Log{Name: u.log})
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(u.files)) {
		if f := u.files[name]; f.begun != "" && !f.logged {
			rec.Open = append(rec.Open, s3RecordFile{Name: name, Upload: f.begun})
		}
	}
	return rec
}

// change makes rec the upload's record, which it has. The caller has recordMu. Where
// another has the record, the upload has ended.
func (u *s3Upload) change(ctx context.Context, rec *s3Record) error {
	for {
		now, writer, err := u.target.swap(ctx, u.dir, u.etag, rec)
		switch {
		case err == nil:
			u.etag = now
			if rec.State == s3Open {
				u.toldOf(rec)
			}
			return nil
		case errors.Is(err, errChanged) && u.unsure[writer]:
			delete(u.unsure, writer) // it was done after all
			u.etag = now
		case errors.Is(err, errChanged):
			u.ended = u.target.taken(context.WithoutCancel(ctx), u.dir)
			return u.ended
		default:
			// A decision that may have been made is not to be overwritten.
			if writer != "" && rec.State != "" {
				u.unsure[writer] = true
			}
			return err
		}
	}
}

// toldOf takes note of what the record says now. The caller has recordMu.
func (u *s3Upload) toldOf(rec *s3Record) {
	u.told = u.log
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range rec.Open {
		if f := u.files[rec.Open[i].Name]; f != nil && f.begun == rec.Open[i].Upload {
			f.told = true
		}
	}
}

// taken says who has a record: ErrExists where the run is decided.
func (s *S3) taken(ctx context.Context, dir string) error {
	rec, err := s.readRecord(ctx, dir)
	switch {
	case err == nil && rec.published():
		return fmt.Errorf("%w: another upload was faster", ErrExists)
	case err == nil || errors.Is(err, ErrNotFound):
		return errTaken
	}
	return errors.Join(errTaken, err)
}

// decide makes rec the record of the run.
func (u *s3Upload) decide(ctx context.Context, rec *s3Record) error {
	u.recordMu.Lock()
	defer u.recordMu.Unlock()
	if u.ended != nil {
		return u.ended
	}
	if u.etag != "" {
		if err := u.change(ctx, rec); err != nil {
			return err
		}
		u.ended = errEnded
		return nil
	}
	for range maxSwaps {
		old, err := u.target.readRecord(ctx, u.dir)
		switch {
		case errors.Is(err, ErrNotFound):
			old = &s3Stored{s3Record: s3Record{State: s3Ended}}
		case err != nil:
			return err
		case old.published():
			return fmt.Errorf("%w: another upload was faster", ErrExists)
		case old.State == s3Removing:
			return fmt.Errorf("%w: the run before is being removed", ErrBusy)
		}
		if err := u.target.readLogs(ctx, u.dir, old); err != nil {
			return err
		}
		rec.Replaced, rec.Logs = old.uploads(), old.logs
		etag, _, err := u.target.swap(ctx, u.dir, old.etag, rec)
		if errors.Is(err, errChanged) {
			continue
		}
		if err == nil {
			u.etag, u.ended = etag, errEnded
		}
		return err
	}
	return errTaken
}

// close writes the upload's last record. Its error wraps ErrBusy or ErrExists where
// another has it.
func (u *s3Upload) close(ctx context.Context, rec func() *s3Record) error {
	u.recordMu.Lock()
	defer u.recordMu.Unlock()
	if u.ended != nil {
		return u.ended
	}
	err := errTaken
	if u.etag != "" {
		err = u.change(ctx, rec())
	}
	if u.ended == nil {
		u.ended = errEnded
	}
	return err
}

// notOurs reports that an upload could not be closed as another has its record.
func notOurs(err error) bool { return errors.Is(err, ErrBusy) || errors.Is(err, ErrExists) }

// Resume makes the record its own, which fences off whoever had it.
func (s *S3) Resume(ctx context.Context, dir, id string) (Resumable, error) {
	if err := errors.Join(ctx.Err(), checkName(dir), checkName(id)); err != nil {
		return nil, err
	}
	u, err := s.resume(ctx, dir, id)
	if err != nil {
		return nil, fmt.Errorf("resume %s: %w", dir, err)
	}
	return u, nil
}

func (s *S3) resume(ctx context.Context, dir, id string) (*s3Upload, error) {
	old, err := s.readRecord(ctx, dir)
	switch {
	case err != nil:
		return nil, err
	case old.published():
		return nil, s.finishFound(ctx, dir, old)
	case old.State == s3Removing, old.ID == id && old.busy(s.client.o.Lease):
		return nil, ErrBusy
	case old.State == s3Ended, old.ID != id:
		return nil, ErrNotFound
	}
	if err := s.readLogs(ctx, dir, old); err != nil {
		return nil, err
	}
	u, err := s.take(ctx, dir, old, id, true)
	if errors.Is(err, errChanged) {
		return nil, errTaken
	}
	if err != nil {
		return nil, err
	}
	_ = s.abort(ctx, dir, old.open()) // what stays costs space only
	return u, nil
}

// Await waits until the upload of dir that Resume calls busy turns out to be abandoned,
// and returns nil, or to be at work: then its error wraps ErrBusy. That takes up to
// S3Options.Lease.
func (s *S3) Await(ctx context.Context, dir string) error {
	if err := errors.Join(ctx.Err(), checkName(dir)); err != nil {
		return err
	}
	etag := ""
	t := time.NewTicker(s.client.o.Lease / 8)
	defer t.Stop()
	for {
		rec, err := s.readRecord(ctx, dir)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("await %s: %w", dir, err)
		case !rec.busy(s.client.o.Lease):
			return nil
		case etag != "" && etag != rec.etag, rec.age < 0: // renewed, or never known
			return fmt.Errorf("await %s: %w", dir, ErrBusy)
		}
		etag = rec.etag
		select {
		case <-ctx.Done():
			return fmt.Errorf("await %s: %w", dir, ctx.Err())
		case <-t.C:
		}
	}
}

// records returns the records of runs that are not empty and whose directories are wanted,
// by directory, and the directories of all.
func (s *S3) records(ctx context.Context, wanted func(dir string) bool) (records map[string]*s3Stored, dirs []string, err error) {
	records = map[string]*s3Stored{}
	err = s.listPrefix(ctx, s.key(recordsDir+"/"), "", func(name string, size int64) {
		dirs = append(dirs, name)
		if size > 0 && wanted(name) {
			records[name] = nil
		}
	})
	if err != nil {
		return nil, nil, err
	}
	for dir := range records {
		records[dir], err = s.readWhole(ctx, dir)
		if errors.Is(err, ErrNotFound) {
			delete(records, dir)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
	}
	slices.Sort(dirs)
	return records, dirs, nil
}

// Unfinished reads the records.
func (s *S3) Unfinished(ctx context.Context) ([]Unfinished, error) {
	records, _, err := s.records(ctx, anyDir)
	if err != nil {
		return nil, fmt.Errorf("list unfinished uploads: %w", err)
	}
	var all []Unfinished
	for _, dir := range slices.Sorted(maps.Keys(records)) {
		rec := records[dir]
		if len(rec.notes) == 0 {
			continue
		}
		// What is decided and not done yet is finished by Resume.
		busy := rec.busy(s.client.o.Lease) || rec.Writer != "" && rec.age < s.client.o.Lease
		all = append(all, Unfinished{ID: rec.ID, Busy: busy, Notes: rec.notes})
	}
	return all, nil
}

// Retain asks the service for the parts of the files, which a rule of the bucket may
// have removed meanwhile. What is not kept leaves the record first.
func (u *s3Upload) Retain(ctx context.Context, keep map[string]int64) error {
	u.mu.Lock()
	files := maps.Clone(u.files)
	u.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(keep)) {
		f := files[name]
		size := int64(-1)
		if f != nil {
			var err error
			if size, err = u.target.parts(ctx, path.Join(u.dir, name), f.begun); err != nil && !errors.Is(err, ErrNotFound) {
				return fmt.Errorf("retain files of %s: %s: %w", u.dir, name, err)
			}
		}
		if size != keep[name] {
			return fmt.Errorf("retain files of %s: %w: %s with %d bytes", u.dir, ErrNotFound, name, keep[name])
		}
	}
	var gone []s3RecordFile
	err := u.write(ctx, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		var names []string
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if _, ok := keep[name]; !ok {
				gone, names = append(gone, s3RecordFile{Name: name, Upload: files[name].begun}), append(names, name)
				delete(u.files, name)
			}
		}
		u.forget(names)
	})
	if err != nil {
		return fmt.Errorf("retain files of %s: %w", u.dir, err)
	}
	_ = u.target.abort(ctx, u.dir, gone) // what stays costs space only
	return nil
}

// partList is an answer of ListParts.
type partList struct {
	IsTruncated          bool
	NextPartNumberMarker int
	Part                 []struct{ Size int64 }
}

// parts returns the bytes of a multi-part upload; none begins without bytes. Its error
// wraps ErrNotFound, and then it returns -1.
func (s *S3) parts(ctx context.Context, name, upload string) (bytes int64, err error) {
	if upload == "" {
		return 0, nil
	}
	q := map[string]string{"uploadId": upload}
	for {
		r, err := s.client.do(ctx, &s3Request{method: http.MethodGet, key: s.key(name), query: q, limit: maxListBytes})
		if status(err) == http.StatusNotFound {
			return -1, fmt.Errorf("%w: %w", ErrNotFound, err)
		}
		if err != nil {
			return 0, err
		}
		var l partList
		if err := xml.Unmarshal(r.body, &l); err != nil {
			return 0, fmt.Errorf("read a list of parts: %w", err)
		}
		for _, p := range l.Part {
			bytes += p.Size
		}
		if !l.IsTruncated {
			return bytes, nil
		}
		if q["part-number-marker"] == strconv.Itoa(l.NextPartNumberMarker) || l.NextPartNumberMarker == 0 {
			return 0, fmt.Errorf("a list of parts: %w", errNoNextPage)
		}
		q["part-number-marker"] = strconv.Itoa(l.NextPartNumberMarker)
	}
}

// Leave notes the closed files, writes the record for whoever resumes, and removes the parts of files that
// were being written.
func (u *s3Upload) Leave() error {
	if !u.end() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), u.target.client.o.Timeout)
	defer cancel()
	_ = u.note(ctx, "", nil) // what is not noted is made again
	err := u.close(ctx, func() *s3Record { return u.record(s3Left) })
	if notOurs(err) {
		err = nil
	}
	_ = u.target.abort(ctx, u.dir, u.uploads(func(f *s3File) bool { return !f.recorded })) // what stays costs space only
	if err != nil {
		return fmt.Errorf("leave %s: %w", u.dir, err)
	}
	return nil
}
