package target_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/thinned"
	"sluice/jobs/target"
	"sluice/jobs/target/targettest"
)

func openS3(t testing.TB, f *targettest.FakeS3) *target.S3 {
	t.Helper()
	return patientS3(t, f, time.Minute)
}

// patientS3 gives up an attempt after timeout, which only a fault should reach.
func patientS3(t testing.TB, f *targettest.FakeS3, timeout time.Duration) *target.S3 {
	t.Helper()
	s, err := target.NewS3(&target.S3Options{
		Endpoint: f.URL(), Bucket: "bucket", Prefix: "exports", AccessKey: "access", SecretKey: "secret",
		PartBytes: 4, Backoff: time.Microsecond, Timeout: timeout, Retries: 12,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestS3CredentialsAreNotPrinted(t *testing.T) {
	t.Parallel()
	o := target.S3Options{Endpoint: "https://u:hunter2@s3", Bucket: "bucket", AccessKey: "a", SecretKey: "hunter2", SessionToken: "hunter2"}
	var out strings.Builder
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "options", o, "pointer", &o)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "options", o, "pointer", &o)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s %q", o, o, o, o, o), fmt.Sprintf("%v %+v %#v", &o, &o, &o), out.String()} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("a secret is in %s", text)
		}
	}
}

func TestS3Contract(t *testing.T) {
	t.Parallel()
	targettest.Run(t, func(t *testing.T) target.Target { return openS3(t, targettest.NewFakeS3(t)) })
}

// TestS3ContractFaulty is the contract with a service of which every fourth answer is
// a refusal, an error, half, or does not come, some after the work was done.
func TestS3ContractFaulty(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			targettest.Run(t, func(t *testing.T) target.Target {
				f := targettest.NewFakeS3(t)
				rng := rand.New(rand.NewPCG(seed, 7))
				f.SetFaulty(func(int, *http.Request) targettest.Fault {
					if rng.IntN(4) > 0 {
						return targettest.Fine
					}
					if w := targettest.Fault(1 + rng.IntN(int(targettest.Dead)-1)); w != targettest.DoneLate { // that one takes its time
						return w
					}
					return targettest.DoneHangUp
				})
				return openS3(t, f)
			})
		})
	}
}

// set makes name hold content, whatever it held.
func set(ctx context.Context, t target.Target, name, content string) error {
	return t.Update(ctx, name, func([]byte) ([]byte, error) { return []byte(content), nil })
}

// publish does what an export does: two files, a manifest, the pointer. It returns
// what was said of Begin and Commit.
func publish(ctx context.Context, s *target.S3, content string) error {
	u, err := s.Begin(ctx, "job/run=1", "id")
	if err != nil {
		return err
	}
	for _, name := range []string{"part-0", "empty"} {
		w, err := u.Create(ctx, name)
		if err != nil {
			return err
		}
		if name == "part-0" {
			if _, err := io.WriteString(w, content); err != nil {
				return errors.Join(err, u.Abort())
			}
		}
		if err := w.Close(); err != nil {
			return errors.Join(err, u.Abort())
		}
	}
	if err := u.Commit(ctx, "_manifest", []byte("all of "+content)); err != nil {
		return errors.Join(err, u.Abort())
	}
	return set(ctx, s, "job/_latest", content)
}

// visible returns every visible file.
func visible(t *testing.T, s *target.S3) map[string]string {
	t.Helper()
	files := map[string]string{}
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := s.List(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := strings.TrimPrefix(dir+"/"+e.Name, "./")
			if e.Dir {
				walk(name)
				continue
			}
			data, err := target.ReadFile(t.Context(), s, name, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = string(data)
		}
	}
	walk(".")
	return files
}

const tenBytes = "0123456789"

func published(content string) map[string]string {
	return map[string]string{"job/run=1/part-0": content, "job/run=1/empty": "", "job/run=1/_manifest": "all of " + content, "job/_latest": content}
}

// TestS3Faults has each fault at each request of an export: it comes through, and
// what is there in the end is what an export without faults leaves.
func TestS3Faults(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	if err := publish(t.Context(), openS3(t, f), tenBytes); err != nil {
		t.Fatal(err)
	}
	requests := f.Requests()
	if d := cmp.Diff(published(tenBytes), visible(t, openS3(t, f))); d != "" || len(requests) < 10 {
		t.Fatalf("without faults: %d requests, %s", len(requests), d)
	}
	every := thinned.Of(1, 4)
	for at := 0; at < len(requests); at += every {
		for what := targettest.SlowDown; what < targettest.Dead; what++ {
			if what == targettest.DoneLate && at%6 != 0 {
				continue // it takes two seconds
			}
			f := targettest.NewFakeS3(t)
			f.SetFaulty(func(n int, _ *http.Request) targettest.Fault {
				if n == at {
					return what
				}
				return targettest.Fine
			})
			timeout := time.Minute
			if what == targettest.DoneLate {
				timeout = 2 * time.Second
			}
			s := patientS3(t, f, timeout)
			if err := publish(t.Context(), s, tenBytes); err != nil {
				t.Errorf("fault %d at %s: %v", what, requests[at], err)
				continue
			}
			if d := cmp.Diff(published(tenBytes), visible(t, s)); d != "" {
				t.Errorf("fault %d at %s: %s", what, requests[at], d)
			}
			if f.Uploads() > 0 && !strings.Contains(requests[at], "uploads=") {
				t.Errorf("fault %d at %s: %d uploads are left", what, requests[at], f.Uploads())
			}
		}
	}
}

// TestS3Killed: the client is gone from a request on. Nobody sees half of a run, and
// whoever comes next publishes it, or finds it published, whole.
func TestS3Killed(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	if err := publish(t.Context(), openS3(t, f), tenBytes); err != nil {
		t.Fatal(err)
	}
	requests := f.Requests()
	ours, theirs := 0, 0
	for at := range requests {
		f := targettest.NewFakeS3(t)
		f.SetFaulty(func(n int, _ *http.Request) targettest.Fault {
			if n == at {
				return targettest.Dead
			}
			return targettest.Fine
		})
		if err := publish(t.Context(), openS3(t, f), tenBytes); err == nil {
			t.Fatalf("killed at %s: got no error", requests[at])
		}
		f.SetFaulty(nil)
		s := openS3(t, f)
		before := visible(t, s)
		if n := len(before); n != 0 && n != 3 {
			t.Errorf("killed at %s: Got %v, want nothing or a run", requests[at], before)
		}
		err := publish(t.Context(), s, "another")
		want := published("another")
		if errors.Is(err, target.ErrExists) {
			theirs++
			want = published(tenBytes)
			delete(want, "job/_latest")
		} else if err != nil {
			t.Errorf("killed at %s: the next: %v", requests[at], err)
		} else {
			ours++
		}
		if d := cmp.Diff(want, visible(t, s)); d != "" {
			t.Errorf("killed at %s: %s", requests[at], d)
		}
	}
	if ours < 5 || theirs < 4 {
		t.Errorf("Got %d runs of the second and %d of the killed one", ours, theirs)
	}
}

// TestS3Cancelled: a Commit that is cancelled at any request has published the run, or has
// failed, and then there is nothing of it, nor will be: it can be made again.
func TestS3Cancelled(t *testing.T) {
	t.Parallel()
	done, failed := 0, 0
	for at := -1; ; at++ { // before the first
		f := targettest.NewFakeS3(t)
		s := openS3(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		u, err := s.Begin(ctx, "job/run=1", "id")
		if err == nil {
			err = errors.Join(put(ctx, u, "part-0", tenBytes), put(ctx, u, "part-1", tenBytes))
		}
		if err != nil {
			t.Fatal(err)
		}
		first, met := len(f.Requests()), at < 0
		if met {
			cancel()
		}
		f.SetFaulty(func(n int, _ *http.Request) targettest.Fault {
			if n == at {
				met = true
				cancel()
			}
			return targettest.Fine
		})
		err = u.Commit(ctx, "_manifest", []byte("all"))
		f.SetFaulty(nil)
		cancel()
		if err != nil {
			failed++
			if err := u.Abort(); err != nil {
				t.Errorf("cancelled at %s: %v", f.Requests()[first+at], err)
			}
			if got := visible(t, s); len(got) > 0 || f.Uploads() > 0 {
				t.Errorf("cancelled at %s: Got %v and %d uploads", f.Requests()[first+at], got, f.Uploads())
			}
			next, err := s.Begin(t.Context(), "job/run=1", "id")
			if err == nil {
				err = next.Abort()
			}
			if err != nil {
				t.Errorf("cancelled at %s: the next: %v", f.Requests()[first+at], err)
			}
		} else if got := visible(t, s); len(got) != 3 {
			t.Errorf("cancelled at %s: Got %v", f.Requests()[first+at], got)
		}
		if !met {
			break
		}
		if err == nil {
			done++
		}
	}
	if done < 3 || failed < 1 {
		t.Errorf("Got %d runs that were published, and %d that were not", done, failed)
	}
}

// TestS3ManifestIsMadeOnce: the manifest is written on condition that there is none.
// One that another has finished is as good, also where the answer is lost; one that
// says something else stays, and is reported.
func TestS3ManifestIsMadeOnce(t *testing.T) {
	t.Parallel()
	for _, what := range []targettest.Fault{targettest.Fine, targettest.DoneHangUp, targettest.DoneFailed, targettest.Conflict} {
		for there, want := range map[string]error{"": nil, "all of " + tenBytes: nil, "another 0123456789": target.ErrExists, "short": target.ErrExists} {
			f := targettest.NewFakeS3(t)
			s := openS3(t, f)
			if there != "" {
				if err := set(t.Context(), s, "job/run=1/_manifest", there); err != nil {
					t.Fatal(err)
				}
			}
			conditional := 0
			f.SetFaulty(func(_ int, r *http.Request) targettest.Fault {
				if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/job/run=1/_manifest") {
					return targettest.Fine
				}
				if r.Header.Get("If-None-Match") != "*" {
					t.Errorf("the manifest is written without a condition: %v", r.Header)
				}
				if conditional++; conditional == 1 {
					return what
				}
				return targettest.Fine
			})
			if err := publish(t.Context(), s, tenBytes); !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("fault %d, with %q there: Got %v, want %v", what, there, err, want)
			}
			stays := there
			if there == "" {
				stays = "all of " + tenBytes
			}
			if now, err := target.ReadFile(t.Context(), s, "job/run=1/_manifest", 100); err != nil || string(now) != stays || conditional == 0 {
				t.Errorf("fault %d, with %q there: Got %q, %v after %d writes", what, there, now, err, conditional)
			}
		}
	}
}

// TestS3Refused: an error that does not pass is not tried again, and named.
func TestS3Refused(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	s, err := target.NewS3(&target.S3Options{Endpoint: f.URL(), Bucket: "other", AccessKey: "access", SecretKey: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	if err := set(t.Context(), s, "x", ""); err == nil || !strings.Contains(err.Error(), "NoSuchBucket") || len(f.Requests()) != 4 {
		t.Errorf("Got %v after %d requests", err, len(f.Requests()))
	}
	stranger, err := target.NewS3(&target.S3Options{Endpoint: f.URL(), Bucket: "bucket", AccessKey: "unknown", SecretKey: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	// Answers to HEAD have no body that would say why: it is asked again by GET.
	if _, err := stranger.Open(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "HEAD x in bucket bucket at "+f.URL()+": status 403 SignatureDoesNotMatch: as the test wants it") {
		t.Errorf("Got %v for an unknown key", err)
	}
	for code, want := range map[string]string{
		"400 AuthorizationHeaderMalformed": "status 400 AuthorizationHeaderMalformed: the region is wrong",
		"301 PermanentRedirect":            "status 301 PermanentRedirect: the region is wrong",
		"403 AccessDenied":                 "status 403 AccessDenied: the region is wrong (check the keys, and that they may list the bucket and read what is below the prefix)",
		"403 ":                             "status 403, without a reason: check the keys",
	} {
		refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			number, code, _ := strings.Cut(code, " ")
			n, _ := strconv.Atoi(number)
			w.WriteHeader(n)
			if r.Method != http.MethodHead && code != "" {
				fmt.Fprintf(w, "<Error><Code>%s</Code><Message>the region is wrong</Message></Error>", code)
			}
		}))
		s, err := target.NewS3(&target.S3Options{Endpoint: refusing.URL, Bucket: "bucket", AccessKey: "access", SecretKey: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Open(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Got %v, want %q", err, want)
		}
		refusing.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	f.SetFaulty(func(int, *http.Request) targettest.Fault { cancel(); return targettest.SlowDown })
	if err := set(ctx, s, "x", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("Got %v, want Canceled", err)
	}
	good := target.S3Options{Endpoint: "https://s3.example", Bucket: "b", AccessKey: "a", SecretKey: "s"}
	for name, change := range map[string]func(o *target.S3Options){
		"endpoint":                       func(o *target.S3Options) { o.Endpoint = "s3.example" },
		"bucket":                         func(o *target.S3Options) { o.Bucket = "a/b" },
		"no bucket":                      func(o *target.S3Options) { o.Bucket = "" },
		"no key":                         func(o *target.S3Options) { o.SecretKey = "" },
		"prefix":                         func(o *target.S3Options) { o.Prefix = "a/../b" },
		"password":                       func(o *target.S3Options) { o.Endpoint = "https://u:hunter2@s3.example" },
		"password in what is no address": func(o *target.S3Options) { o.Endpoint = "https://u:hunter2@s3.example:port" },
		"password without a scheme":      func(o *target.S3Options) { o.Endpoint = "u:hunter2@s3.example" },
		"password behind a space":        func(o *target.S3Options) { o.Endpoint = "https://u x:hunter2@s3.example" },
		"signature":                      func(o *target.S3Options) { o.Endpoint = "https://s3.example?X-Amz-Signature=hunter2" },
		"password before the bucket":     func(o *target.S3Options) { o.Bucket = "key:hunter2@b" },
		"part":                           func(o *target.S3Options) { o.PartBytes = -1 },
	} {
		o := good
		change(&o)
		if _, err := target.NewS3(&o); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: Got %v", name, err)
		}
	}
}

// TestS3NoUploadID: an answer that can be read, and has no id of an upload, is an error that
// says so.
func TestS3NoUploadID(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	behind, err := url.Parse(f.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(behind)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("uploads") && r.Method == http.MethodPost {
			fmt.Fprint(w, "<InitiateMultipartUploadResult></InitiateMultipartUploadResult>")
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer service.Close()
	s, err := target.NewS3(&target.S3Options{Endpoint: service.URL, Bucket: "bucket", AccessKey: "access", SecretKey: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	u, err := s.Begin(t.Context(), "run", "1")
	if err != nil {
		t.Fatal(err)
	}
	w, err := u.Create(t.Context(), "file")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "data"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil || !strings.HasSuffix(err.Error(), "told no id: the answer has no UploadId") {
		t.Errorf("Got %v", err)
	}
	if err := u.Abort(); err != nil {
		t.Error(err)
	}
}

// TestS3Redirect: a redirect is an error that names where to, and nothing is sent there:
// neither the session token nor a GET in place of what was to be written.
func TestS3Redirect(t *testing.T) {
	t.Parallel()
	for _, code := range []int{301, 302, 303, 307, 308} {
		var followed atomic.Int64
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
		elsewhere := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere+r.URL.Path+"?secret", code)
		}))
		s, err := target.NewS3(&target.S3Options{Endpoint: service.URL, Bucket: "bucket", AccessKey: "access", SecretKey: "secret", SessionToken: "token"})
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("status %d: ", code)
		for what, err := range map[string]error{
			"update": set(t.Context(), s, "x", "data"),
			"open":   func() error { _, err := s.Open(t.Context(), "x"); return err }(),
			"begin":  func() error { _, err := s.Begin(t.Context(), "run", "1"); return err }(),
		} {
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "(it redirects to "+elsewhere+": ") {
				t.Errorf("%d, %s: Got %v", code, what, err)
			}
		}
		if n := followed.Load(); n > 0 {
			t.Errorf("%d: %d requests were made of another host", code, n)
		}
		service.Close()
		other.Close()
	}
}

// TestS3MissingBucket: where the bucket is missing, that is said, and not that an object
// is; an object that is missing costs the question for the bucket once.
func TestS3MissingBucket(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	s, err := target.NewS3(&target.S3Options{Endpoint: f.URL(), Bucket: "other", AccessKey: "access", SecretKey: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Open(t.Context(), "x")
	if want := "in bucket other at " + f.URL() + ": status 404 NoSuchBucket"; err == nil || errors.Is(err, target.ErrNotFound) || !strings.Contains(err.Error(), want) {
		t.Errorf("Got %v, want one with %q", err, want)
	}
	there := openS3(t, f)
	before := len(f.Requests())
	for range 3 {
		if _, err := there.Open(t.Context(), "x"); !errors.Is(err, target.ErrNotFound) {
			t.Errorf("Got %v, want ErrNotFound", err)
		}
	}
	if n := len(f.Requests()) - before; n != 4 {
		t.Errorf("Got %d requests, want 3 for the object and 1 for the bucket", n)
	}
}

// TestS3Retries: each request that is made again is told of, with the endpoint, and so
// is the number of them where they end.
func TestS3Retries(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	f.SetFaulty(func(n int, _ *http.Request) targettest.Fault {
		return []targettest.Fault{targettest.HangUp, targettest.Conflict, targettest.SlowDown, targettest.SlowDown}[n]
	})
	var out strings.Builder
	s, err := target.NewS3(&target.S3Options{
		Endpoint: f.URL(), Bucket: "bucket", AccessKey: "access", SecretKey: "secret", Backoff: time.Microsecond, Retries: 3,
		Logger: slog.New(slog.NewTextHandler(&out, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.List(t.Context(), ".")
	if want := "GET in bucket bucket at " + f.URL() + ", 4 times: status 503 SlowDown"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Got %v, want one with %q", err, want)
	}
	// Another writer's success, a conflict, is no trouble of the service.
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 2 || !strings.Contains(lines[0], "endpoint="+f.URL()) ||
		!strings.Contains(lines[0], "attempt=1 of=4") || !strings.Contains(lines[1], "attempt=3 of=4") || !strings.Contains(lines[1], "SlowDown") {
		t.Errorf("Got %s", out.String())
	}
}

// Credentials that expire before something else has renewed them are asked for again,
// also where the answer, to a HEAD, does not say so; those that nobody renews are not.
func TestS3Expired(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	s := openS3(t, f)
	if err := s.Update(t.Context(), "name", func([]byte) ([]byte, error) { return []byte("x"), nil }); err != nil {
		t.Fatal(err)
	}
	f.SetFaulty(func(_ int, r *http.Request) targettest.Fault {
		if r.Header.Get("X-Amz-Security-Token") != "new" {
			return targettest.Expired
		}
		return targettest.Fine
	})
	for _, renewed := range []bool{true, false} {
		for late := range 5 { // requests
			for what, ask := range map[string]func(*target.S3) error{
				"list": func(s *target.S3) error { _, err := s.List(t.Context(), "."); return err },
				"open": func(s *target.S3) error {
					file, err := s.Open(t.Context(), "name")
					if err == nil {
						_ = file.Close()
					}
					return err
				},
			} {
				o := &target.S3Options{Endpoint: f.URL(), Bucket: "bucket", Prefix: "exports", AccessKey: "access", SecretKey: "secret", SessionToken: "old", Backoff: time.Microsecond}
				if renewed {
					keys, asked := target.S3Credentials{AccessKey: "access", SecretKey: "secret", SessionToken: "old"}, 0
					o.Credentials = func() target.S3Credentials {
						if asked++; asked > late {
							keys.SessionToken = "new"
						}
						return keys
					}
				}
				s, err := target.NewS3(o)
				if err != nil {
					t.Fatal(err)
				}
				err = ask(s)
				if renewed && err != nil || !renewed && (err == nil || !strings.Contains(err.Error(), "400 ExpiredToken") || strings.Contains(err.Error(), "times")) {
					t.Errorf("%s, renewed %t after %d requests: %v", what, renewed, late, err)
				}
			}
		}
	}
}

// TestS3ExpiredAfterDone: an update whose answer was lost before the credentials expired was
// made, and its maker finds that out.
func TestS3ExpiredAfterDone(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	s := openS3(t, f)
	write := func() error {
		return s.Update(t.Context(), "name", func(b []byte) ([]byte, error) { return append(b, 'x'), nil })
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	puts := 0
	f.SetFaulty(func(_ int, r *http.Request) targettest.Fault {
		if r.Method != http.MethodPut {
			return targettest.Fine
		}
		if puts++; puts == 1 {
			return targettest.DoneHangUp
		}
		return targettest.Expired
	})
	if err := write(); err != nil || puts != 2 {
		t.Errorf("Got %v after %d writes", err, puts)
	}
}

// TestS3HeadForbidden: a HEAD that a policy refuses, and a GET not, is not asked for ever.
func TestS3HeadForbidden(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	heads := 0
	f.SetFaulty(func(_ int, r *http.Request) targettest.Fault {
		if r.Method != http.MethodHead {
			return targettest.Fine
		}
		heads++
		return targettest.Denied
	})
	s, err := target.NewS3(&target.S3Options{
		Endpoint: f.URL(), Bucket: "bucket", Prefix: "exports", Backoff: time.Microsecond,
		Credentials: func() target.S3Credentials { return target.S3Credentials{AccessKey: "access", SecretKey: "secret"} },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), "name"); err == nil || !strings.Contains(err.Error(), "403") || heads != 2 {
		t.Errorf("Got %v after %d questions", err, heads)
	}
}

// TestS3Read reads pieces of an object that is larger than a block, and one that
// changes meanwhile.
func TestS3Read(t *testing.T) {
	t.Parallel()
	s := openS3(t, targettest.NewFakeS3(t))
	data := strings.Repeat("0123456789abcdef", 9<<20/16)
	if err := set(t.Context(), s, "big file+%", data); err != nil {
		t.Fatal(err)
	}
	file, err := s.Open(t.Context(), "big file+%")
	if err != nil || file.Size() != 9<<20 {
		t.Fatalf("Got %v, %v", file, err)
	}
	for _, at := range []int{0, 4<<20 - 3, 9<<20 - 5} {
		b := make([]byte, 5)
		if n, err := file.ReadAt(b, int64(at)); n != 5 || err != nil || string(b) != data[at:at+5] {
			t.Errorf("at %d: Got %q, %v", at, b[:n], err)
		}
	}
	if n, err := file.ReadAt(make([]byte, 6), 9<<20-5); n != 5 || err != io.EOF {
		t.Errorf("beyond the end: Got %d, %v", n, err)
	}
	if err := set(t.Context(), s, "big file+%", data[1:]+"x"); err != nil {
		t.Fatal(err)
	}
	if n, err := file.ReadAt(make([]byte, 5), 0); err == nil {
		t.Errorf("Got %d bytes of another object", n)
	}
}

// TestS3ListingThatNeverEnds: a service that does not say where the next page begins, as one
// that knows the first version of listings alone, or says the same again, is not asked for
// ever.
func TestS3ListingThatNeverEnds(t *testing.T) {
	t.Parallel()
	for _, page := range []string{
		`<ListBucketResult><Contents><Key>exports/a</Key></Contents><IsTruncated>true</IsTruncated><NextMarker>exports/a</NextMarker></ListBucketResult>`,
		`<ListBucketResult><Contents><Key>exports/a</Key></Contents><IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken></ListBucketResult>`,
	} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked++; asked == 10 {
				page = `<ListBucketResult/>` // else this never ends
			}
			fmt.Fprint(w, page)
		}))
		t.Cleanup(server.Close)
		s, err := target.NewS3(&target.S3Options{Endpoint: server.URL, Bucket: "bucket", AccessKey: "access", SecretKey: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.List(t.Context(), "."); err == nil || !strings.Contains(err.Error(), "where the next page begins") || asked > 2 {
			t.Errorf("Got %v after %d requests", err, asked)
		}
	}
}
