package target_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/thinned"
	"sluice/jobs/target"
	"sluice/jobs/target/targettest"
)

const run1 = "job/run=1"

// put writes a file of an upload.
func put(ctx context.Context, u target.Upload, name, content string) error {
	w, err := u.Create(ctx, name)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, content)
	return errors.Join(err, w.Close())
}

// export does what a run does that can be resumed: it goes on with what is left, or
// begins, writes the files that no note speaks of, and publishes. Of what it has
// written itself it tells made.
func export(ctx context.Context, s *target.S3, content string, made func(name string)) (err error) {
	u, err := s.Resume(ctx, run1, "id")
	if errors.Is(err, target.ErrNotFound) {
		var begun target.Upload
		if begun, err = s.Begin(ctx, run1, "id"); err == nil {
			u = begun.(target.Resumable)
		}
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, u.Leave())
		}
	}()
	notes, err := u.Notes(ctx)
	if err != nil {
		return err
	}
	keep := map[string]int64{}
	for name := range notes {
		keep[name] = int64(len(content))
	}
	if err := u.Retain(ctx, keep); err != nil {
		return err
	}
	for _, name := range []string{"a", "b", "c"} {
		if _, ok := notes[name]; ok {
			continue
		}
		if err := put(ctx, u, name, content); err != nil {
			return err
		}
		made(name)
		if err := u.Note(ctx, name, nil); err != nil {
			return err
		}
	}
	return u.Commit(ctx, "_manifest", []byte("all of "+content))
}

func exported(content string) map[string]string {
	return map[string]string{run1 + "/a": content, run1 + "/b": content, run1 + "/c": content, run1 + "/_manifest": "all of " + content}
}

// TestS3ResumeKilled: the process is gone from a request on. After the lease another
// goes on, does not write again what was noted, and publishes what an export without
// a kill publishes.
func TestS3ResumeKilled(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	if err := export(t.Context(), openS3(t, f), tenBytes, func(string) {}); err != nil {
		t.Fatal(err)
	}
	requests := f.Requests()
	resumed := 0
	for at := range requests {
		f := targettest.NewFakeS3(t)
		f.SetFaulty(func(n int, _ *http.Request) targettest.Fault {
			if n == at {
				return targettest.Dead
			}
			return targettest.Fine
		})
		if err := export(t.Context(), openS3(t, f), tenBytes, func(string) {}); err == nil {
			t.Fatalf("killed at %s: got no error", requests[at])
		}
		f.SetFaulty(nil)
		f.Advance(time.Hour)
		s := openS3(t, f)
		left, err := s.Unfinished(t.Context())
		if err != nil || len(left) > 1 {
			t.Fatalf("killed at %s: %+v, %v", requests[at], left, err)
		}
		noted := map[string][]byte{}
		if len(left) == 1 {
			if left[0].Busy {
				t.Errorf("killed at %s: it is still at work", requests[at])
			}
			noted = left[0].Notes
			resumed++
		}
		err = export(t.Context(), s, tenBytes, func(name string) {
			if _, ok := noted[name]; ok {
				t.Errorf("killed at %s: %s was written again", requests[at], name)
			}
		})
		if err != nil && !errors.Is(err, target.ErrExists) {
			t.Errorf("killed at %s: the next: %v", requests[at], err)
		}
		if d := cmp.Diff(exported(tenBytes), visible(t, s)); d != "" {
			t.Errorf("killed at %s: %s", requests[at], d)
		}
		f.Advance(8 * 24 * time.Hour)
		tidy(t, s)
		if n := f.Uploads(); n > 0 {
			t.Errorf("killed at %s: %d uploads are left", requests[at], n)
		}
		if d := cmp.Diff(exported(tenBytes), visible(t, s)); d != "" {
			t.Errorf("killed at %s, tidied: %s", requests[at], d)
		}
	}
	if resumed < 5 {
		t.Errorf("Got %d exports that were resumed", resumed)
	}
}

// tidy discards all leftovers that are not at work.
func tidy(t *testing.T, s *target.S3) {
	t.Helper()
	left, err := s.Leftovers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range left {
		if l.Busy {
			continue
		}
		if err := s.Discard(t.Context(), l.Name); err != nil && !errors.Is(err, target.ErrNotFound) {
			t.Errorf("Discard(%s): %v", l.Name, err)
		}
	}
}

// TestS3ResumeFaults has each fault at each request of an export that was left and is
// resumed.
func TestS3ResumeFaults(t *testing.T) {
	t.Parallel()
	start := func() *targettest.FakeS3 {
		f := targettest.NewFakeS3(t)
		u, err := openS3(t, f).Begin(t.Context(), run1, "id")
		if err != nil {
			t.Fatal(err)
		}
		r := u.(target.Resumable)
		if err := errors.Join(put(t.Context(), r, "a", tenBytes), r.Note(t.Context(), "a", nil), put(t.Context(), r, "b", "x"), r.Leave()); err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := start()
	before := len(f.Requests())
	if err := export(t.Context(), openS3(t, f), tenBytes, func(string) {}); err != nil {
		t.Fatal(err)
	}
	requests := f.Requests()[before:]
	if len(requests) < 20 {
		t.Fatalf("Got %d requests", len(requests))
	}
	every := thinned.Of(1, 4)
	for at := 0; at < len(requests); at += every {
		for what := targettest.SlowDown; what < targettest.Dead; what++ {
			if what == targettest.DoneLate || (at+int(what))%3 > 0 {
				continue // that one takes its time; TestS3Faults has it
			}
			f := start()
			f.SetFaulty(func(n int, _ *http.Request) targettest.Fault {
				if n == at {
					return what
				}
				return targettest.Fine
			})
			s := openS3(t, f)
			if err := export(t.Context(), s, tenBytes, func(string) {}); err != nil {
				t.Errorf("fault %d at %s: %v", what, requests[at], err)
			}
			if d := cmp.Diff(exported(tenBytes), visible(t, s)); d != "" {
				t.Errorf("fault %d at %s: %s", what, requests[at], d)
			}
		}
	}
}

// TestS3Zombie has a process that was thought dead go on, with whatever it does, at
// every step of the one that has taken its upload over: one of them publishes, and what
// is published is whole.
func TestS3Zombie(t *testing.T) {
	t.Parallel()
	acts := map[string]func(ctx context.Context, u target.Resumable) error{
		"abort": func(_ context.Context, u target.Resumable) error { return u.Abort() },
		"leave": func(_ context.Context, u target.Resumable) error { return u.Leave() },
		"note":  func(ctx context.Context, u target.Resumable) error { return u.Note(ctx, "late", nil) },
		"commit": func(ctx context.Context, u target.Resumable) error {
			return errors.Join(put(ctx, u, "b", "of the zombie"), u.Commit(ctx, "_manifest", []byte("zombie")), u.Abort())
		},
		"retain": func(ctx context.Context, u target.Resumable) error {
			return errors.Join(u.Retain(ctx, nil), u.Abort())
		},
	}
	for name, act := range acts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zombies, others := 0, 0
			for at := 0; ; at++ {
				f := targettest.NewFakeS3(t)
				u, err := openS3(t, f).Begin(t.Context(), run1, "id")
				if err != nil {
					t.Fatal(err)
				}
				zombie := u.(target.Resumable)
				if err := errors.Join(put(t.Context(), zombie, "a", tenBytes), zombie.Note(t.Context(), "a", nil)); err != nil {
					t.Fatal(err)
				}
				f.Advance(time.Hour)
				// The zombie acts while the other waits for the answer to a request.
				met := false
				hook := &hooked{at: int64(at), do: func() {
					met = true
					err := act(t.Context(), zombie)
					if err != nil && !errors.Is(err, target.ErrBusy) && !errors.Is(err, target.ErrExists) {
						t.Errorf("at %d: the zombie: %v", at, err)
					}
				}}
				s, err := target.NewS3(&target.S3Options{
					Endpoint: f.URL(), Bucket: "bucket", Prefix: "exports", AccessKey: "access", SecretKey: "secret",
					PartBytes: 4, Backoff: time.Microsecond, Client: &http.Client{Transport: hook},
				})
				if err != nil {
					t.Fatal(err)
				}
				err = export(t.Context(), s, tenBytes, func(string) {})
				got := visible(t, openS3(t, f))
				switch {
				case err == nil:
					others++
					if d := cmp.Diff(exported(tenBytes), got); d != "" {
						t.Errorf("at %d: %s", at, d)
					}
				case name == "commit" && errors.Is(err, target.ErrExists) || errors.Is(err, target.ErrBusy):
					zombies++
					want := map[string]string{}
					if name == "commit" {
						want = map[string]string{run1 + "/a": tenBytes, run1 + "/b": "of the zombie", run1 + "/_manifest": "zombie"}
					}
					if d := cmp.Diff(want, got); d != "" {
						t.Errorf("at %d: %s", at, d)
					}
				default:
					t.Errorf("at %d: %v", at, err)
				}
				if err := zombie.Abort(); err != nil {
					t.Errorf("at %d: %v", at, err)
				}
				if !met {
					break
				}
			}
			if others < 10 {
				t.Errorf("Got %d runs of the other, %d of the zombie", others, zombies)
			}
		})
	}
}

// hooked does something before the at-th request is made.
type hooked struct {
	n  atomic.Int64
	at int64
	do func()
}

func (h *hooked) RoundTrip(r *http.Request) (*http.Response, error) {
	if h.n.Add(1)-1 == h.at {
		h.do()
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestS3Await: an upload that is renewed is at work; one that is not, is abandoned
// after the lease.
func TestS3Await(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	o := target.S3Options{Endpoint: f.URL(), Bucket: "bucket", AccessKey: "access", SecretKey: "secret", Lease: 4 * time.Second, Backoff: time.Microsecond}
	a, err := target.NewS3(&o)
	if err != nil {
		t.Fatal(err)
	}
	u, err := a.Begin(t.Context(), run1, "id")
	if err != nil {
		t.Fatal(err)
	}
	b, err := target.NewS3(&o)
	if err != nil {
		t.Fatal(err)
	}
	// The service's clock stands still, so that only the renewal tells.
	if err := b.Await(t.Context(), run1); !errors.Is(err, target.ErrBusy) {
		t.Errorf("Got %v for an upload at work, want ErrBusy", err)
	}
	f.SetFaulty(func(_ int, r *http.Request) targettest.Fault {
		if r.Method == http.MethodPut {
			return targettest.HangUp // the process does not get through
		}
		return targettest.Fine
	})
	f.Advance(5 * time.Second)
	if err := b.Await(t.Context(), run1); err != nil {
		t.Errorf("Got %v for an abandoned upload", err)
	}
	f.SetFaulty(nil)
	if err := b.Await(t.Context(), "job/run=2"); err != nil {
		t.Errorf("Got %v for no upload", err)
	}
	if err := u.Abort(); err != nil {
		t.Error(err)
	}
}

// TestS3RemoveKilled: a removal that is killed at a request leaves the run whole or not
// listed; after an hour the next collector goes on with it, and the run may come again.
func TestS3RemoveKilled(t *testing.T) {
	t.Parallel()
	start := func() *targettest.FakeS3 {
		f := targettest.NewFakeS3(t)
		if err := export(t.Context(), openS3(t, f), tenBytes, func(string) {}); err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := start()
	before := len(f.Requests())
	if err := openS3(t, f).Remove(t.Context(), run1); err != nil {
		t.Fatal(err)
	}
	requests := f.Requests()[before:]
	if len(requests) < 8 {
		t.Fatalf("Got %q", requests)
	}
	for at := range requests {
		f := start()
		f.SetFaulty(func(n int, _ *http.Request) targettest.Fault {
			if n == at {
				return targettest.Dead
			}
			return targettest.Fine
		})
		if err := openS3(t, f).Remove(t.Context(), run1); err == nil {
			t.Errorf("killed at %s: got no error", requests[at])
		}
		f.SetFaulty(nil)
		s := openS3(t, f)
		if got := visible(t, s); len(got) > 0 && !maps.Equal(got, exported(tenBytes)) {
			t.Errorf("killed at %s: Got %v, want all or nothing", requests[at], got)
		}
		if len(visible(t, s)) > 0 {
			if err := s.Remove(t.Context(), run1); err != nil {
				t.Errorf("killed at %s: again: %v", requests[at], err)
			}
		}
		tidy(t, s) // nothing yet
		f.Advance(2 * time.Hour)
		tidy(t, s)
		for key := range f.Objects() {
			if strings.HasPrefix(key, "exports/"+run1) {
				t.Errorf("killed at %s: %s is left", requests[at], key)
			}
		}
		if err := export(t.Context(), s, "another", func(string) {}); err != nil {
			t.Errorf("killed at %s: the run again: %v", requests[at], err)
		}
		if d := cmp.Diff(exported("another"), visible(t, s)); d != "" {
			t.Errorf("killed at %s: %s", requests[at], d)
		}
	}
}

// TestS3LeftUndone: what a process leaves that is killed at any request of a run, which nobody
// begins again, is removed: what was decided and not finished, too, and not before a week.
func TestS3LeftUndone(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	if err := export(t.Context(), openS3(t, f), tenBytes, func(string) {}); err != nil {
		t.Fatal(err)
	}
	requests := f.Requests()
	undone, finished := 0, 0
	for at := range requests {
		f := targettest.NewFakeS3(t)
		f.SetFaulty(func(n int, _ *http.Request) targettest.Fault {
			if n == at {
				return targettest.Dead
			}
			return targettest.Fine
		})
		if err := export(t.Context(), openS3(t, f), tenBytes, func(string) {}); err == nil {
			t.Fatalf("killed at %s: got no error", requests[at])
		}
		f.SetFaulty(nil)
		s := openS3(t, f)
		there := func() (n int) {
			for key := range f.Objects() {
				if strings.HasPrefix(key, "exports/"+run1+"/") {
					n++
				}
			}
			return n
		}
		seen, had := visible(t, s), there()
		// Who asks for the run by its time reads its manifest, and points _latest.json to it.
		_, whole := f.Objects()["exports/"+run1+"/_manifest"]
		f.Advance(3 * time.Hour)
		tidy(t, s)
		if there() != had {
			t.Errorf("killed at %s: something is gone within hours", requests[at])
		}
		for range 3 { // an upload, its record, and that of a removal
			f.Advance(8 * 24 * time.Hour)
			tidy(t, s)
		}
		if whole && len(seen) == 0 {
			finished++
			seen = map[string]string{run1 + "/_manifest": "all of " + tenBytes, run1 + "/a": tenBytes, run1 + "/b": tenBytes, run1 + "/c": tenBytes}
		}
		if d := cmp.Diff(seen, visible(t, s)); d != "" {
			t.Errorf("killed at %s: %s", requests[at], d)
		}
		if len(seen) > 0 {
			continue
		}
		if had > 0 {
			undone++
		}
		if n, left := f.Uploads(), f.Objects(); n > 0 || len(left) > 0 {
			t.Errorf("killed at %s: Got %d uploads and %v", requests[at], n, slices.Sorted(maps.Keys(left)))
		}
	}
	if undone < 3 || finished == 0 {
		t.Errorf("Got %d runs that were decided and not finished, and %d that were but for their record", undone, finished)
	}
}

// TestS3Leftovers: by what age uploads are abandoned, and that those of others in the
// bucket are not looked at.
func TestS3Leftovers(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	s := openS3(t, f)
	kill := func(n int) func(int, *http.Request) targettest.Fault {
		return func(i int, _ *http.Request) targettest.Fault {
			if i == n {
				return targettest.Dead
			}
			return targettest.Fine
		}
	}
	u, err := s.Begin(t.Context(), run1, "id")
	if err != nil {
		t.Fatal(err)
	}
	f.SetFaulty(kill(3)) // begun, and two parts sent
	if err := put(t.Context(), u, "a", tenBytes); err == nil {
		t.Fatal("Got no error of a killed process")
	}
	if err := u.Abort(); err == nil {
		t.Fatal("Got no error of a killed process")
	}
	f.SetFaulty(nil)
	foreign, err := openS3(t, f).Begin(t.Context(), "elsewhere/run=1", "foreign")
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string, want ...string) {
		t.Helper()
		left, err := s.Leftovers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range left {
			name, _, _ := strings.Cut(l.Name, "=upload")
			got = append(got, fmt.Sprintf("%s busy=%t %d", name, l.Busy, l.Bytes))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", when, d)
		}
	}
	check("at work", "foreign busy=true 0", "id busy=true 8")
	if err := s.Discard(t.Context(), "id"); !errors.Is(err, target.ErrBusy) {
		t.Errorf("Got %v, want ErrBusy", err)
	}
	if err := foreign.Abort(); err != nil {
		t.Fatal(err)
	}
	f.Advance(3 * time.Minute)
	check("after the lease", "id busy=false 0", run1+"/a?uploadId busy=true 8")
	tidy(t, s)
	check("discarded", run1+"/a?uploadId busy=true 8")
	f.Advance(7 * 24 * time.Hour)
	tidy(t, s)
	check("after a week", "ended-job-run=1 busy=false 0") // it waited for the other
	tidy(t, s)
	check("in the end")
	if n, left := f.Uploads(), f.Objects(); n > 0 || len(left) > 0 {
		t.Errorf("Got %d uploads and %v", n, left)
	}
}

// TestS3Careless: where the service does not heed If-Match, nothing is begun.
func TestS3Careless(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	f.SetCareless()
	if _, err := openS3(t, f).Begin(t.Context(), run1, "id"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Got %v, want ErrUnsupported", err)
	}
	if left := f.Objects(); len(left) > 0 {
		t.Errorf("Got %v", left)
	}
}

// TestS3RetainMissing: what a rule of the bucket has removed meanwhile is missed.
func TestS3RetainMissing(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	s := openS3(t, f)
	u, err := s.Begin(t.Context(), run1, "id")
	if err != nil {
		t.Fatal(err)
	}
	r := u.(target.Resumable)
	if err := errors.Join(put(t.Context(), r, "a", tenBytes), r.Note(t.Context(), "a", nil), r.Leave()); err != nil {
		t.Fatal(err)
	}
	f.DropUploads()
	again, err := s.Resume(t.Context(), run1, "id")
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Retain(t.Context(), map[string]int64{"a": int64(len(tenBytes))}); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("Got %v, want ErrNotFound", err)
	}
	if err := again.Abort(); err != nil {
		t.Error(err)
	}
}

// TestS3NotesLinear: what is written for the notes of a run grows with its files, resumed
// or not, and nothing of it is left in the end.
func TestS3NotesLinear(t *testing.T) {
	t.Parallel()
	data := []byte(strings.Repeat("n", 400))
	run := func(files int, leave bool) int64 {
		f := targettest.NewFakeS3(t)
		s := openS3(t, f)
		u, err := s.Begin(t.Context(), run1, "id")
		if err != nil {
			t.Fatal(err)
		}
		r := u.(target.Resumable)
		keep := map[string]int64{}
		for i := range files {
			name := fmt.Sprintf("part-%06d", i)
			if err := errors.Join(put(t.Context(), r, name, tenBytes), r.Note(t.Context(), name, data)); err != nil {
				t.Fatal(err)
			}
			keep[name] = int64(len(tenBytes))
			if !leave || i%(files/4) > 0 {
				continue
			}
			if err := r.Leave(); err != nil {
				t.Fatal(err)
			}
			if r, err = s.Resume(t.Context(), run1, "id"); err != nil {
				t.Fatal(err)
			}
			notes, err := r.Notes(t.Context())
			if err != nil || len(notes) != i+1 || string(notes[name]) != string(data) {
				t.Fatalf("Got %d notes, %v", len(notes), err)
			}
			if i > 0 && i < files/2 { // one of them is written again
				delete(keep, "part-000000")
			}
			if err := r.Retain(t.Context(), keep); err != nil {
				t.Fatal(err)
			}
			if _, ok := keep["part-000000"]; !ok {
				if err := errors.Join(put(t.Context(), r, "part-000000", "another"), r.Note(t.Context(), "part-000000", data)); err != nil {
					t.Fatal(err)
				}
				keep["part-000000"] = int64(len("another"))
			}
		}
		before := f.Written("exports/")
		if err := r.Commit(t.Context(), "_manifest", []byte("all")); err != nil {
			t.Fatal(err)
		}
		for key := range f.Objects() {
			if strings.HasPrefix(key, "exports/_notes/") {
				t.Errorf("%s is left", key)
			}
		}
		got := visible(t, s)
		want := tenBytes
		if leave {
			want = "another"
		}
		if len(got) != files+1 || got[run1+"/part-000000"] != want || got[run1+"/part-000001"] != tenBytes || f.Uploads() > 0 {
			t.Errorf("Got %d objects, %q first, %d uploads", len(got), got[run1+"/part-000000"], f.Uploads())
		}
		return before
	}
	n := thinned.Of(100, 16)
	few, many, resumed := run(n, false), run(10*n, false), run(10*n, true)
	t.Logf("%d bytes for %d files, %d for ten times as many, %d where these are resumed four times", few, n, many, resumed)
	if many > 11*few || many > int64(10*n*1024) {
		t.Errorf("Got %d bytes for %d files, %d for %d", many, 10*n, few, n)
	}
	if resumed > many+int64(n*1024) {
		t.Errorf("Got %d bytes where they are resumed, %d otherwise", resumed, many)
	}
}

// TestS3StrayNotes: notes that no record names any more are leftovers, and those of an
// upload at work are not.
func TestS3StrayNotes(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	s := openS3(t, f)
	u, err := s.Begin(t.Context(), run1, "id")
	if err != nil {
		t.Fatal(err)
	}
	r := u.(target.Resumable)
	if err := errors.Join(put(t.Context(), r, "a", tenBytes), r.Note(t.Context(), "a", nil), put(t.Context(), r, "b", tenBytes), r.Note(t.Context(), "b", nil)); err != nil {
		t.Fatal(err)
	}
	left, err := s.Leftovers(t.Context())
	if err != nil || len(left) != 1 || !left[0].Busy || left[0].Bytes != 2*int64(len(tenBytes)) {
		t.Fatalf("Got %+v, %v, want the upload alone", left, err)
	}
	f.SetFaulty(func(_ int, r *http.Request) targettest.Fault {
		if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/_notes/") {
			return targettest.Dead // the process ends before it has removed its notes
		}
		return targettest.Fine
	})
	if err := r.Abort(); err == nil {
		t.Fatal("Got no error of a killed process")
	}
	f.SetFaulty(nil)
	f.Advance(8 * 24 * time.Hour)
	strays := 0
	for range 2 { // the record of an ended run goes once its uploads have
		if left, err = s.Leftovers(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, l := range left {
			if strings.HasPrefix(l.Name, "notes-job-run=1-") && l.Bytes > 0 && !l.Busy {
				strays++
			}
		}
		tidy(t, s)
	}
	if strays != 1 {
		t.Errorf("Got %d strays", strays)
	}
	if n, objects := f.Uploads(), f.Objects(); n > 0 || len(objects) > 0 {
		t.Errorf("Got %d uploads and %v", n, objects)
	}
}

// TestS3NotesTellOpen: what was being written when a process was killed goes with its
// upload, where a note came behind its beginning, and not a week later.
func TestS3NotesTellOpen(t *testing.T) {
	t.Parallel()
	for _, resumed := range []bool{false, true} {
		f := targettest.NewFakeS3(t)
		s := openS3(t, f)
		u, err := s.Begin(t.Context(), run1, "id")
		if err != nil {
			t.Fatal(err)
		}
		r := u.(target.Resumable)
		open, err := r.Create(t.Context(), "open")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(open, tenBytes); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(put(t.Context(), r, "a", tenBytes), r.Note(t.Context(), "a", nil)); err != nil {
			t.Fatal(err)
		}
		f.SetFaulty(func(int, *http.Request) targettest.Fault { return targettest.Dead })
		if err := r.Abort(); err == nil {
			t.Fatal("Got no error of a killed process")
		}
		f.SetFaulty(nil)
		f.Advance(time.Hour)
		if n := f.Uploads(); n != 2 {
			t.Fatalf("Got %d uploads of a killed process", n)
		}
		want := 0
		if resumed {
			want = 1 // the file that is noted
			again, err := s.Resume(t.Context(), run1, "id")
			if err != nil {
				t.Fatal(err)
			}
			if err := again.Leave(); err != nil {
				t.Fatal(err)
			}
		} else {
			tidy(t, s)
		}
		if n := f.Uploads(); n != want {
			t.Errorf("resumed %t: Got %d uploads, want %d", resumed, n, want)
		}
	}
}

// TestS3RecordWithNotes: a run that was left by a program whose records had the notes and
// files themselves is gone on with.
func TestS3RecordWithNotes(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	s := openS3(t, f)
	u, err := s.Begin(t.Context(), run1, "id")
	if err != nil {
		t.Fatal(err)
	}
	r := u.(target.Resumable)
	if err := errors.Join(put(t.Context(), r, "a", tenBytes), put(t.Context(), r, "b", tenBytes), r.Note(t.Context(), "a", []byte("note")), r.Leave()); err != nil {
		t.Fatal(err)
	}
	var files json.RawMessage // as the note has them
	for key, content := range f.Objects() {
		if !strings.HasPrefix(key, "exports/_notes/") {
			continue
		}
		var n struct{ Files json.RawMessage }
		if err := json.Unmarshal([]byte(content), &n); err != nil {
			t.Fatal(err)
		}
		files = n.Files
	}
	before := fmt.Sprintf(`{"state":"left","attempt":"x","id":"id","notes":{"a":"bm90ZQ=="},"files":%s}`, files)
	if err := s.Update(t.Context(), "_runs/"+run1, func([]byte) ([]byte, error) { return []byte(before), nil }); err != nil {
		t.Fatal(err)
	}
	tidyNotes := func() {
		left, err := s.Leftovers(t.Context())
		if err != nil || len(left) != 2 || left[0].Name != "id" || left[0].Bytes != 2*int64(len(tenBytes)) || !left[0].Resumable {
			t.Fatalf("Got %+v, %v", left, err)
		}
		if err := s.Discard(t.Context(), left[1].Name); err != nil { // the notes, which that program had not
			t.Fatal(err)
		}
	}
	tidyNotes()
	for i, keep := range []map[string]int64{{"a": 10, "b": 10}, {"a": 10}} {
		if r, err = s.Resume(t.Context(), run1, "id"); err != nil {
			t.Fatal(err)
		}
		notes, err := r.Notes(t.Context())
		if err != nil || len(notes) != 1+i || string(notes["a"]) != "note" {
			t.Errorf("Got %q, %v", notes, err)
		}
		if err := r.Retain(t.Context(), keep); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := errors.Join(put(t.Context(), r, "c", tenBytes), r.Note(t.Context(), "c", nil), r.Leave()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(put(t.Context(), r, "b", "another"), r.Commit(t.Context(), "_manifest", []byte("all"))); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{run1 + "/a": tenBytes, run1 + "/b": "another", run1 + "/_manifest": "all"}, visible(t, s)); d != "" {
		t.Error(d)
	}
	if n := f.Uploads(); n > 0 || len(f.Objects()) != 4 {
		t.Errorf("Got %d uploads and %v", n, f.Objects())
	}
}

// TestS3DiscardReadsOne: what is left of a removed run is discarded without a look at the
// records of all others, of which there may be many.
func TestS3DiscardReadsOne(t *testing.T) {
	t.Parallel()
	const runs = 20
	f := targettest.NewFakeS3(t)
	s := openS3(t, f)
	for i := range runs {
		dir := fmt.Sprintf("job/run=%d", i)
		u, err := s.Begin(t.Context(), dir, "id")
		if err == nil {
			err = errors.Join(put(t.Context(), u, "part", "rows"), u.Commit(t.Context(), "_manifest", []byte("all")), s.Remove(t.Context(), dir))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f.Advance(8 * 24 * time.Hour)
	left, err := s.Leftovers(t.Context())
	if err != nil || len(left) != runs {
		t.Fatalf("Got %+v, %v", left, err)
	}
	before := len(f.Requests())
	for _, l := range left {
		if err := s.Discard(t.Context(), l.Name); err != nil {
			t.Fatal(err)
		}
	}
	read := 0
	for _, r := range f.Requests()[before:] {
		if strings.HasPrefix(r, "GET /bucket/exports/_runs/") {
			read++
		}
	}
	if read != runs {
		t.Errorf("Got %d reads of %d records", read, runs)
	}
	if left, err := s.Leftovers(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("Got %+v, %v", left, err)
	}
}

// TestLeftoverKinds: the multi-part uploads of a job whose name begins like what is left of
// removed runs are none of these.
func TestLeftoverKinds(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]bool{
		"removed-job-run=1":                     {true, false},
		"ended-job-run=1":                       {false, true},
		"removed-job/run=1/part-0?uploadId=id1": {},
		"ended-job/run=1/part-0?uploadId=id1":   {},
		"0123456789ab":                          {},
	} {
		l := target.Leftover{Name: name}
		if got := [2]bool{l.Removal(), l.Record()}; got != want {
			t.Errorf("%s: Got %v, want %v", name, got, want)
		}
	}
}
