package flight

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow/go/v15/arrow/flight"
	"github.com/apache/arrow/go/v15/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"sluice/cell"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/serve/api"
	"sluice/store"
)

// description is the app_metadata of a flight, and, with a part, of an endpoint: what the
// manifest says of a run, under the same names.
type description struct {
	Job         string         `json:"job"`
	Table       string         `json:"table,omitempty"`
	Time        time.Time      `json:"time,omitzero"` // when the instant was taken
	Sequence    uint64         `json:"sequence,omitempty"`
	Offsets     []jobs.Offset  `json:"offsets,omitempty"`
	Consistency string         `json:"consistency,omitempty"`
	TimeBound   cell.Timestamp `json:"time_bound,omitempty"`
	Limits      []string       `json:"limits,omitempty"`
	Engine      string         `json:"engine,omitempty"`
	// Refused is why a job that is listed cannot be read.
	Refused string `json:"refused,omitempty"`

	*part
}

// part is of an endpoint. Row keys are escaped as in manifests.
type part struct {
	Part        int    `json:"part"`
	RegionStart string `json:"region_start"`
	RegionStop  string `json:"region_stop"`
	StartRow    string `json:"start_row"` // the part is [StartRow, StopRow)
	StopRow     string `json:"stop_row"`
}

// maxRepeated is how many offsets the endpoints of a flight have together: beyond that the
// flight alone has them, as its description would be larger than what clients take.
const maxRepeated = 10_000

// marshal returns d as JSON.
func (d *description) marshal() []byte {
	b, err := json.Marshal(d)
	if err != nil {
		panic(fmt.Sprintf("flight: describe a flight: %v", err)) // of strings and numbers
	}
	return b
}

// failure turns an error into a status, and logs what is the daemon's own.
func (s *Server) failure(err error, what, job string) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	refused, spec, full := (*columnar.ConvertError)(nil), (*columnar.SpecError)(nil), (*fullError)(nil)
	code := codes.Internal
	switch {
	case errors.Is(err, errNoFlight), errors.Is(err, errTicket), errors.Is(err, api.ErrNotFound), errors.Is(err, store.ErrTableNotFound), errors.Is(err, store.ErrFamilyNotFound):
		code = codes.NotFound
	case errors.Is(err, errReleased):
		code = codes.Canceled
	case errors.Is(err, errFlightEnd), errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.As(err, &full):
		code = codes.ResourceExhausted
	case errors.Is(err, store.ErrUnsupported):
		code = codes.Unimplemented
	case errors.As(err, &refused), errors.As(err, &spec), errors.Is(err, store.ErrTableNotEnabled):
		code = codes.FailedPrecondition
	case errors.Is(err, errStopping), errors.Is(err, store.ErrTransient), errors.Is(err, store.ErrDiskFull), errors.Is(err, store.ErrClosed):
		code = codes.Unavailable
	}
	if code == codes.Internal || code == codes.FailedPrecondition || code == codes.Unavailable {
		s.o.Logger.Warn(what, "job", job, "err", err)
	}
	return status.Error(code, message(err))
}

// message returns an error without the class that a code says.
func message(err error) string {
	text := err.Error()
	for _, class := range []error{api.ErrNotFound, store.ErrUnsupported} {
		text = strings.TrimPrefix(text, class.Error()+": ")
	}
	return text
}

// jobOf returns the job that a descriptor names.
func (s *Server) jobOf(d *flight.FlightDescriptor) (string, error) {
	switch {
	case d.GetType() == flight.DescriptorPATH && len(d.GetPath()) == 1:
		return d.GetPath()[0], nil
	case d.GetType() == flight.DescriptorCMD:
		return "", status.Error(codes.InvalidArgument, "flights are named by path, and there are no commands: FlightDescriptor.for_path(JOB)")
	}
	return "", status.Errorf(codes.InvalidArgument, "a flight's path is the name of one job: FlightDescriptor.for_path(JOB), not %d names", len(d.GetPath()))
}

// compile is Options.Compile, and counts what is not there.
func (s *Server) compile(ctx context.Context, job string, table TableReader) (*jobs.Job, error) {
	j, err := s.o.Compile(ctx, job, table)
	if errors.Is(err, api.ErrNotFound) {
		s.counts.job.Add(1)
	}
	return j, err
}

// ListFlights lists the jobs, with their schemas and without endpoints: nothing is held
// for them.
func (s *Server) ListFlights(q *flight.Criteria, stream flight.FlightService_ListFlightsServer) error {
	if len(q.GetExpression()) > 0 {
		return status.Error(codes.InvalidArgument, "there are no criteria: list all flights, and choose by their paths")
	}
	for _, name := range s.o.Jobs {
		ctx, refused := stream.Context(), error(nil)
		j, err := s.compile(ctx, name, s.o.Table)
		if err != nil && ctx.Err() == nil { // its columns are known without the table
			refused = err
			j, err = s.compile(ctx, name, noSchema)
		}
		if err != nil {
			return s.failure(err, "flights cannot be listed", name)
		}
		d := description{Job: name, Table: j.Table(), Engine: s.o.Engine}
		if err := cmp.Or(refused, j.CheckReading()); err != nil {
			d.Refused = message(err)
		}
		if err := stream.Send(&flight.FlightInfo{
			Schema:           flight.SerializeSchema(columnar.ArrowSchema(j.Columns(), nil), memory.DefaultAllocator),
			FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{name}},
			TotalRecords:     -1, TotalBytes: -1, Ordered: true, AppMetadata: d.marshal(),
		}); err != nil {
			return err
		}
	}
	return nil
}

// noSchema is the TableReader of tables that are not there.
func noSchema(_ context.Context, name string) (*store.TableDescriptor, error) {
	return nil, fmt.Errorf("%w: %s", store.ErrTableNotFound, name)
}

// GetSchema returns the schema of a job's rows.
func (s *Server) GetSchema(ctx context.Context, d *flight.FlightDescriptor) (*flight.SchemaResult, error) {
	name, err := s.jobOf(d)
	if err != nil {
		return nil, err
	}
	j, err := s.compile(ctx, name, s.o.Table)
	if err != nil {
		return nil, s.failure(err, "the schema of a flight cannot be told", name)
	}
	return &flight.SchemaResult{Schema: flight.SerializeSchema(columnar.ArrowSchema(j.Columns(), nil), memory.DefaultAllocator)}, nil
}

// GetFlightInfo takes an instant for a job, and holds it.
func (s *Server) GetFlightInfo(ctx context.Context, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	name, err := s.jobOf(d)
	if err != nil {
		return nil, err
	}
	f, err := s.open(ctx, name)
	if full := (*fullError)(nil); errors.As(err, &full) {
		s.counts.flights.Add(1)
		s.o.Logger.Warn("as many flights are held as may be: one was refused", "job", name, "flights", full.most)
	}
	if err != nil {
		return nil, s.failure(err, "no flight could be opened", name)
	}
	info := s.describe(f, d)
	if ctx.Err() != nil { // nobody would have the tickets
		s.held.give()
		return nil, s.failure(errors.Join(context.Cause(ctx), f.source.Close()), "no flight could be opened", name)
	}
	expires, err := s.held.add(f)
	if err != nil {
		return nil, s.failure(errors.Join(err, f.source.Close()), "no flight could be opened", name)
	}
	for _, e := range info.Endpoint {
		e.ExpirationTime = timestamppb.New(expires)
	}
	s.counts.opened.Add(1)
	s.o.Logger.Info("flight opened", "job", name, "flight", f.id.String(), "sequence", f.reading.Sequence(), "parts", len(info.Endpoint), "took", s.o.Now().Sub(f.opened).Round(time.Millisecond))
	return info, nil
}

// open takes an instant and plans what is read of it. A place for it is reserved, where it
// returns one.
func (s *Server) open(ctx context.Context, name string) (_ *heldFlight, err error) {
	// What cannot be done at all costs no instant.
	j, err := s.compile(ctx, name, s.o.Table)
	if err == nil {
		err = j.CheckReading()
	}
	if err != nil {
		return nil, err
	}
	if err := s.held.reserve(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.held.give()
		}
	}()
	f := &heldFlight{id: newFlightID(), job: name, opened: s.o.Now()}
	if f.source, err = s.o.Open(ctx); err != nil {
		return nil, err
	}
	if j, err = s.compile(ctx, name, f.source.Table); err == nil {
		f.reading, err = jobs.OpenReading(ctx, &jobs.ReadOptions{Job: j, Source: f.source, BatchBytes: batchBytes})
	}
	if err != nil {
		return nil, errors.Join(err, f.source.Close())
	}
	f.table, f.schema = j.Table(), columnar.ArrowSchema(f.reading.Columns(), nil)
	return f, nil
}

// describe returns what clients hear of a flight, but for when it expires.
func (s *Server) describe(f *heldFlight, d *flight.FlightDescriptor) *flight.FlightInfo {
	all := description{Job: f.job, Table: f.table, Time: f.opened.UTC(), Sequence: f.reading.Sequence(), Offsets: f.reading.Offsets(), Engine: s.o.Engine}
	all.Consistency, all.TimeBound, all.Limits = f.reading.Consistency()
	info := &flight.FlightInfo{
		Schema: flight.SerializeSchema(f.schema, memory.DefaultAllocator), FlightDescriptor: d,
		TotalRecords: -1, TotalBytes: -1, Ordered: true, AppMetadata: all.marshal(),
	}
	each := all
	each.Limits = nil
	if len(all.Offsets)*len(f.reading.Parts()) > maxRepeated {
		each.Offsets = nil
	}
	for i, p := range f.reading.Parts() {
		each.part = &part{
			Part: i, RegionStart: columnar.EscapeKey(p.Region.Start), RegionStop: columnar.EscapeKey(p.Region.Stop),
			StartRow: columnar.EscapeKey(p.Rows.Start), StopRow: columnar.EscapeKey(p.Rows.Stop),
		}
		info.Endpoint = append(info.Endpoint, &flight.FlightEndpoint{Ticket: &flight.Ticket{Ticket: f.id.ticket(i)}, AppMetadata: each.marshal()})
	}
	return info
}

// PollFlightInfo is not there: GetFlightInfo answers at once.
func (s *Server) PollFlightInfo(context.Context, *flight.FlightDescriptor) (*flight.PollInfo, error) {
	return nil, status.Error(codes.Unimplemented, "there is no PollFlightInfo: GetFlightInfo answers at once")
}

// DoPut is not there.
func (s *Server) DoPut(flight.FlightService_DoPutServer) error {
	return status.Error(codes.Unimplemented, "flights are read only: rows are written by pipelines, the HTTP API, and export import")
}

// DoExchange is not there.
func (s *Server) DoExchange(flight.FlightService_DoExchangeServer) error {
	return status.Error(codes.Unimplemented, "there is no DoExchange: flights are read with GetFlightInfo and DoGet")
}

// releaseAction ends a flight, as CancelFlightInfo does, by one of its tickets, which every
// client has at hand.
const releaseAction = "release"

// actions are what DoAction does.
var actions = []*flight.ActionType{
	{Type: releaseAction, Description: "ends the flight that the ticket in the body is of, and gives its instant back"},
	{Type: flight.CancelFlightInfoActionType, Description: "ends a flight; the body is a CancelFlightInfoRequest"},
	{Type: flight.RenewFlightEndpointActionType, Description: "keeps a flight for longer; the body is a RenewFlightEndpointRequest"},
}

// ListActions lists what DoAction does.
func (s *Server) ListActions(_ *flight.Empty, stream flight.FlightService_ListActionsServer) error {
	for _, a := range actions {
		if err := stream.Send(a); err != nil {
			return err
		}
	}
	return nil
}

// DoAction ends or renews a flight.
func (s *Server) DoAction(a *flight.Action, stream flight.FlightService_DoActionServer) error {
	switch a.GetType() {
	case releaseAction:
		return s.release(a.GetBody())
	case flight.CancelFlightInfoActionType:
		var q flight.CancelFlightInfoRequest
		if err := proto.Unmarshal(a.GetBody(), &q); err != nil || len(q.GetInfo().GetEndpoint()) == 0 {
			return status.Errorf(codes.InvalidArgument, "the body of %s is no CancelFlightInfoRequest with a FlightInfo that GetFlightInfo has returned", a.GetType())
		}
		if err := s.release(q.Info.Endpoint[0].GetTicket().GetTicket()); err != nil {
			return err
		}
		return sendResult(stream, &flight.CancelFlightInfoResult{Status: flight.CancelStatusCancelled})
	case flight.RenewFlightEndpointActionType:
		var q flight.RenewFlightEndpointRequest
		if err := proto.Unmarshal(a.GetBody(), &q); err != nil || q.GetEndpoint() == nil {
			return status.Errorf(codes.InvalidArgument, "the body of %s is no RenewFlightEndpointRequest with an endpoint", a.GetType())
		}
		id, _, err := readTicket(q.Endpoint.GetTicket().GetTicket())
		var expires time.Time
		if err == nil {
			expires, err = s.held.renew(id)
		}
		if err != nil {
			s.counts.ticket.Add(1)
			return s.failure(err, "", "")
		}
		q.Endpoint.ExpirationTime = timestamppb.New(expires)
		return sendResult(stream, q.Endpoint)
	}
	var known []string
	for _, k := range actions {
		known = append(known, k.Type)
	}
	slices.Sort(known)
	return status.Errorf(codes.Unimplemented, "there is no action %q; there are %v", a.GetType(), known)
}

// release ends the flight that a ticket is of.
func (s *Server) release(ticket []byte) error {
	id, _, err := readTicket(ticket)
	var ended []*heldFlight
	if err == nil {
		ended, err = s.held.release(id)
	}
	if err != nil {
		s.counts.ticket.Add(1)
		return s.failure(err, "", "")
	}
	s.end(ended)
	return nil
}

// sendResult sends the result of an action.
func sendResult(stream flight.FlightService_DoActionServer, m proto.Message) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return status.Errorf(codes.Internal, "encode the result: %v", err)
	}
	return stream.Send(&flight.Result{Body: b})
}
