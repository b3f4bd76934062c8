package target

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// s3Client makes requests to one bucket and tries again what may pass.
type s3Client struct {
	o       S3Options
	base    *url.URL
	signer  signer
	renewed bool // its credentials are, while it works
}

// s3Request is one request. The zero values of what it does not need.
type s3Request struct {
	method string
	key    string // "" = the bucket
	query  map[string]string
	header map[string]string
	body   []byte
	// limit bounds the answer's body; what is longer is an error.
	limit int64
}

// s3Response is an answer with a 2xx status.
type s3Response struct {
	header http.Header
	body   []byte
}

// s3Error is an answer with another status, or a 200 that carries an error.
type s3Error struct {
	Status  int
	Code    string `xml:"Code"`
	Message string `xml:"Message"`
}

func (e *s3Error) Error() string {
	const check = "check the keys, and that they may list the bucket and read what is below the prefix"
	switch {
	case e.Code == "" && e.Status == http.StatusForbidden:
		return "status 403, without a reason: " + check
	case e.Code == "AccessDenied":
		return fmt.Sprintf("status %d %s: %s (%s)", e.Status, e.Code, e.Message, check)
	case e.Code == "":
		return fmt.Sprintf("status %d: %s", e.Status, e.Message)
	}
	return fmt.Sprintf("status %d %s: %s", e.Status, e.Code, e.Message)
}

// status returns the status that err is of, or 0 where no answer came.
func status(err error) int {
	var e *s3Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// maxErrorBytes bounds the body of an answer that is no success.
const maxErrorBytes = 64 << 10

// passing reports whether err may pass: no answer, an overloaded or failing server,
// a conditional write that met another (409), a body that came too slowly, which
// Amazon's service answers with 400 ("Error responses", Amazon S3 API Reference).
func passing(err error) bool {
	s := status(err)
	return s == 0 || s >= 500 && s != http.StatusNotImplemented || s == http.StatusTooManyRequests || s == http.StatusRequestTimeout || s == http.StatusConflict ||
		hasCode(err, "RequestTimeout")
}

// errMaybeDone is wrapped by the error of a request that was made again until it was
// refused: an attempt before got no answer that says that it did nothing.
var errMaybeDone = errors.New("it may have been done by an attempt before")

// do makes a request, and makes it again while it may pass. What it changes must be
// the same however often it is done, or be checked by the caller, as no answer does
// not mean that nothing was done: where passing, or errMaybeDone, says so of the error.
func (c *s3Client) do(ctx context.Context, q *s3Request) (*s3Response, error) {
	wait := c.o.Backoff
	reads := q.method == http.MethodGet || q.method == http.MethodHead
	open, differed := false, false
	for attempt := 0; ; attempt++ {
		r, err := c.once(ctx, q)
		if err == nil {
			return r, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", c.what(q), ctx.Err())
		}
		may := passing(err)
		if may {
			open = !reads
		} else {
			var differs bool
			err, differs = c.reason(ctx, q, err)
			may = c.renewed && (expired(err) || differs && !differed)
			differed = differed || differs
		}
		if !may || attempt == c.o.Retries {
			what := c.what(q)
			if may {
				what += fmt.Sprintf(", %d times", attempt+1)
			}
			if open && !passing(err) {
				err = fmt.Errorf("%w (%w)", err, errMaybeDone)
			}
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		// Half to all of it, so that writers that were refused together do not
		// come back together.
		pause := wait/2 + rand.N(wait/2+1)
		level := slog.LevelWarn
		if status(err) == http.StatusConflict { // other writers are at work, as they may be
			level = slog.LevelDebug
		}
		c.o.Logger.Log(ctx, level, "a request to the bucket's service is made again", "endpoint", c.o.Endpoint, "bucket", c.o.Bucket,
			"method", q.method, "key", q.key, "attempt", attempt+1, "of", c.o.Retries+1, "in", pause.Round(time.Millisecond), "err", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%s: %w", c.what(q), ctx.Err())
		}
		wait = min(2*wait, c.o.Backoff<<6)
	}
}

// reason returns err, or why a HEAD was refused: answers to it do not say, so that a wrong
// region or key is known from the answer to a GET alone. That what is asked for is missing
// needs no reason. differs is set where the credentials were refused and a GET is not, as
// where they were renewed in between.
func (c *s3Client) reason(ctx context.Context, q *s3Request, err error) (_ error, differs bool) {
	s := status(err)
	if q.method != http.MethodHead || s == http.StatusNotFound {
		return err, false
	}
	_, again := c.once(ctx, &s3Request{method: http.MethodGet, key: q.key, header: map[string]string{"Range": "bytes=0-0"}, limit: 1})
	var why *s3Error
	answered := errors.As(again, &why)
	if answered && why.Status == s {
		return why, false
	}
	refused := s == http.StatusBadRequest || s == http.StatusUnauthorized || s == http.StatusForbidden
	return err, refused && (answered || again == nil)
}

// expired reports whether err says that the credentials have expired, which something
// renews, and may be a little late with.
func expired(err error) bool { return hasCode(err, "ExpiredToken") }

// hasCode reports whether err is an answer with this code.
func hasCode(err error, code string) bool {
	var why *s3Error
	return errors.As(err, &why) && why.Code == code
}

// what says which request q is, and of whom.
func (c *s3Client) what(q *s3Request) string {
	key := ""
	if q.key != "" {
		key = " " + q.key
	}
	return fmt.Sprintf("%s%s in bucket %s at %s", q.method, key, c.o.Bucket, c.o.Endpoint)
}

func (c *s3Client) once(ctx context.Context, q *s3Request) (*s3Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	u := *c.base
	u.Path += "/" + c.o.Bucket
	if q.key != "" {
		u.Path += "/" + q.key
	}
	u.RawPath, u.RawQuery = escapeS3(u.Path, true), queryS3(q.query)
	r, err := http.NewRequestWithContext(ctx, q.method, u.String(), bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	r.ContentLength = int64(len(q.body))
	for name, v := range q.header {
		r.Header.Set(name, v)
	}
	c.signer.sign(r, sha256.Sum256(q.body), c.o.Now())
	resp, err := c.o.Client.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the caller names the request
		}
		return nil, err
	}
	defer resp.Body.Close()
	limit := q.limit
	if resp.StatusCode/100 != 2 {
		limit = maxErrorBytes
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		e := readS3Error(resp.StatusCode, body)
		if to, err := resp.Location(); err == nil {
			e.Message += fmt.Sprintf(" (it redirects to %s://%s: if that is the service, make it the endpoint)", to.Scheme, to.Host)
		}
		return nil, e
	}
	if q.method == http.MethodPost && bytes.Contains(body, []byte("<Error>")) {
		// The status was sent before the work was done.
		return nil, readS3Error(http.StatusInternalServerError, body)
	}
	if int64(len(body)) > limit {
		return nil, &s3Error{Status: http.StatusOK, Code: "TooLong", Message: fmt.Sprintf("the answer has more than %d bytes", limit)}
	}
	return &s3Response{header: resp.Header, body: body}, nil
}

// readS3Error reads the body of an error; answers to HEAD have none.
func readS3Error(status int, body []byte) *s3Error {
	e := &s3Error{}
	if xml.Unmarshal(body, e) != nil {
		e.Message = strings.TrimSpace(string(body[:min(len(body), 200)]))
	}
	e.Status = status
	if e.Message == "" {
		e.Message = http.StatusText(status)
	}
	return e
}

// delete deletes an object; one that is not there is no error.
func (c *s3Client) delete(ctx context.Context, key string) error {
	_, err := c.do(ctx, &s3Request{method: http.MethodDelete, key: key, limit: maxErrorBytes})
	if status(err) == http.StatusNotFound {
		return nil
	}
	return err
}
