package main

import (
	"context"
	"errors"
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
	s = &kafkaStart{log: slog.New(slog.DiscardHandler), timeout: 30 * time.Second, topics: []string{"views", "clicks"}, client: client(func(ctx context.Context, n, addr string) (net.Conn, error) {
		if !up.Load() {
			return nil, &net.OpError{Op: "dial", Net: n, Err: net.UnknownNetworkError("nobody listens")}
		}
		return network.DialContext(ctx, n, addr)
	})}
	return s, client(network.DialContext)
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
			if s.waiting() == "" {
				t.Error("Got no reason while no broker answers")
			}
		})
		time.AfterFunc(after+20*time.Second, func() {
			if why := s.waiting(); why != "" {
				t.Errorf("Got %q while a broker answers", why)
			}
			if err := other.CreateTopic(context.Background(), "clicks", 1); err != nil {
				t.Error(err)
			}
		})
		begun := time.Now()
		if err := s.await(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took < after+20*time.Second || took > after+30*time.Second {
			t.Errorf("Got started after %v", took)
		}
		if n := strings.Count(log.String(), "a topic is missing, waiting for it"); n != 1 || !strings.Contains(log.String(), "clicks") {
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
		err := s.await(t.Context())
		if !errors.Is(err, kafka.ErrTopicNotFound) || cli.Status(err) != cli.StatusUnavailable || !strings.Contains(err.Error(), "clicks") || !strings.Contains(err.Error(), "create it") {
			t.Errorf("Got %v, want %v", err, kafka.ErrTopicNotFound)
		}
		if took := time.Since(begun); took < after+s.timeout || took > after+2*s.timeout {
			t.Errorf("Got it after %v", took)
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
			err := s.await(t.Context())
			if !errors.Is(err, kafka.ErrUnreachable) || cli.Status(err) != cli.StatusUnavailable || !strings.Contains(err.Error(), "start_timeout") || !strings.Contains(err.Error(), "nobody listens") {
				t.Errorf("Got %v, want %v", err, kafka.ErrUnreachable)
			}
			if took := time.Since(begun); took != timeout {
				t.Errorf("Got it after %v, want %v", took, timeout)
			}
			if why := s.waiting(); why != "" {
				t.Errorf("Got %q after the end", why)
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
	await := func(what string, ok func() bool) {
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
				t.Fatalf("Got no %s", what)
			}
		}
	}
	get := func(path string) (string, int) { return get(t, d, path) }
	await("warning", func() bool {
		return strings.Contains(d.Log(), "waiting for one") && strings.Contains(d.Log(), "msg=started engine=pebble store="+dir+" ")
	})
	await("reason", func() bool {
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
