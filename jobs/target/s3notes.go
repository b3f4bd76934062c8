package target

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
)

// logsDir is where the notes of uploads are, by the directories of their runs and the
// names of their logs: _notes/DIR/LOG/NUMBER. An object a note, which is never written
// again: what is written for a run grows with its files, and not with their square.
const logsDir = "_notes"

// s3Log is the notes that one process has written, by numbers from 1.
type s3Log struct {
	Name string `json:"name"` // random
	// Last is the last one that counts: a process that has lost the record may write
	// more. 0 = all, its process has the record.
	Last int `json:"last,omitempty"`
	// Gone are files of this log, and of those before it, that are not there any more.
	Gone []string `json:"gone,omitempty"`
}

// s3Note is a note, or only the files that were closed before it and are in none.
type s3Note struct {
	Name  string         `json:"name,omitempty"` // empty = files alone
	Data  []byte         `json:"data,omitempty"`
	Files []s3RecordFile `json:"files,omitempty"`
	// Open are the files that were begun since the note or the record before, Name and
	// Upload alone.
	Open []s3RecordFile `json:"open,omitempty"`
}

// logKey is where a log of a run is.
func logKey(dir, log string) string { return path.Join(logsDir, dir, log) }

// noteKey is where a note is. Keys of a log sort by number.
func noteKey(dir, log string, number int) string {
	return path.Join(logKey(dir, log), fmt.Sprintf("%09d", number))
}

// readWhole is readRecord with what the record's logs say.
func (s *S3) readWhole(ctx context.Context, dir string) (*s3Stored, error) {
	rec, err := s.readRecord(ctx, dir)
	if err != nil {
		return nil, err
	}
	return rec, s.readLogs(ctx, dir, rec)
}

// readLogs fills in what the record, and its logs where it is no decision, say. A log
// that is removed meanwhile is read in part: whoever relies on it changes the record
// next, on the condition that it is still as it was.
func (s *S3) readLogs(ctx context.Context, dir string, rec *s3Stored) error {
	rec.notes, rec.logs, rec.begun = maps.Clone(rec.Notes), nil, rec.Open
	if rec.notes == nil {
		rec.notes = map[string][]byte{}
	}
	files := map[string]s3RecordFile{}
	for _, f := range rec.Files {
		files[f.Name] = f
	}
	if rec.published() {
		rec.logs = rec.Logs
	} else {
		for _, l := range rec.Logs {
			notes, last, err := s.readLog(ctx, dir, &l)
			if err != nil {
				return fmt.Errorf("notes of %s: %w", dir, err)
			}
			for i := range notes {
				if n := &notes[i]; n.Name != "" {
					rec.notes[n.Name] = append([]byte{}, n.Data...)
				}
				for _, f := range notes[i].Files {
					files[f.Name] = f
				}
				rec.begun = append(slices.Clip(rec.begun), notes[i].Open...)
			}
			for _, name := range l.Gone {
				delete(files, name)
			}
			if l.Last = last; last > 0 {
				rec.logs = append(rec.logs, l)
			}
		}
	}
	rec.files = nil
	for _, name := range slices.Sorted(maps.Keys(files)) {
		rec.files = append(rec.files, files[name])
	}
	return nil
}

// readLog returns the notes of a log that count, in order, and the number of the last.
func (s *S3) readLog(ctx context.Context, dir string, l *s3Log) (notes []s3Note, last int, err error) {
	var numbers []int
	err = s.listPrefix(ctx, s.key(logKey(dir, l.Name)+"/"), "", func(name string, _ int64) {
		if n, err := strconv.Atoi(name); err == nil && (l.Last == 0 || n <= l.Last) {
			numbers = append(numbers, n)
		}
	})
	if err != nil || len(numbers) == 0 {
		return nil, 0, err
	}
	slices.Sort(numbers)
	notes = make([]s3Note, len(numbers))
	err = atOnce(len(numbers), func(i int) error {
		r, err := s.client.do(ctx, &s3Request{method: http.MethodGet, key: s.key(noteKey(dir, l.Name, numbers[i])), limit: maxRecordBytes})
		if status(err) == http.StatusNotFound {
			return nil
		}
		if err != nil {
			return err
		}
		if err := json.Unmarshal(r.body, &notes[i]); err != nil {
			return fmt.Errorf("%s: %w", noteKey(dir, l.Name, numbers[i]), err)
		}
		return nil
	})
	return notes, numbers[len(numbers)-1], err
}

// dropLogs removes logs, as far as they are there.
func (s *S3) dropLogs(ctx context.Context, dir string, logs []s3Log) error {
	for _, l := range logs {
		var keys []string
		prefix := s.key(logKey(dir, l.Name) + "/")
		if err := s.listPrefix(ctx, prefix, "", func(name string, _ int64) { keys = append(keys, prefix+name) }); err != nil {
			return err
		}
		if err := atOnce(len(keys), func(i int) error { return s.client.delete(ctx, keys[i]) }); err != nil {
			return err
		}
	}
	return nil
}

// allLogs returns the logs of all notes that there are. The caller has recordMu.
func (u *s3Upload) allLogs() []s3Log {
	logs := slices.Clone(u.logs)
	if u.entries > 0 {
		logs = append(logs, s3Log{Name: u.log, Last: u.entries})
	}
	return logs
}

// note appends a note to the upload's log, with the files that were closed since the one
// before. Then it looks whether the record is still the upload's own: so a process that
// has lost it learns that.
func (u *s3Upload) note(ctx context.Context, name string, data []byte) error {
	u.recordMu.Lock()
	defer u.recordMu.Unlock()
	if u.ended != nil {
		return u.ended
	}
	if u.etag == "" {
		return errTaken
	}
	if u.told != u.log { // who reads the record does not know the log
		if err := u.change(ctx, u.record(s3Open)); err != nil {
			return err
		}
	}
	n := &s3Note{Name: name, Data: data}
	files := u.unlogged()
	if name == "" && len(files) == 0 {
		return nil
	}
	for _, f := range files {
		n.Files = append(n.Files, f.s3RecordFile)
	}
	begun := u.untold()
	for _, f := range begun {
		n.Open = append(n.Open, s3RecordFile{Name: f.Name, Upload: f.begun})
	}
	body, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode the note: %w", err)
	}
	u.entries++ // never used again, also where nobody knows whether it was done
	_, err = u.target.client.do(ctx, &s3Request{method: http.MethodPut, key: u.target.key(noteKey(u.dir, u.log, u.entries)), body: body, limit: maxErrorBytes})
	if err != nil {
		return err
	}
	if !u.holds(ctx) {
		if err := u.change(ctx, u.record(s3Open)); err != nil {
			return err
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range files {
		f.logged = true
	}
	for _, f := range begun {
		f.told = true
	}
	if name != "" {
		u.notes[name] = append([]byte{}, data...)
	}
	return nil
}

// holds reports whether the record is surely the upload's own, and was written so lately
// that nobody takes it for abandoned.
func (u *s3Upload) holds(ctx context.Context) bool {
	c := u.target.client
	r, err := c.do(ctx, &s3Request{method: http.MethodHead, key: u.target.key(recordKey(u.dir))})
	return err == nil && r.header.Get("ETag") == u.etag && since(r.header) < c.o.Lease/4
}

// unlogged returns the files that are closed and in no note yet, by name. From here on
// others may know of them.
func (u *s3Upload) unlogged() (files []*s3File) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(u.files)) {
		if f := u.files[name]; f.closed && !f.logged {
			f.recorded = true
			files = append(files, f)
		}
	}
	return files
}

// untold returns the files that are being written and neither in the record nor in a note.
func (u *s3Upload) untold() (files []*s3File) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range u.files {
		if f.begun != "" && !f.closed && !f.told {
			files = append(files, f)
		}
	}
	return files
}

// forget begins a new log, behind one whose files with these names are gone. The caller
// has recordMu.
func (u *s3Upload) forget(gone []string) {
	if len(gone) == 0 {
		return
	}
	u.base.Files = slices.DeleteFunc(slices.Clone(u.base.Files), func(f s3RecordFile) bool { return slices.Contains(gone, f.Name) })
	u.logs = u.allLogs()
	if i := len(u.logs) - 1; i >= 0 {
		u.logs[i].Gone = append(slices.Clone(u.logs[i].Gone), gone...)
	}
	u.log, u.entries = rand.Text(), 0
}

// s3Stray are the notes of a log that no record names: its process has ended, or has lost
// the record, and so has whoever was to remove it.
type s3Stray struct {
	dir   string
	log   s3Log
	bytes int64
}

// logs returns all logs that there are.
func (s *S3) logs(ctx context.Context) ([]*s3Stray, error) {
	all := map[string]*s3Stray{}
	err := s.listPrefix(ctx, s.key(logsDir+"/"), "", func(name string, size int64) {
		at := path.Dir(name)
		if all[at] == nil {
			all[at] = &s3Stray{dir: path.Dir(at), log: s3Log{Name: path.Base(at)}}
		}
		all[at].bytes += size
	})
	if err != nil {
		return nil, err
	}
	var found []*s3Stray
	for _, at := range slices.Sorted(maps.Keys(all)) {
		if strings.Contains(at, "/") {
			found = append(found, all[at])
		}
	}
	return found, nil
}

// Notes returns what the logs had when the upload was taken over, and what was noted
// since.
func (u *s3Upload) Notes(ctx context.Context) (map[string][]byte, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.notes), ctx.Err()
}

// Note writes an object, which has the parts of all files that were closed.
func (u *s3Upload) Note(ctx context.Context, name string, data []byte) error {
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return err
	}
	if strings.Contains(name, "/") || name == "." {
		return fmt.Errorf("target: %q is not the name of a note", name)
	}
	if err := u.note(ctx, name, data); err != nil {
		return fmt.Errorf("note %s of %s: %w", name, u.dir, err)
	}
	return nil
}
