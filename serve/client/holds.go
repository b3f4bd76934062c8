package client

import (
	"context"
	"fmt"
	"net/http"

	"sluice/serve/api"
	"sluice/store"
)

var _ store.ChangeHolder = (*Client)(nil)

// ID returns the id of the daemon's store, empty where its engine has none.
func (c *Client) ID() string { return c.peer.Load().hello.StoreID }

func holdPath(name string) string { return "/holds/" + segment(name) }

// HoldChanges implements store.ChangeHolder. A call whose answer was lost may be
// made again: a hold that is there is renewed.
func (c *Client) HoldChanges(ctx context.Context, h store.ChangeHold) (store.ChangeHold, error) {
	if err := nameless(h.Name, store.ErrInvalidArgument); err != nil {
		return h, fmt.Errorf("hold changes of %s: %w", h.Table, err)
	}
	var a api.Hold
	err := c.call(ctx, http.MethodPut, holdPath(h.Name), api.HoldRequest{Table: h.Table, Since: h.Since, Until: int64(h.Until), Expired: h.Expired}, &a)
	if err != nil {
		return h, outcome(ctx, err, true)
	}
	return a.Store(), nil
}

// ReleaseChanges implements store.ChangeHolder.
func (c *Client) ReleaseChanges(ctx context.Context, name string) error {
	if name == "" {
		return nil // there is none of this name
	}
	return outcome(ctx, c.call(ctx, http.MethodDelete, holdPath(name), nil, nil), true)
}

// ChangeHolds implements store.ChangeHolder.
func (c *Client) ChangeHolds(ctx context.Context) ([]store.ChangeHold, error) {
	var a api.HoldsResponse
	if err := c.read(ctx, "/holds", &a); err != nil {
		return nil, err
	}
	var holds []store.ChangeHold
	for _, h := range a.Holds {
		holds = append(holds, h.Store())
	}
	return holds, nil
}
