package client

import "context"

// Renew renews the lease now.
func (p *Checkpoint) Renew(ctx context.Context) error { return p.renewOnce(ctx) }

// CloseIdle closes the connections that no request uses.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }
