package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"sluice/config"
	"sluice/serve"
	"sluice/store"
)

// The daemon serves its jobs as flights, holds checkpoints for them, and gives these back
// when it ends, also those that nobody has released.
func TestDaemonServesFlights(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
store: {dir: %s}
serve: {listen: "127.0.0.1:0", token: secret}
flight: {listen: "127.0.0.1:0", max_flights: 3}
jobs:
  events:
    table: t
    columns: [{name: key, from: $row, type: string}]
  gone:
    table: nothing
    columns: [{name: key, from: $row, type: string}, {name: v, from: "f:v", type: string}]
joins:
  pairs: {left: {job: events}, right: {job: gone}, on: [{left: key}], out: out}
`, filepath.Join(dir, "data")), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := openDaemon(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.engine.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.run(ctx) }()
	c, err := flight.NewClientWithMiddleware(d.flights.listener.Addr().String(), nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	get := func(name string) (*flight.FlightInfo, error) {
		return c.GetFlightInfo(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret"), &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{name}})
	}
	for name, want := range map[string]string{
		"evnts": `job "evnts" (did you mean "events"?)`,
		"pairs": `job "pairs" (it is a join, and jobs alone are flights)`,
		"gone":  "no such table",
	} {
		if _, err := get(name); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Got %v, want %s", name, err, want)
		}
	}
	for range 2 {
		info, err := get("events")
		if err != nil {
			t.Fatal(err)
		}
		if len(info.Endpoint) != 1 {
			t.Errorf("Got %d endpoints", len(info.Endpoint))
		}
	}
	if n := len(d.server.Checkpoints().List()); n != 2 {
		t.Errorf("Got %d checkpoints", n)
	}
	st := d.flightStatus()()
	if want := (serve.FlightStatus{Held: 2, Opened: 2}); st.Held != want.Held || st.Opened != want.Opened || st.Refused["job"] != 2 {
		t.Errorf("Got %+v", st)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "data", "checkpoints")); err != nil || len(left) != 0 {
		t.Errorf("Got %v, %v", left, err)
	}
}

func TestFlightListenTaken(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, "store: {dir: %s}\nserve: {listen: '127.0.0.1:0'}\nflight: {listen: '127.0.0.1:99'}\n", t.TempDir()), nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Flight.Listen = "192.0.2.1:1" // of no machine
	if d, err := openDaemon(t.Context(), cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), "flight.listen: ") {
		t.Errorf("Got %v, %v", d, err)
	}
	cfg.Flight.Listen, cfg.Flight.TLS.CertFile = "127.0.0.1:0", "/none"
	if _, err := openDaemon(t.Context(), cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), "flight.tls: cert_file and key_file: ") {
		t.Errorf("Got %v", err)
	}
}
