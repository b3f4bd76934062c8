package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/instant"
	"sluice/jobs/parquetfile"
	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
	"sluice/store"
	"sluice/store/pebblestore"
)

// Schedule 39 of docs/guarantees.md: whole exports beside ingest, while the other
// schedules go on. Each is taken before some batch, runs beside those after it, and
// holds exactly what an independent count of the log gives up to the offsets of its
// manifest: no row more, no row less, each counted once.
func TestSchedule39ExportsHoldTheirOffsets(t *testing.T) {
	t.Parallel()
	lost := func(applied bool) func(int) (bool, error) {
		return func(n int) (bool, error) {
			if n%4 == 3 {
				return applied, store.ErrTransient
			}
			return true, nil
		}
	}
	static := func(o *pipeline.Options) { o.Static = true }
	for name, f := range map[string]exportFaults{
		"nothing":              {},
		"replies lost":         {apply: lost(true)},
		"writes lost":          {apply: lost(false)},
		"killed":               {options: func(o *pipeline.Options) { o.DrainTimeout = -1 }, round: (*exportSchedule).restart},
		"power fails":          {disk: true, options: func(o *pipeline.Options) { o.DrainTimeout = -1 }, round: (*exportSchedule).powerFails},
		"power fails in bulk":  {disk: true, bulk: true, options: func(o *pipeline.Options) { o.DrainTimeout = -1 }, round: (*exportSchedule).powerFails},
		"backlogs in bulk":     {bulk: true, round: (*exportSchedule).restart},
		"two owners":           {owners: 2, options: static},
		"members come and go":  {round: (*exportSchedule).rebalance},
		"broker restarts":      {round: (*exportSchedule).restartBroker},
		"leaders move":         {nodes: 3, round: func(s *exportSchedule) { s.broker.Cluster().ShufflePartitionLeaders() }},
		"partitions are added": {options: func(o *pipeline.Options) { o.PartitionWatch = 100 * time.Millisecond }, round: (*exportSchedule).addPartition},
		"transactions":         {transactions: true},
		"regions move":         {round: (*exportSchedule).moveRegions},
		"delivered twice":      {twice: true},
		"disk full": {apply: func(n int) (bool, error) {
			if n%4 == 3 {
				return false, store.ErrDiskFull
			}
			return true, nil
		}},
		"codecs are mixed":       {codecs: []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}},
		"records are large":      {pad: 40 << 10, options: func(o *pipeline.Options) { o.Fetch.MaxPartitionBytes = 1 << 10 }},
		"group offsets are lost": {round: (*exportSchedule).loseGroup},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newExportSchedule(t, &f)
			for range 5 {
				s.produce(120)
				if f.round != nil {
					f.round(s)
				}
			}
			s.stop()
			s.begin()
			s.caughtUp()
			s.stop()
			s.export() // the whole
			s.check()
			s.audit()
		})
	}
}

// exportFaults is what goes on beside exports.
type exportFaults struct {
	nodes        int  // of the broker
	owners       int  // pipelines at a time; 0 = 1
	disk         bool // power can fail
	bulk         bool
	transactions bool
	twice        bool // each batch is delivered twice
	codecs       []kgo.CompressionCodec
	pad          int // bytes of a record more
	options      func(*pipeline.Options)
	apply        func(n int) (applied bool, err error) // what becomes of the nth batch
	round        func(*exportSchedule)
}

// exportSchedule is a log, a store, the pipelines between them and the exports.
type exportSchedule struct {
	*exportFaults
	t         *testing.T
	dir       string
	broker    *embedded.Broker
	cfg       *config.Config
	disk      crashDisk
	db        *pebblestore.DB
	members   []*exportMember
	exporting sync.WaitGroup
	rng       *rand.Rand

	partitions int32
	log        map[int32][]logged
	produced   int

	mu      sync.Mutex
	batches int
	exports int // begun
	runs    []*exportRun
}

// logged is a record that has its effect: one that is poison, filtered or aborted is
// none.
type logged struct {
	offset   int64
	id, page string
}

type exportMember struct {
	*pipeline.Pipeline
	client *kafka.Client
	stop   context.CancelFunc
	done   chan error
}

// exportRun is what an export has published.
type exportRun struct {
	offsets map[string]map[int32]int64 // of the manifests, by table
	events  map[string]int             // "page/id" → rows
	counts  map[string]int64
}

// crashDisk can be cloned beside a Link, where MemFS waits for itself.
type crashDisk struct {
	*vfs.MemFS
	links *sync.Mutex
}

func (d crashDisk) Link(oldName, newName string) error {
	d.links.Lock()
	defer d.links.Unlock()
	return d.MemFS.Link(oldName, newName)
}

const exportConfig = `
kafka: {brokers: [%q], session_timeout: 6s, heartbeat_interval: 100ms}
tables:
  events: {families: {e: {VERSIONS: 1}}}
  counts: {families: {c: {COUNTER: true}}}
pipelines:
  pages:
    topics: [pages]
    group: pages
    decode: {format: json}
    map:
      - {table: events, when: "!(page == '/health')", row: 'page + "/" + id', put: {e: {page: page}}}
      - {table: counts, when: "!(page == '/health')", row: page, increment: [{family: c, qualifier: '"n"'}]}
jobs:
  events:
    table: events
    columns: [{name: key, from: $row, type: string}, {name: page, from: "e:page", type: string}]
    out: unused
  counts:
    table: counts
    columns: [{name: page, from: $row, type: string}, {name: n, from: "c:n", type: int64, coding: int64be}]
    out: unused
`

func newExportSchedule(t *testing.T, f *exportFaults) *exportSchedule {
	t.Helper()
	s := &exportSchedule{
		exportFaults: f, t: t, dir: t.TempDir(), partitions: 3, log: map[int32][]logged{}, rng: rand.New(rand.NewPCG(3, 9)),
		disk: crashDisk{vfs.NewCrashableMem(), new(sync.Mutex)},
	}
	s.startBroker()
	t.Cleanup(func() { s.broker.Close() })
	var err error
	if s.cfg, err = config.Parse("pages.yaml", fmt.Appendf(nil, exportConfig, s.broker.Addr()), nil); err != nil {
		t.Fatal(err)
	}
	s.open()
	if _, err := s.cfg.EnsureTables(t.Context(), s.db); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"events", "counts"} {
		for _, at := range []string{"/p2", "/p4", "/p6"} {
			if err := s.db.SplitRegion(t.Context(), table, []byte(at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() {
		s.stop()
		if err := s.db.Close(); err != nil {
			t.Error(err)
		}
	})
	s.begin()
	return s
}

func (s *exportSchedule) startBroker() {
	s.t.Helper()
	b, err := embedded.Start(&embedded.Options{Dir: filepath.Join(s.dir, "broker"), Topics: map[string]int{"pages": int(s.partitions)}, Nodes: s.nodes})
	if err != nil {
		s.t.Fatal(err)
	}
	s.broker = b
}

func (s *exportSchedule) open() {
	s.t.Helper()
	o := s.cfg.PebbleOptions(slog.New(slog.DiscardHandler))
	o.FS, o.CacheBytes, o.MemTableBytes, o.MinFreeBytes = s.disk, 1<<20, 64<<10, -1
	if s.bulk {
		o.MinBulkKeys = 10
	}
	db, err := pebblestore.Open("db", o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.db = db
}

// begin starts the pipelines.
func (s *exportSchedule) begin() {
	s.t.Helper()
	for range max(s.owners, 1) {
		s.members = append(s.members, s.member())
	}
}

func (s *exportSchedule) member() *exportMember {
	s.t.Helper()
	ko, err := s.cfg.KafkaOptions()
	if err != nil {
		s.t.Fatal(err)
	}
	client, err := kafka.NewClient(ko)
	if err != nil {
		s.t.Fatal(err)
	}
	o, err := s.cfg.PipelineOptions("pages")
	if err != nil {
		s.t.Fatal(err)
	}
	o.Client, o.Engine, o.StoreID, o.DeadLetterTopic = client, &exportEngine{s.db, s}, s.db.ID(), ""
	o.Fetch = &kafka.FetchOptions{MaxWait: 20 * time.Millisecond}
	o.Flush.MaxRecords = 12
	o.Backfill = pipeline.Backfill{}
	if s.bulk {
		o.Backfill = pipeline.Backfill{Lag: 15, MaxRecords: 40}
	}
	if s.options != nil {
		s.options(o)
	}
	p, err := pipeline.New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &exportMember{Pipeline: p, client: client, stop: stop, done: make(chan error, 1)}
	go func() { m.done <- p.Run(ctx) }()
	return m
}

// end ends a pipeline.
func (s *exportSchedule) end(m *exportMember) {
	s.t.Helper()
	m.stop()
	if err := errors.Join(<-m.done, m.client.Close()); err != nil {
		s.t.Error(err)
	}
}

// stop ends all pipelines and waits for the exports that they have begun.
func (s *exportSchedule) stop() {
	s.t.Helper()
	for _, m := range s.members {
		s.end(m)
	}
	s.members = nil
	s.exporting.Wait()
}

func (s *exportSchedule) restart() {
	s.stop()
	s.begin()
}

func (s *exportSchedule) rebalance() {
	m := s.member()
	s.produce(50)
	s.end(m)
}

func (s *exportSchedule) restartBroker() {
	if err := s.broker.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.startBroker()
}

// powerFails takes away what the disk has not, beside the pipelines, and goes on
// from the rest.
func (s *exportSchedule) powerFails() {
	s.disk.links.Lock()
	left := s.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: s.rng.IntN(101), RNG: s.rng})
	s.disk.links.Unlock()
	s.stop()
	if err := s.db.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.disk.MemFS = left
	s.open()
	s.begin()
}

func (s *exportSchedule) addPartition() {
	if s.partitions == 5 {
		return
	}
	admin := s.kafka()
	defer admin.Close()
	s.partitions++
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 10_000
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = "pages", s.partitions
	req.Topics = append(req.Topics, rt)
	if _, err := req.RequestWith(s.t.Context(), admin); err != nil {
		s.t.Fatal(err)
	}
}

// loseGroup takes away what Kafka keeps for the group, between two pipelines.
func (s *exportSchedule) loseGroup() {
	s.stop()
	admin := s.kafka()
	defer admin.Close()
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = []string{"pages"}
	resp, err := req.RequestWith(s.t.Context(), admin)
	// Where nothing was committed yet, the group was gone with its last member.
	if err != nil || len(resp.Groups) != 1 || resp.Groups[0].ErrorCode != 0 && resp.Groups[0].ErrorCode != kerr.GroupIDNotFound.Code {
		s.t.Errorf("Got %+v, %v, want the group deleted", resp, err)
	}
	s.begin()
}

func (s *exportSchedule) moveRegions() {
	at := fmt.Appendf(nil, "/p%d/%d", s.rng.IntN(8), s.produced)
	for _, table := range []string{"events", "counts"} {
		if err := s.db.SplitRegion(s.t.Context(), table, at); err != nil {
			s.t.Error(err)
		}
	}
	if err := errors.Join(s.db.MajorCompact(s.t.Context(), "events"), s.db.MajorCompact(s.t.Context(), "counts")); err != nil {
		s.t.Error(err)
	}
	if err := s.db.MergeRegions(s.t.Context(), "events", []byte("/p1"), []byte("/p3")); err != nil && !errors.Is(err, store.ErrMergeRegion) {
		s.t.Error(err)
	}
}

func (s *exportSchedule) kafka(opts ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(s.broker.Addrs()...), kgo.DefaultProduceTopic("pages"), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// produce appends n records to the log, some of them poison, filtered or aborted, and
// notes at which offsets they are.
func (s *exportSchedule) produce(n int) {
	s.t.Helper()
	if !s.transactions {
		var opts []kgo.Opt
		if len(s.codecs) > 0 {
			opts = append(opts, kgo.ProducerBatchCompression(s.codecs[s.produced/n%len(s.codecs)]))
		}
		c := s.kafka(opts...)
		defer c.Close()
		s.send(c, n, true)
		return
	}
	c := s.kafka(kgo.TransactionalID("pages"))
	defer c.Close()
	for i := range 4 {
		commit := i%2 == 0
		if err := c.BeginTransaction(); err != nil {
			s.t.Fatal(err)
		}
		s.send(c, n/4, commit)
		if err := c.EndTransaction(s.t.Context(), kgo.TransactionEndTry(commit)); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *exportSchedule) send(c *kgo.Client, n int, committed bool) {
	s.t.Helper()
	records := make([]*kgo.Record, n)
	entries := make([]logged, n)
	for i := range records {
		s.produced++
		e := logged{id: strconv.Itoa(s.produced), page: fmt.Sprintf("/p%d", s.rng.IntN(8))}
		switch s.rng.IntN(12) {
		case 0:
			e.page = "/health"
		case 1:
			e.page = ""
		}
		value, err := json.Marshal(map[string]string{"id": e.id, "page": e.page, "pad": strings.Repeat("x", s.pad)})
		if err != nil {
			s.t.Fatal(err)
		}
		if e.page == "" {
			value = []byte("not json")
		}
		records[i], entries[i] = &kgo.Record{Partition: s.rng.Int32N(s.partitions), Value: value}, e
	}
	if err := c.ProduceSync(s.t.Context(), records...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
	for i, e := range entries {
		if e.offset = records[i].Offset; committed && e.page != "" && e.page != "/health" {
			s.log[records[i].Partition] = append(s.log[records[i].Partition], e)
		}
	}
}

// caughtUp waits until the first pipeline has applied the whole log.
func (s *exportSchedule) caughtUp() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	m := s.members[0]
	info, err := m.client.Topic(ctx, "pages")
	if err != nil {
		s.t.Fatal(err)
	}
	ends := map[int32]int64{}
	spans, err := m.client.ListOffsets(ctx, "pages", info.Partitions)
	if err != nil {
		s.t.Fatal(err)
	}
	for n, o := range spans {
		ends[n] = o.End
	}
	if err := m.WaitStored(ctx, map[string]map[int32]int64{"pages": ends}); err != nil {
		s.t.Fatal(err)
	}
}

// exportEngine begins an export before every seventh batch, and does with batches
// what the schedule says.
type exportEngine struct {
	store.Engine
	s *exportSchedule
}

func (e *exportEngine) Apply(ctx context.Context, b *store.Batch) error {
	if len(b.Advances) == 0 {
		return e.Engine.Apply(ctx, b)
	}
	e.s.mu.Lock()
	e.s.batches++
	n := e.s.batches
	e.s.mu.Unlock()
	if n%7 == 4 && n < 50 {
		e.s.export()
	}
	if e.s.twice {
		err := e.Engine.Apply(ctx, b)
		if again := e.Engine.Apply(ctx, b); err == nil && !errors.Is(again, store.ErrStale) {
			e.s.t.Errorf("Got %v for a batch that is delivered again, want %v", again, store.ErrStale)
		}
		return err
	}
	if e.s.apply == nil {
		return e.Engine.Apply(ctx, b)
	}
	applied, ferr := e.s.apply(n)
	if applied {
		if err := e.Engine.Apply(ctx, b); err != nil {
			return err
		}
	}
	return ferr
}

// export takes the store as it is now and exports its tables, in the background: by
// a snapshot and by a checkpoint, in turn.
func (s *exportSchedule) export() {
	s.mu.Lock()
	s.exports++
	n := s.exports
	s.mu.Unlock()
	ctx := context.Background()
	from := s.db
	var done []func() error
	if n%2 == 0 {
		dir := fmt.Sprintf("checkpoint-%d", n)
		if _, err := s.db.Checkpoint(ctx, dir); err != nil {
			s.t.Error(err)
			return
		}
		o := s.cfg.PebbleOptions(slog.New(slog.DiscardHandler))
		o.FS, o.CacheBytes, o.ReadOnly = s.disk, 1<<20, true
		db, err := pebblestore.Open(dir, o)
		if err != nil {
			s.t.Error(err)
			return
		}
		from, done = db, append(done, db.Close)
	}
	snap, err := from.Snapshot(ctx)
	if err != nil {
		s.t.Error(err)
		return
	}
	s.exporting.Go(func() {
		r, err := s.run(ctx, snap, filepath.Join(s.dir, strconv.Itoa(n)))
		err = errors.Join(err, snap.Close())
		for _, f := range done {
			err = errors.Join(err, f())
		}
		if err != nil {
			s.t.Errorf("export %d: %v", n, err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.runs = append(s.runs, r)
	})
}

// run exports both tables and reads them back.
func (s *exportSchedule) run(ctx context.Context, from instant.Source, out string) (*exportRun, error) {
	r := &exportRun{offsets: map[string]map[int32]int64{}, events: map[string]int{}, counts: map[string]int64{}}
	for name, spec := range s.cfg.Jobs {
		table, err := from.Table(ctx, spec.Table)
		if err != nil {
			return nil, err
		}
		job, err := jobs.Compile(name, &spec, table)
		if err != nil {
			return nil, err
		}
		if _, err := jobs.Run(ctx, &jobs.RunOptions{Job: job, Source: from, Out: out, Parallelism: 2}); err != nil {
			return nil, err
		}
		report, err := jobs.Verify(ctx, filepath.Join(out, name))
		if err != nil {
			return nil, err
		}
		if len(report.Problems) > 0 {
			return nil, fmt.Errorf("verify: %v", report.Problems)
		}
		m, dir, err := jobs.ReadRun(ctx, filepath.Join(out, name))
		if err != nil {
			return nil, err
		}
		r.offsets[name] = map[int32]int64{}
		for _, o := range m.Offsets {
			r.offsets[name][o.Partition] = o.Next
		}
		for i := range m.Files {
			if err := r.read(name, filepath.Join(dir, m.Files[i].Path)); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// read counts the rows of a file.
func (r *exportRun) read(table, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	rd, err := parquetfile.NewReader(f, info.Size())
	if err != nil {
		return err
	}
	defer rd.Close()
	for {
		b, err := rd.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range b.Rows() {
			if key := string(b.Vector(0).Bytes(i)); table == "events" {
				r.events[key]++
			} else {
				r.counts[key] += b.Vector(1).Int64s()[i]
			}
		}
	}
}

// audit reads the log again and compares it with what is stored of each partition.
func (s *exportSchedule) audit() {
	s.t.Helper()
	ko, err := s.cfg.KafkaOptions()
	if err != nil {
		s.t.Fatal(err)
	}
	client, err := kafka.NewClient(ko)
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close()
	all, err := pipeline.RunAudit(s.t.Context(), &pipeline.AuditOptions{Store: s.db, Client: client, Deep: true})
	if err != nil || len(all) != int(s.partitions) {
		s.t.Errorf("Got %d partitions audited (%v), want %d", len(all), err, s.partitions)
	}
	for _, a := range all {
		if len(a.Problems) > 0 || a.Records < 0 {
			s.t.Errorf("Got %d records, problems %q in the audit of %+v", a.Records, a.Problems, a.Progress)
		}
	}
}

// check compares every export with the log up to its offsets.
func (s *exportSchedule) check() {
	s.t.Helper()
	s.exporting.Wait()
	ends, partial := map[int32]int64{}, 0
	for _, r := range s.runs {
		for n, next := range r.offsets["events"] {
			ends[n] = max(ends[n], next)
		}
	}
	for _, r := range s.runs {
		if d := cmp.Diff(r.offsets["events"], r.offsets["counts"]); d != "" {
			s.t.Errorf("Got two tables of one instant with other offsets:\n%s", d)
		}
		events, counts := map[string]int{}, map[string]int64{}
		for n, entries := range s.log {
			for _, e := range entries {
				if e.offset < r.offsets["events"][n] {
					events[e.page+"/"+e.id]++
					counts[e.page]++
				}
			}
		}
		if d := cmp.Diff(events, r.events); d != "" {
			s.t.Errorf("Got other rows than the log has up to %v (-want +got):\n%s", r.offsets["events"], d)
		}
		if d := cmp.Diff(counts, r.counts); d != "" {
			s.t.Errorf("Got other counts than the log gives up to %v (-want +got):\n%s", r.offsets["events"], d)
		}
		for n, end := range ends {
			if r.offsets["events"][n] < end {
				partial++
				break
			}
		}
	}
	if len(s.runs) < 3 || partial < 2 {
		s.t.Errorf("Got %d exports, %d of them of a part of the log: the schedule shows little", len(s.runs), partial)
	}
}
