package flight

import "sync/atomic"

// Metrics is what a Server does now and has done.
type Metrics struct {
	Held    int   // flights, each of which holds an instant of the store
	Opened  int64 // flights
	Streams int   // that read a part now

	Finished  int64 // streams that sent all of their part
	Cancelled int64 // whose client, or whose flight, ended before
	Failed    int64 // that ended with another error
	Rows      int64 // sent
	Bytes     int64 // sent, of record batches and schemas as they are encoded

	Refused map[string]int64 // calls that were refused, by Refusals
}

// Refusals are why calls are refused: they have no good token, name no ticket or job that
// there is, or there are as many flights or streams as may be.
func Refusals() []string { return []string{"token", "ticket", "job", "flights", "streams"} }

// counts are those of Metrics.
type counts struct {
	opened, finished, cancelled, failed, rows, bytes atomic.Int64

	streams atomic.Int32
	token   atomic.Int64
	ticket  atomic.Int64
	job     atomic.Int64
	flights atomic.Int64
	full    atomic.Int64 // streams
}

// Metrics returns what s does now and has done.
func (s *Server) Metrics() Metrics {
	c := &s.counts
	return Metrics{
		Held: s.held.len(), Opened: c.opened.Load(), Streams: int(c.streams.Load()),
		Finished: c.finished.Load(), Cancelled: c.cancelled.Load(), Failed: c.failed.Load(), Rows: c.rows.Load(), Bytes: c.bytes.Load(),
		Refused: map[string]int64{"token": c.token.Load(), "ticket": c.ticket.Load(), "job": c.job.Load(), "flights": c.flights.Load(), "streams": c.full.Load()},
	}
}
