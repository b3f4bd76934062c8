//go:build integration

package integration

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/jobs/target"
	"sluice/jobs/target/targettest"
)

// s3Service is a bucket of a service that somebody else has written.
type s3Service struct{ endpoint, bucket, accessKey, secretKey string }

// options are those of a new, empty part of the bucket.
func (s *s3Service) options() *target.S3Options {
	return &target.S3Options{
		Endpoint: s.endpoint, Bucket: s.bucket, Prefix: "test-" + rand.Text(), AccessKey: s.accessKey, SecretKey: s.secretKey,
	}
}

// newS3 returns the service of SLUICE_S3, or starts one of SLUICE_PYTHON, or skips.
func newS3(t *testing.T) *s3Service {
	t.Helper()
	if endpoint := os.Getenv("SLUICE_S3"); endpoint != "" {
		return &s3Service{endpoint, os.Getenv("SLUICE_S3_BUCKET"), os.Getenv("SLUICE_S3_ACCESS_KEY"), os.Getenv("SLUICE_S3_SECRET_KEY")}
	}
	cmd, stdin, stdout := startScript(context.Background(), t, "s3server.py")
	t.Cleanup(func() {
		_ = stdin.Close() // which ends it
		_ = cmd.Wait()
	})
	port, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("s3server.py has ended: %v", err)
	}
	s := &s3Service{"http://127.0.0.1:" + strings.TrimSpace(port), "bucket", "access", "secret"}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.endpoint+"/"+s.bucket, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("make the bucket: %s", resp.Status)
	}
	return s
}

// The contract of targets, on a service whose answers we have not written. SLUICE_S3
// names another than moto: its endpoint, with SLUICE_S3_BUCKET, SLUICE_S3_ACCESS_KEY
// and SLUICE_S3_SECRET_KEY.
func TestS3ServiceContract(t *testing.T) {
	t.Parallel()
	service := newS3(t)
	targettest.Run(t, func(t *testing.T) target.Target {
		s, err := target.NewS3(service.options())
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// mortal is a client that dies with its n-th request, before or after that was done.
type mortal struct {
	left  atomic.Int64
	after bool
}

var errDead = errors.New("the process is gone")

// RoundTrip fails for ever once it has failed.
func (m *mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	left := m.left.Add(-1)
	if left < 0 || left == 0 && !m.after {
		return nil, errDead
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if left == 0 && err == nil {
		_ = resp.Body.Close() // nobody is there to read it
		return nil, errDead
	}
	return resp, err
}

// I6: a process that ends at any request of an export leaves nothing that is visible
// in part, and another one finishes the export.
func TestS3ServiceKilled(t *testing.T) {
	t.Parallel()
	service := newS3(t)
	const dir, id = "job/run=1", "run-1"
	work := func(ctx context.Context, u target.Upload) error {
		for _, name := range []string{"c=a b+%2F/part-0", "c=é/part-1"} {
			w, err := u.Create(ctx, name)
			if err != nil {
				return err
			}
			// Two parts: services want 5 MiB in all but the last.
			if _, err := io.WriteString(w, strings.Repeat(name, 6<<20/len(name))); err != nil {
				return err
			}
			if err := w.Close(); err != nil {
				return err
			}
			if err := u.(target.Resumable).Note(ctx, "note", []byte(name)); err != nil {
				return err
			}
		}
		return u.Commit(ctx, "_manifest", []byte("all"))
	}
	for n := int64(1); n <= 17; n += 2 { // it makes some 16
		t.Run(fmt.Sprint("request ", n), func(t *testing.T) {
			t.Parallel()
			o := service.options()
			o.PartBytes, o.Lease, o.Retries, o.Backoff = 5<<20, 4*time.Second, 1, time.Millisecond
			living := *o
			living.Retries, living.Backoff = 8, 250*time.Millisecond
			m := &mortal{after: n%4 == 1}
			m.left.Store(n)
			o.Client = &http.Client{Transport: m}
			dead, err := target.NewS3(o)
			if err != nil {
				t.Fatal(err)
			}
			if u, err := dead.Begin(t.Context(), dir, id); err == nil {
				err = work(t.Context(), u)
				if (err == nil) != (m.left.Load() > 0) {
					t.Fatalf("got %v where %d requests were left", err, m.left.Load())
				}
				_ = u.Abort() // it cannot, or need not
			}

			s, err := target.NewS3(&living)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if entries, err := s.List(t.Context(), "job"); err == nil && len(entries) > 0 {
				// All of it is there, but for what the record says.
				same(t, s, dir)
				return
			}
			if err := s.Await(t.Context(), dir); err != nil {
				t.Fatal(err)
			}
			var u target.Upload
			r, err := s.Resume(t.Context(), dir, id)
			u = r
			if errors.Is(err, target.ErrNotFound) {
				u, err = s.Begin(t.Context(), dir, id)
			}
			switch {
			case errors.Is(err, target.ErrExists): // it was decided, and is finished now
			case err != nil:
				t.Fatal(err)
			default:
				if r != nil {
					if err := r.Retain(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
				}
				if err := work(t.Context(), u); err != nil {
					t.Fatal(err)
				}
			}
			same(t, s, dir)
		})
	}
}

// same compares what is published with what TestS3ServiceKilled writes.
func same(t *testing.T, s *target.S3, dir string) {
	t.Helper()
	for _, name := range []string{"c=a b+%2F/part-0", "c=é/part-1"} {
		data, err := target.ReadFile(t.Context(), s, dir+"/"+name, 8<<20)
		if err != nil {
			t.Fatal(err)
		}
		if string(data) != strings.Repeat(name, 6<<20/len(name)) {
			t.Errorf("%s has other content, %d bytes", name, len(data))
		}
	}
	if data, err := target.ReadFile(t.Context(), s, dir+"/_manifest", 100); err != nil || string(data) != "all" {
		t.Errorf("the manifest holds %q, %v", data, err)
	}
}

// The binaries on a bucket: exports in partitions, increments, joins of what is
// published, retention, backups and what is restored of them.
func TestS3ServiceCommands(t *testing.T) {
	t.Parallel()
	service := newS3(t)
	o := service.options()
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "s3.yaml")
	out := "s3://" + o.Bucket + "/" + o.Prefix + "/a b+é"
	text := fmt.Sprintf(`store: {dir: %q}
s3: {endpoint: %q, access_key: %q, secret_key: %q, part_size: 5MiB}
jobs:
  views:
    table: events
    columns:
      - {name: key, from: $row, type: bytes}
      - {name: page, from: "e:page", type: string}
      - {name: country, from: "e:country", type: string}
    partition_by: [country]
    formats: [parquet, arrow]
    keep: {runs: 1}
    out: %[5]q
  odd:
    table: odd
    columns:
      - {name: key, from: $row, type: string}
      - {name: op, from: $op, type: string}
      - {name: c, from: "f:c", type: string}
    partition_by: [c]
    incremental: {full_every: 9}
    out: %[5]q
  keys:
    table: events
    columns: [{name: key, from: $row, type: bytes}]
    out: %[5]q
joins:
  both:
    left: {run: %[6]q}
    right: {run: %[7]q}
    on: [{left: key}]
    out: %[5]q
`, data, service.endpoint, service.accessKey, service.secretKey, out, out+"/views", out+"/keys")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(want, name string, args ...string) {
		t.Helper()
		got, err := Run(t, os.Environ(), nil, name, args...)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s %s: got\n%s\nwant %q in it", name, strings.Join(args, " "), got, want)
		}
	}
	const rows = 5000
	counted := "5,000 rows"
	run("All of it", "ingest", "demo", "--events", fmt.Sprint(rows), "--data", data, "--out", filepath.Join(dir, "out"))
	run("", "shell", "--data", data, "-n", "-e", `create 'odd', 'f'
put 'odd', 'r1', 'f:c', 'São Paulo'
put 'odd', 'r2', 'f:c', 'a+b c&d'
put 'odd', 'r3', 'f:c', '50%/x'
put 'odd', 'r4', 'f:c', "~!$()'@,;=:\"[]"
put 'odd', 'r5', 'f:c', '日本 <&>'
put 'odd', 'r6', 'f:c', '..'
put 'odd', 'r7', 'f:d', 'null'
put 'odd', 'r8', 'f:c', ' spaces  all around '`)
	run(counted, "export", "run", "-c", file, "views")
	run(counted, "export", "run", "-c", file, "keys")
	run("8 rows", "export", "run", "-c", file, "odd")
	run("", "shell", "--data", data, "-n", "-e", "put 'odd', 'r1', 'f:c', 'Bern'; deleteall 'odd', 'r2'")
	run("2 rows", "export", "run", "-c", file, "odd")
	run(counted, "export", "join", "-c", file, "both")
	run(counted, "export", "run", "-c", file, "views")
	run("1 removed", "export", "gc", "-c", file)
	for _, job := range []string{"views", "keys", "odd", "both"} {
		run("complete and as the manifest says", "export", "verify", "-c", file, out+"/"+job)
	}
	run("both", "export", "list", "-c", file)
	run("", "shell", "--data", data, "-n", "-e", "create 'events2', {NAME => 'e', VERSIONS => 1}")
	run("", "export", "import", "-c", file, out+"/views", "events2")
	run(counted, "export", "count", "-c", file, "events2")

	backups, restored := "s3://"+o.Bucket+"/"+o.Prefix+"/backups", filepath.Join(dir, "restored")
	run("backup", "export", "backup", "-c", file, backups)
	run("beyond the newest", "export", "backup", "-c", file, "--keep-runs", "1", backups)
	run("complete and as the manifest says", "export", "verify", "-c", file, backups)
	run("", "export", "restore", "-c", file, backups, restored)
	for _, table := range []string{"events", "pageview_counts", "odd"} {
		run("0 different  0 only left  0 only right", "export", "verify-table", "-c", file, "--quiet", table, "--in", restored)
	}
}
