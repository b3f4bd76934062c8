package client

import "context"

// Renew renews the lease now.
func (p *Checkpoint) Renew(ctx context.Context) error { return p.renewOnce(ctx) }
