package client

import (
	"context"
	"net/http"
	"net/url"

	"sluice/serve/api"
)

// PauseExport keeps the schedule of an export job from starting runs, or lets it go
// on with the first time from now. Its error wraps api.ErrNotFound where no job of
// this name has a schedule, and store.ErrUnsupported where none has.
func (c *Client) PauseExport(ctx context.Context, job string, paused bool) error {
	return c.change(ctx, http.MethodPut, "/exports/"+url.PathEscape(job)+"/schedule", api.ScheduleRequest{Paused: paused})
}
