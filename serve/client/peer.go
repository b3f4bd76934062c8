package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"

	"sluice/serve/api"
	"sluice/store"
)

// peer is one daemon's process, as its endpoint names it.
type peer struct {
	endpoint api.Endpoint  // without the token
	token    func() string // a function so that fmt, which looks into every field, finds none
	hello    api.Hello
}

// connect greets the daemon at e. Its error is as Dial's.
func (c *Client) connect(ctx context.Context, e api.Endpoint) (*peer, error) {
	token := e.Token
	e.Token = ""
	p := &peer{endpoint: e, token: func() string { return token }}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	err := c.greet(ctx, p)
	var refused *api.Error
	switch {
	case err == nil && p.hello.Instance == e.Instance:
		return p, nil
	case err == nil:
		return nil, fmt.Errorf("%w: another daemon answers at %s", ErrNoDaemon, e.Address)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w: nobody listens at %s", ErrNoDaemon, e.Address)
	case errors.As(err, &refused):
		// Somebody answers who does not know the token: the port has a new
		// owner.
		return nil, fmt.Errorf("%w: who answers at %s is not it: %w", ErrNoDaemon, e.Address, err)
	}
	return nil, err
}

func (c *Client) greet(ctx context.Context, p *peer) error {
	res, err := c.ask(ctx, p, http.MethodGet, "/hello", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&p.hello); err != nil {
		return &connError{address: p.endpoint.Address, err: fmt.Errorf("read the answer: %w", err)}
	}
	return nil
}

// request sends a request and returns its good answer, whose body the caller closes.
// Where the daemon is gone, or another process has its port, it goes to the one that has
// the directory now; its error wraps ErrNoDaemon where none has.
func (c *Client) request(ctx context.Context, method, path string, body any) (*http.Response, error) {
	was := c.peer.Load()
	res, err := c.ask(ctx, was, method, path, body)
	// Both mean that the request was not looked at.
	if c.dir == "" || !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, api.ErrUnauthorized) {
		return res, err
	}
	now, findErr := c.follow(ctx, was, err)
	switch {
	case findErr != nil:
		return nil, fmt.Errorf("%w (%w)", err, findErr)
	case now == nil:
		return nil, err
	}
	return c.ask(ctx, now, method, path, body)
}

// follow greets the daemon that has the directory now, after was has failed with err, and
// makes it the client's. It returns nil where that is was, whose answer err is.
func (c *Client) follow(ctx context.Context, was *peer, err error) (*peer, error) {
	e, findErr := ReadEndpoint(c.dir)
	if findErr != nil {
		return nil, findErr
	}
	if e.Instance == was.endpoint.Instance && !errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil
	}
	now, findErr := c.connect(ctx, e)
	if findErr != nil {
		return nil, findErr
	}
	if now.hello.StoreID != was.hello.StoreID {
		return nil, fmt.Errorf("%w: the daemon at %s has another store, %q and not %q, in %s", ErrNoDaemon, e.Address, now.hello.StoreID, was.hello.StoreID, c.dir)
	}
	c.peer.CompareAndSwap(was, now)
	return now, nil
}

// ask sends a request to p.
func (c *Client) ask(ctx context.Context, p *peer, method, path string, body any) (*http.Response, error) {
	address := p.endpoint.Address
	if err := ctx.Err(); err != nil { // no connError: nothing was sent
		return nil, fmt.Errorf("daemon at %s: %w", address, err)
	}
	var reader io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("%w: encode the request: %w", store.ErrInvalidArgument, err)
		}
		reader = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+address+api.Prefix+path, reader)
	if err != nil {
		return nil, fmt.Errorf("daemon at %s: %w", address, err)
	}
	r.Header.Set("Authorization", "Bearer "+p.token())
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(r)
	if err != nil {
		return nil, &connError{address: address, err: err}
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	var e api.Error
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return nil, &connError{address: address, err: err}
	}
	if json.Unmarshal(b, &e) != nil || e.Code == "" {
		e = api.Error{Code: "internal", Message: fmt.Sprintf("%s %s: status %s", method, path, res.Status)}
	}
	return nil, &e
}
