package client

import (
	"context"
	"net/http"

	"sluice/serve/api"
)

// Lag returns what tells how far each of the daemon's pipelines is behind.
func (c *Client) Lag(ctx context.Context) ([]api.PipelineLag, error) {
	var answer struct {
		Pipelines []api.PipelineLag `json:"pipelines"`
	}
	err := outcome(ctx, c.call(ctx, http.MethodGet, "/pipelines", nil, &answer), true)
	return answer.Pipelines, err
}
