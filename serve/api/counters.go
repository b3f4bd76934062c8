package api

import (
	"unicode/utf8"

	"sluice/cell"
)

// Counter is one counter of a row. Text is the qualifier where it is UTF-8, for
// readers that do not want base64.
type Counter struct {
	Qualifier []byte `json:"qualifier"`
	Text      string `json:"text,omitempty"`
	Count     int64  `json:"count"`
	Time      int64  `json:"time"` // newest event time
}

// NewCounter returns a Counter.
func NewCounter(qualifier []byte, count int64, t cell.Timestamp) Counter {
	return Counter{Qualifier: qualifier, Text: text(qualifier), Count: count, Time: int64(t)}
}

func text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return ""
}

// CountersResponse is the answer of …/counters/{table}/{row}. Sum wraps around as
// counters do; of a DISTINCT family it is the count of the union.
type CountersResponse struct {
	Row      []byte    `json:"row"`
	Family   string    `json:"family"`
	Counters []Counter `json:"counters"`
	Sum      int64     `json:"sum"`
	Estimate bool      `json:"estimate,omitempty"` // the counts are of a DISTINCT family
}

// TopRow is a row and the sum of its counters.
type TopRow struct {
	Row   []byte `json:"row"`
	Text  string `json:"text,omitempty"` // Row, where it is UTF-8
	Count int64  `json:"count"`
	Time  int64  `json:"time"` // newest event time
}

// NewTopRow returns a TopRow.
func NewTopRow(row []byte, count int64, t cell.Timestamp) TopRow {
	return TopRow{Row: row, Text: text(row), Count: count, Time: int64(t)}
}

// TopResponse is the answer of …/counters/{table}/top.
type TopResponse struct {
	Family   string   `json:"family"`
	Rows     []TopRow `json:"rows"`
	Estimate bool     `json:"estimate,omitempty"` // the counts are of a DISTINCT family
}

// OutboxRow is one dead letter: its columns by qualifier, as docs/format/outbox.md
// has them.
type OutboxRow struct {
	Key     []byte            `json:"key"`
	Columns map[string][]byte `json:"columns"`
}

// OutboxResponse is the answer of …/outbox.
type OutboxResponse struct {
	Rows []OutboxRow `json:"rows"`
}
