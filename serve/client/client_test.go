package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/serve"
	"sluice/serve/api"
	"sluice/serve/client"
	"sluice/store"
	"sluice/store/memstore"
)

func newStore(t testing.TB) *memstore.Store {
	t.Helper()
	m, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
		t.Fatal(err)
	}
	return m
}

func put(row string) *cell.Mutation {
	m := &cell.Mutation{Table: "t", Row: []byte(row)}
	m.Put("f", []byte("q"), 1, []byte("v"))
	return m
}

// TestErrorsMapBack: what the engine's error is, the client's is, too.
func TestErrorsMapBack(t *testing.T) {
	t.Parallel()
	c := dial(t, newStore(t), nil)
	scanErr := func(s *store.Scan) error {
		sc := c.Scan(t.Context(), s)
		defer sc.Close()
		for sc.Next() {
		}
		return sc.Err()
	}
	_, tableErr := c.Table(t.Context(), "nope")
	_, familyErr := c.MutateRow(t.Context(), nil, &cell.Mutation{Table: "t", Row: []byte("r"), Ops: []cell.Op{{Type: cell.OpPut, Family: "x", Time: 1}}})
	_, rowErr := c.MutateRow(t.Context(), nil, put(""))
	stale := &store.Batch{}
	stale.Advance(store.Source{Pipeline: "p"}, 0, 7, store.Progress{Next: 8})
	refused := &store.Batch{}
	refused.Add(3, *put("ok"))
	refused.Add(4, cell.Mutation{Table: "nope", Row: []byte("r"), Ops: put("").Ops})
	refusedErr := c.Apply(t.Context(), refused)
	for _, tt := range []struct {
		name string
		err  error
		want error
	}{
		{"table", tableErr, store.ErrTableNotFound},
		{"family", familyErr, store.ErrFamilyNotFound},
		{"row", rowErr, cell.ErrRowEmpty},
		{"scan of no table", scanErr(&store.Scan{Table: "nope"}), store.ErrTableNotFound},
		{"scan", scanErr(&store.Scan{Table: "t", Versions: -1}), store.ErrInvalidArgument},
		{"create", c.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil), store.ErrTableExists},
		{"schema", c.CreateTable(t.Context(), &store.TableDescriptor{Name: "u"}, nil), store.ErrInvalidSchema},
		{"drop", c.DropTable(t.Context(), "nope"), store.ErrTableNotFound},
		{"stale", c.Apply(t.Context(), stale), store.ErrStale},
		{"refused", refusedErr, store.ErrTableNotFound},
	} {
		if !errors.Is(tt.err, tt.want) || errors.Is(tt.err, store.ErrTransient) {
			t.Errorf("%s: Got %v, want %v", tt.name, tt.err, tt.want)
		}
	}
	var b *store.BatchError
	if !errors.As(refusedErr, &b) || len(b.Refused) != 1 || b.Refused[0].Offset != 4 || b.Refused[0].Table != "nope" || string(b.Refused[0].Row) != "r" {
		t.Errorf("Got %+v", b)
	}
}

func TestEveryNamedErrorTravels(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		store.ErrCellTooLarge, store.ErrNotANumber, store.ErrTimestampTooFar, store.ErrWrongRow, store.ErrMergeRegion,
		store.ErrClosed, store.ErrReadOnly, store.ErrUnsupported, store.ErrDiskFull, store.ErrCorrupt, store.ErrRefused,
		store.ErrTransient, store.ErrLocked, store.ErrIncompatibleFilter, cell.ErrRowTooLong, context.DeadlineExceeded, api.ErrNotFound,
	} {
		e, status := api.FromError(errors.Join(errors.New("about a row"), err))
		b, merr := json.Marshal(e)
		if merr != nil {
			t.Fatal(merr)
		}
		got := &api.Error{}
		if merr := json.Unmarshal(b, got); merr != nil {
			t.Fatal(merr)
		}
		if !errors.Is(got, err) || status < 400 || !strings.Contains(got.Error(), "about a row") {
			t.Errorf("%v: Got %s, status %d", err, b, status)
		}
		for _, class := range []error{store.ErrTransient, store.ErrRefused} {
			if errors.Is(got, class) != errors.Is(err, class) {
				t.Errorf("%v: class %v got lost or added", err, class)
			}
		}
	}
	if e, status := api.FromError(errors.New("boom")); e.Code != "internal" || status != 500 || !errors.Is(e, api.ErrInternal) {
		t.Errorf("Got %+v, %d", e, status)
	}
}

func TestNoDaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := client.DialDir(t.Context(), dir); !errors.Is(err, client.ErrNoDaemon) {
		t.Errorf("no file: Got %v", err)
	}
	write := func(content string) {
		if err := os.WriteFile(filepath.Join(dir, api.EndpointFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, content := range []string{"", "{", "{}", `{"address":"127.0.0.1:1"}`} {
		write(content)
		if _, err := client.DialDir(t.Context(), dir); err == nil || errors.Is(err, client.ErrNoDaemon) {
			t.Errorf("%q: Got %v", content, err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	if _, err := client.Dial(t.Context(), api.Endpoint{Address: address, Instance: "x"}); !errors.Is(err, client.ErrNoDaemon) {
		t.Errorf("refused: Got %v", err)
	}
	// Another server has the port: one of ours with another token, one of ours
	// with another instance, one of somebody else's.
	s, err := serve.New(&serve.Options{Engine: newStore(t), Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	ours := httptest.NewServer(s.Handler())
	defer ours.Close()
	theirs := httptest.NewServer(http.NotFoundHandler())
	defer theirs.Close()
	for _, e := range []api.Endpoint{
		{Address: strings.TrimPrefix(ours.URL, "http://"), Token: "u", Instance: "x"},
		{Address: strings.TrimPrefix(ours.URL, "http://"), Token: "t", Instance: "x"},
		{Address: strings.TrimPrefix(theirs.URL, "http://"), Token: "t", Instance: "x"},
	} {
		if _, err := client.Dial(t.Context(), e); !errors.Is(err, client.ErrNoDaemon) {
			t.Errorf("%+v: Got %v", e, err)
		}
	}
}

// breaker serves engine and cuts the connection of requests to one path, after
// they have had their effect.
func breaker(t *testing.T, engine store.Engine, path string) *client.Client {
	t.Helper()
	s, err := serve.New(&serve.Options{Engine: engine})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, path) {
			s.Handler().ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		s.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(ts.Close)
	c, err := client.Dial(t.Context(), s.Endpoint(strings.TrimPrefix(ts.URL, "http://")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestLostReplies: only what may be repeated is called transient.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	m := newStore(t)
	increment := &cell.Mutation{Table: "t", Row: []byte("r")}
	increment.Increment("f", []byte("n"), 1)
	c := breaker(t, m, "/mutate")
	if _, err := c.MutateRow(t.Context(), nil, put("r")); !errors.Is(err, store.ErrTransient) {
		t.Errorf("a put: Got %v", err)
	}
	_, err := c.MutateRow(t.Context(), nil, increment)
	if !errors.Is(err, store.ErrUnknownOutcome) || errors.Is(err, store.ErrTransient) || !strings.Contains(err.Error(), "not known whether") {
		t.Errorf("an increment: Got %v", err)
	}
	cond := &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal, Value: []byte("v")}
	if _, err := c.MutateRow(t.Context(), cond, put("r")); err == nil || errors.Is(err, store.ErrTransient) {
		t.Errorf("a conditional put: Got %v", err)
	}
	_, errs := c.MutateRows(t.Context(), []*cell.Mutation{put("r"), increment})
	if !errors.Is(errs[0], store.ErrTransient) || errors.Is(errs[1], store.ErrTransient) || errs[1] == nil {
		t.Errorf("several: Got %v", errs)
	}
	c = breaker(t, m, "/batch")
	b := &store.Batch{}
	b.Advance(store.Source{Pipeline: "p"}, 0, store.Absent, store.Progress{Next: 1, Control: 1})
	if err := c.Apply(t.Context(), b); !errors.Is(err, store.ErrTransient) {
		t.Errorf("a batch: Got %v", err)
	}
	b.Advances[0].From = store.Absent
	if err := m.Apply(t.Context(), b); !errors.Is(err, store.ErrStale) {
		t.Errorf("the batch whose reply was lost: Got %v, want ErrStale", err)
	}
	c = breaker(t, m, "/tables")
	if _, err := c.Tables(t.Context()); !errors.Is(err, store.ErrTransient) {
		t.Errorf("a read: Got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Table(ctx, "t"); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrTransient) {
		t.Errorf("a call that was given up: Got %v", err)
	}
}

// What may have been applied is said to be unknown, and what was not sent is not.
func TestCallGivenUp(t *testing.T) {
	t.Parallel()
	m := newStore(t)
	s, err := serve.New(&serve.Options{Engine: m})
	if err != nil {
		t.Fatal(err)
	}
	var cancel context.CancelFunc // of the call that is under way
	gone := make(chan struct{})
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			s.Handler().ServeHTTP(w, r)
			return
		}
		s.Handler().ServeHTTP(httptest.NewRecorder(), r)
		cancel()
		<-gone // the answer comes too late
	}))
	t.Cleanup(ts.Close)
	c, err := client.Dial(t.Context(), s.Endpoint(strings.TrimPrefix(ts.URL, "http://")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	increment := &cell.Mutation{Table: "t", Row: []byte("r")}
	increment.Increment("f", []byte("n"), 1)
	counted := &store.Batch{Mutations: []store.Mutation{{Mutation: *increment}}}
	for _, tt := range []struct {
		name    string
		call    func(context.Context) error
		unknown bool
	}{
		{"increment", func(ctx context.Context) error { _, err := c.MutateRow(ctx, nil, increment); return err }, true},
		{"increments", func(ctx context.Context) error {
			_, errs := c.MutateRows(ctx, []*cell.Mutation{increment})
			return errs[0]
		}, true},
		{"batch", func(ctx context.Context) error { return c.Apply(ctx, counted) }, true},
		{"create table", func(ctx context.Context) error {
			return c.CreateTable(ctx, &store.TableDescriptor{Name: "u", Families: []store.FamilyDescriptor{{Name: "f"}}}, nil)
		}, true},
		{"put", func(ctx context.Context) error { _, err := c.MutateRow(ctx, nil, put("r")); return err }, false},
	} {
		ctx, end := context.WithCancel(t.Context())
		cancel = end
		err := tt.call(ctx)
		gone <- struct{}{}
		if !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnknownOutcome) != tt.unknown || errors.Is(err, store.ErrTransient) {
			t.Errorf("%s, given up after it was sent: Got %v, want ErrUnknownOutcome %t", tt.name, err, tt.unknown)
		}
		if err := tt.call(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("%s, given up before: Got %v, want context.Canceled alone", tt.name, err)
		}
	}
	close(gone)
}

// TestScanCutOff: a stream without its last line is no end.
func TestScanCutOff(t *testing.T) {
	t.Parallel()
	m := newStore(t)
	s, err := serve.New(&serve.Options{Engine: m})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/scan") {
			s.Handler().ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write([]byte(`{"row":{"key":"YQ==","cells":[]}}` + "\n"))
	}))
	t.Cleanup(ts.Close)
	c, err := client.Dial(t.Context(), s.Endpoint(strings.TrimPrefix(ts.URL, "http://")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sc := c.Scan(t.Context(), &store.Scan{Table: "t"})
	defer sc.Close()
	if !sc.Next() || string(sc.Row().Key) != "a" || sc.Next() {
		t.Error("want one row")
	}
	if err := sc.Err(); !errors.Is(err, store.ErrTransient) || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("Got %v, want ErrTransient", err)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	m := newStore(t)
	for _, row := range []string{"a", "b"} {
		if _, err := m.MutateRow(t.Context(), nil, put(row)); err != nil {
			t.Fatal(err)
		}
	}
	c := dial(t, m, nil)
	open := c.Scan(t.Context(), &store.Scan{Table: "t"})
	if !open.Next() {
		t.Fatal(open.Err())
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }() // waits for the scan
	for open.Next() {
	}
	open.Close()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := c.Table(t.Context(), "t"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: Got %v", err)
	}
	sc := c.Scan(t.Context(), &store.Scan{Table: "t"})
	if sc.Next() || !errors.Is(sc.Err(), store.ErrClosed) {
		t.Errorf("scan after Close: Got %v", sc.Err())
	}
}

func TestOffsets(t *testing.T) {
	t.Parallel()
	m := newStore(t)
	b := &store.Batch{}
	b.Advance(store.Source{Pipeline: "p", Topic: "t", ClusterID: "c", TopicID: [16]byte{1, 2}}, 3, store.Absent,
		store.Progress{First: 1, Next: 1 << 60, LeaderEpoch: -1, LastOffset: 5, LastTime: 6, Fingerprint: 1<<63 + 1, MappingVersion: "m", Applied: 7, Filtered: 8, Dead: 9, Control: 10, Lost: 11, Dropped: 12})
	if err := m.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	want, err := store.AllProgress(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := dial(t, m, nil).Offsets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) != 1 {
		t.Errorf("offsets (-want +got):\n%s", diff)
	}
}

// checkpointing is a model store that writes checkpoints of one file.
type checkpointing struct{ *memstore.Store }

func (c checkpointing) Checkpoint(_ context.Context, dir string) (uint64, error) {
	return 42, os.Mkdir(dir, 0o700)
}

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := dial(t, checkpointing{newStore(t)}, func(o *serve.Options) { o.Dir = dir })
	p, err := c.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(p.Path); err != nil || !info.IsDir() || p.Sequence != 42 || p.Err() != nil {
		t.Errorf("Got %+v, %v", p, err)
	}
	for range 2 {
		if err := p.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(p.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the checkpoint is still there (%v)", err)
	}
	if _, err := dial(t, newStore(t), nil).Checkpoint(t.Context()); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("Got %v, want ErrUnsupported", err)
	}
}
