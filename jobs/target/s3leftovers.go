package target

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

var _ Collector = (*S3)(nil)

const (
	// orphanAge is when a multi-part upload is abandoned that no record speaks of:
	// what its process wrote when it was killed, or what belongs to one of two
	// processes that are at one run, of which one has the record. No file takes a
	// week. So is a run that was decided and not finished: its process was killed, and
	// nobody has begun it again, as nobody does a run for the time at which it began.
	orphanAge = 7 * 24 * time.Hour
	// removalAge is when a removal is abandoned. It makes requests only within a
	// quarter of that from when it has told the record that it is at work.
	removalAge = time.Hour
)

// s3Orphan is a multi-part upload of a listing.
type s3Orphan struct {
	key, id string // key is below the prefix
	age     time.Duration
}

func (o *s3Orphan) name() string { return o.key + "?uploadId=" + o.id }

// uploadList is an answer of ListMultipartUploads.
type uploadList struct {
	IsTruncated                       bool
	NextKeyMarker, NextUploadIdMarker string
	Upload                            []struct {
		Key, UploadId string
		Initiated     time.Time
	}
}

// multiparts returns the multi-part uploads below the prefix.
func (s *S3) multiparts(ctx context.Context) ([]s3Orphan, error) {
	q := map[string]string{"uploads": "", "prefix": s.prefix}
	var all []s3Orphan
	for {
		r, err := s.client.do(ctx, &s3Request{method: http.MethodGet, query: q, limit: maxListBytes})
		if err != nil {
			return nil, err
		}
		var l uploadList
		if err := xml.Unmarshal(r.body, &l); err != nil {
			return nil, fmt.Errorf("read a list of uploads: %w", err)
		}
		now, err := http.ParseTime(r.header.Get("Date"))
		if err != nil {
			return nil, fmt.Errorf("a list of uploads without a date: %w", err)
		}
		for _, u := range l.Upload {
			if key, ok := strings.CutPrefix(u.Key, s.prefix); ok && !u.Initiated.IsZero() {
				all = append(all, s3Orphan{key: key, id: u.UploadId, age: now.Sub(u.Initiated)})
			}
		}
		if !l.IsTruncated {
			return all, nil
		}
		if l.NextKeyMarker == q["key-marker"] && l.NextUploadIdMarker == q["upload-id-marker"] {
			return nil, fmt.Errorf("a list of uploads: %w", errNoNextPage)
		}
		q["key-marker"], q["upload-id-marker"] = l.NextKeyMarker, l.NextUploadIdMarker
	}
}

// s3Found is what Leftovers has found.
type s3Found struct {
	Leftover
	dir    string
	rec    *s3Stored // nil = orphan or stray is set
	orphan *s3Orphan
	stray  *s3Stray
}

// Leftovers reads the records, and lists the multi-part uploads in the directories
// that have one: what others do in the bucket is not looked at.
func (s *S3) Leftovers(ctx context.Context) ([]Leftover, error) {
	found, err := s.leftovers(ctx, anyDir)
	if err != nil {
		return nil, fmt.Errorf("list leftovers: %w", err)
	}
	var all []Leftover
	for i := range found {
		all = append(all, found[i].Leftover)
	}
	return all, nil
}

func anyDir(string) bool { return true }

// leftoverOf returns which directories a leftover of this name may be of: a record is read
// by a request of its own, and there may be many of runs that were removed.
func leftoverOf(name string) func(dir string) bool {
	for _, kind := range []string{removed, ended} {
		if isKind(name, kind) {
			return func(dir string) bool { return kind+temporaryName(dir) == name }
		}
	}
	return anyDir
}

// leftovers finds what is left of runs whose directories are wanted.
func (s *S3) leftovers(ctx context.Context, wanted func(dir string) bool) ([]s3Found, error) {
	// The uploads first: a record tells of one soon after it has begun, not before.
	multiparts, err := s.multiparts(ctx)
	if err != nil {
		return nil, err
	}
	// The logs, too: a record names one before there are notes in it.
	logs, err := s.logs(ctx)
	if err != nil {
		return nil, err
	}
	records, dirs, err := s.records(ctx, wanted)
	if err != nil {
		return nil, err
	}
	orphans := map[string][]*s3Orphan{} // by directory
	for i := range multiparts {
		o := &multiparts[i]
		if dir := directoryOf(o.key, dirs); dir != "" && wanted(dir) {
			orphans[dir] = append(orphans[dir], o)
		}
	}
	var found []s3Found
	for _, dir := range slices.Sorted(maps.Keys(records)) {
		f, unknown, err := s.leftOf(ctx, dir, records[dir], orphans[dir])
		if err != nil {
			return nil, err
		}
		if f != nil {
			found = append(found, *f)
		}
		orphans[dir] = unknown
	}
	for dir, some := range orphans {
		for _, o := range some {
			size, err := s.parts(ctx, o.key, o.id)
			if errors.Is(err, ErrNotFound) {
				continue // ended meanwhile
			}
			if err != nil {
				return nil, err
			}
			found = append(found, s3Found{dir: dir, orphan: o, Leftover: Leftover{
				Name: o.name(), Bytes: size, Modified: s.client.o.Now().Add(-o.age), Busy: o.age < orphanAge,
			}})
		}
	}
	for _, l := range logs {
		if !wanted(l.dir) {
			continue
		}
		if rec := records[l.dir]; rec != nil && slices.ContainsFunc(rec.Logs, func(named s3Log) bool { return named.Name == l.log.Name }) {
			continue
		}
		found = append(found, s3Found{dir: l.dir, stray: l, Leftover: Leftover{
			Name: "notes-" + temporaryName(l.dir) + "-" + l.log.Name, Bytes: l.bytes, Modified: s.client.o.Now(),
		}})
	}
	slices.SortStableFunc(found, func(a, b s3Found) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// leftOf returns what a run with a record has left, nil = nothing, and which of the
// multi-part uploads in its directory are nobody's.
func (s *S3) leftOf(ctx context.Context, dir string, rec *s3Stored, multiparts []*s3Orphan) (f *s3Found, orphans []*s3Orphan, err error) {
	known := map[string]bool{}
	for _, file := range rec.uploads() {
		known[file.Upload] = true
	}
	for _, o := range multiparts {
		if !known[o.id] {
			orphans = append(orphans, o)
		}
	}
	f = &s3Found{dir: dir, rec: rec, Leftover: Leftover{Modified: s.client.o.Now().Add(-max(0, rec.age))}}
	switch rec.State {
	case "": // decided; no Begin may come that finishes it
		if rec.Writer == "" || rec.age < orphanAge {
			return nil, orphans, nil
		}
		f.Name = cmp.Or(rec.ID, temporaryName(dir))
		for _, file := range rec.Files {
			f.Bytes += file.Size
		}
	case s3Open, s3Left:
		f.Name, f.Busy, f.Resumable = rec.ID, rec.busy(s.client.o.Lease), len(rec.notes) > 0
		if f.Busy {
			orphans = nil // they may be its own, of which it has not told yet
		}
		for _, o := range multiparts {
			if !f.Busy && !known[o.id] {
				continue
			}
			size, err := s.parts(ctx, o.key, o.id)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return nil, nil, err
			}
			f.Bytes += max(0, size)
		}
	case s3Removing:
		f.Name, f.Busy = removed+temporaryName(dir), rec.age < removalAge
	case s3Ended:
		if rec.age < orphanAge || len(multiparts) > 0 {
			return nil, orphans, nil
		}
		f.Name = ended + temporaryName(dir)
	default:
		return nil, orphans, nil
	}
	return f, orphans, nil
}

// directoryOf returns which of dirs, in order, key is in, or nothing.
func directoryOf(key string, dirs []string) string {
	for dir := path.Dir(key); dir != "."; dir = path.Dir(dir) {
		if _, ok := slices.BinarySearch(dirs, dir); ok {
			return dir
		}
	}
	return ""
}

// Discard makes the record of an upload say that it has ended, so that nobody goes on
// with it, and removes its parts then.
func (s *S3) Discard(ctx context.Context, name string) error {
	err := s.discardNamed(ctx, name)
	if err != nil {
		return fmt.Errorf("discard %s: %w", name, err)
	}
	return nil
}

func (s *S3) discardNamed(ctx context.Context, name string) error {
	all, err := s.leftovers(ctx, leftoverOf(name))
	if err != nil {
		return err
	}
	var errs []error
	met := false
	for i := range all {
		if all[i].Name == name {
			met = true
			errs = append(errs, s.discard(ctx, &all[i]))
		}
	}
	if !met {
		return ErrNotFound
	}
	return errors.Join(errs...)
}

func (s *S3) discard(ctx context.Context, f *s3Found) error {
	switch {
	case f.Busy:
		return ErrBusy
	case f.orphan != nil:
		return s.abort(ctx, path.Dir(f.orphan.key), []s3RecordFile{{Name: path.Base(f.orphan.key), Upload: f.orphan.id}})
	case f.stray != nil:
		return s.dropLogs(ctx, f.dir, []s3Log{f.stray.log})
	case f.rec.State == s3Ended:
		// Whoever begins the run at this moment loses its record, and learns it.
		_, err := s.client.do(ctx, &s3Request{method: http.MethodDelete, key: s.key(recordKey(f.dir)), limit: maxErrorBytes})
		return err
	case f.rec.State == s3Removing:
		return s.sweep(ctx, f.dir, f.rec.etag)
	case f.rec.published():
		return s.discardDecided(ctx, f)
	}
	if err := s.probe(ctx); err != nil {
		return err
	}
	_, _, err := s.swap(ctx, f.dir, f.rec.etag, &s3Record{State: s3Ended})
	if errors.Is(err, errChanged) {
		return errTaken
	}
	if err != nil {
		return err
	}
	return errors.Join(s.abort(ctx, f.dir, f.rec.uploads()), s.dropLogs(ctx, f.dir, f.rec.Logs))
}

// discardDecided removes a run that was decided and not finished. One that has its manifest
// has all of its files, and who asks for it by name may have pointed to it since: that is
// finished, and the error wraps ErrNotFound.
func (s *S3) discardDecided(ctx context.Context, f *s3Found) error {
	there, err := s.holds(ctx, path.Join(f.dir, f.rec.Manifest), f.rec.Content)
	switch {
	case err == nil && there:
		if err := s.finish(ctx, f.dir, &f.rec.s3Record, f.rec.etag); err != nil {
			return err
		}
		return fmt.Errorf("%w: %s is whole, and a run from now on", ErrNotFound, f.dir)
	case err == nil:
		return fmt.Errorf("%w: %s/%s is not what was decided", ErrExists, f.dir, f.rec.Manifest)
	case !errors.Is(err, ErrNotFound):
		return err
	}
	if err := s.sweep(ctx, f.dir, f.rec.etag); err != nil {
		return err
	}
	return errors.Join(s.abort(ctx, f.dir, f.rec.uploads()), s.dropLogs(ctx, f.dir, f.rec.Logs))
}

// Remove makes the record of a run say that it is being removed, by which it is not
// listed any more, and removes its objects then.
func (s *S3) Remove(ctx context.Context, dir string) error {
	if err := errors.Join(ctx.Err(), checkName(dir)); err != nil {
		return err
	}
	if path.Dir(dir) == "." && !strings.Contains(dir, "=") { // a job's, or all of it
		return fmt.Errorf("target: %q is not the directory of a run", dir)
	}
	if err := s.remove(ctx, dir); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

func (s *S3) remove(ctx context.Context, dir string) error {
	rec, err := s.readRecord(ctx, dir)
	switch {
	case err != nil:
		return err
	case rec.Writer != "", rec.State == s3Removing:
		return ErrBusy // it is being completed, or removed
	case rec.State != "":
		return ErrNotFound
	}
	return s.sweep(ctx, dir, rec.etag)
}

// sweep removes the objects of a run whose record has the entity tag etag. It does so
// only as long as nobody else can think that it has stopped.
func (s *S3) sweep(ctx context.Context, dir, etag string) error {
	if err := s.probe(ctx); err != nil {
		return err
	}
	record := func(state string) (err error) {
		etag, _, err = s.swap(ctx, dir, etag, &s3Record{State: state})
		if errors.Is(err, errChanged) {
			return errTaken
		}
		return err
	}
	renewed := time.Now()
	if err := record(s3Removing); err != nil {
		return err
	}
	var names []string
	if err := s.listPrefix(ctx, s.key(dir+"/"), "", func(name string, _ int64) { names = append(names, name) }); err != nil {
		return err
	}
	for _, name := range names {
		if time.Since(renewed) > removalAge/8 {
			now := time.Now()
			if err := record(s3Removing); err != nil {
				return err
			}
			renewed = now
		}
		if err := s.deleteBefore(ctx, path.Join(dir, name), renewed.Add(removalAge/4)); err != nil {
			return err
		}
	}
	return record(s3Ended)
}

// deleteBefore deletes an object, or fails before the time.
func (s *S3) deleteBefore(ctx context.Context, name string, before time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, before)
	defer cancel()
	return s.client.delete(ctx, s.key(name))
}

// RemoveFile deletes the object.
func (s *S3) RemoveFile(ctx context.Context, name string) error {
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return err
	}
	if err := s.client.delete(ctx, s.key(name)); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}
