// Package registry is a client of schema registries: Confluent's, and those that
// speak its HTTP API (Redpanda, Karapace, Apicurio's ccompat, Azure's and AWS's do
// not). It gets schemas by their ids, with the schemas that they reference.
//
// A schema never changes, so what was got is kept. An id is unknown only where the
// registry says so in its own words (404 with error code 40403): that is kept, too,
// for some seconds, as it may be registered a little late; what cannot be used, for half a
// minute. Everything else that goes wrong wraps decode.ErrUnavailable,
// whose callers wait and ask again: also a registry that has only the source of a
// Protobuf schema (decode.ErrNoDescriptor).
//
// A Client is safe for concurrent use; one request at a time asks for an id, however
// many wait for it, and two ids at a time are asked for: answers can be large. It writes nothing to the registry and starts no goroutines but
// those of net/http.
package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"sluice/pipeline/decode"
)

// Options says where the registry is. The zero value of a field is its default. It
// prints without its credentials.
type Options struct {
	// URLs are the registry's addresses, http or https, of which one that answers
	// is enough. At least one.
	URLs []string
	// User and Password authenticate (HTTP basic), or Token does (bearer).
	User     string
	Password string `json:"-"`
	Token    string `json:"-"`
	// PasswordNow and TokenNow are asked at each request for what replaces Password and
	// Token, as it may change; nil = nothing does.
	PasswordNow func() string `json:"-"`
	TokenNow    func() string `json:"-"`
	// TLS of https; nil = the system's certificates.
	TLS *tls.Config
	// RootCAs are asked at each connection for what replaces those of TLS, which must be
	// set; nil = nothing does.
	RootCAs func() *x509.CertPool `json:"-"`
	// Timeout bounds a request and its answer. 0 = 5 s.
	Timeout time.Duration
	// Attempts is how often every address is asked before a fetch gives up.
	// 0 = 3.
	Attempts int
	// Transport replaces the HTTP client's own; nil = one of this Client.
	Transport http.RoundTripper
}

// String leaves the credentials out, and the addresses, which may have some before
// New has refused them.
func (o Options) String() string {
	return fmt.Sprintf("schema registry of %d addresses", len(o.URLs))
}

// GoString keeps %#v from printing the credentials.
func (o Options) GoString() string { return "registry.Options{" + o.String() + "}" }

// LogValue keeps slog from printing them.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

// Defaults and bounds.
const (
	defaultTimeout  = 5 * time.Second
	defaultAttempts = 3
	// maxAnswer bounds an answer: a schema of decode.MaxSchemaBytes, each of which may
	// be escaped by another, and what is said beside it.
	maxAnswer = 2*decode.MaxSchemaBytes + 64<<10
	// maxAnswers bounds all answers about a schema and what it references: those on the
	// way to a reference of a reference are in memory at once.
	maxAnswers = 2 * maxAnswer
	// maxFetching bounds the fetches at once: each may have maxAnswers in memory.
	maxFetching = 2
	// maxReferences bounds the schemas that one references, directly or not.
	maxReferences = 256
	// maxKept bounds what is remembered. A registry of a large company has some
	// ten thousand schemas, a topic a handful.
	maxKept = 4096
	// maxKeptBytes bounds it, too; schemas of more than some kilobytes are rare.
	maxKeptBytes = 64 << 20
	// missingFor is how long the answer that there is no such schema counts: a fifth of
	// what a pipeline with the policy retry gives a record, which is for what passes. A
	// topic whose schema is never there costs a request so often.
	missingFor = 5 * time.Second
	// unusableFor is the same of a schema that is there, and too large.
	unusableFor = 30 * time.Second
	// firstWait doubles from attempt to attempt.
	firstWait = 100 * time.Millisecond
	// maxWait bounds what a registry may ask to wait (Retry-After).
	maxWait = 5 * time.Second
)

// ErrUnusable: what the registry has with this id, or with what it references, is more than
// decode takes. Schemas never change. Where the registry has none, it is
// decode.ErrNoSchema.
var ErrUnusable = errors.New("the schema registry has no such schema that can be used")

// errTooLarge is an ErrUnusable.
var errTooLarge = fmt.Errorf("%w: with what it references it has more than %d bytes", ErrUnusable, decode.MaxSchemaBytes)

var _ decode.Schemas = (*Client)(nil)

// Client gets schemas from a registry. Close it.
type Client struct {
	opts Options // without the credentials
	urls []string
	// authorize adds the credentials to a request. It is a function so that fmt, which
	// looks into every field of what it prints, finds none.
	authorize func(*http.Request)

	http  http.Client
	close func()

	mu       sync.Mutex
	kept     map[int]answer
	bytes    int                   // of the schemas in kept
	fetching map[int]chan struct{} // closed at the end
	turn     chan struct{}         // holds one value for each fetch that is asking
}

// answer is what the registry said of an id.
type answer struct {
	schema *decode.Schema
	err    error     // wraps decode.ErrNoSchema or ErrUnusable
	until  time.Time // the error's
}

// New returns a client that has asked nothing yet.
func New(o *Options) (*Client, error) {
	c := &Client{opts: *o, kept: map[int]answer{}, fetching: map[int]chan struct{}{}, turn: make(chan struct{}, maxFetching), close: func() {}}
	if len(o.URLs) == 0 {
		return nil, errors.New("registry: no address")
	}
	for _, s := range o.URLs {
		u, err := ParseURL(s)
		if err != nil {
			return nil, fmt.Errorf("registry: %w", err)
		}
		c.urls = append(c.urls, u)
	}
	if o.Token != "" && o.User != "" {
		return nil, errors.New("registry: a user and a token: one of them authenticates")
	}
	if o.Timeout < 0 || o.Attempts < 0 {
		return nil, errors.New("registry: a negative timeout or number of attempts")
	}
	if c.opts.Timeout == 0 {
		c.opts.Timeout = defaultTimeout
	}
	if c.opts.Attempts == 0 {
		c.opts.Attempts = defaultAttempts
	}
	c.http.Transport = o.Transport
	if o.Transport == nil {
		t := &http.Transport{TLSClientConfig: o.TLS, MaxIdleConns: 4, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 1 << 16}
		if o.TLS != nil && o.RootCAs != nil {
			t.DialTLSContext = dialTLS(o.TLS, o.RootCAs)
		}
		c.http.Transport, c.close = t, t.CloseIdleConnections
	}
	c.authorize = authorization(o.User, o.Token != "", now(o.PasswordNow, o.Password), now(o.TokenNow, o.Token))
	c.opts.Password, c.opts.Token = "", ""
	// Credentials go to the addresses of the options and nowhere else.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// authorization returns what adds credentials to a request, if there are any.
func authorization(user string, bearer bool, password, token func() string) func(*http.Request) {
	switch {
	case user != "":
		return func(r *http.Request) { r.SetBasicAuth(user, password()) }
	case bearer:
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token()) }
	}
	return func(*http.Request) {}
}

// now is a secret that may change, or first where it does not.
func now(f func() string, first string) func() string {
	if f != nil {
		return f
	}
	return func() string { return first }
}

// dialTLS returns a http.Transport's DialTLSContext, which trusts the roots of when it is
// called.
func dialTLS(o *tls.Config, roots func() *x509.CertPool) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		trusting := o.Clone()
		trusting.RootCAs, trusting.NextProtos = roots(), []string{"h2", "http/1.1"}
		return (&tls.Dialer{Config: trusting}).DialContext(ctx, network, address) // the name is the address's
	}
}

// ParseURL checks an address and returns it without a slash at its end. Its error
// does not repeat what may be a secret.
func ParseURL(s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", errors.New("not the address of a registry: write http://host:port or https://host:port")
	case u.User != nil:
		return "", errors.New("the address of a registry has no user and password in it: write them apart")
	case u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("the address of a registry has no ? and no #")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// Close closes idle connections.
func (c *Client) Close() { c.close() }

// Schema implements decode.Schemas.
func (c *Client) Schema(id int) (*decode.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.kept[id]
	if ok && a.err != nil && !time.Now().Before(a.until) {
		delete(c.kept, id)
		return nil, nil
	}
	return a.schema, a.err
}

// Fetch implements decode.Schemas.
func (c *Client) Fetch(ctx context.Context, id int) error {
	for {
		c.mu.Lock()
		if _, ok := c.kept[id]; ok {
			c.mu.Unlock()
			return nil
		}
		other := c.fetching[id]
		if other == nil {
			break
		}
		c.mu.Unlock()
		select {
		case <-other:
			// It may have failed, with its own context: then this one asks.
		case <-ctx.Done():
			return fmt.Errorf("fetch schema %d: %w", id, ctx.Err())
		}
	}
	done := make(chan struct{})
	c.fetching[id] = done
	c.mu.Unlock()

	s, err := c.inTurn(ctx, id)

	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.fetching, id)
	close(done)
	a := answer{schema: s}
	if err != nil {
		var keep time.Duration
		switch {
		case errors.Is(err, decode.ErrNoSchema):
			keep = missingFor
		case errors.Is(err, ErrUnusable):
			keep = unusableFor
		default:
			return fmt.Errorf("fetch schema %d: %w", id, err)
		}
		a.err, a.until = fmt.Errorf("schema %d: %w", id, err), time.Now().Add(keep)
	}
	c.makeRoom(a.bytes())
	c.kept[id] = a
	c.bytes += a.bytes()
	return nil
}

// inTurn is get, of which maxFetching run at once.
func (c *Client) inTurn(ctx context.Context, id int) (*decode.Schema, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
		return c.get(ctx, id)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bytes returns what is kept of the schema.
func (a *answer) bytes() int {
	if a.schema == nil {
		return 0
	}
	return a.schema.Bytes()
}

// makeRoom forgets, where there is no room for one more of n bytes, all ids that do not
// exist, and of those that do as many as are in the way.
func (c *Client) makeRoom(n int) {
	full := func() bool { return len(c.kept) >= maxKept || len(c.kept) > 0 && c.bytes+n > maxKeptBytes }
	if !full() {
		return
	}
	for id, a := range c.kept {
		if a.err != nil {
			delete(c.kept, id)
		}
	}
	for id, a := range c.kept {
		if !full() {
			return
		}
		c.bytes -= a.bytes()
		delete(c.kept, id)
	}
}
