package client

import (
	"context"
	"net/http"

	"sluice/serve/api"
)

// PauseExport keeps the schedule of an export job from starting runs, or lets it go
// on with the first time from now. Its error wraps api.ErrNotFound where no job of
// this name has a schedule, and store.ErrUnsupported where none has.
func (c *Client) PauseExport(ctx context.Context, job string, paused bool) error {
	return c.change(ctx, http.MethodPut, "/exports/"+segment(job)+"/schedule", api.ScheduleRequest{Paused: &paused})
}

// HasSchedule reports whether the daemon has a schedule of a job, and so runs its orders.
func (c *Client) HasSchedule(ctx context.Context, job string) (bool, error) {
	var answer struct {
		Exports []struct {
			Name     string    `json:"name"`
			Schedule *struct{} `json:"schedule"`
		} `json:"exports"`
	}
	err := outcome(ctx, c.call(ctx, http.MethodGet, "/exports", nil, &answer), true)
	for _, e := range answer.Exports {
		if e.Name == job && e.Schedule != nil {
			return true, err
		}
	}
	return false, err
}

// OrderExport has the daemon run a job that has a schedule, for a time or for the times
// of a range. It returns when the daemon has stored the order, or has had it before.
// Its error wraps store.ErrInvalidArgument, store.ErrRefused where too many are open or
// the same one is being cancelled, api.ErrNotFound where no job of this name has a
// schedule, and store.ErrUnsupported where none has.
func (c *Client) OrderExport(ctx context.Context, job string, q api.OrderRequest) (api.Order, error) {
	var order api.Order
	err := outcome(ctx, c.call(ctx, http.MethodPost, "/exports/"+segment(job)+"/orders", q, &order), false)
	return order, err
}

// CancelOrder ends an order of a job: what is at work of it is cancelled, the rest left
// out. Its error wraps api.ErrNotFound where there is no such job or order is not open.
func (c *Client) CancelOrder(ctx context.Context, job, order string) error {
	return c.change(ctx, http.MethodDelete, "/exports/"+segment(job)+"/orders/"+segment(order), nil)
}

// RecordExport adds a run of a job that this process has made to the job's history,
// which has it once however often it is told. Its error wraps store.ErrInvalidArgument,
// and api.ErrNotFound where the daemon is of a version that keeps no such history.
func (c *Client) RecordExport(ctx context.Context, job string, run api.ExportRun) error {
	return outcome(ctx, c.call(ctx, http.MethodPost, "/exports/"+segment(job)+"/history", run, nil), true)
}
