package flight

import (
	"context"
	"time"

	"github.com/apache/arrow/go/v15/arrow/flight"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice/jobs/columnar"
)

// DoGet streams the rows of a part of a flight.
func (s *Server) DoGet(t *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	id, number, err := readTicket(t.GetTicket())
	var f *heldFlight
	if err == nil {
		f, err = s.held.use(id)
	}
	if err == nil && int64(number) >= int64(len(f.reading.Parts())) {
		s.end(s.held.unuse(f))
		err = errTicket
	}
	if err != nil {
		s.counts.ticket.Add(1)
		return s.failure(err, "", "")
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	unhook := context.AfterFunc(f.ended, func() { cancel(context.Cause(f.ended)) })
	part := int(number)
	done := make(chan error, 1)
	s.reading.Add(1)
	go func() { // ends with the stream, or when Send does after that
		defer s.reading.Done()
		defer func() { s.end(s.held.unuse(f)) }()
		defer unhook()
		done <- s.send(ctx, f, part, stream)
	}()
	defer cancel(nil)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// A Send that waits for a client which does not read ends when the stream has, and that
	// is when DoGet has returned.
	late := time.NewTimer(s.patience)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return s.failure(context.Cause(ctx), "a stream could not be ended in time", f.job)
	}
}

// send sends the rows of a part, once there is a place, and counts what becomes of it.
func (s *Server) send(ctx context.Context, f *heldFlight, part int, to flight.DataStreamWriter) error {
	wait := time.NewTimer(s.wait)
	defer wait.Stop()
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		s.counts.cancelled.Add(1)
		return s.failure(context.Cause(ctx), "", f.job)
	case <-wait.C:
		s.counts.full.Add(1)
		s.o.Logger.Warn("as many streams of flights send as may: one was refused", "job", f.job, "streams", cap(s.places))
		return status.Errorf(codes.ResourceExhausted, "as many streams send as may, %d, and none has ended within %v: read fewer endpoints at once, or raise flight.max_streams", cap(s.places), s.wait)
	}
	defer func() { <-s.places }()
	s.counts.streams.Add(1)
	defer s.counts.streams.Add(-1)
	begun := s.o.Now()
	out := &counted{DataStreamWriter: to, s: s}
	rows, err := f.send(ctx, part, out)
	log := []any{"job", f.job, "flight", f.id.String(), "part", part, "rows", rows, "bytes", out.bytes, "took", s.o.Now().Sub(begun).Round(time.Millisecond)}
	switch {
	case err == nil:
		s.counts.finished.Add(1)
		s.o.Logger.Debug("part of a flight sent", log...)
		return nil
	case ctx.Err() != nil:
		s.counts.cancelled.Add(1)
		s.o.Logger.Debug("part of a flight cut off", append(log, "err", context.Cause(ctx))...)
		return s.failure(context.Cause(ctx), "a stream of a flight was cut off", f.job)
	}
	s.counts.failed.Add(1)
	return s.failure(err, "a part of a flight could not be sent", f.job)
}

// send sends the rows of a part, and returns how many it has sent.
func (f *heldFlight) send(ctx context.Context, part int, to *counted) (rows int64, err error) {
	w := flight.NewRecordWriter(to, ipc.WithSchema(f.schema))
	err = f.reading.Read(ctx, part, func(b *columnar.Batch) error {
		r := b.Record(f.schema)
		defer r.Release()
		if err := w.Write(r); err != nil { // gRPC has a copy then
			return err
		}
		rows += int64(b.Rows())
		to.s.counts.rows.Add(int64(b.Rows()))
		return nil
	})
	if err != nil {
		return rows, err
	}
	return rows, w.Close() // which sends the schema of a part without rows
}

// counted counts what is sent.
type counted struct {
	flight.DataStreamWriter
	s     *Server
	bytes int64
}

// Send implements flight.DataStreamWriter.
func (c *counted) Send(d *flight.FlightData) error {
	if err := c.DataStreamWriter.Send(d); err != nil {
		return err
	}
	n := int64(len(d.DataHeader) + len(d.DataBody))
	c.bytes += n
	c.s.counts.bytes.Add(n)
	return nil
}
