package target

import (
	"context"
	"crypto/rand"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var _ Target = (*S3)(nil)

// S3Credentials are who makes requests, by Amazon's names for it. SessionToken belongs to
// temporary ones. They print as the access key.
type S3Credentials struct {
	AccessKey    string
	SecretKey    string `json:"-"`
	SessionToken string `json:"-"`
}

// String leaves the secrets out.
func (c S3Credentials) String() string { return fmt.Sprintf("access key %q", c.AccessKey) }

// GoString keeps %#v from printing them.
func (c S3Credentials) GoString() string { return "target.S3Credentials{" + c.String() + "}" }

// LogValue keeps slog from printing them.
func (c S3Credentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// S3Options configures NewS3. Endpoint, Bucket and, unless Credentials is, AccessKey and
// SecretKey must be set.
// It prints without its credentials.
type S3Options struct {
	// Endpoint is the address of the service, such as
	// https://s3.eu-central-1.amazonaws.com. Buckets are addressed by path.
	Endpoint string
	// Region is what requests are signed for. Default: us-east-1.
	Region string
	// Bucket holds the objects; it exists.
	Bucket string
	// Prefix is put before every key, with a slash after it. Default: none.
	Prefix string
	// AccessKey, SecretKey and, for temporary ones, SessionToken are the
	// credentials.
	AccessKey    string
	SecretKey    string `json:"-"`
	SessionToken string `json:"-"`
	// Credentials, where it is set, is asked for them before each request, as those that
	// expire are replaced while a process runs; AccessKey, SecretKey and SessionToken are
	// then not used. A request that finds them expired is made again, as one that may
	// pass. Several goroutines call it.
	Credentials func() S3Credentials `json:"-"`
	// PartBytes is how much of a file is in memory before it is sent; a file has
	// at most 10,000 parts. Default 16 MiB; the service takes 5 MiB to 5 GiB.
	PartBytes int
	// Retries is how often a request is made again that failed and may pass.
	// Default 8, which with Backoff is 24 to 48 s and what the attempts take.
	Retries int
	// Backoff is the wait before the second attempt; it doubles, up to 64 times
	// as much. Default 250ms.
	Backoff time.Duration
	// Timeout bounds one attempt, with its body. Default 2m.
	Timeout time.Duration
	// Lease is how long an upload belongs to a process that does not renew it, by
	// the clock of the service; it is renewed four times as often. A process that
	// was slower loses the upload to one that resumes or discards it, and knows.
	// Default 2m, at least 4s: services tell whole seconds.
	Lease time.Duration
	// Client makes the requests; it follows no redirect, whatever its CheckRedirect
	// says. Default: one of its own.
	Client *http.Client
	// Now is the clock that requests are signed by. Default: time.Now.
	Now func() time.Time
	// Logger is warned of every request that is made again, with the endpoint, so
	// that nobody waits in silence. Default: nothing is said.
	Logger *slog.Logger
}

// String leaves the credentials out, and the endpoint, which may have some before
// NewS3 has refused it.
func (o S3Options) String() string { return fmt.Sprintf("bucket %q, prefix %q", o.Bucket, o.Prefix) }

// GoString keeps %#v from printing the credentials.
func (o S3Options) GoString() string { return "target.S3Options{" + o.String() + "}" }

// LogValue keeps slog from printing them.
func (o S3Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

// S3 is a part of a bucket of a service that speaks Amazon's S3 protocol, with
// conditional writes (If-None-Match).
//
// Files of an upload are multi-part uploads, invisible until they are completed. Each
// run has a record, which says how far it is: an upload is at work, or was left with
// its notes and finished files; it is decided what is to be completed; it is published;
// or it is being removed. A run whose record says that it is anything but published is
// not listed.
//
// A record changes by conditional writes alone (If-None-Match, If-Match). So of two
// uploads one wins, in Commit; of two processes that have one upload, the one that has
// taken it over goes on, and whatever the other does to the record is refused; and what
// a record speaks of is removed only by who has changed the record before. No clock
// decides that. Notes are objects of their own, in a log of the process that has the
// record, which names it; who takes the record over says how many of them count. By the clock of the service it is judged whether an upload is abandoned
// that nobody has ended (Lease).
//
// Commit completes the files, writes the manifest, and empties the record; whoever
// finds the decision of a process that ended then does that for it. Every request may
// be repeated, and a request without an answer is one of which nobody knows whether it
// was done: what it should have changed is looked at.
//
// What a killed process leaves besides are multi-part uploads that it had not told the
// record of. Nobody sees them; they count as leftovers after a week (orphanAge).
type S3 struct {
	client *s3Client
	prefix string // with a slash at its end, or empty

	probeMu sync.Mutex
	probed  bool // the service heeds If-Match

	found atomic.Bool // the bucket is there
}

// recordsDir is where the records of commits are, by the directories of their runs.
const recordsDir = "_runs"

// errNoEndpoint does not quote the endpoint: what cannot be parsed may hold a password
// wherever that is.
var errNoEndpoint = errors.New("target: the endpoint is not the address of a service: write https://HOST or http://HOST:PORT, without ?")

// NewS3 returns the part of a bucket that o says. It makes no request. Its error quotes
// neither the endpoint nor what else may be a secret.
func NewS3(o *S3Options) (*S3, error) {
	c := &s3Client{o: *o}
	var err error
	if c.base, err = url.Parse(o.Endpoint); err != nil {
		return nil, errNoEndpoint // whose own error quotes it
	}
	switch {
	case c.base.User != nil:
		return nil, errors.New("target: the endpoint holds a user or password; write the access key and the secret key apart from it")
	case (c.base.Scheme != "http" && c.base.Scheme != "https") || c.base.Host == "" || c.base.RawQuery != "":
		return nil, errNoEndpoint
	case strings.Contains(o.Bucket, "@"):
		return nil, errors.New("target: the bucket holds a user or password; write the access key and the secret key apart from it")
	case o.Bucket == "" || strings.Contains(o.Bucket, "/"):
		return nil, fmt.Errorf("target: %q is not the name of a bucket", o.Bucket)
	case o.Credentials == nil && (o.AccessKey == "" || o.SecretKey == ""):
		return nil, errors.New("target: the access key or the secret key is missing")
	case o.PartBytes < 0 || o.Retries < 0 || o.Backoff < 0 || o.Timeout < 0:
		return nil, errors.New("target: a negative part size, number of retries, backoff or timeout")
	case o.Lease != 0 && o.Lease < 4*time.Second:
		return nil, fmt.Errorf("target: a lease of %v, at least 4s are needed", o.Lease)
	}
	c.base.Path = strings.TrimSuffix(c.base.Path, "/")
	s := &S3{client: c}
	if p := strings.Trim(o.Prefix, "/"); p != "" {
		if err := checkName(p); err != nil {
			return nil, err
		}
		s.prefix = p + "/"
	}
	if c.o.Region == "" {
		c.o.Region = "us-east-1"
	}
	if c.o.PartBytes == 0 {
		c.o.PartBytes = 16 << 20
	}
	if c.o.Retries == 0 {
		c.o.Retries = 8
	}
	if c.o.Backoff == 0 {
		c.o.Backoff = 250 * time.Millisecond
	}
	if c.o.Timeout == 0 {
		c.o.Timeout = 2 * time.Minute
	}
	if c.o.Lease == 0 {
		c.o.Lease = 2 * time.Minute
	}
	client := http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	if c.o.Client != nil {
		client = *c.o.Client
	}
	// Of a redirected request net/http makes a GET, whose success would be taken for that of
	// a write, and sends the session token with it to whatever host is named.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.o.Client = &client
	if c.o.Now == nil {
		c.o.Now = time.Now
	}
	if c.o.Logger == nil {
		c.o.Logger = slog.New(slog.DiscardHandler)
	}
	if c.renewed = c.o.Credentials != nil; !c.renewed {
		keys := S3Credentials{AccessKey: o.AccessKey, SecretKey: o.SecretKey, SessionToken: o.SessionToken}
		c.o.Credentials = func() S3Credentials { return keys }
	}
	c.signer = signer{credentials: c.o.Credentials, region: c.o.Region}
	return s, nil
}

// key is the object of a name.
func (s *S3) key(name string) string { return s.prefix + name }

// URL returns s3://BUCKET/PREFIX/NAME.
func (s *S3) URL(name string) string {
	at := "s3://" + s.client.o.Bucket + "/" + s.prefix
	if name == "." {
		return strings.TrimSuffix(at, "/")
	}
	return at + name
}

// Begin looks for the record of the run, and finishes what a process that ended in
// its Commit has left. It makes the record its own, in the place of that of an upload
// that is abandoned, whose files it removes; where one is at work, it begins another
// without a record, which cannot be resumed.
func (s *S3) Begin(ctx context.Context, dir, id string) (Upload, error) {
	if err := errors.Join(ctx.Err(), checkName(dir), checkName(id)); err != nil {
		return nil, err
	}
	u, err := s.begin(ctx, dir, id)
	if err != nil {
		return nil, fmt.Errorf("begin %s: %w", dir, err)
	}
	return u, nil
}

// Update writes on condition that the object is still what was read (If-Match), or
// still missing (If-None-Match).
func (s *S3) Update(ctx context.Context, name string, change func(old []byte) ([]byte, error)) error {
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return err
	}
	if err := s.update(ctx, name, change); err != nil {
		return fmt.Errorf("update %s: %w", name, err)
	}
	return nil
}

func (s *S3) update(ctx context.Context, name string, change func(old []byte) ([]byte, error)) error {
	if err := s.probe(ctx); err != nil {
		return err
	}
	for range maxSwaps {
		r, err := s.client.do(ctx, &s3Request{method: http.MethodGet, key: s.key(name), limit: maxUpdateBytes})
		if err != nil && status(err) != http.StatusNotFound {
			return err
		}
		old, etag := []byte(nil), ""
		if err == nil {
			old, etag = r.body, r.header.Get("ETag")
			if etag == "" {
				return errors.New("it has no entity tag")
			}
		}
		data, err := change(old)
		if err != nil || data == nil {
			return err
		}
		_, _, err = s.put(ctx, name, etag, rand.Text(), data)
		if !errors.Is(err, errChanged) {
			return err
		}
	}
	return fmt.Errorf("%w: it was changed by others %d times", ErrBusy, maxSwaps)
}

// Open looks at an object. Where the bucket itself is missing the error says so, and
// does not wrap ErrNotFound.
func (s *S3) Open(ctx context.Context, name string) (File, error) {
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return nil, err
	}
	size, etag, _, err := s.head(ctx, name)
	if errors.Is(err, ErrNotFound) {
		if missing := s.findBucket(ctx); missing != nil {
			err = missing
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return &s3Reader{ctx: ctx, target: s, name: name, size: size, etag: etag}, nil
}

// findBucket returns an error where the bucket is missing: what is asked for one object
// is answered by HEAD without a reason. It asks once. Who may not list is left with
// what was said of the object.
func (s *S3) findBucket(ctx context.Context) error {
	if s.found.Load() {
		return nil
	}
	_, err := s.client.do(ctx, &s3Request{method: http.MethodGet, query: map[string]string{"list-type": "2", "max-keys": "1", "prefix": s.prefix}, limit: maxListBytes})
	if status(err) == http.StatusNotFound || (err != nil && status(err) == 0) {
		return err
	}
	s.found.Store(true)
	return nil
}

// head returns the size of an object, its entity tag and who has written it. Its
// error wraps ErrNotFound.
func (s *S3) head(ctx context.Context, name string) (size int64, etag, writer string, err error) {
	r, err := s.client.do(ctx, &s3Request{method: http.MethodHead, key: s.key(name)})
	if status(err) == http.StatusNotFound {
		return 0, "", "", fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if err != nil {
		return 0, "", "", err
	}
	if size, err = strconv.ParseInt(r.header.Get("Content-Length"), 10, 64); err != nil {
		return 0, "", "", fmt.Errorf("HEAD %s: no length: %w", name, err)
	}
	return size, r.header.Get("ETag"), r.header.Get(writerHeader), nil
}

// listing is an answer of ListObjectsV2.
type listing struct {
	IsTruncated           bool
	NextContinuationToken string
	Contents              []struct {
		Key  string
		Size int64
	}
	CommonPrefixes []struct{ Prefix string }
}

// maxListBytes bounds one page of a listing: 1,000 keys of at most 1,024 bytes, each
// escaped, and what stands beside them.
const maxListBytes = 8 << 20

// errNoNextPage: without it, the first page would be asked for again, for ever.
var errNoNextPage = errors.New("the service says that there is more, and not where the next page begins")

// list calls each with what lies directly below dir, a name with a slash at its end
// being a directory.
func (s *S3) list(ctx context.Context, dir string, each func(name string, size int64)) error {
	prefix := s.prefix
	if dir != "." {
		prefix += dir + "/"
	}
	return s.listPrefix(ctx, prefix, "/", each)
}

// listPrefix calls each with the keys that begin with prefix, without it, and those
// that have the delimiter after it, if there is one, as far as that.
func (s *S3) listPrefix(ctx context.Context, prefix, delimiter string, each func(name string, size int64)) error {
	q := map[string]string{"list-type": "2", "prefix": prefix}
	if delimiter != "" {
		q["delimiter"] = delimiter
	}
	for {
		r, err := s.client.do(ctx, &s3Request{method: http.MethodGet, query: q, limit: maxListBytes})
		if err != nil {
			return err
		}
		var l listing
		if err := xml.Unmarshal(r.body, &l); err != nil {
			return fmt.Errorf("read a listing: %w", err)
		}
		for _, c := range l.Contents {
			each(strings.TrimPrefix(c.Key, prefix), c.Size)
		}
		for _, c := range l.CommonPrefixes {
			each(strings.TrimPrefix(c.Prefix, prefix), 0)
		}
		if !l.IsTruncated {
			return nil
		}
		if l.NextContinuationToken == "" || l.NextContinuationToken == q["continuation-token"] {
			return fmt.Errorf("a listing of %s: %w; does it know ListObjectsV2?", prefix, errNoNextPage)
		}
		q["continuation-token"] = l.NextContinuationToken
	}
}

// List lists a directory, without the runs that are being written, committed or removed.
func (s *S3) List(ctx context.Context, dir string) ([]Entry, error) {
	if err := errors.Join(ctx.Err(), checkName(dir)); err != nil {
		return nil, err
	}
	pending := map[string]bool{}
	err := s.list(ctx, path.Join(recordsDir, dir), func(name string, size int64) {
		if size > 0 {
			pending[name] = true
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	var entries []Entry
	found := dir == "."
	err = s.list(ctx, dir, func(name string, size int64) {
		found = true
		sub, isDir := strings.CutSuffix(name, "/")
		switch {
		case sub == "", dir == "." && (sub == recordsDir || sub == logsDir), isDir && pending[sub]:
		default:
			entries = append(entries, Entry{Name: sub, Dir: isDir, Size: size})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	if !found {
		return nil, fmt.Errorf("list %s: %w", dir, ErrNotFound)
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, nil
}

// Close closes idle connections.
func (s *S3) Close() error {
	s.client.o.Client.CloseIdleConnections()
	return nil
}

// ReadAheadBytes is what an open File of an S3 holds at most, and asks for at a time:
// readers of Parquet and Arrow jump little and read small pieces.
const ReadAheadBytes = 4 << 20

// s3Reader reads an object in blocks, of which it keeps the last.
type s3Reader struct {
	ctx    context.Context // of Open: ReadAt has none
	target *S3
	name   string
	size   int64
	etag   string

	mu    sync.Mutex
	block int64 // of data, in ReadAheadBytes
	data  []byte
}

// Size returns the length of the object.
func (r *s3Reader) Size() int64 { return r.size }

// Close ends reading.
func (r *s3Reader) Close() error { return nil }

// ReadAt reads the blocks that hold what is asked for.
func (r *s3Reader) ReadAt(b []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("read %s: offset %d", r.name, off)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for n < len(b) {
		at := off + int64(n)
		if at >= r.size {
			return n, io.EOF
		}
		if err := r.fetch(at / ReadAheadBytes); err != nil {
			return n, fmt.Errorf("read %s: %w", r.name, err)
		}
		n += copy(b[n:], r.data[at-r.block*ReadAheadBytes:])
	}
	return n, nil
}

func (r *s3Reader) fetch(block int64) error {
	if r.data != nil && r.block == block {
		return nil
	}
	start := block * ReadAheadBytes
	want := min(ReadAheadBytes, r.size-start)
	resp, err := r.target.client.do(r.ctx, &s3Request{
		method: http.MethodGet, key: r.target.key(r.name), limit: want,
		header: map[string]string{"Range": fmt.Sprintf("bytes=%d-%d", start, start+want-1), "If-Match": r.etag},
	})
	if err != nil {
		return err
	}
	if int64(len(resp.body)) != want {
		return fmt.Errorf("got %d bytes from %d, want %d: %w", len(resp.body), start, want, io.ErrUnexpectedEOF)
	}
	r.block, r.data = block, resp.body
	return nil
}
