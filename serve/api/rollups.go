package api

import "sluice/cell"

// Rollup says what an answer is about: a rollup by one set of its dimensions.
type Rollup struct {
	Name       string   `json:"name"`
	Dimensions []string `json:"dimensions"`
	Values     [][]byte `json:"values"`          // that were asked for, by dimension
	Texts      []string `json:"texts"`           // Values, "" where one is not UTF-8
	Bucket     string   `json:"bucket"`          // minute, hour, day, week, month or total
	Error      float64  `json:"error,omitempty"` // relative standard error of the counts, where they are estimates
}

// sketchError is the relative standard error of distinct counts
// (counters.SketchError, which docs/format/distinct.md fixes): 1.04/√16384.
const sketchError = 0.008125

// NewRollup returns a Rollup. distinct says that the counts are estimates.
func NewRollup(name string, dimensions []string, values [][]byte, bucket string, distinct bool) Rollup {
	r := Rollup{Name: name, Dimensions: dimensions, Values: values, Texts: texts(values), Bucket: bucket}
	if dimensions == nil {
		r.Dimensions = []string{}
	}
	if values == nil {
		r.Values = [][]byte{}
	}
	if distinct {
		r.Error = sketchError
	}
	return r
}

func texts(values [][]byte) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = text(v)
	}
	return all
}

// Point is one bucket: [Start, Stop) in ms since 1970, and what was counted in it.
type Point struct {
	Start int64 `json:"start"`
	Stop  int64 `json:"stop"` // 2⁶³-1 of bucket total
	Count int64 `json:"count"`
	Time  int64 `json:"time,omitempty"` // newest event time; absent where nothing was counted
}

// SeriesResponse is the answer of …/rollups/{table}/{rollup}/series. Sum is of all
// points; of a distinct count it is that of the union.
type SeriesResponse struct {
	Rollup
	Points []Point `json:"points"`
	Sum    int64   `json:"sum"`
}

// Group is one combination of values, by dimension.
type Group struct {
	Values [][]byte `json:"values"`
	Texts  []string `json:"texts"` // Values, "" where one is not UTF-8
	Count  int64    `json:"count"`
	Time   int64    `json:"time"` // newest event time
}

// NewGroup returns a Group.
func NewGroup(values [][]byte, count int64, t cell.Timestamp) Group {
	if values == nil {
		values = [][]byte{}
	}
	return Group{Values: values, Texts: texts(values), Count: count, Time: int64(t)}
}

// GroupsResponse is the answer of …/rollups/{table}/{rollup}/top, largest first.
type GroupsResponse struct {
	Rollup
	Groups []Group `json:"groups"`
}
