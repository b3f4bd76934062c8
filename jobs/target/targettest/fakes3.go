package targettest

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Fault is what goes wrong with a request.
type Fault int

// The faults.
const (
	Fine       Fault = iota
	SlowDown         // 503, nothing is done
	Conflict         // 409, nothing is done
	HangUp           // the connection breaks, nothing is done
	TooSlow          // 400, as the body came too slowly, where there is one; nothing is done
	DoneHangUp       // it is done, and the connection breaks
	DoneFailed       // it is done, and the answer is 500
	DoneLate         // it is done, and the answer comes after the client's patience
	Partial          // it is done, and half of the answer comes
	LateError        // 200 with an error in it, nothing is done (POST)
	Dead             // this and all later requests: the client is gone
	Denied           // 403, nothing is done
	Expired          // 400, as the credentials are too old; nothing is done
)

// FakeS3 is a bucket in memory that speaks what S3 speaks, with faults.
type FakeS3 struct {
	t      testing.TB
	server *httptest.Server

	mu       sync.Mutex
	objects  map[string]*object
	uploads  map[string]*multipart
	requests []string // what was asked
	faulty   func(n int, r *http.Request) Fault
	gone     bool
	now      time.Time
	careless bool
	written  map[string]int64 // bytes that were put, by key
}

// URL returns the endpoint.
func (f *FakeS3) URL() string { return f.server.URL }

// Requests returns what was asked so far: method and URL.
func (f *FakeS3) Requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// Uploads returns how many multi-part uploads are open.
func (f *FakeS3) Uploads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.uploads)
}

// Objects returns the content of all objects by key, records and the like included.
func (f *FakeS3) Objects() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]string{}
	for key, o := range f.objects {
		all[key] = string(o.data)
	}
	return all
}

// Written returns how many bytes were put as objects whose keys begin with prefix, those
// that were replaced or removed since included; parts of multi-part uploads are none.
func (f *FakeS3) Written(prefix string) (bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, n := range f.written {
		if strings.HasPrefix(key, prefix) {
			bytes += n
		}
	}
	return bytes
}

// DropUploads removes all multi-part uploads, as a rule of the bucket does.
func (f *FakeS3) DropUploads() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.uploads)
}

// Advance moves the clock of the service, which stands still otherwise.
func (f *FakeS3) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

// SetCareless has the service pass over If-Match on writes, as some do.
func (f *FakeS3) SetCareless() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.careless = true
}

// SetFaulty has faulty say what goes wrong with the n-th request from now, from 0;
// nil = nothing. It ends what Dead has begun. faulty is called by one goroutine at a
// time.
func (f *FakeS3) SetFaulty(faulty func(n int, r *http.Request) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := len(f.requests)
	f.gone, f.faulty = false, nil
	if faulty != nil {
		f.faulty = func(n int, r *http.Request) Fault { return faulty(n-first, r) }
	}
}

type object struct {
	data     []byte
	etag     string
	writer   string
	modified time.Time
}

type multipart struct {
	key, writer string
	parts       map[int][]byte
	initiated   time.Time
}

// NewFakeS3 returns an empty bucket named bucket, for the access key "access".
func NewFakeS3(t testing.TB) *FakeS3 {
	f := &FakeS3{t: t, objects: map[string]*object{}, uploads: map[string]*multipart{}, written: map[string]int64{}, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	f.server = httptest.NewServer(f)
	t.Cleanup(f.server.Close)
	return f
}

// ServeHTTP answers one request.
func (f *FakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has hung up
	}
	f.mu.Lock()
	n := len(f.requests)
	f.requests = append(f.requests, r.Method+" "+r.URL.String())
	what := Fine
	if f.faulty != nil {
		what = f.faulty(n, r)
	}
	if f.gone = f.gone || what == Dead; f.gone {
		what = HangUp
	}
	rec := httptest.NewRecorder()
	switch what {
	case SlowDown:
		fail(rec, http.StatusServiceUnavailable, "SlowDown")
	case TooSlow:
		if len(body) > 0 {
			fail(rec, http.StatusBadRequest, "RequestTimeout")
		} else {
			fail(rec, http.StatusServiceUnavailable, "SlowDown")
		}
	case Conflict:
		fail(rec, http.StatusConflict, "ConditionalRequestConflict")
	case Denied:
		fail(rec, http.StatusForbidden, "AccessDenied")
	case Expired:
		fail(rec, http.StatusBadRequest, "ExpiredToken")
	case LateError:
		if r.Method == http.MethodPost {
			fmt.Fprint(rec, "<Error><Code>InternalError</Code></Error>")
		} else {
			fail(rec, http.StatusInternalServerError, "InternalError")
		}
	case HangUp:
	default:
		f.answer(rec, r, body)
	}
	date := f.now.Format(http.TimeFormat)
	f.mu.Unlock()
	switch what {
	case DoneFailed:
		rec = httptest.NewRecorder()
		fail(rec, http.StatusInternalServerError, "InternalError")
	case DoneLate:
		<-r.Context().Done() // the client gives up
		panic(http.ErrAbortHandler)
	case HangUp, DoneHangUp:
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Date", date)
	for name, v := range rec.Header() {
		w.Header()[name] = v
	}
	if r.Method != http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(rec.Body.Len()))
	}
	w.WriteHeader(rec.Code)
	if what == Partial {
		_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(rec.Body.Bytes())
}

func fail(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test wants it</Message></Error>", code)
}

func etag(data []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(data)) }

func (f *FakeS3) answer(w http.ResponseWriter, r *http.Request, body []byte) {
	sum := sha256.Sum256(body)
	// Readers of others do not sign that they send nothing.
	signed := r.Header.Get("X-Amz-Content-Sha256")
	if signed != hex.EncodeToString(sum[:]) && (signed != "UNSIGNED-PAYLOAD" || len(body) > 0) || !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=access/") {
		fail(w, http.StatusForbidden, "SignatureDoesNotMatch")
		return
	}
	key, ok := strings.CutPrefix(r.URL.Path, "/bucket")
	if !ok {
		fail(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	key = strings.TrimPrefix(key, "/")
	q := r.URL.Query()
	switch {
	case q.Has("list-type"):
		f.list(w, q)
	case q.Has("uploads") && r.Method == http.MethodGet:
		f.listUploads(w, q)
	case q.Has("uploads"):
		id := fmt.Sprint("upload ", len(f.requests))
		f.uploads[id] = &multipart{key: key, writer: r.Header.Get("X-Amz-Meta-Sluice-Upload"), parts: map[int][]byte{}, initiated: f.now}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case q.Has("uploadId"):
		f.multipart(w, r, key, q, body)
	case r.Method == http.MethodPut:
		if r.Header.Get("If-None-Match") == "*" && f.objects[key] != nil {
			fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		if m := r.Header.Get("If-Match"); m != "" && !f.careless {
			switch o := f.objects[key]; {
			case o == nil:
				fail(w, http.StatusNotFound, "NoSuchKey")
				return
			case o.etag != m:
				fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
				return
			}
		}
		f.written[key] += int64(len(body))
		f.objects[key] = &object{data: body, etag: etag(body), writer: r.Header.Get("X-Amz-Meta-Sluice-Upload"), modified: f.now}
		w.Header().Set("ETag", etag(body))
	case r.Method == http.MethodDelete:
		delete(f.objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		f.read(w, r, key)
	}
}

func (f *FakeS3) multipart(w http.ResponseWriter, r *http.Request, key string, q url.Values, body []byte) {
	u := f.uploads[q.Get("uploadId")]
	if u == nil || u.key != key {
		fail(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	switch r.Method {
	case http.MethodPut:
		n, err := strconv.Atoi(q.Get("partNumber"))
		if err != nil {
			fail(w, http.StatusBadRequest, "InvalidPart")
			return
		}
		u.parts[n] = body
		w.Header().Set("ETag", etag(body))
	case http.MethodGet:
		f.listParts(w, u, q)
	case http.MethodDelete:
		delete(f.uploads, q.Get("uploadId"))
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPost:
		var c struct {
			Part []struct {
				PartNumber int
				ETag       string
			}
		}
		if err := xml.Unmarshal(body, &c); err != nil {
			fail(w, http.StatusBadRequest, "MalformedXML")
			return
		}
		var data []byte
		for i, p := range c.Part {
			if p.PartNumber != i+1 || etag(u.parts[p.PartNumber]) != p.ETag {
				fail(w, http.StatusBadRequest, "InvalidPart")
				return
			}
			data = append(data, u.parts[p.PartNumber]...)
		}
		f.objects[key] = &object{data: data, etag: etag(data), writer: u.writer, modified: f.now}
		delete(f.uploads, q.Get("uploadId"))
		fmt.Fprint(w, "<CompleteMultipartUploadResult/>")
	}
}

func (f *FakeS3) read(w http.ResponseWriter, r *http.Request, key string) {
	o := f.objects[key]
	if o == nil {
		fail(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	if m := r.Header.Get("If-Match"); m != "" && m != o.etag {
		fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	data := o.data
	w.Header().Set("ETag", o.etag)
	w.Header().Set("Last-Modified", o.modified.Format(http.TimeFormat))
	w.Header().Set("X-Amz-Meta-Sluice-Upload", o.writer)
	if rg := r.Header.Get("Range"); rg != "" {
		var a, b int
		if _, err := fmt.Sscanf(rg, "bytes=%d-%d", &a, &b); err != nil || a >= len(data) {
			fail(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
			return
		}
		b = min(b+1, len(data))
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", a, b-1, len(data)))
		data = data[a:b]
		w.WriteHeader(http.StatusPartialContent)
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		return
	}
	_, _ = io.Copy(w, bytes.NewReader(data))
}

// list answers in pages of two, so that a listing has several.
func (f *FakeS3) list(w http.ResponseWriter, q url.Values) {
	prefix := q.Get("prefix")
	names := map[string]int{}
	for key, o := range f.objects {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		if dir, _, found := strings.Cut(rest, "/"); found && q.Get("delimiter") == "/" {
			names[dir+"/"] = -1
		} else {
			names[rest] = len(o.data)
		}
	}
	var sorted []string
	for name := range names {
		if name > q.Get("continuation-token") {
			sorted = append(sorted, name)
		}
	}
	slices.Sort(sorted)
	fmt.Fprint(w, "<ListBucketResult>")
	for _, name := range sorted[:min(2, len(sorted))] {
		var escaped bytes.Buffer
		_ = xml.EscapeText(&escaped, []byte(prefix+name))
		if names[name] < 0 {
			fmt.Fprintf(w, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>", &escaped)
		} else {
			fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size></Contents>", &escaped, names[name])
		}
	}
	if len(sorted) > 2 {
		fmt.Fprintf(w, "<IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", sorted[1])
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

// listUploads answers in pages of two.
func (f *FakeS3) listUploads(w http.ResponseWriter, q url.Values) {
	type id struct{ key, upload string }
	after := id{q.Get("key-marker"), q.Get("upload-id-marker")}
	compare := func(a, b id) int { return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.upload, b.upload)) }
	var sorted []id
	for upload, u := range f.uploads {
		if i := (id{u.key, upload}); strings.HasPrefix(u.key, q.Get("prefix")) && compare(i, after) > 0 {
			sorted = append(sorted, i)
		}
	}
	slices.SortFunc(sorted, compare)
	fmt.Fprint(w, "<ListMultipartUploadsResult>")
	for _, i := range sorted[:min(2, len(sorted))] {
		var escaped bytes.Buffer
		_ = xml.EscapeText(&escaped, []byte(i.key))
		fmt.Fprintf(w, "<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>%s</Initiated></Upload>", &escaped, i.upload, f.uploads[i.upload].initiated.Format(time.RFC3339))
	}
	if len(sorted) > 2 {
		var escaped bytes.Buffer
		_ = xml.EscapeText(&escaped, []byte(sorted[1].key))
		fmt.Fprintf(w, "<IsTruncated>true</IsTruncated><NextKeyMarker>%s</NextKeyMarker><NextUploadIdMarker>%s</NextUploadIdMarker>", &escaped, sorted[1].upload)
	}
	fmt.Fprint(w, "</ListMultipartUploadsResult>")
}

// listParts answers in pages of two.
func (f *FakeS3) listParts(w http.ResponseWriter, u *multipart, q url.Values) {
	after, _ := strconv.Atoi(q.Get("part-number-marker")) // 0 without one
	var numbers []int
	for n := range u.parts {
		if n > after {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	fmt.Fprint(w, "<ListPartsResult>")
	for _, n := range numbers[:min(2, len(numbers))] {
		fmt.Fprintf(w, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag><Size>%d</Size></Part>", n, etag(u.parts[n]), len(u.parts[n]))
	}
	if len(numbers) > 2 {
		fmt.Fprintf(w, "<IsTruncated>true</IsTruncated><NextPartNumberMarker>%d</NextPartNumberMarker>", numbers[1])
	}
	fmt.Fprint(w, "</ListPartsResult>")
}
