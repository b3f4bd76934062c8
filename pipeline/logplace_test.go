package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/kafka"
	"sluice/store"
)

// jsonLog is what a Logger wrote, a line a JSON object.
type jsonLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *jsonLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// places returns topic, partition and offset of each line with this message.
func (l *jsonLog) places(t *testing.T, message string) []string {
	t.Helper()
	return l.lines(t, message, func(line map[string]any) string {
		return fmt.Sprint(line["topic"], "/", line["partition"], "@", line["offset"])
	})
}

// causes returns the error of each line with this message.
func (l *jsonLog) causes(t *testing.T, message string) []string {
	t.Helper()
	return l.lines(t, message, func(line map[string]any) string { return fmt.Sprint(line["err"]) })
}

func (l *jsonLog) lines(t *testing.T, message string, of func(line map[string]any) string) (all []string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for d := json.NewDecoder(bytes.NewReader(l.b.Bytes())); d.More(); {
		var line map[string]any
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line["msg"] == message {
			all = append(all, of(line))
		}
	}
	return all
}

// What is said of a record, of a range that is lost and of a partition that waits says
// by the keys topic, partition and offset where it is.
func TestLogsSayWhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		message, want string
		options       testOption
		before        func(t *testing.T, e store.Engine, b *fakeBroker)
		values        []string
		stops         bool
	}{
		"a mapping that panics": {
			message: "mapping panicked", want: "t/0@2", values: []string{"a", "b", "panic"}, options: withPoison(Poison{}),
		},
		"a record that is tried again": {
			message: "partition is paused and tries again by itself", want: "t/0@1", values: []string{"a", "bad", "b"},
			options: withPoison(Poison{Policies: map[string]Policy{"test": RetryRecords}, Retries: 1}),
		},
		"lost offsets": {
			message: "offsets are gone from Kafka and counted as lost", want: "t/0@2", values: []string{"e"},
			before: func(t *testing.T, e store.Engine, b *fakeBroker) {
				b.produce(0, "a", "b")
				ingest(t, e, b)
				b.produce(0, "c", "d")
				b.change(func() { b.logs[0].start, b.logs[0].records = 4, nil })
			},
			options: func(o *Options) { o.OnDataLoss = SkipLostData },
		},
		"a partition whose stored offset is not read yet": {
			message: "partition is paused and tries again by itself", want: "t/0@<nil>", values: []string{"c"}, stops: true, options: withPoison(Poison{}),
			before: func(t *testing.T, e store.Engine, b *fakeBroker) {
				b.produce(0, "a", "b")
				ingest(t, e, b)
				b.change(func() { b.offline = map[int32]bool{0: true} })
			},
		},
		"a breaker": {
			message: "partition is paused", want: "t/0@2", values: []string{"a", "bad", "bad", "bad"}, stops: true,
			options: withPoison(Poison{TripAt: 10, Window: 10}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, b, log := newEngine(t), newFakeBroker(1), new(jsonLog)
			if c.before != nil {
				c.before(t, e, b)
			}
			b.produce(0, c.values...)
			r := start(t, newTest(t, e, b, c.options, func(o *Options) { o.Logger = slog.New(slog.NewJSONHandler(log, nil)) }), 0)
			if c.stops {
				waitFor(t, func() bool { return len(log.places(t, c.message)) > 0 })
			} else {
				r.caughtUp(b)
			}
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff([]string{c.want}, log.places(t, c.message)); d != "" {
				t.Errorf("Got other places of %q (-want +got):\n%s", c.message, d)
			}
		})
	}
}

// That another mapping maps from an offset on is said once, however often the partition
// tries what follows.
func TestNewMappingIsSaidOnce(t *testing.T) {
	t.Parallel()
	e, b, log := newEngine(t), newFakeBroker(1), new(jsonLog)
	b.produce(0, "a")
	ingest(t, e, b)
	b.produce(0, "bad", "b")
	p := newTest(t, e, b, withPoison(Poison{Policies: map[string]Policy{"test": RetryRecords}, Retries: 3}),
		func(o *Options) { o.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
	p.version = "v2"
	r := start(t, p, 0)
	r.caughtUp(b)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"t/0@1"}, log.places(t, "the mapping has changed: it maps the records from this offset on")); d != "" {
		t.Errorf("Got it said elsewhere (-want +got):\n%s", d)
	}
}

// What stops a pipeline names its place for the log of whoever runs it.
func TestLogPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		want []any
	}{
		{"poison", &PoisonError{Topic: "t", Partition: 1, Offset: 7, Err: asMappingError(errors.New("x"))}, []any{"topic", "t", "partition", int32(1), "offset", int64(7)}},
		{"data loss", &DataLossError{Topic: "t", Partition: 1, From: 3, To: 5, LogEnd: 9}, []any{"topic", "t", "partition", int32(1), "offset", int64(3)}},
		{"another log", &TopicChangedError{Topic: "t", Partition: 2}, []any{"topic", "t", "partition", int32(2)}},
		{"another topic", &TopicChangedError{Topic: "t", Partition: -1}, []any{"topic", "t"}},
		{"a partition that is not read on", &kafka.PartitionError{Topic: "t", Partition: 1, Err: kafka.ErrClosed}, []any{"topic", "t", "partition", int32(1)}},
		{"a topic that is not there", &kafka.TopicError{Topic: "t", Err: kafka.ErrTopicNotFound}, []any{"topic", "t"}},
		{"another error", errors.New("x"), nil},
	} {
		if d := cmp.Diff(c.want, LogPlace(fmt.Errorf("run: %w", c.err))); d != "" {
			t.Errorf("%s: Got another place (-want +got):\n%s", c.name, d)
		}
	}
}
