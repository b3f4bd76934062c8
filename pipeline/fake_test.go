package pipeline

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sluice/cell"
	"sluice/internal/roomy"
	"sluice/pipeline/buffer"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/store"
	"sluice/store/memstore"
)

func TestMain(m *testing.M) {
	roomy.Use()
	goleak.VerifyTestMain(m)
}

// fakeBroker is one topic, "t", in memory: what package kafka gives, without a
// network, so that tests can cut it anywhere.
type fakeBroker struct {
	mu      sync.Mutex
	rng     *rand.Rand // nil = whole batches
	info    topicInfo
	logs    map[int32]*fakeLog
	changed chan struct{}   // closed at each change
	broken  error           // returned by every call
	offline map[int32]bool  // partitions without a leader
	silent  map[int32]bool  // partitions whose records do not come
	barren  bool            // the broker says of those that it has none
	rotten  int64           // offsets below it cannot be read any more
	rot     error           // why
	earlier bool            // the logs have no epoch 0
	epochs  map[int32]int64 // where epoch 0 of a partition ends, if it does
	// committed are the offsets of the group; nil = of one that has read all.
	committed map[int32]int64
}

type fakeLog struct {
	start   int64
	end     int64          // of what can be read
	open    int64          // offsets after it, of transactions that are open
	records []kafka.Record // ascending; offsets may be missing
	gone    []kafka.Record // that trim has removed, before records
}

func newFakeBroker(partitions int) *fakeBroker {
	b := &fakeBroker{info: topicInfo{id: [16]byte{1}, clusterID: "c"}, logs: map[int32]*fakeLog{}, changed: make(chan struct{})}
	for n := range int32(partitions) {
		b.info.partitions = append(b.info.partitions, n)
		b.logs[n] = &fakeLog{}
	}
	return b
}

func (b *fakeBroker) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	close(b.changed)
	b.changed = make(chan struct{})
}

// produce appends records; the value "-" makes an offset without a record, as a
// control marker does.
func (b *fakeBroker) produce(partition int32, values ...string) {
	b.change(func() {
		l := b.logs[partition]
		for _, v := range values {
			if v != "-" {
				l.records = append(l.records, fakeRecord(l.end, 1000+l.end, v))
			}
			l.end++
		}
	})
}

func fakeRecord(offset, at int64, value string) kafka.Record {
	return kafka.Record{Offset: offset, Timestamp: at, Key: []byte("k"), Value: []byte(value)}
}

func (b *fakeBroker) topic(context.Context, string) (topicInfo, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.info, b.broken
}

func (b *fakeBroker) offsets(_ context.Context, _ string, partitions []int32) (map[int32]span, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out, err := map[int32]span{}, b.broken
	for _, n := range partitions {
		if b.offline[n] {
			err = errors.New("partition has no leader")
			continue
		}
		if l := b.logs[n]; l != nil {
			out[n] = span{l.start, l.end}
		}
	}
	return out, err
}

func (b *fakeBroker) logEnds(_ context.Context, _ string, partitions []int32) (map[int32]int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ends := map[int32]int64{}
	for _, n := range partitions {
		ends[n] = b.logs[n].end + b.logs[n].open
	}
	return ends, b.broken
}

// epochEnd knows one epoch, 0, or where earlier is set the one before it.
func (b *fakeBroker) epochEnd(_ context.Context, _ string, partition, epoch int32) (int32, int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if epoch != 0 {
		return -1, -1, b.broken
	}
	if b.earlier {
		epoch--
	}
	if end, ok := b.epochs[partition]; ok {
		return epoch, end, b.broken
	}
	return epoch, b.logs[partition].end + b.logs[partition].open, b.broken
}

func (b *fakeBroker) startOffsets(_ context.Context, _ string, partitions []int32, s *Start) (map[int32]int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[int32]int64{}
	for _, n := range partitions {
		l := b.logs[n]
		if s.From == StartCommitted {
			out[n] = l.end + l.open
			if at, ok := b.committed[n]; ok {
				out[n] = at
			}
			continue
		}
		out[n] = l.end
		for i := range l.records {
			if l.records[i].Timestamp >= s.Time.UnixMilli() {
				out[n] = l.records[i].Offset
				break
			}
		}
	}
	return out, b.broken
}

func (b *fakeBroker) fetcher(map[string][16]byte) fetcher { return b }

func (b *fakeBroker) Run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (b *fakeBroker) reader(topic string, partition int32, offset int64) reader {
	return &fakeReader{b: b, topic: topic, partition: partition, offset: offset, closed: make(chan struct{})}
}

type fakeReader struct {
	b         *fakeBroker
	topic     string
	partition int32
	offset    int64
	closed    chan struct{}
	once      sync.Once
}

func (r *fakeReader) Barren() bool {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return r.b.barren
}

func (r *fakeReader) Close() { r.once.Do(func() { close(r.closed) }) }

func (r *fakeReader) Next(ctx context.Context) (*kafka.Batch, error) {
	for {
		r.b.mu.Lock()
		changed := r.b.changed
		batch, err := r.take()
		r.b.mu.Unlock()
		if batch != nil {
			return batch, nil
		}
		if err == nil {
			select {
			case <-changed:
				continue
			case <-r.closed:
				err = kafka.ErrClosed
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		return nil, &kafka.PartitionError{Topic: r.topic, Partition: r.partition, Err: err}
	}
}

func (r *fakeReader) take() (*kafka.Batch, error) {
	l := r.b.logs[r.partition]
	switch {
	case r.b.broken != nil:
		return nil, r.b.broken
	case r.offset < l.start || r.offset > l.end+l.open:
		return nil, &kafka.OutOfRangeError{Offset: r.offset, LogStart: l.start, End: l.end}
	case r.offset < r.b.rotten:
		return nil, &kafka.UnreadableError{Offset: r.offset, Next: r.b.rotten, Err: r.b.rot}
	case r.offset >= l.end, r.b.silent[r.partition]:
		return nil, nil
	}
	next := l.end
	if r.b.rng != nil {
		next = min(next, r.offset+1+r.b.rng.Int64N(40))
	}
	batch := &kafka.Batch{
		Topic: r.topic, Partition: r.partition, From: r.offset, Next: next,
		LeaderEpoch: 0, LastStable: l.end, LogStart: l.start,
	}
	for _, rec := range l.records {
		if rec.Offset >= r.offset && rec.Offset < next {
			batch.Records = append(batch.Records, ownRecord(rec))
		}
	}
	batch.OnRelease(wipe)
	r.offset = next
	return batch, nil
}

// ownRecord returns a copy of r in memory of its own.
func ownRecord(r kafka.Record) kafka.Record {
	r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	r.Headers = slices.Clone(r.Headers)
	for i, h := range r.Headers {
		r.Headers[i] = kafka.Header{Key: bytes.Clone(h.Key), Value: bytes.Clone(h.Value)}
	}
	return r
}

// wipe overwrites what a batch held, as its next user would, so that a use after
// Release shows.
func wipe(b *kafka.Batch) {
	const garbage = -0x2152411021524111 // 0xDEADBEEFDEADBEEF
	fill := func(s []byte) {
		for i := range s {
			s[i] = 0xDE
		}
	}
	for i := range b.Records {
		r := &b.Records[i]
		fill(r.Key)
		fill(r.Value)
		for k := range r.Headers {
			fill(r.Headers[k].Key)
			fill(r.Headers[k].Value)
			r.Headers[k] = kafka.Header{}
		}
		*r = kafka.Record{Offset: garbage, Timestamp: garbage}
	}
	*b = kafka.Batch{From: garbage, Next: garbage, LeaderEpoch: -1}
}

// testMapper maps a value "page" to a row and a count of the page. Special
// values: "skip…" is filtered, "bad…" is refused by the mapping, "huge…" makes a
// cell that the store refuses, "long…" a counter that it refuses.
type testMapper struct{ ms []cell.Mutation }

func (*testMapper) Release() {}

func (*testMapper) Forget() {}

func (m *testMapper) Map(r *mapping.Record) (*mapping.Output, error) {
	v := string(r.Value)
	switch {
	case strings.HasPrefix(v, "skip"):
		return &mapping.Output{}, nil
	case v == "panic":
		panic("test")
	case strings.HasPrefix(v, "bad"):
		return nil, &mapping.Error{Stage: mapping.StageDecode, Class: "test", Err: errors.New("no page")}
	}
	row := cell.Mutation{Table: "events", Row: fmt.Appendf(nil, "%d/%d", r.Partition, r.Offset)}
	value, page := r.Value, r.Value // as the mapping does: no copies
	if strings.HasPrefix(v, "huge") {
		value = make([]byte, maxCell)
	}
	row.Put("e", []byte("page"), cell.Timestamp(r.Timestamp), value)
	if strings.HasPrefix(v, "long") {
		page = []byte(v + strings.Repeat("x", maxCell))
	}
	count := cell.Mutation{Table: "counts", Row: page, Ops: []cell.Op{{
		Type: cell.OpIncrement, Family: "c", Qualifier: []byte("n"), Time: cell.Timestamp(r.Timestamp), Delta: 1,
	}}}
	m.ms = append(m.ms[:0], row, count)
	return &mapping.Output{Mutations: m.ms}, nil
}

const maxCell = 1000 // bytes, in the tables of newEngine

func createTables(t testing.TB, a store.Admin) {
	t.Helper()
	events := &store.TableDescriptor{Name: "events", MaxCellBytes: maxCell, Families: []store.FamilyDescriptor{store.NewFamily("e")}}
	counts := &store.TableDescriptor{Name: "counts", MaxCellBytes: maxCell, Families: []store.FamilyDescriptor{store.NewFamily("c")}}
	counts.Families[0].Counter = true
	for _, d := range []*store.TableDescriptor{events, counts} {
		if err := a.CreateTable(context.Background(), d, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// bothEngines is what makes each of the engines that a test needs no server for, by name.
func bothEngines() map[string]func(testing.TB) store.Engine {
	return map[string]func(testing.TB) store.Engine{"mem": newEngine, "pebble": newPebble}
}

// newEngine returns a model engine with the tables of testMapper.
func newEngine(t testing.TB) store.Engine {
	t.Helper()
	s, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	createTables(t, s)
	t.Cleanup(func() { s.Close() })
	return s
}

// faultyEngine asks fault what to do with each batch of a partition.
type faultyEngine struct {
	store.Engine
	all bool // batches of redrives and relays, too
	// fault returns an error for the caller and whether to apply all the same.
	fault func(b *store.Batch) (apply bool, err error)
}

// holdingFirst returns an engine that applies the first batch of a partition, from offset 0,
// once leave is closed, whoever gives up meanwhile.
func holdingFirst(e store.Engine, leave <-chan struct{}) *faultyEngine {
	return &faultyEngine{Engine: e, fault: func(b *store.Batch) (bool, error) {
		if b.Advances[0].From == 0 {
			<-leave
		}
		return true, nil
	}}
}

func (e *faultyEngine) Apply(ctx context.Context, b *store.Batch) error {
	if len(b.Advances) == 0 && !e.all {
		return e.Engine.Apply(ctx, b)
	}
	apply, ferr := e.fault(b)
	if apply {
		if err := e.Engine.Apply(ctx, b); err != nil {
			return err
		}
	}
	return ferr
}

// patience bounds every wait of a test. Only what hangs comes near it: a machine that
// is busy has taken more than a minute for what takes a second.
const patience = 5 * time.Minute

type testOption func(*Options)

// newTest returns a pipeline over a fake broker.
func newTest(t testing.TB, e store.Engine, b *fakeBroker, opts ...testOption) *Pipeline {
	t.Helper()
	o := Options{Name: "p", Topics: []string{"t"}, Engine: e, Flush: Flush{MaxRecords: 64, MaxAge: time.Hour}, Logger: testLogger(t)}
	for _, f := range opts {
		f(&o)
	}
	if err := errors.Join(o.validate(), o.setDefaults()); err != nil {
		t.Fatal(err)
	}
	return &Pipeline{
		opts: o, buffers: buffer.BudgetOf(o.Memory.Buffered()), log: o.Logger, broker: b, version: "v1", retry: time.Millisecond, status: newStatus(),
		newMapper: func() mapper { return &testMapper{} },
	}
}

func testLogger(t testing.TB) *slog.Logger {
	if !testing.Verbose() {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// running is a pipeline that applies some partitions.
type running struct {
	*Pipeline
	t    testing.TB
	stop context.CancelFunc
	done chan error
}

func start(t testing.TB, p *Pipeline, partitions ...int32) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Pipeline: p, t: t, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- p.apply(ctx, map[string][]int32{"t": partitions}) }()
	t.Cleanup(cancel)
	return r
}

// close stops r and returns what it ended with.
func (r *running) close() error {
	r.stop()
	select {
	case err := <-r.done:
		return err
	case <-time.After(patience):
		r.t.Fatal("Got no end of the pipeline in time")
		return nil
	}
}

// caughtUp waits until everything that the broker has is stored.
func (r *running) caughtUp(b *fakeBroker) {
	r.t.Helper()
	ends := map[int32]int64{}
	b.mu.Lock()
	for n, l := range b.logs {
		ends[n] = l.end
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.WaitStored(ctx, map[string]map[int32]int64{"t": ends}); err != nil {
		r.t.Fatal(err)
	}
}

// first returns the status of the first partition, empty before it is begun.
func (r *running) first() PartitionStatus {
	if ps := r.Status().Partitions; len(ps) > 0 {
		return ps[0]
	}
	return PartitionStatus{}
}

// failed waits for the pipeline to stop by itself.
func (r *running) failed() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		r.done <- err
		return err
	case <-time.After(patience):
		r.t.Fatal("Got no error in time")
		return nil
	}
}

// contents is what an engine holds, in a form to compare.
type contents struct {
	Counts   map[string]int64
	Events   map[string]string
	Letters  map[string]string // topic/partition/offset → stage/class
	Progress store.Progress    // only the audit counts, summed

	Unbalanced []store.PartitionProgress // whose audit equation does not hold
}

func readContents(t testing.TB, e store.Reader) contents {
	t.Helper()
	c := readUnchecked(t, e)
	for _, p := range c.Unbalanced {
		t.Errorf("Got progress of %s/%d out of balance: %+v", p.Source.Topic, p.Partition, p.Progress)
	}
	return c
}

func readUnchecked(t testing.TB, e store.Reader) contents {
	t.Helper()
	c := contents{Counts: map[string]int64{}, Events: map[string]string{}, Letters: map[string]string{}}
	scan := func(table string, f func(r *cell.Row)) {
		sc := e.Scan(t.Context(), &store.Scan{Table: table})
		defer sc.Close()
		for sc.Next() {
			f(sc.Row())
		}
		if err := sc.Err(); err != nil {
			t.Fatal(err)
		}
	}
	scan("counts", func(r *cell.Row) {
		c.Counts[string(r.Key)] = int64(binary.BigEndian.Uint64(r.Cells[0].Value))
	})
	scan("events", func(r *cell.Row) { c.Events[string(r.Key)] = string(r.Cells[0].Value) })
	for d, err := range ScanLetters(t.Context(), e, &LetterFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		why := d.Stage + "/" + d.Class
		if d.Redriven != 0 {
			why = d.RedrivenAs
		}
		c.Letters[string(letterKey(d))] = why
	}
	all, err := store.AllProgress(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if !p.Progress.Balanced() {
			c.Unbalanced = append(c.Unbalanced, p)
		}
		c.Progress.Next += p.Progress.Next
		c.Progress.Applied += p.Progress.Applied
		c.Progress.Filtered += p.Progress.Filtered
		c.Progress.Dead += p.Progress.Dead
		c.Progress.Control += p.Progress.Control
		c.Progress.Lost += p.Progress.Lost
	}
	return c
}

// want is what the logs of b must become.
func want(b *fakeBroker) contents { return wantTo(b, nil) }

// wantTo is what the logs of b must become up to an offset of each partition, which is
// not in it; nil = all of them.
func wantTo(b *fakeBroker, next map[int32]int64) contents {
	c := contents{Counts: map[string]int64{}, Events: map[string]string{}, Letters: map[string]string{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, l := range b.logs {
		end, records := l.end, l.records
		if next != nil {
			end = next[n]
			records = slices.DeleteFunc(slices.Clone(records), func(r kafka.Record) bool { return r.Offset >= end })
		}
		c.Progress.Next += end
		c.Progress.Control += end - int64(len(records))
		for _, r := range records {
			v := string(r.Value)
			letter := func(why string) {
				c.Letters[fmt.Sprintf("t/%d/%d", n, r.Offset)] = why
				c.Progress.Dead++
			}
			switch {
			case strings.HasPrefix(v, "skip"):
				c.Progress.Filtered++
			case v == "panic":
				letter("map/panic")
			case strings.HasPrefix(v, "bad"):
				letter("decode/test")
			case strings.HasPrefix(v, "huge"), strings.HasPrefix(v, "long"):
				letter("store/cell_too_large")
			default:
				c.Counts[v]++
				c.Events[fmt.Sprintf("%d/%d", n, r.Offset)] = v
				c.Progress.Applied++
			}
		}
	}
	return c
}
