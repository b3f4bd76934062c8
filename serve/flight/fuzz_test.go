package flight

import (
	"bytes"
	"testing"

	"github.com/apache/arrow/go/v15/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Bytes that are a ticket are the one of what they name.
func FuzzReadTicket(f *testing.F) {
	f.Add(flightID{}.ticket(0))
	f.Add(newFlightID().ticket(1 << 20))
	f.Add([]byte{})
	f.Add(make([]byte, ticketBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, part, err := readTicket(b)
		if err == nil && !bytes.Equal(id.ticket(int(part)), b) {
			t.Errorf("%x is read as part %d of %x", b, part, id)
		}
	})
}

// actionStream is where results of actions go.
type actionStream struct{ grpc.ServerStream }

func (actionStream) Send(*flight.Result) error { return nil }

// No body of an action ends anything that it does not name.
func FuzzActions(f *testing.F) {
	s, err := New(&Options{Compile: noJob, Table: noTable, Open: noSource, Token: testToken})
	if err != nil {
		f.Fatal(err)
	}
	info := &flight.FlightInfo{Endpoint: []*flight.FlightEndpoint{{Ticket: &flight.Ticket{Ticket: flightID{1}.ticket(0)}}}}
	for _, m := range []proto.Message{&flight.CancelFlightInfoRequest{Info: info}, &flight.RenewFlightEndpointRequest{Endpoint: info.Endpoint[0]}} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, a := range actions {
			switch err := s.DoAction(&flight.Action{Type: a.Type, Body: b}, actionStream{}); status.Code(err) {
			case codes.NotFound, codes.InvalidArgument:
			default:
				t.Errorf("%s of %x: Got %v", a.Type, b, err)
			}
		}
	})
}
