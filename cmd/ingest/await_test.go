package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"sluice/cmd/internal/cli"
	"sluice/internal/integration"
	"sluice/pipeline/kafka"
)

// absentBroker returns what starts on a broker of the bubble that is there from after
// on, and the client that creates its topics.
func absentBroker(t *testing.T, after time.Duration) (s *kafkaStart, other *kafka.Client) {
	t.Helper()
	network := new(kfake.VirtualNetwork)
	broker, err := kfake.NewCluster(kfake.Ports(1), kfake.ListenFn(network.Listen), kfake.SeedTopics(1, "views"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	var up atomic.Bool
	time.AfterFunc(after, func() { up.Store(true) })
	client := func(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *kafka.Client {
		c, err := kafka.NewClient(&kafka.Options{Brokers: []string{"127.0.0.1:1"}, Dial: dial})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	s = &kafkaStart{log: slog.New(slog.DiscardHandler), timeout: 30 * time.Second, stands: map[string]standing{}, topics: map[string][]string{"p": {"views", "clicks"}}, client: client(func(ctx context.Context, n, addr string) (net.Conn, error) {
		if !up.Load() {
			return nil, &net.OpError{Op: "dial", Net: n, Err: net.UnknownNetworkError("nobody listens")}
		}
		return network.DialContext(ctx, n, addr)
	})}
	return s, client(network.DialContext)
}

// awaitAll waits for the broker and for the topics of the pipeline p.
func awaitAll(ctx context.Context, s *kafkaStart) error {
	if err := s.awaitBroker(ctx); err != nil {
		return err
	}
	return s.awaitTopics(ctx, "p")
}

// The start waits for brokers as long as it takes and then for topics as long as
// kafka.start_timeout says.
func TestStartWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const after = time.Hour
		s, other := absentBroker(t, after)
		var log strings.Builder
		s.log = slog.New(slog.NewTextHandler(&log, nil))
		time.AfterFunc(after-time.Minute, func() {
			if why, never := s.waiting("p"); !errors.Is(why, kafka.ErrUnreachable) || never {
				t.Errorf("Got %v, never %v, while no broker answers", why, never)
			}
		})
		time.AfterFunc(after+20*time.Second, func() {
			if why, never := s.waiting("p"); !errors.Is(why, kafka.ErrTopicNotFound) || never {
				t.Errorf("Got %v, never %v, while a topic is missing", why, never)
			}
			if err := other.CreateTopic(context.Background(), "clicks", 1); err != nil {
				t.Error(err)
			}
		})
		begun := time.Now()
		if err := awaitAll(t.Context(), s); err != nil {
			t.Error(err)
		}
		if why, never := s.waiting("p"); why != nil || never {
			t.Errorf("Got %v, never %v, in the end", why, never)
		}
		if took := time.Since(begun); took < after+20*time.Second || took > after+30*time.Second {
			t.Errorf("Got started after %v", took)
		}
		if n := strings.Count(log.String(), "a topic cannot be described, waiting for it"); n != 1 || !strings.Contains(log.String(), "clicks") {
			t.Errorf("Got %d lines, want one, of clicks:\n%s", n, log.String())
		}
	})
}

// A topic that does not come ends the start, kafka.start_timeout after a broker answers.
func TestStartMissesTopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const after = time.Hour
		s, _ := absentBroker(t, after)
		begun := time.Now()
		err := awaitAll(t.Context(), s)
		if why, never := s.waiting("p"); why != err || !never {
			t.Errorf("Got %v, never %v, in the end", why, never)
		}
		if !errors.Is(err, kafka.ErrTopicNotFound) || cli.Status(err) != cli.StatusUnavailable || !strings.Contains(err.Error(), "clicks") || !strings.Contains(err.Error(), "create it") {
			t.Errorf("Got %v, want %v", err, kafka.ErrTopicNotFound)
		}
		if took := time.Since(begun); took < after+s.timeout || took > after+2*s.timeout {
			t.Errorf("Got it after %v", took)
		}
	})
}

// A partition that a static assignment names is waited for as a topic is.
func TestStartMissesPartition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, other := absentBroker(t, 0)
		s.topics = map[string][]string{"p": {"views"}, "q": {"clicks"}}
		s.parts = map[string][]int32{"p": {0, 2, 3}, "q": {0, 2}}
		if err := s.awaitBroker(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(20*time.Second, func() {
			for _, name := range []string{"p", "q"} {
				if why, never := s.waiting(name); !errors.Is(why, kafka.ErrTopicNotFound) || never {
					t.Errorf("Got %v, never %v, of pipeline %s", why, never, name)
				}
			}
			if err := other.CreateTopic(context.Background(), "clicks", 3); err != nil {
				t.Error(err)
			}
		})
		done := make(chan error, 1)
		go func() { done <- s.awaitTopics(t.Context(), "p") }()
		if err := s.awaitTopics(t.Context(), "q"); err != nil {
			t.Errorf("Got %v when the partitions were there", err)
		}
		time.Sleep(5 * time.Minute)
		if why, never := s.waiting("p"); why == nil || never {
			t.Errorf("Got %v, never %v, while pipeline q runs", why, never)
		}
		s.note("q", ended, nil)
		err := <-done
		if !errors.Is(err, kafka.ErrTopicNotFound) || !strings.Contains(err.Error(), "views has no partition 2, 3: it has 1, numbered from 0; create it, or correct") {
			t.Errorf("Got %v when no pipeline was left, want %v", err, kafka.ErrTopicNotFound)
		}
	})
}

// A topic that is missing, or may not be described, is waited for as long as another
// pipeline runs, and holds up nobody else.
func TestStartLeavesOthersTheirs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, other := absentBroker(t, 0)
		s.topics = map[string][]string{"one": {"views"}, "two": {"clicks"}, "three": {"views", "cancelled"}}
		begun := time.Now()
		if err := s.awaitBroker(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.awaitTopics(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("Got the pipeline whose topic is there after %v", took)
		}
		two, three := make(chan error, 1), make(chan error, 1)
		go func() { two <- s.awaitTopics(t.Context(), "two") }()
		go func() { three <- s.awaitTopics(t.Context(), "three") }()
		time.Sleep(5 * time.Minute)
		for _, name := range []string{"two", "three"} {
			if why, never := s.waiting(name); !errors.Is(why, kafka.ErrTopicNotFound) || never {
				t.Errorf("Got %v, never %v, of pipeline %s", why, never, name)
			}
		}
		if why, _ := s.waiting("one"); why != nil {
			t.Errorf("Got %v of the one that runs", why)
		}
		if err := other.CreateTopic(t.Context(), "clicks", 1); err != nil {
			t.Fatal(err)
		}
		if err := <-two; err != nil {
			t.Errorf("Got %v when the topic was there", err)
		}
		s.note("one", ended, nil)
		time.Sleep(5 * time.Minute)
		if why, never := s.waiting("three"); why == nil || never {
			t.Errorf("Got %v, never %v, while pipeline two runs", why, never)
		}
		s.note("two", ended, nil)
		if err := <-three; !errors.Is(err, kafka.ErrTopicNotFound) || !strings.Contains(err.Error(), "cancelled") {
			t.Errorf("Got %v when no pipeline was left, want %v", err, kafka.ErrTopicNotFound)
		}
	})
}

// kafka.exit_if_unreachable ends it, whatever the timeouts of a request are.
func TestStartGivesUp(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{5 * time.Second, 30 * time.Second, 45 * time.Second} { // a request takes 10
		synctest.Test(t, func(t *testing.T) {
			s, _ := absentBroker(t, time.Hour)
			s.timeout, s.exit = timeout, true
			begun := time.Now()
			err := awaitAll(t.Context(), s)
			if !errors.Is(err, kafka.ErrUnreachable) || cli.Status(err) != cli.StatusUnavailable || !strings.Contains(err.Error(), "start_timeout") || !strings.Contains(err.Error(), "nobody listens") {
				t.Errorf("Got %v, want %v", err, kafka.ErrUnreachable)
			}
			if took := time.Since(begun); took != timeout {
				t.Errorf("Got it after %v, want %v", took, timeout)
			}
			if why, _ := s.waiting("p"); why != nil {
				t.Errorf("Got %v after the end", why)
			}
		})
	}
}

// A daemon without a broker serves, says why it does nothing, and ends at a SIGTERM.
func TestDaemonWaitsForBrokers(t *testing.T) {
	t.Parallel()
	_, closed := wrongAddresses(t)
	text, err := os.ReadFile(integration.FastConfig(t, "500ms"))
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte(strings.Replace(string(text), "kafka:\n", "kafka:\n  request_timeout: 500ms\n  dial_timeout: 300ms\n", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "d")
	d := integration.StartDaemon(t, config, integration.Environment(closed, dir))
	get := func(path string) (string, int) { return get(t, d, path) }
	awaitDaemon(t, d, "warning", func() bool {
		return strings.Contains(d.Log(), "waiting for one") && strings.Contains(d.Log(), "msg=started engine=pebble store="+dir+" ")
	})
	awaitDaemon(t, d, "reason", func() bool {
		body, status := get("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "no broker answered") && strings.Contains(body, closed)
	})
	if body, _ := get("/metrics"); !strings.Contains(body, `sluice_kafka_unreachable{pipeline="access-log"} 1`) {
		t.Errorf("Got no sluice_kafka_unreachable in\n%s", regexp.MustCompile(`(?m)^sluice_(pipeline|kafka).*$`).FindAllString(body, -1))
	}
	if body, status := get("/livez"); status != http.StatusOK {
		t.Errorf("Got /livez %d %s", status, body)
	}
	if err := d.Stop(2 * time.Minute); err != nil {
		t.Errorf("Got %v of a SIGTERM while it waited", err)
	}
}

// A pipeline whose topic is missing says so and goes on when it is there; another one of
// the daemon runs meanwhile.
func TestDaemonRunsTheOthers(t *testing.T) {
	t.Parallel()
	broker := startBroker(t, map[string]int{"views": 1})
	dir := t.TempDir()
	text := fmt.Sprintf(`
store: {dir: %q, min_free: 0B}
kafka: {brokers: [%q], start_timeout: 10ms}
serve: {listen: "127.0.0.1:0"}
tables:
  t: {families: {n: {COUNTER: true}}}
pipelines:
`, filepath.Join(dir, "d"), broker.Addr())
	for _, topic := range []string{"views", "clicks"} {
		text += fmt.Sprintf("  of_%[1]s: {topics: [%[1]s], group: %[1]s, decode: {format: json}, map: [{table: t, row: page, increment: [{family: n, qualifier: page}]}]}\n", topic)
	}
	file := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := integration.StartDaemon(t, file, os.Environ())
	ready := func(pipeline string, want int) bool {
		body, _ := get(t, d, "/metrics")
		return strings.Contains(body, fmt.Sprintf("sluice_pipeline_ready{pipeline=%q} %d\n", pipeline, want))
	}
	awaitDaemon(t, d, "start", func() bool { return strings.Contains(d.Log(), "msg=started ") })
	awaitDaemon(t, d, "pipeline whose topic is there", func() bool { return ready("of_views", 1) })
	awaitDaemon(t, d, "reason of the other one", func() bool {
		body, status := get(t, d, "/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "no such topic: clicks") && ready("of_clicks", 0)
	})
	if log := d.Log(); !strings.Contains(log, "a topic cannot be described, waiting for it") || !strings.Contains(log, "pipeline=of_clicks") {
		t.Errorf("Got no warning:\n%s", log)
	}
	client, err := kafka.NewClient(&kafka.Options{Brokers: []string{broker.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if err := client.CreateTopic(t.Context(), "clicks", 1); err != nil {
		t.Fatal(err)
	}
	awaitDaemon(t, d, "pipeline whose topic is there now", func() bool { return ready("of_clicks", 1) && ready("of_views", 1) })
	if err := d.Stop(2 * time.Minute); err != nil {
		t.Errorf("Got %v of a SIGTERM", err)
	}
}

// awaitDaemon waits until ok says that d has what.
func awaitDaemon(t *testing.T, d *integration.Daemon, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(2 * time.Minute); !ok(); {
		if ended, err := d.Exited(); ended {
			t.Fatalf("the daemon ended by itself: %v", err)
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("Got no %s\n%s", what, d.Log())
		}
	}
}

// get asks a daemon for a page without a token, and returns it and its status.
func get(t *testing.T, d *integration.Daemon, path string) (string, int) {
	t.Helper()
	r, err := http.Get("http://" + regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(d.Log())[1] + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body), r.StatusCode
}
