package flight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow/go/v15/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/jobstest"
	"sluice/store"
)

// events serves job events of a table with rows.
func events(t *testing.T, rows int, change func(o *Options)) *fixture {
	t.Helper()
	e := jobstest.OpenMemory(t, "row00010")
	fill(t, e, rows)
	return serveFlights(t, e, map[string]*jobs.Spec{"events": eventSpec()}, change)
}

func TestToken(t *testing.T) {
	t.Parallel()
	f := events(t, 20, nil)
	for _, header := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Bearer secretly", "Basic " + testToken, testToken} {
		ctx := t.Context()
		if header != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", header)
		}
		_, err := f.client.GetFlightInfo(ctx, path("events"))
		wantStatus(t, err, codes.Unauthenticated, "sluice.endpoint")
		stream, err := f.client.DoGet(ctx, &flight.Ticket{Ticket: flightID{}.ticket(0)})
		if err == nil {
			_, err = stream.Recv()
		}
		wantStatus(t, err, codes.Unauthenticated, "authorization: Bearer TOKEN")
	}
	if m := f.Metrics(); m.Refused["token"] != 14 || m.Held != 0 {
		t.Errorf("Got %+v", m)
	}
	ctx, err := f.client.AuthenticateBasicToken(t.Context(), "anybody", testToken)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.client.GetSchema(ctx, path("events")); err != nil {
		t.Error(err)
	}
	_, err = f.client.AuthenticateBasicToken(t.Context(), "anybody", "wrong")
	wantStatus(t, err, codes.Unauthenticated, "log in with any name")
	o := Options{Token: testToken}
	if printed := fmt.Sprintf("%v %+v %#v %+v", o, o, o, f.o); strings.Contains(printed, testToken) {
		t.Errorf("Got %s", printed)
	}
}

// A ticket that is unknown, of a part that is not there, or of a flight that was released
// is not found.
func TestTicketsAndActions(t *testing.T) {
	t.Parallel()
	f := events(t, 20, nil)
	info := f.get(t, "events")
	id, part, err := readTicket(info.Endpoint[1].Ticket.Ticket)
	if err != nil || part != 1 {
		t.Fatal(err, part)
	}
	read := func(ticket []byte) error {
		_, err := f.read(authorized(t), &flight.FlightEndpoint{Ticket: &flight.Ticket{Ticket: ticket}}, nil)
		return err
	}
	wantStatus(t, read(nil), codes.NotFound, "no ticket of this server")
	wantStatus(t, read([]byte("events")), codes.NotFound, "no ticket of this server")
	wantStatus(t, read(id.ticket(2)), codes.NotFound, "no ticket of this server")
	wantStatus(t, read(id.ticket(-1)), codes.NotFound, "no ticket of this server")
	wantStatus(t, read(newFlightID().ticket(0)), codes.NotFound, "ask for a new one with GetFlightInfo")

	before := info.Endpoint[0].ExpirationTime.AsTime()
	renewed, err := f.client.RenewFlightEndpoint(authorized(t), &flight.RenewFlightEndpointRequest{Endpoint: info.Endpoint[0]})
	if err != nil || renewed.ExpirationTime.AsTime().Before(before) || string(renewed.Ticket.Ticket) != string(info.Endpoint[0].Ticket.Ticket) {
		t.Errorf("Got %v, %v", renewed, err)
	}
	if f.open.Load() != 1 {
		t.Errorf("%d instants are held", f.open.Load())
	}
	r, err := f.client.CancelFlightInfo(authorized(t), &flight.CancelFlightInfoRequest{Info: info})
	if err != nil || r.Status != flight.CancelStatusCancelled || f.open.Load() != 0 {
		t.Errorf("Got %v, %v; %d instants", r.GetStatus(), err, f.open.Load())
	}
	wantStatus(t, read(id.ticket(0)), codes.NotFound, "was released")
	_, err = f.client.CancelFlightInfo(authorized(t), &flight.CancelFlightInfoRequest{Info: info})
	wantStatus(t, err, codes.NotFound, "was released")
	_, err = f.client.RenewFlightEndpoint(authorized(t), &flight.RenewFlightEndpointRequest{Endpoint: info.Endpoint[0]})
	wantStatus(t, err, codes.NotFound, "was released")

	info = f.get(t, "events")
	if err := f.act(t, "release", info.Endpoint[1].Ticket.Ticket); err != nil || f.open.Load() != 0 {
		t.Errorf("Got %v; %d instants", err, f.open.Load())
	}
	wantStatus(t, f.act(t, "release", []byte("x")), codes.NotFound, "no ticket")
	wantStatus(t, f.act(t, flight.CancelFlightInfoActionType, []byte("x")), codes.InvalidArgument, "no CancelFlightInfoRequest")
	wantStatus(t, f.act(t, flight.RenewFlightEndpointActionType, nil), codes.InvalidArgument, "no RenewFlightEndpointRequest")
	wantStatus(t, f.act(t, "drop", nil), codes.Unimplemented, "there are [CancelFlightInfo RenewFlightEndpoint release]")
	all, err := f.client.ListActions(authorized(t), &flight.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; ; n++ {
		if _, err := all.Recv(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n != 3 {
		t.Errorf("Got %d actions", n)
	}
}

// act does an action that has no result.
func (f *fixture) act(t *testing.T, action string, body []byte) error {
	stream, err := f.client.DoAction(authorized(t), &flight.Action{Type: action, Body: body})
	if err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func TestNothingIsWritten(t *testing.T) {
	t.Parallel()
	f := events(t, 0, nil)
	put, err := f.client.DoPut(authorized(t))
	if err == nil {
		_, err = put.Recv()
	}
	wantStatus(t, err, codes.Unimplemented, "flights are read only")
	exchange, err := f.client.DoExchange(authorized(t))
	if err == nil {
		_, err = exchange.Recv()
	}
	wantStatus(t, err, codes.Unimplemented, "GetFlightInfo and DoGet")
	_, err = f.client.PollFlightInfo(authorized(t), path("events"))
	wantStatus(t, err, codes.Unimplemented, "GetFlightInfo answers at once")
	// A part without rows has its schema.
	stream, err := f.client.DoGet(authorized(t), f.get(t, "events").Endpoint[0].Ticket)
	if err != nil {
		t.Fatal(err)
	}
	r, err := flight.NewRecordReader(stream)
	if err != nil || len(r.Schema().Fields()) != 5 || r.Next() {
		t.Errorf("Got %v", err)
	}
}

// As many flights are held as may be; a stream that finds no place hears why.
func TestBounds(t *testing.T) {
	t.Parallel()
	f := events(t, 20, func(o *Options) { o.MaxFlights, o.MaxStreams = 2, 1 })
	f.wait = 0
	first, second := f.get(t, "events"), f.get(t, "events")
	_, err := f.client.GetFlightInfo(authorized(t), path("events"))
	wantStatus(t, err, codes.ResourceExhausted, "as many flights are held as may be, 2 (the next ends in 5m0s unless it is read)")
	if err := f.act(t, "release", first.Endpoint[0].Ticket.Ticket); err != nil {
		t.Fatal(err)
	}
	f.get(t, "events")
	f.places <- struct{}{} // another stream
	_, err = f.read(authorized(t), second.Endpoint[0], nil)
	wantStatus(t, err, codes.ResourceExhausted, "as many streams send as may, 1")
	<-f.places
	if m := f.Metrics(); m.Refused["flights"] != 1 || m.Refused["streams"] != 1 || m.Held != 2 {
		t.Errorf("Got %+v", m)
	}
}

// A value that a column does not take ends the stream with where it is.
func TestRefusedValue(t *testing.T) {
	t.Parallel()
	e := jobstest.OpenMemory(t)
	fill(t, e, 10)
	jobstest.Mutate(t, e, "t", "row00005", jobstest.PutOp("f", "q", 3000, "five"))
	spec := eventSpec()
	f := serveFlights(t, e, map[string]*jobs.Spec{"events": spec}, nil)
	job, err := jobs.Compile("events", spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.read(authorized(t), f.get(t, "events").Endpoint[0], job.Columns())
	wantStatus(t, err, codes.FailedPrecondition, "row00005")
	if m := f.Metrics(); m.Failed != 1 || m.Finished != 0 {
		t.Errorf("Got %+v", m)
	}
}

// largeRows serves rows of a kilobyte, which memory alone holds.
func largeRows(t *testing.T, rows int, change func(o *Options)) *fixture {
	t.Helper()
	e := jobstest.OpenMemory(t)
	value := strings.Repeat("v", 64<<10)
	for i := range rows {
		jobstest.Mutate(t, e, "t", fmt.Sprintf("row%05d", i), jobstest.PutOp("f", "q", 1, value))
	}
	return serveFlights(t, e, map[string]*jobs.Spec{"large": {Table: "t", Columns: []columnar.ColumnSpec{{Name: "q", From: "f:q", Type: "string"}}}}, change)
}

// Of a part that its client does not read no more is sent than a few batches; when the
// client cancels, the stream ends. Messages are such as gRPC's clients take by themselves.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	const rows = 640 // of 64 KiB
	f := largeRows(t, rows, nil)
	info := f.get(t, "large")
	ctx, cancel := context.WithCancel(authorized(t))
	stream, err := f.client.DoGet(ctx, info.Endpoint[0].Ticket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil { // the schema
		t.Fatal(err)
	}
	awaitTrue(t, "rows are sent", func() bool { return f.Metrics().Rows > 0 })
	if n := f.Metrics().Rows; n > rows/2 {
		t.Errorf("%d rows were sent to a client that read none", n)
	}
	cancel()
	awaitTrue(t, "the stream has ended", func() bool { m := f.Metrics(); return m.Streams == 0 && m.Cancelled == 1 })
	job, err := jobs.Compile("large", &jobs.Spec{Table: "t", Columns: []columnar.ColumnSpec{{Name: "q", From: "f:q", Type: "string"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.read(authorized(t), info.Endpoint[0], job.Columns())
	if err != nil || len(all) != rows {
		t.Errorf("Got %d rows, %v", len(all), err)
	}
}

// The end of the daemon ends streams, also those whose clients do not read, and gives
// everything back.
func TestStop(t *testing.T) {
	t.Parallel()
	f := largeRows(t, 640, func(o *Options) { o.MaxStreams, o.ShutdownTimeout = 1, 2*time.Second })
	f.patience = 1
	info := f.get(t, "large")
	begin := func() flight.FlightService_DoGetClient {
		stream, err := f.client.DoGet(authorized(t), info.Endpoint[0].Ticket)
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	stuck := begin()
	if _, err := stuck.Recv(); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "rows are sent", func() bool { return f.Metrics().Rows > 0 })
	waits := begin() // for a place
	awaitTrue(t, "another stream waits", func() bool {
		f.held.mu.Lock()
		defer f.held.mu.Unlock()
		for _, h := range f.held.flights {
			return h.streams == 2
		}
		return false
	})
	if err := f.stop(); err != nil {
		t.Error(err)
	}
	if f.open.Load() != 0 || f.Metrics().Held != 0 {
		t.Errorf("%d instants are held", f.open.Load())
	}
	_, err := waits.Recv()
	why := "the daemon stops"
	for ; err == nil; _, err = waits.Recv() { // it has got the place of the stuck one first
		why = "" // may be behind what was not read when the connections were closed
	}
	wantStatus(t, err, codes.Unavailable, why)
	for err = nil; err == nil; {
		_, err = stuck.Recv()
	}
	wantStatus(t, err, codes.Unavailable, "")
}

// What an engine that freezes no instant has is a flight that says what is promised less.
func TestUnfrozenFlight(t *testing.T) {
	t.Parallel()
	e := jobstest.OpenMemory(t, "row00010")
	fill(t, e, 20)
	spec := &jobs.Spec{Table: "t", Columns: []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "q", From: "f:q", Type: "int64"}}}
	f := serveFlights(t, e, map[string]*jobs.Spec{"events": spec}, func(o *Options) {
		o.Open = func(ctx context.Context) (Source, error) {
			return instant.OpenUnfrozen(ctx, &jobstest.Thawed{Engine: e}, func() time.Time { return time.UnixMilli(5000) })
		}
	})
	info := f.get(t, "events")
	jobstest.Mutate(t, e, "t", "row00011x", jobstest.PutOp("f", "q", 6000, "7"))
	var d description
	if err := json.Unmarshal(info.AppMetadata, &d); err != nil || d.Consistency != jobs.ConsistencyRow || d.TimeBound != 5000 || len(d.Limits) < 3 {
		t.Errorf("Got %s, %v", info.AppMetadata, err)
	}
	job, err := jobs.Compile("events", spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range info.Endpoint {
		rows, err := f.read(authorized(t), e, job.Columns())
		if err != nil {
			t.Error(err)
		}
		n += len(rows)
	}
	if n != 20 || len(info.Endpoint) != 2 {
		t.Errorf("Got %d rows of %d parts", n, len(info.Endpoint))
	}
}

// A disabled table is the caller's to wait for, and no fault of the daemon's: HBase has no
// instant that outlasts it.
func TestDisabledTable(t *testing.T) {
	t.Parallel()
	s := &Server{o: Options{Logger: slog.New(slog.DiscardHandler)}}
	err := s.failure(fmt.Errorf("scan t: %w", &store.DisabledError{Table: "t"}), "a part of a flight could not be sent", "events")
	wantStatus(t, err, codes.FailedPrecondition, "table is disabled: t")
}

// A job that does not fit its table is listed with why, beside the others.
func TestListOfMisfit(t *testing.T) {
	t.Parallel()
	bad := eventSpec()
	bad.Columns[1].From = "nothing:q"
	f := serveFlights(t, jobstest.OpenMemory(t), map[string]*jobs.Spec{"bad": bad, "events": eventSpec()}, nil)
	stream, err := f.client.ListFlights(authorized(t), &flight.Criteria{})
	for _, want := range []string{"nothing", `{"job":"events","table":"t","engine":"test"}`} {
		var info *flight.FlightInfo
		if err == nil {
			info, err = stream.Recv()
		}
		if err != nil || !strings.Contains(string(info.AppMetadata), want) {
			t.Fatalf("Got %s, %v, want %s", info.GetAppMetadata(), err, want)
		}
	}
	_, err = f.client.GetFlightInfo(authorized(t), path("bad"))
	wantStatus(t, err, codes.FailedPrecondition, "nothing")
}
