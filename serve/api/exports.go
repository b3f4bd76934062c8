package api

// ScheduleRequest is the body of …/exports/{job}/schedule.
type ScheduleRequest struct {
	Paused bool `json:"paused"`
}
