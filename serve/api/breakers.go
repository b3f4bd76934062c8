package api

// ClosedBreakers is the answer of …/pipelines/{pipeline}/close_breakers.
type ClosedBreakers struct {
	Partitions int `json:"partitions"` // whose breaker was open
}
