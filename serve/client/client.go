// Package client is a store.Engine behind a daemon's HTTP interface: what the
// tools use while a daemon has the data directory open.
//
// A Client has the semantics of the daemon's engine: errors map back to the
// store's sentinels, scans stream, one call is one atomic unit where the engine
// makes it one. What the connection adds is that a reply can be lost: reads, whole
// batches with an Advance and mutations that may be repeated then fail with
// store.ErrTransient; of any other mutation nobody knows whether it was applied,
// and its error wraps store.ErrUnknownOutcome instead. So does that of one whose
// context ends after it was sent.
//
// A Client is safe for concurrent use. It copies nothing that it is given and
// keeps nothing after a call.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/cell"
	"sluice/region"
	"sluice/serve/api"
	"sluice/store"
)

// ErrNoDaemon: no daemon has the directory open, or the file that it left behind
// is stale.
var ErrNoDaemon = errors.New("client: no daemon is running")

// dialTimeout bounds connecting and the first answer: the daemon is on this
// machine.
const dialTimeout = 5 * time.Second

// Client is a connection to a daemon, or to the one that has a directory, whichever that
// is at the time. Make one with Dial or DialDir.
type Client struct {
	peer atomic.Pointer[peer] // the daemon that has answered last
	dir  string               // whose endpoint names the next one; empty = there is no next one
	http *http.Client

	mu      sync.Mutex
	closed  bool
	calls   sync.WaitGroup
	closing chan struct{} // closed by Close: ends scans and renewals
}

var (
	_ store.Engine        = (*Client)(nil)
	_ store.Admin         = (*Client)(nil)
	_ store.TableSwitcher = (*Client)(nil)
	_ store.Namespacer    = (*Client)(nil)
	_ store.RegionMeter   = (*Client)(nil)
	_ store.RowMutator    = (*Client)(nil)
	_ store.Compactor     = (*Client)(nil)
)

// ReadEndpoint reads the file that a daemon writes into its data directory. Its
// error wraps ErrNoDaemon where there is none.
func ReadEndpoint(dir string) (api.Endpoint, error) {
	path := filepath.Join(dir, api.EndpointFile)
	var e api.Endpoint
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return e, fmt.Errorf("%w: %s does not exist", ErrNoDaemon, path)
	} else if err != nil {
		return e, fmt.Errorf("read the daemon's endpoint: %w", err)
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return e, fmt.Errorf("read the daemon's endpoint: %s: %w", path, err)
	}
	if e.Address == "" || e.Instance == "" {
		return e, fmt.Errorf("read the daemon's endpoint: %s names no address or instance", path)
	}
	return e, nil
}

// DialDir connects to the daemon that has dir open, and, where that is started again, to
// the new process. Its error wraps ErrNoDaemon where there is none.
func DialDir(ctx context.Context, dir string) (*Client, error) {
	e, err := ReadEndpoint(dir)
	if err != nil {
		return nil, err
	}
	c, err := Dial(ctx, e)
	if err == nil {
		c.dir = dir
	}
	return c, err
}

// Dial connects to the daemon at e and checks that it is the one which wrote e.
// Its error wraps ErrNoDaemon where nobody listens there, or somebody else does;
// a daemon that listens and does not answer is another error.
func Dial(ctx context.Context, e api.Endpoint) (*Client, error) {
	c := &Client{
		closing: make(chan struct{}),
		http: &http.Client{
			// One's own transport: proxies of the environment have no
			// business on loopback, and Close closes its connections.
			Transport: &http.Transport{
				DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
				MaxIdleConnsPerHost:   16,
				IdleConnTimeout:       time.Minute,
				ResponseHeaderTimeout: 0, // a compaction may take long
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	p, err := c.connect(ctx, e)
	switch {
	case err == nil:
		c.peer.Store(p)
		return c, nil
	case errors.Is(err, ErrNoDaemon):
	case ctx.Err() != nil:
		err = fmt.Errorf("connect to the daemon at %s: %w", e.Address, ctx.Err())
	default:
		err = fmt.Errorf("the daemon at %s (process %d) does not answer: %w; look at its log, or stop it", e.Address, e.PID, err)
	}
	c.http.CloseIdleConnections()
	return nil, err
}

// Address returns where the daemon is, host:port.
func (c *Client) Address() string { return c.peer.Load().endpoint.Address }

// begin counts a call, so that Close waits for it.
func (c *Client) begin() (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("client of the daemon at %s: %w", c.Address(), store.ErrClosed)
	}
	c.calls.Add(1)
	return c.calls.Done, nil
}

// Close waits for running calls and ends running scans with ErrClosed.
func (c *Client) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.closing)
	}
	c.mu.Unlock()
	c.calls.Wait()
	c.http.CloseIdleConnections()
	return nil
}

// connError is a connection that broke, so that no answer was read.
type connError struct {
	address string
	err     error
}

func (e *connError) Error() string { return fmt.Sprintf("daemon at %s: %v", e.address, e.err) }
func (e *connError) Unwrap() error { return e.err }

// call sends body and decodes the answer into answer, where it is not nil.
func (c *Client) call(ctx context.Context, method, path string, body, answer any) error {
	end, err := c.begin()
	if err != nil {
		return err
	}
	defer end()
	res, err := c.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if answer != nil {
		if err := json.NewDecoder(res.Body).Decode(answer); err != nil {
			return &connError{address: c.Address(), err: fmt.Errorf("read the answer: %w", err)}
		}
	}
	return nil
}

// outcome adds the class of a lost reply: transient where the call may be made
// again, store.ErrUnknownOutcome where nobody knows what became of it, also where ctx
// has ended it.
func outcome(ctx context.Context, err error, repeatable bool) error {
	var lost *connError
	if err == nil || !errors.As(err, &lost) {
		return err
	}
	known := repeatable || errors.Is(err, syscall.ECONNREFUSED)
	if cause := ctx.Err(); cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	} else if known {
		err = fmt.Errorf("%w: %w", store.ErrTransient, err)
	}
	if !known {
		err = fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
	}
	return err
}

// segment is a name as one segment of a path. Dots alone are escaped, too: a server takes
// them for steps in the path, and answers with where they lead.
func segment(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}

func tablePath(table string, rest ...string) string {
	path := "/tables/" + segment(table)
	for _, r := range rest {
		path += "/" + r
	}
	return path
}

// read is call for what changes nothing.
func (c *Client) read(ctx context.Context, path string, answer any) error {
	return outcome(ctx, c.call(ctx, http.MethodGet, path, nil, answer), true)
}

func (c *Client) table(ctx context.Context, name string) (*api.TableResponse, error) {
	if name == "" {
		return nil, fmt.Errorf("%w: the name of the table is empty", store.ErrTableNotFound)
	}
	var t api.TableResponse
	if err := c.read(ctx, tablePath(name), &t); err != nil {
		return nil, err
	}
	return &t, nil
}

// Regions implements store.Reader.
func (c *Client) Regions(ctx context.Context, table string) (*region.Map, error) {
	t, err := c.table(ctx, table)
	if err != nil {
		return nil, err
	}
	return api.RegionMap(table, t.Regions)
}

// Table implements store.Engine.
func (c *Client) Table(ctx context.Context, name string) (*store.TableDescriptor, error) {
	t, err := c.table(ctx, name)
	if err != nil {
		return nil, err
	}
	return t.Table.Store(), nil
}

// Apply implements store.Engine.
func (c *Client) Apply(ctx context.Context, b *store.Batch) error {
	a, err := api.FromBatch(b)
	if err != nil {
		return err
	}
	// A batch that advances an offset is refused the second time. That is
	// not true of others with counters or records.
	repeatable := len(b.Advances) > 0 || len(b.Counters)+len(b.Records) == 0
	for i := range b.Mutations {
		repeatable = repeatable && (len(b.Advances) > 0 || b.Mutations[i].Idempotent())
	}
	var r api.BatchResponse
	err = outcome(ctx, c.call(ctx, http.MethodPost, "/batch", a, &r), repeatable)
	var refused *store.BatchError
	if errors.As(err, &refused) {
		return refused
	}
	if err == nil {
		b.Unapplied = store.Unapplied(r)
	}
	return err
}

// MutateRow implements store.Engine.
func (c *Client) MutateRow(ctx context.Context, cond *store.Cond, m *cell.Mutation) (store.Result, error) {
	if err := store.CheckNil(m); err != nil {
		return store.Result{}, err
	}
	ac, err := api.FromCond(cond)
	if err != nil {
		return store.Result{}, err
	}
	if m.Table == "" {
		return store.Result{}, fmt.Errorf("%w: the name of the table is empty", store.ErrTableNotFound)
	}
	var r api.Result
	q := api.MutateRequest{Mutation: api.FromMutation(m), Cond: ac}
	err = c.call(ctx, http.MethodPost, tablePath(m.Table, "mutate"), q, &r)
	if err != nil {
		return store.Result{}, outcome(ctx, err, cond == nil && m.Idempotent())
	}
	return r.Store(), nil
}

// MutateRows implements store.RowMutator.
func (c *Client) MutateRows(ctx context.Context, ms []*cell.Mutation) ([]store.Result, []error) {
	results, errs := make([]store.Result, len(ms)), make([]error, len(ms))
	q := api.MutateManyRequest{Mutations: make([]api.Mutation, 0, len(ms))}
	at := make([]int, 0, len(ms)) // the index of each in ms
	for i, m := range ms {
		if errs[i] = store.CheckNil(m); errs[i] == nil {
			q.Mutations, at = append(q.Mutations, api.FromMutation(m)), append(at, i)
		}
	}
	if len(at) == 0 {
		return results, errs
	}
	var a api.MutateManyResponse
	err := c.call(ctx, http.MethodPost, "/mutate", q, &a)
	if err == nil && len(a.Results) != len(at) {
		err = fmt.Errorf("daemon at %s: %d results for %d mutations", c.Address(), len(a.Results), len(at))
	}
	for j, i := range at {
		switch {
		case err != nil:
			errs[i] = outcome(ctx, err, ms[i].Idempotent())
		case a.Results[j].Error != nil:
			errs[i] = a.Results[j].Error
		default:
			results[i] = a.Results[j].Store()
		}
	}
	return results, errs
}

// Traits implements store.Engine: those of the daemon's engine.
func (c *Client) Traits() store.Traits { return c.peer.Load().hello.Traits }

// Flush implements store.Compactor.
func (c *Client) Flush(ctx context.Context) error {
	return outcome(ctx, c.call(ctx, http.MethodPost, "/flush", nil, nil), true)
}

// MajorCompact implements store.Compactor.
func (c *Client) MajorCompact(ctx context.Context, table string) error {
	return outcome(ctx, c.call(ctx, http.MethodPost, tablePath(table, "compact"), nil, nil), true)
}

// Offsets returns every stored progress, as store.AllProgress does.
func (c *Client) Offsets(ctx context.Context) ([]store.PartitionProgress, error) {
	var a api.OffsetsResponse
	if err := c.read(ctx, "/offsets", &a); err != nil {
		return nil, err
	}
	all := make([]store.PartitionProgress, len(a.Partitions))
	for i := range all {
		var err error
		if all[i], err = a.Partitions[i].Store(); err != nil {
			return nil, err
		}
	}
	return all, nil
}
