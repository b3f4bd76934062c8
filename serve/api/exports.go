package api

import "time"

// ScheduleRequest is the body of …/exports/{job}/schedule.
type ScheduleRequest struct {
	Paused bool `json:"paused"`
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
