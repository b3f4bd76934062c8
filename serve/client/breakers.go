package client

import (
	"context"
	"net/http"

	"sluice/serve/api"
)

// CloseBreakers closes the open circuit breakers of a pipeline: their partitions go
// on where they wait. It returns how many partitions that are; its error wraps
// api.ErrNotFound where the daemon has no pipeline of this name.
func (c *Client) CloseBreakers(ctx context.Context, pipeline string) (int, error) {
	var answer api.ClosedBreakers
	err := outcome(ctx, c.call(ctx, http.MethodPost, "/pipelines/"+segment(pipeline)+"/close_breakers", nil, &answer), false)
	return answer.Partitions, err
}
