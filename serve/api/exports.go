package api

import "time"

// ScheduleRequest is the body of …/exports/{job}/schedule, which must say whether it is
// paused.
type ScheduleRequest struct {
	Paused *bool `json:"paused"`
}

// OrderRequest is the body of …/exports/{job}/orders: a manual run where From is zero,
// and a backfill, of the schedule's times in [From, To), otherwise.
type OrderRequest struct {
	Time time.Time `json:"time,omitzero"` // that a manual run is for; zero = now
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"` // zero, or a time to come = now
}

// Order is what somebody has ordered and what has become of it.
type Order struct {
	ID        string    `json:"id"`
	Cause     string    `json:"cause"` // manual or backfill
	From      time.Time `json:"from"`  // of a manual run: its logical time
	To        time.Time `json:"to,omitzero"`
	Accepted  time.Time `json:"accepted_at"`
	Next      time.Time `json:"next"`  // logical time of the run at work or to come
	Times     int64     `json:"times"` // how many runs it is
	Ended     int64     `json:"ended"` // of these
	Failed    int64     `json:"failed"`
	Cancelled bool      `json:"cancelled,omitempty"` // it has ended when its run at work has
}

// ExportRun is an entry of a job's history, and the body of …/exports/{job}/history: a
// run that a process other than the daemon has made by hand, which Cause says.
type ExportRun struct {
	Logical  time.Time `json:"logical_time"`
	Result   string    `json:"result"`          // ok, published, failed, cancelled, skipped or missed
	Count    int64     `json:"count"`           // times that it is about, Logical the last of them
	Cause    string    `json:"cause,omitempty"` // schedule, catch-up, manual or backfill
	Order    string    `json:"order,omitempty"` // that it belongs to
	Started  time.Time `json:"started_at"`
	Ended    time.Time `json:"ended_at"`
	Attempts int       `json:"attempts"`
	RunID    string    `json:"run_id,omitempty"`
	Rows     int64     `json:"rows,omitempty"`
	Bytes    int64     `json:"bytes,omitempty"`
	// PausedSeconds is for how long the last attempt paused so that ingest could catch up.
	PausedSeconds float64 `json:"paused_seconds,omitempty"`
	Error         string  `json:"error,omitempty"`
}
