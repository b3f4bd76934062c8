package promql

import (
	"encoding/json"
	"log/slog"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// TestDeploy evaluates every panel and every rule over two scrapes of a running
// daemon, between which one record was applied and one was not JSON.
func TestDeploy(t *testing.T) {
	d := startDaemon(t)
	before := d.scrape(t)
	m := labels.MustNewMatcher(labels.MatchEqual, "outcome", "applied")
	applied := sum(before, "sluice_kafka_records_total", m)
	d.produce(t, view(1), "not JSON", view(2))
	d.await(t, "applied", applied+2)
	after := d.await(t, "dead_letter", 1)
	t.Run("panels", func(t *testing.T) { testPanels(t, before, after) })
	t.Run("alerts", func(t *testing.T) { testAlerts(t, before, after) })
	t.Run("outcomes", func(t *testing.T) { testOutcomes(t, d) })
}

// testOutcomes takes the dead letter away. The outcomes, summed as a dashboard would,
// are still the records that there are.
func testOutcomes(t *testing.T, d *daemon) {
	d.run(t, "dlq", "purge", "-c", d.config, "--unrelayed", "--yes")
	all := d.awaitSum(t, 0, "sluice_dlq_outbox_records", labels.MustNewMatcher(labels.MatchEqual, "pipeline", "pageviews"))
	engine, tl := newEngine(), newTimeline(all, all, nil)
	for expr, want := range map[string]float64{
		`sum(sluice_dead_letters_purged_total)`:                            1,
		`sum(sluice_kafka_records_total) / sum(sluice_kafka_floor_offset)`: 1, // the demo's logs begin at 0
		`count(sum by (pipeline, topic, partition) (sluice_kafka_records_total) != on (pipeline, topic, partition) sluice_kafka_floor_offset)`: 0,
	} {
		v, err := evaluate(engine, tl, "("+expr+") or vector(0)", 5*time.Minute)
		if err != nil || len(v) != 1 || v[0].F != want {
			t.Errorf("%s: Got %v, %v, want %v", expr, v, err, want)
		}
	}
}

// unseen are metrics that are not there before something has happened, and nothing
// of the kind happens here; the demo serves no flights.
var unseen = []string{"sluice_kafka_fetch_errors_total", "sluice_export_last_success_timestamp_seconds", "sluice_flight_"}

func testPanels(t *testing.T, before, after []series) {
	b, err := os.ReadFile("../grafana/dashboards/sluice.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(b, &dashboard); err != nil {
		t.Fatal(err)
	}
	engine, tl := newEngine(), newTimeline(before, after, nil)
	n := 0
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			n++
			expr := strings.ReplaceAll(target.Expr, "$pipeline", ".*")
			v, err := evaluate(engine, tl, expr, 30*time.Second)
			if err != nil {
				t.Errorf("panel %s: %s: %v", p.Title, expr, err)
				continue
			}
			silent := slices.ContainsFunc(unseen, func(name string) bool { return strings.Contains(expr, name) })
			if (len(v) == 0) != silent {
				t.Errorf("panel %s: %s: Got %d series, want some: %v", p.Title, expr, len(v), !silent)
			}
			for _, l := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				for _, s := range v {
					// commit is empty where the build does not know it.
					if !s.Metric.Has(l[1]) && l[1] != "commit" {
						t.Errorf("panel %s: %s: the legend names %s, and a series is %v", p.Title, expr, l[1], s.Metric)
					}
				}
			}
		}
	}
	if n < 30 {
		t.Errorf("Got %d expressions: is the dashboard read right?", n)
	}
	// And one whose numbers are known.
	v, err := evaluate(engine, tl, `sum by (outcome) (increase(sluice_kafka_records_total{outcome=~"applied|dead_letter"}[10m]))`, 5*time.Minute)
	got := map[string]float64{}
	for _, s := range v {
		got[s.Metric.Get("outcome")] = math.Round(s.F)
	}
	if diff := cmp.Diff(map[string]float64{"applied": 2, "dead_letter": 1}, got); err != nil || diff != "" {
		t.Errorf("%v, records (-want +got):\n%s", err, diff)
	}
}

// set makes a metric worth what f says from the change on.
func set(name string, f func(seconds, v float64) float64) edit {
	return sets(map[string]func(seconds, v float64) float64{name: f})
}

func sets(fs map[string]func(seconds, v float64) float64) edit {
	return func(n string, _ labels.Labels, since time.Duration, v float64) (float64, bool) {
		if f := fs[n]; f != nil && since >= 0 {
			v = f(since.Seconds(), v)
		}
		return v, true
	}
}

func to(x float64) func(seconds, v float64) float64 {
	return func(float64, float64) float64 { return x }
}

// grows adds so many a second.
func grows(x float64) func(seconds, v float64) float64 {
	return func(seconds, v float64) float64 { return v + x*seconds }
}

// stopped is a daemon that was down for the half hour before the change.
func stopped(e edit) edit {
	return func(name string, l labels.Labels, since time.Duration, v float64) (float64, bool) {
		if since < 0 && since > -30*time.Minute {
			return 0, name == "up"
		}
		return e(name, l, since, v)
	}
}

// logs is a partition's log, at so many seconds since the change, and what is read of
// it.
func logs(at func(s float64) (logStart, floor, end float64)) edit {
	return func(name string, _ labels.Labels, since time.Duration, v float64) (float64, bool) {
		logStart, floor, end := at(since.Seconds())
		switch name {
		case "sluice_kafka_log_start_offset":
			v = logStart
		case "sluice_kafka_floor_offset":
			v = floor
		case "sluice_kafka_end_offset":
			v = end
		case "sluice_kafka_consumer_lag_records":
			v = end - floor
		}
		return v, true
	}
}

// stands is partitions of which one is read no more, with a lag in records that is what it
// was, and the others are applied, now and then so many records behind.
func stands(others float64) edit {
	return func(name string, l labels.Labels, since time.Duration, v float64) (float64, bool) {
		stuck := l.Get("partition") == "0"
		switch {
		case since < 0:
		case name == "sluice_kafka_consumer_lag_records" && stuck:
			v = 20_000
		case name == "sluice_kafka_consumer_lag_records":
			v = others * float64(int(since/interval)%2)
		case name == "sluice_kafka_consumer_lag_seconds" && stuck:
			v = since.Seconds()
		}
		return v, true
	}
}

// slow makes every commit from the change on take more than two seconds.
func slow(name string, l labels.Labels, since time.Duration, v float64) (float64, bool) {
	if name == "sluice_store_commit_duration_seconds_bucket" && since >= 0 {
		if le, err := strconv.ParseFloat(l.Get("le"), 64); err == nil && le > 2 {
			v += since.Seconds()
		}
	}
	return v, true
}

// firing returns the alerts that fire for five minutes at least within half an hour
// of the change, sorted: one that is over at once is missed.
func firing(t *testing.T, engine *promql.Engine, rules []rulefmt.Rule, tl timeline) []string {
	t.Helper()
	const step = 30 * time.Second
	all := []string{}
	for _, r := range rules {
		named := regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["description"], -1)
		pending := map[string]time.Duration{} // by labels, since when
		for at := time.Duration(0); at <= 30*time.Minute; at += step {
			v, err := evaluate(engine, tl, r.Expr, at)
			if err != nil {
				t.Fatalf("alert %s: %v", r.Alert, err)
			}
			now := map[string]time.Duration{}
			for _, s := range v {
				key := s.Metric.String()
				now[key] = at
				if began, ok := pending[key]; ok {
					now[key] = began
				}
				for _, l := range named {
					if !s.Metric.Has(l[1]) {
						t.Errorf("alert %s names %s, and a series is %v", r.Alert, l[1], s.Metric)
					}
				}
				if at-now[key] >= time.Duration(r.For)+5*time.Minute && !slices.Contains(all, r.Alert) {
					all = append(all, r.Alert)
				}
			}
			pending = now
		}
	}
	slices.Sort(all)
	return all
}

func testAlerts(t *testing.T, before, after []series) {
	groups, errs := rulefmt.ParseFile("../prometheus/alerts.yml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var rules []rulefmt.Rule
	for _, g := range groups.Groups {
		rules = append(rules, g.Rules...)
	}
	lost := "sluice_kafka_records_lost_total"
	failed := series{labels.FromStrings("__name__", "sluice_export_scheduled_total", "job", "sluice", "instance", "sluice:8087", "export", "nightly", "result", "failed"), 1}
	exports := append(slices.Clone(before), failed)
	tested := map[string]bool{}
	for name, tc := range map[string]struct {
		after []series // nil = before
		edit  edit
		want  []string
	}{
		"all is well":          {},
		"a restart":            {edit: stopped(sets(nil))},
		"a record is not JSON": {after: after, want: []string{"SluiceDeadLetters"}},
		"no answer": {edit: func(name string, _ labels.Labels, since time.Duration, v float64) (float64, bool) {
			if since < 0 {
				return v, true
			}
			return 0, name == "up"
		}, want: []string{"SluiceDown"}},
		"a pipeline has failed":       {edit: set("sluice_pipeline_ready", to(0)), want: []string{"SluicePipelineNotReady"}},
		"the lag grows":               {edit: set("sluice_kafka_consumer_lag_records", func(s, _ float64) float64 { return 5000 + 10*s }), want: []string{"SluiceLagGrows"}},
		"a large lag shrinks":         {edit: set("sluice_kafka_consumer_lag_records", func(s, _ float64) float64 { return 1e6 - 10*s })},
		"a partition stands still":    {edit: stands(0), want: []string{"SluiceBehindInTime"}},
		"one of many stands still":    {edit: stands(500), want: []string{"SluiceBehindInTime"}},
		"old records":                 {edit: set("sluice_kafka_consumer_lag_seconds", to(301)), want: []string{"SluiceBehindInTime"}},
		"retention comes near":        {edit: logs(func(s float64) (logStart, floor, end float64) { return 50 + 49*min(max(s, 0), 1), 100, 200 }), want: []string{"SluiceNearRetention"}},
		"retention overtakes":         {edit: logs(func(s float64) (logStart, floor, end float64) { return 1e4 + 2*s, 1.4e4 + s, 1e6 }), want: []string{"SluiceNearRetention"}},
		"retention is outrun":         {edit: logs(func(s float64) (logStart, floor, end float64) { return 1e4 + s, 1.4e4 + 2*s, 1e6 })},
		"a log is begun":              {edit: logs(func(s float64) (logStart, floor, end float64) { return 0, max(s, 0), 1e6 })},
		"a log is begun, and waits":   {edit: logs(func(s float64) (logStart, floor, end float64) { return 0, 0, 1e6 })},
		"records are lost":            {edit: set(lost, to(45)), want: []string{"SluiceRecordsLost"}},
		"records are lost while down": {edit: stopped(set(lost, to(45))), want: []string{"SluiceRecordsLost"}},
		"records were lost long ago": {edit: stopped(func(n string, _ labels.Labels, _ time.Duration, v float64) (float64, bool) {
			return v + map[string]float64{lost: 45}[n], true
		})},
		"the breaker is open":            {edit: set("sluice_breaker_open", to(1)), want: []string{"SluiceBreakerOpen"}},
		"the dead-letter topic is away":  {edit: set("sluice_dead_letters_relay_errors_total", grows(0.1)), want: []string{"SluiceDeadLettersNotRelayed"}},
		"a certificate is cut short":     {edit: set("sluice_certificates_unreadable", to(1)), want: []string{"SluiceCertificateUnreadable"}},
		"the disk is almost full":        {edit: set("sluice_store_disk_free_bytes", to(1e9)), want: []string{"SluiceDiskAlmostFull"}},
		"commits are slow":               {edit: slow, want: []string{"SluiceCommitsSlow"}},
		"a file is corrupt":              {edit: set("sluice_store_corruptions_total", to(1)), want: []string{"SluiceCorruption"}},
		"a file is corrupt at the start": {edit: stopped(set("sluice_store_corruptions_total", to(1))), want: []string{"SluiceCorruption"}},
		"an export fails":                {after: exports, want: []string{"SluiceExportFails"}},
		"a directory hangs":              {edit: set("sluice_export_directory_held_seconds", func(s, _ float64) float64 { return s }), want: []string{"SluiceExportDirectoryHangs"}},
		"an export waits":                {edit: set("sluice_export_yielding", to(1)), want: []string{"SluiceExportWaits"}},
		"increments are late":            {edit: set("sluice_store_late_increments_total", grows(1)), want: []string{"SluiceLateIncrements"}},
		"commits are refused":            {edit: set("sluice_store_commits_refused_total", grows(0.02)), want: []string{"SluiceCommitsRefused"}},
		"the disk hangs":                 {edit: set("sluice_store_loop_held_seconds", func(s, _ float64) float64 { return s }), want: []string{"SluiceDiskHangs"}},
		"commits fail":                   {edit: set("sluice_store_commit_errors_total", grows(0.02)), want: []string{"SluiceCommitsRefused"}},
		"rewrites hold commits":          {edit: set("sluice_store_rewrite_hold_seconds_total", grows(0.2)), want: []string{"SluiceRewritesHoldCommits"}},
		"compactions do not keep up":     {edit: set("sluice_store_write_stalls_total", grows(0.02)), want: []string{"SluiceWriteStalls"}},
	} {
		for _, alert := range tc.want {
			tested[alert] = true
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			then := tc.after
			if then == nil {
				then = before
			}
			want := append([]string{}, tc.want...)
			// The demo's disk is the machine's.
			e := func(n string, l labels.Labels, since time.Duration, v float64) (float64, bool) {
				if n == "sluice_store_disk_free_bytes" {
					v = 1e12
				}
				if tc.edit == nil {
					return v, true
				}
				return tc.edit(n, l, since, v)
			}
			if diff := cmp.Diff(want, firing(t, newEngine(), rules, newTimeline(before, then, e))); diff != "" {
				t.Errorf("alerts (-want +got):\n%s", diff)
			}
		})
	}
	for _, r := range rules {
		if !tested[r.Alert] {
			t.Errorf("alert %s is not shown to fire", r.Alert)
		}
	}
}
