package flight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/flight"
	"github.com/apache/arrow/go/v15/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
	"sluice/jobs/jobstest"
	"sluice/serve/api"
	"sluice/store"
)

const testToken = "secret"

// source counts what is open.
type source struct {
	store.Snapshot
	open *atomic.Int32
}

func (s source) Close() error {
	s.open.Add(-1)
	return s.Snapshot.Close()
}

// fixture is a server that runs, and its client.
type fixture struct {
	*Server
	client  flight.Client
	address string
	open    atomic.Int32 // instants
	stop    func() error // ends Run and returns its error
}

// engine is what the tests' engines are.
type engine interface {
	store.Snapshotter
	Table(ctx context.Context, name string) (*store.TableDescriptor, error)
}

// serveFlights runs a server of the jobs of e, which change may change.
func serveFlights(t *testing.T, e engine, specs map[string]*jobs.Spec, change func(o *Options)) *fixture {
	t.Helper()
	f := &fixture{}
	o := &Options{
		Compile: func(ctx context.Context, name string, table TableReader) (*jobs.Job, error) {
			spec := specs[name]
			if spec == nil {
				return nil, fmt.Errorf("%w: job %q", api.ErrNotFound, name)
			}
			d, err := table(ctx, spec.Table)
			if err != nil && !errors.Is(err, store.ErrTableNotFound) {
				return nil, err
			}
			return jobs.Compile(name, spec, d)
		},
		Table: e.Table, Token: testToken, Engine: "test",
		Open: func(ctx context.Context) (Source, error) {
			s, err := e.Snapshot(ctx)
			if err != nil {
				return nil, err
			}
			f.open.Add(1)
			return source{s, &f.open}, nil
		},
	}
	for name := range specs {
		o.Jobs = append(o.Jobs, name)
	}
	slices.Sort(o.Jobs)
	if change != nil {
		change(o)
	}
	var err error
	if f.Server, err = New(o); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx, l) }()
	f.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		if n := f.open.Load(); n != 0 {
			t.Errorf("%d instants were not given back", n)
		}
	})
	f.address = l.Addr().String()
	f.client = dial(t, f.address, insecure.NewCredentials())
	return f
}

func dial(t *testing.T, address string, c credentials.TransportCredentials) flight.Client {
	t.Helper()
	client, err := flight.NewClientWithMiddleware(address, nil, nil, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// authorized returns a context of calls that carry the token.
func authorized(t *testing.T) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+testToken)
}

func path(names ...string) *flight.FlightDescriptor {
	return &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: names}
}

// get opens a flight of job.
func (f *fixture) get(t *testing.T, job string) *flight.FlightInfo {
	t.Helper()
	info, err := f.client.GetFlightInfo(authorized(t), path(job))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// read returns the rows of an endpoint as texts.
func (f *fixture) read(ctx context.Context, e *flight.FlightEndpoint, columns []columnar.Column) (rows [][]string, err error) {
	stream, err := f.client.DoGet(ctx, e.Ticket)
	if err != nil {
		return nil, err
	}
	r, err := flight.NewRecordReader(stream)
	if err != nil {
		return nil, err
	}
	defer r.Release()
	b := columnar.NewBatch(columns)
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		if err := b.SetRecord(record); err != nil {
			return rows, err
		}
		rows = append(rows, columnartest.Texts(b)...)
	}
}

// wantStatus fails where err has another code, or no such text.
func wantStatus(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("Got %v, want %v: %s", err, code, text)
	}
}

// awaitTrue waits until ok reports true.
func awaitTrue(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("still not: %s", what)
		}
	}
}

func eventSpec() *jobs.Spec {
	return &jobs.Spec{Table: "t", Formats: []string{jobs.Arrow}, Columns: []columnar.ColumnSpec{
		{Name: "key", From: "$row", Type: "string"},
		{Name: "q", From: "f:q", Type: "int64"},
		{Name: "n", From: "n:n", Type: "int64"},
		{Name: "rest", From: "$unmatched.f", Type: "map"},
		{Name: "time", From: "$timestamp", Type: "timestamp"},
	}}
}

// fill puts n rows into table t.
func fill(t *testing.T, e store.Engine, n int) {
	t.Helper()
	for i := range n {
		ops := jobstest.PutOp("f", "q", 1000, fmt.Sprint(i))
		jobstest.Mutate(t, e, "t", fmt.Sprintf("row%05d", i), ops, jobstest.PutOp("f", "x", 1000, strings.Repeat("x", i%7)))
	}
}

// I5: a flight holds the rows that a run of the job exports of the same instant, however
// often it is read, while rows are written and regions split and merge.
func TestFlightIsRun(t *testing.T) {
	t.Parallel()
	db := jobstest.OpenPebble(t, t.TempDir())
	jobstest.CreateTable(t, db, "t", "row00300", "row00700")
	fill(t, db, 1000)
	out := t.TempDir()
	var exported *jobs.Manifest
	spec := eventSpec()
	specs := map[string]*jobs.Spec{"events": spec}
	f := serveFlights(t, db, specs, func(o *Options) {
		open := o.Open
		o.Open = func(ctx context.Context) (Source, error) {
			s, err := open(ctx)
			if err == nil {
				job, _ := jobs.Compile("events", spec, nil)
				exported, err = jobs.Run(ctx, &jobs.RunOptions{Job: job, Source: s, Out: out})
			}
			return s, err
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var writes sync.WaitGroup
	writes.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			key := fmt.Sprintf("row%05d", i*37%1200)
			jobstest.Mutate(t, db, "t", key, jobstest.PutOp("f", "q", 2000, "-1"))
			if i%10 == 0 {
				if err := db.SplitRegion(t.Context(), "t", []byte(key)); err != nil && !errors.Is(err, store.ErrInvalidArgument) {
					t.Error(err)
				}
			}
		}
	})
	info := f.get(t, "events")
	job, err := jobs.Compile("events", spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := readRun(t, out, exported)
	for range 2 {
		parts := make([][][]string, len(info.Endpoint))
		var readers sync.WaitGroup
		for i, e := range info.Endpoint {
			readers.Go(func() {
				var err error
				if parts[i], err = f.read(authorized(t), e, job.Columns()); err != nil {
					t.Error(err)
				}
			})
		}
		readers.Wait()
		if got := slices.Concat(parts...); len(got) < 1000 || !slices.EqualFunc(want, got, slices.Equal) {
			t.Fatalf("Got %d rows, others than the %d that were exported", len(got), len(want))
		}
	}
	cancel()
	writes.Wait()

	var d description
	if err := json.Unmarshal(info.AppMetadata, &d); err != nil {
		t.Fatal(err)
	}
	if d.Sequence != exported.Sequence || d.Job != "events" || d.Time.IsZero() {
		t.Errorf("Got %+v, exported %d", d, exported.Sequence)
	}
	stop := ""
	for i, e := range info.Endpoint {
		var d struct {
			Part     int
			StartRow string `json:"start_row"`
			StopRow  string `json:"stop_row"`
			Sequence uint64
		}
		if err := json.Unmarshal(e.AppMetadata, &d); err != nil {
			t.Fatal(err)
		}
		if d.Part != i || d.StartRow != stop || d.Sequence != exported.Sequence || e.ExpirationTime.AsTime().Before(time.Now()) {
			t.Errorf("endpoint %d: Got %s until %v", i, e.AppMetadata, e.ExpirationTime.AsTime())
		}
		stop = d.StopRow
	}
	if stop != "" || !info.Ordered || info.TotalRecords != -1 {
		t.Errorf("Got %v", info)
	}
	m := f.Metrics()
	if m.Finished != int64(2*len(info.Endpoint)) || m.Rows != int64(2*len(want)) || m.Bytes == 0 || m.Held != 1 || m.Opened != 1 {
		t.Errorf("Got %+v", m)
	}
}

func TestListAndSchema(t *testing.T) {
	t.Parallel()
	e := jobstest.OpenMemory(t)
	sorted := eventSpec()
	sorted.Sort = []jobs.SortColumn{{Column: "q"}}
	f := serveFlights(t, e, map[string]*jobs.Spec{"events": eventSpec(), "sorted": sorted}, nil)
	stream, err := f.client.ListFlights(authorized(t), &flight.Criteria{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		info, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		schema, err := flight.DeserializeSchema(info.Schema, memory.DefaultAllocator)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(info.FlightDescriptor.Path, len(info.Endpoint), fieldNames(schema), strings.Contains(string(info.AppMetadata), "has sort")))
	}
	if d := cmp.Diff([]string{"[events] 0 [key q n rest time] false", "[sorted] 0 [key q n rest time] true"}, got); d != "" {
		t.Error(d)
	}
	if f.Metrics().Held != 0 {
		t.Error("Listing holds instants")
	}
	r, err := f.client.GetSchema(authorized(t), path("events"))
	if err != nil {
		t.Fatal(err)
	}
	schema, err := flight.DeserializeSchema(r.Schema, memory.DefaultAllocator)
	if err != nil || fmt.Sprint(fieldNames(schema)) != "[key q n rest time]" {
		t.Errorf("Got %v, %v", schema, err)
	}
	_, err = f.client.GetFlightInfo(authorized(t), path("sorted"))
	wantStatus(t, err, codes.Unimplemented, "job sorted has sort")
	for _, d := range []*flight.FlightDescriptor{path(), path("a", "b"), {Type: flight.DescriptorCMD, Cmd: []byte("events")}, {}} {
		_, err = f.client.GetFlightInfo(authorized(t), d)
		wantStatus(t, err, codes.InvalidArgument, "FlightDescriptor.for_path(JOB)")
	}
	_, err = f.client.GetFlightInfo(authorized(t), path("event"))
	wantStatus(t, err, codes.NotFound, `job "event"`)
	stream, err = f.client.ListFlights(authorized(t), &flight.Criteria{Expression: []byte("x")})
	if err == nil {
		_, err = stream.Recv()
	}
	wantStatus(t, err, codes.InvalidArgument, "no criteria")
}

func fieldNames(s *arrow.Schema) (names []string) {
	for _, f := range s.Fields() {
		names = append(names, f.Name)
	}
	return names
}
