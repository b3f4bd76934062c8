package serve_test

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/serve"
	"sluice/serve/servetest"
	"sluice/store/memstore"
)

// TestMetrics serves a status with a number of its own in every field and finds
// each of them.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *serve.Options) {
		servetest.Fill(o)
		o.Dir = t.TempDir()
	})
	_, body := s.do("GET", "/metrics", "")
	for _, want := range []string{
		`sluice_build_info{commit="abc",go="go1`,
		`sluice_pipeline_ready{pipeline="views"} 1`,
		`sluice_kafka_unreachable{pipeline="views"} 1`,
		`sluice_kafka_consumer_lag_records{partition="3",pipeline="views",topic="clicks"} 25`,
		`sluice_kafka_consumer_lag_seconds{partition="3",pipeline="views",topic="clicks"} 90`,
		`sluice_kafka_partition_state{partition="3",pipeline="views",state="running",topic="clicks"} 0`,
		`sluice_kafka_partition_state{partition="3",pipeline="views",state="tripped",topic="clicks"} 1`,
		`sluice_kafka_position_offset{partition="3",pipeline="views",topic="clicks"} 110`,
		`sluice_kafka_floor_offset{partition="3",pipeline="views",topic="clicks"} 100`,
		`sluice_kafka_log_start_offset{partition="3",pipeline="views",topic="clicks"} 50`,
		`sluice_kafka_end_offset{partition="3",pipeline="views",topic="clicks"} 125`,
		`sluice_kafka_records_total{outcome="applied",partition="3",pipeline="views",topic="clicks"} 41`,
		`sluice_kafka_records_total{outcome="filtered",partition="3",pipeline="views",topic="clicks"} 42`,
		`sluice_kafka_records_total{outcome="duplicate",partition="3",pipeline="views",topic="clicks"} 47`,
		`sluice_kafka_records_total{outcome="unmet",partition="3",pipeline="views",topic="clicks"} 48`,
		`sluice_kafka_records_total{outcome="dead_letter",partition="3",pipeline="views",topic="clicks"} 43`,
		`sluice_dead_letters_redriven_total{partition="3",pipeline="views",topic="clicks"} 23`,
		`sluice_dead_letters_purged_total{partition="3",pipeline="views",topic="clicks"} 5`,
		`sluice_kafka_records_total{outcome="dropped",partition="3",pipeline="views",topic="clicks"} 46`,
		`sluice_breaker_open{partition="3",pipeline="views",topic="clicks"} 1`,
		`sluice_dlq_outbox_records{pipeline="views"} 15`,
		`sluice_kafka_records_total{outcome="control",partition="3",pipeline="views",topic="clicks"} 44`,
		`sluice_kafka_records_lost_total{partition="3",pipeline="views",reason="retention",topic="clicks"} 45`,
		`sluice_kafka_fetch_bytes_total{pipeline="views"} 51`,
		`sluice_kafka_fetch_errors_total{code="not_leader_or_follower",pipeline="views"} 52`,
		`sluice_kafka_rebalances_total{pipeline="views"} 53`,
		`sluice_kafka_assigned_partitions{pipeline="views"} 1`,
		`sluice_kafka_generation{pipeline="views"} 54`,
		`sluice_memory_bytes{part="decoded"} 22`,
		`sluice_memory_limit_bytes 100`,
		`sluice_write_buffer_bytes 23`,
		`sluice_write_buffer_limit_bytes 66`,
		`sluice_flush_duration_seconds_bucket{pipeline="views",le="0.1"} 7`,
		`sluice_flush_duration_seconds_bucket{pipeline="views",le="+Inf"} 9`,
		`sluice_flush_duration_seconds_sum{pipeline="views"} 1.5`,
		`sluice_flush_conflicts_total{pipeline="views"} 63`,
		`sluice_kafka_records_total{outcome="aborted",partition="3",pipeline="views",topic="clicks"} 49`,
		`sluice_late_records_total{partition="3",pipeline="views",topic="clicks"} 6`,
		`sluice_kafka_fetch_duration_seconds_bucket{pipeline="views",le="0.2"} 7`,
		`sluice_kafka_fetch_duration_seconds_count{pipeline="views"} 9`,
		`sluice_flush_mutations_total{kind="increment",pipeline="views"} 55`,
		`sluice_fenced_writes_total{pipeline="views"} 69`,
		`sluice_backpressure_seconds_total{pipeline="views"} 5.5`,
		`sluice_kafka_backfill{partition="3",pipeline="views",topic="clicks"} 1`,
		`sluice_pauses_total{pipeline="views"} 64`,
		`sluice_backfills_total{pipeline="views"} 68`,
		`sluice_dead_letters_total{error_class="json",pipeline="views",stage="decode"} 65`,
		`sluice_dead_letters_relayed_total{pipeline="views"} 66`,
		`sluice_dead_letters_relay_errors_total{pipeline="views"} 67`,
		`sluice_export_runs_total{export="nightly",result="ok"} 71`,
		`sluice_export_rows_total{export="nightly"} 72`,
		`sluice_export_bytes_total{export="nightly"} 73`,
		`sluice_export_duration_seconds_count{export="nightly"} 9`,
		`sluice_export_last_success_timestamp_seconds{export="nightly"} 1e+09`,
		`sluice_store_commits_total 81`,
		`sluice_store_bulk_commits_total 89`,
		`sluice_store_commit_events_total 82`,
		`sluice_store_commit_duration_seconds_bucket{le="0.01"} 4`,
		`sluice_store_disk_bytes 83`,
		`sluice_store_disk_free_bytes `,
		`sluice_store_mem_table_bytes 84`,
		`sluice_store_cache_hits_total 85`,
		`sluice_store_cache_misses_total 86`,
		`sluice_store_compactions_total 87`,
		`sluice_store_write_stalls_total 88`,
		`sluice_store_corruptions_total 89`,
		`sluice_store_late_increments_total 90`,
		`sluice_store_commit_errors_total 91`,
		`sluice_store_commits_refused_total 92`,
		`sluice_store_loop_held_seconds 93.5`,
		`sluice_store_loop_hold_duration_seconds_bucket{kind="checkpoint",le="0.01"} 5`,
		`sluice_store_loop_hold_duration_seconds_count{kind="checkpoint"} 6`,
		`sluice_store_rewrites_total 101`,
		`sluice_store_rewrite_retries_total 102`,
		`sluice_store_rewritten_keys_total 103`,
		`sluice_store_reclaimed_keys_total 104`,
		`sluice_store_reclaimed_bytes_total 105`,
		`sluice_store_rewrite_hold_seconds_total 106.5`,
		`sluice_store_rewrite_hold_max_seconds 107.5`,
		`sluice_store_checkpoints_total 111`,
		`sluice_store_checkpoint_hold_seconds_total 112.5`,
		`sluice_store_checkpoint_hold_max_seconds 113.5`,
		`sluice_store_garbage_looks_total 108`,
		`sluice_store_garbage_look_seconds_total 109.5`,
		`sluice_store_garbage_bytes 110`,
		`sluice_checkpoints 0`,
		`sluice_http_requests_total{code="2xx"} `,
		`go_goroutines `,
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("missing: %s", want)
		}
	}
}

// TestMetricNames checks Prometheus's rules: snake case, base units, _total on
// counters only, and a help text.
func TestMetricNames(t *testing.T) {
	t.Parallel()
	s := newServer(t, servetest.Fill)
	_, body := s.do("GET", "/metrics", "")
	types := regexp.MustCompile(`(?m)^# TYPE (sluice_\S+) (\S+)$`).FindAllStringSubmatch(body, -1)
	if len(types) < 30 {
		t.Fatalf("Got %d metrics", len(types))
	}
	name := regexp.MustCompile(`^sluice_[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	for _, m := range types {
		if !name.MatchString(m[1]) || strings.HasSuffix(m[1], "_ns") || strings.HasSuffix(m[1], "_ms") {
			t.Errorf("%s is not a good name", m[1])
		}
		if (m[2] == "counter") != strings.HasSuffix(m[1], "_total") {
			t.Errorf("%s is a %s", m[1], m[2])
		}
		if !regexp.MustCompile(`(?m)^# HELP ` + m[1] + ` [A-Z0-9].*\.$`).MatchString(body) {
			t.Errorf("%s has no help text that is a sentence", m[1])
		}
	}
}

// TestLagInTime: a partition that has caught up has no lag in seconds, however old its
// last record is; one that has not, from its assignment on; and one that failed keeps it.
func TestLagInTime(t *testing.T) {
	t.Parallel()
	now := time.Unix(2e9, 0)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	s := newServer(t, func(o *serve.Options) {
		o.Now = func() time.Time { return now }
		o.Pipelines = func() []serve.PipelineStatus {
			return []serve.PipelineStatus{{Name: "p", Partitions: []serve.PartitionStatus{
				{Topic: "t", State: "running", Begun: true, Floor: 7, End: 7, LastTime: ago(time.Hour)},
				{Topic: "u", State: "running", Begun: true, Floor: 7, End: 5, Since: now.Add(time.Minute).UnixMilli()},
				{Topic: "v", State: "starting", Since: ago(time.Minute)},
				{Topic: "w", State: "failed", Begun: true, Floor: 7, End: 9, LastTime: ago(time.Hour), Since: ago(2 * time.Minute)},
			}}}
		}
	})
	_, body := s.do("GET", "/metrics", "")
	lines := strings.Split(body, "\n")
	for _, want := range []string{
		`sluice_kafka_consumer_lag_records{partition="0",pipeline="p",topic="t"} 0`,
		`sluice_kafka_consumer_lag_seconds{partition="0",pipeline="p",topic="t"} 0`,
		`sluice_kafka_consumer_lag_records{partition="0",pipeline="p",topic="u"} 0`,
		`sluice_kafka_consumer_lag_seconds{partition="0",pipeline="p",topic="u"} 0`,
		`sluice_kafka_consumer_lag_seconds{partition="0",pipeline="p",topic="v"} 60`,
		`sluice_kafka_partition_state{partition="0",pipeline="p",state="starting",topic="v"} 1`,
		`sluice_kafka_consumer_lag_records{partition="0",pipeline="p",topic="w"} 2`,
		`sluice_kafka_consumer_lag_seconds{partition="0",pipeline="p",topic="w"} 120`,
		`sluice_kafka_floor_offset{partition="0",pipeline="p",topic="w"} 7`,
		`sluice_kafka_partition_state{partition="0",pipeline="p",state="failed",topic="w"} 1`,
		`sluice_kafka_assigned_partitions{pipeline="p"} 3`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("missing: %s", want)
		}
	}
	if strings.Contains(body, `sluice_kafka_floor_offset{partition="0",pipeline="p",topic="v"}`) || strings.Contains(body, `sluice_kafka_records_total{outcome="applied",partition="0",pipeline="p",topic="v"}`) {
		t.Error("offsets of a partition that is not begun: they look like counters that were reset")
	}
	if strings.Contains(body, "sluice_flush_duration_seconds") {
		t.Error("a histogram that nobody filled in")
	}
}

// goneWriter is an answer to who has hung up.
type goneWriter struct{ http.ResponseWriter }

func (goneWriter) Write([]byte) (int, error) {
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
}

// TestScrapeBreaksOff: who asks for the metrics and hangs up is no error of the daemon's.
func TestScrapeBreaksOff(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	engine, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := serve.New(&serve.Options{Engine: engine, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/metrics", nil)
	s.Handler().ServeHTTP(goneWriter{httptest.NewRecorder()}, r)
	if log.Len() > 0 {
		t.Errorf("Got %s", &log)
	}
}
