package jobs

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs/target"
	"sluice/jobs/target/targettest"
)

func openBucket(t *testing.T, f *targettest.FakeS3) *target.S3 {
	t.Helper()
	s, err := target.NewS3(&target.S3Options{
		Endpoint: f.URL(), Bucket: "bucket", Prefix: "p", AccessKey: "access", SecretKey: "secret", PartBytes: 256, Backoff: time.Microsecond, Retries: 12,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// publishedObjects are the objects that readers see.
func publishedObjects(f *targettest.FakeS3) map[string]string {
	all := f.Objects()
	for key := range all {
		if strings.HasPrefix(key, "p/_runs/") {
			delete(all, key)
		}
	}
	return sums(all)
}

func regionOf(t *testing.T, name string) (region int) {
	t.Helper()
	if _, err := fmt.Sscanf(path.Base(name), "part-%06d", &region); err != nil {
		t.Fatal(err)
	}
	return region
}

// TestResumeKilledInBucket kills a run at requests to a bucket that also fails, and the
// run that resumes it: the last one leaves, byte for byte, what an uninterrupted run
// leaves, and finished files are not written again.
func TestResumeKilledInBucket(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{0, 1, 4} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			job, src := resumeCase(t, seed)
			run := func(f *targettest.FakeS3) error {
				s := openBucket(t, f)
				_, err := Run(t.Context(), resumeOptions(job, src, s, 1))
				return errors.Join(err, s.Close())
			}
			clean := targettest.NewFakeS3(t)
			if err := run(clean); err != nil {
				t.Fatal(err)
			}
			want, total := publishedObjects(clean), len(clean.Requests())
			if total < 100 || len(want) < 10 {
				t.Fatalf("Got %d requests and %d objects, want a job with more", total, len(want))
			}
			resumed := 0
			for die := int(seed); die < total; die += 31 {
				f := targettest.NewFakeS3(t)
				for attempt := 0; ; attempt++ {
					at := die
					if attempt == 1 {
						at = die / 2
					}
					first := len(f.Requests())
					noted := map[string]bool{}
					left, err := openBucket(t, f).Unfinished(t.Context())
					if err != nil || len(left) > 1 {
						t.Fatalf("killed at %d: %+v, %v", die, left, err)
					}
					if len(left) == 1 {
						resumed++
						w, err := decodeWork(left[0].Notes)
						if err != nil {
							t.Fatal(err)
						}
						for _, file := range w.all() {
							// Of partitions, regions that were not finished are written again.
							_, done := w.done[regionOf(t, file.Path)]
							noted[file.Path] = done || job.partition == nil
						}
					}
					f.SetFaulty(func(n int, _ *http.Request) targettest.Fault {
						switch {
						case n == at && attempt < 2:
							return targettest.Dead
						case n%7 == 3:
							return targettest.Fault(1 + n/7%int(targettest.DoneFailed))
						}
						return targettest.Fine
					})
					err = run(f)
					f.SetFaulty(nil)
					f.Advance(3 * time.Minute)
					for _, asked := range f.Requests()[first:] {
						name, _, begun := strings.Cut(asked, "?uploads=")
						_, name, _ = strings.Cut(name, runDir("j", resumeTime)+"/")
						if begun && noted[name] {
							t.Errorf("killed at %d: %s was finished, and written again", die, asked)
						}
					}
					if attempt == 2 && err != nil && !errors.Is(err, target.ErrExists) {
						t.Fatalf("killed at %d: %v", die, err)
					}
					if attempt == 2 {
						break
					}
				}
				if d := cmp.Diff(want, publishedObjects(f)); d != "" {
					t.Fatalf("killed at %d: %s", die, d)
				}
			}
			if resumed < 4 {
				t.Errorf("Got %d runs that were resumed", resumed)
			}
		})
	}
}

// TestResumeWaitsInBucket: a run whose process was killed a moment ago is taken over
// once its lease is over, and not before.
func TestResumeWaitsInBucket(t *testing.T) {
	t.Parallel()
	job, src := resumeCase(t, 0)
	f := targettest.NewFakeS3(t)
	f.SetFaulty(func(n int, _ *http.Request) targettest.Fault {
		if n == 60 {
			return targettest.Dead
		}
		return targettest.Fine
	})
	if _, err := Run(t.Context(), resumeOptions(job, src, openBucket(t, f), 1)); err == nil {
		t.Fatal("Got no error of a killed run")
	}
	reads := 0
	f.SetFaulty(func(_ int, r *http.Request) targettest.Fault {
		if strings.Contains(r.URL.Path, "/_runs/") && r.Method == http.MethodGet {
			if reads++; reads == 2 {
				go f.Advance(3 * time.Minute) // after this answer
			}
		}
		return targettest.Fine
	})
	s, err := target.NewS3(&target.S3Options{
		Endpoint: f.URL(), Bucket: "bucket", Prefix: "p", AccessKey: "access", SecretKey: "secret", PartBytes: 256, Lease: 4 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	left, err := ListUnfinishedTarget(t.Context(), s)
	if err != nil || len(left) != 1 || !left[0].Busy {
		t.Fatalf("Got %+v, %v, want a run that may be at work", left, err)
	}
	m, err := Run(t.Context(), resumeOptions(job, src, s, 1))
	if err != nil || len(m.Files) == 0 {
		t.Fatalf("Got %v", err)
	}
}

// TestCollectInBucket removes what is beyond retention and what was cut off, and
// neither what is at work nor the latest run.
func TestCollectInBucket(t *testing.T) {
	t.Parallel()
	job, src := resumeCase(t, 0)
	f := targettest.NewFakeS3(t)
	s := openBucket(t, f)
	day := func(d int) time.Time { return time.Date(2026, 1, d, 0, 0, 0, 0, time.UTC) }
	publish := func(d int) error {
		o := resumeOptions(job, src, s, 1)
		o.LogicalTime = day(d)
		_, err := Run(t.Context(), o)
		return err
	}
	for d := 1; d <= 3; d++ {
		if err := publish(d); err != nil {
			t.Fatal(err)
		}
	}
	f.SetFaulty(func(n int, _ *http.Request) targettest.Fault {
		if n == 60 {
			return targettest.Dead
		}
		return targettest.Fine
	})
	if err := publish(4); err == nil {
		t.Fatal("Got no error of a killed run")
	}
	f.SetFaulty(nil)
	collect := func(dry bool) (got []string) {
		found, err := Collect(t.Context(), &CollectOptions{Target: s, Keep: map[string]Keep{"j": {Runs: 2}}, DryRun: dry, Now: func() time.Time { return day(9) }})
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range found {
			if g.Job != "" || !g.Stays || !strings.Contains(g.Name, "uploadId=") {
				got = append(got, fmt.Sprintf("%s %s stays=%t", g.Job, g.Name, g.Stays))
			}
		}
		return got
	}
	id := runID("j", day(4))
	gone := "j " + runDir("j", day(1)) + " stays=false"
	if d := cmp.Diff([]string{" " + id + " stays=true", gone}, collect(true)); d != "" {
		t.Errorf("at work: %s", d)
	}
	f.Advance(3 * time.Minute)
	want := []string{" " + id + " stays=false", gone}
	for _, dry := range []bool{true, false} {
		if d := cmp.Diff(want, collect(dry)); d != "" {
			t.Errorf("dry run %t: %s", dry, d)
		}
	}
	if got := collect(false); len(got) > 0 {
		t.Errorf("Got %q the second time", got)
	}
	runs, err := ListTarget(t.Context(), s)
	if err != nil || len(runs) != 2 || !runs[0].Latest || !runs[0].LogicalTime.Equal(day(3)) {
		t.Errorf("Got %+v, %v, want two runs", runs, err)
	}
	for key := range f.Objects() {
		if strings.HasPrefix(key, "p/"+runDir("j", day(1))) {
			t.Errorf("%s is left", key)
		}
	}
	if r, err := verify(t.Context(), s, runs[0].Dir+"/"+ManifestName); err != nil || !r.OK() {
		t.Errorf("Verify: %v, %v", err, r)
	}
}

// TestResumeCannotBeTold: where the bucket does not tell what is finished, or it cannot be
// told how large what is left is, that stays for the next attempt, which goes on with it.
func TestResumeCannotBeTold(t *testing.T) {
	t.Parallel()
	job, src := resumeCase(t, 0)
	f := targettest.NewFakeS3(t)
	dead := func(n int, _ *http.Request) targettest.Fault {
		if n == 120 {
			return targettest.Dead
		}
		return targettest.Fine
	}
	run := func(faulty func(n int, r *http.Request) targettest.Fault) error {
		f.Advance(3 * time.Minute)
		f.SetFaulty(faulty)
		defer f.SetFaulty(nil)
		s := openBucket(t, f)
		_, err := Run(t.Context(), resumeOptions(job, src, s, 1))
		return errors.Join(err, s.Close())
	}
	if err := run(dead); err == nil {
		t.Fatal("Got no error of a killed run")
	}
	denied := 0
	err := run(func(_ int, r *http.Request) targettest.Fault {
		if r.Method == http.MethodGet && r.URL.Query().Has("uploadId") {
			denied++
			return targettest.Denied
		}
		return targettest.Fine
	})
	if denied == 0 || !errors.Is(err, ErrResumable) {
		t.Fatalf("Got %v after %d refusals, want %v", err, denied, ErrResumable)
	}
	left, err := openBucket(t, f).Unfinished(t.Context())
	if err != nil || len(left) != 1 {
		t.Fatalf("Got %+v, %v, want what was left", left, err)
	}
	w, err := decodeWork(left[0].Notes)
	if err != nil || len(w.all()) == 0 {
		t.Fatalf("Got %v, %v, want finished files", w, err)
	}
	first := len(f.Requests())
	if err := run(nil); err != nil {
		t.Fatal(err)
	}
	for _, file := range w.all() {
		for _, asked := range f.Requests()[first:] {
			if strings.Contains(asked, file.Path+"?uploads=") {
				t.Errorf("%s was finished, and written again", asked)
			}
		}
	}
}
