package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store/pebblestore"
)

// TestMain makes the test binary the stages' and the broker's processes, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childArgument {
		if err := child(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestSmoke(t *testing.T) {
	const n = 6000
	dir := t.TempDir()
	o, err := parse([]string{"-smoke", "-events", fmt.Sprint(n), "-partitions", "2", "-batch", "1000", "-dir", dir, "-cpuprofile", filepath.Join(dir, "profiles")}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	r := &report{Machine: thisMachine(t.Context()), Events: o.events, Rounds: o.rounds, Partitions: o.partitions, Batch: o.batch, Samples: map[string][]sample{}}
	var progress bytes.Buffer
	if err := measureAll(t.Context(), o, r, &progress); err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	if r.EventBytes < 150 || r.EventBytes > 250 {
		t.Errorf("events of %.0f bytes, want about 200", r.EventBytes)
	}
	for _, st := range stages {
		if st.name == captureStage {
			continue
		}
		if got := len(r.Samples[st.name]); got != 1 {
			t.Errorf("stage %s: %d samples, want 1", st.name, got)
			continue
		}
		s := &r.Samples[st.name][0]
		if s.Seconds <= 0 || s.CPU <= 0 {
			t.Errorf("stage %s: %.6f s, %.6f s of CPU", st.name, s.Seconds, s.CPU)
		}
		leaves := st.name == countersStage || st.name == storeStage || st.name == rawStage || st.name == pipelineStage || st.name == dedupStage || st.name == backfillStage
		if leaves != (s.Settled >= s.CPU && s.Settled > 0) {
			t.Errorf("stage %s: %.6f s of CPU, %.6f until at rest", st.name, s.CPU, s.Settled)
		}
	}
	// Every event has a row, and its counters add up to at least one key a batch.
	if kvs := r.Capture.Extra["key-values an event"]; kvs <= 1 || kvs > 4.1 {
		t.Errorf("%.2f key-values an event, want one row and up to three counters", kvs)
	}
	if c := r.extra(storeStage, "commits").median; c < 1 || c > n {
		t.Errorf("%v commits", c)
	}
	for _, row := range r.ratioTable().rows {
		var v float64
		if _, err := fmt.Sscan(row[1], &v); err != nil || v <= 0 || math.IsInf(v, 0) {
			t.Errorf("ratio %s is %s", row[0], row[1])
		}
	}
	for _, name := range []string{"store.pprof", "pipeline.pprof", "backfill.pprof"} {
		if fi, err := os.Stat(filepath.Join(dir, "profiles", name)); err != nil || fi.Size() == 0 {
			t.Errorf("profile %s: %v", name, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "sluice-bench-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	var text bytes.Buffer
	if err := r.text(&text); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "RESULTS.md")
	if err := r.writeMarkdown(name); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range stages {
		if st.name == captureStage || unlisted(st.name) {
			continue
		}
		if !strings.Contains(text.String(), st.what) || !bytes.Contains(written, []byte("| "+st.what+" |")) {
			t.Errorf("stage %s is not in the report", st.name)
		}
	}
	redis := noRedis
	if _, err := exec.LookPath("redis-server"); err == nil {
		redis = redisWhat
	}
	for _, want := range []string{redis, "pipeline / slowest stage", "pipeline / raw Pebble", r.Machine.Go, r.Machine.Commit} {
		if !bytes.Contains(written, []byte(want)) {
			t.Errorf("%q is not in the file:\n%s", want, written)
		}
	}
}

func testSpec(t *testing.T, events int) *spec {
	return &spec{Events: events, Partitions: 3, Batch: 500, Seed: 1, Start: time.Now().Add(-time.Hour).UnixMilli(), Broker: "127.0.0.1:1", Dir: filepath.Join(t.TempDir(), "store")}
}

// TestEventsAreDealtInOrder holds the offsets to what a topic does: every
// partition's begin at 0 and have no gaps.
func TestEventsAreDealtInOrder(t *testing.T) {
	t.Parallel()
	e := generate(testSpec(t, 7777))
	next := map[int32]int64{}
	for i := range e.len() {
		p := e.partition(i)
		if got := e.offset(i); got != next[p] {
			t.Fatalf("event %d has offset %d of partition %d, want %d", i, got, p, next[p])
		}
		next[p]++
	}
	if diff := cmp.Diff(next, e.logEnds(e.len())); diff != "" {
		t.Errorf("log ends (-want +got):\n%s", diff)
	}
}

// fill applies events to a store in s.Dir and returns it with what it has logged.
func fill(t *testing.T, s *spec) (*pebblestore.DB, *logKeeper) {
	t.Helper()
	e := generate(s)
	all, err := prebuild(t.Context(), s, e, e.len())
	if err != nil {
		t.Fatal(err)
	}
	logs := newLogKeeper()
	db, err := openStore(t.Context(), s, s.Dir, func(o *pebblestore.Options) { o.FS = logs })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() }) // again, where the test has done so
	if err := applyAll(t.Context(), db, all); err != nil {
		t.Fatal(err)
	}
	return db, logs
}

func TestVerifyFindsWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := testSpec(t, 2000)
	db, _ := fill(t, s)
	if err := verify(t.Context(), db, &spec{Events: 2000}); err != nil {
		t.Errorf("all events are there: %v", err)
	}
	for _, events := range []int{1999, 2001} {
		if err := verify(t.Context(), db, &spec{Events: events}); err == nil || !strings.Contains(err.Error(), "WRONG") {
			t.Errorf("2,000 events pass for %d: %v", events, err)
		}
	}
	m := &cell.Mutation{Table: countTable, Row: []byte("/extra")}
	m.Increment("minute", []byte("x"), 1)
	if _, err := db.MutateRow(t.Context(), nil, m); err != nil {
		t.Fatal(err)
	}
	if err := verify(t.Context(), db, &spec{Events: 2000}); err == nil || !strings.Contains(err.Error(), "by the minute add up to 2001") {
		t.Errorf("one count too many: %v", err)
	}
}

// TestRawHasTheSameKeyValues compares what Pebble alone stores of the captured
// batches with what the engine has stored.
func TestRawHasTheSameKeyValues(t *testing.T) {
	t.Parallel()
	s := testSpec(t, 5000)
	db, logs := fill(t, s)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	tally, err := logs.writeBatches(&file)
	if err != nil {
		t.Fatal(err)
	}
	if tally.rows != 5000 || tally.counters == 0 || tally.keyValues <= tally.rows+tally.counters {
		t.Errorf("captured %+v of 5,000 events", tally)
	}
	reprs, err := splitBatches(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := openRaw(s, s.Dir+"-raw")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := raw.commit(&spec{}, reprs); err != nil {
		t.Fatal(err)
	}
	if n, err := raw.rows(); err != nil || n != 5000 {
		t.Errorf("%d rows, %v", n, err)
	}
	got := contents(t, raw)
	if err := raw.close(); err != nil {
		t.Fatal(err)
	}
	engine, err := openRaw(s, s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	want := contents(t, engine)
	if err := engine.close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the engine's (-) and Pebble's (+) key-values differ:\n%.2000s", diff)
	}
}

// contents returns every counter and row.
func contents(t *testing.T, db *rawDB) map[string]string {
	t.Helper()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{cell.TagCounter}})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	all := map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		all[string(it.Key())] = string(it.Value())
	}
	if err := it.Error(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestSplitBatches(t *testing.T) {
	t.Parallel()
	got, err := splitBatches([]byte("\x00\x00\x00\x01a\x00\x00\x00\x02bc"))
	if diff := cmp.Diff([][]byte{[]byte("a"), []byte("bc")}, got); err != nil || diff != "" {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"", "\x00\x00", "\x00\x00\x00\x02a"} {
		if _, err := splitBatches([]byte(bad)); err == nil {
			t.Errorf("splitBatches(%q) has no error", bad)
		}
	}
}

func TestParseProc(t *testing.T) {
	t.Parallel()
	busy, ok := parseStat([]byte("cpu  100 1 20 5000 300 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"))
	if want := 1300 * time.Millisecond; !ok || busy != want {
		t.Errorf("busy for %v, %v, want %v", busy, ok, want)
	}
	for _, bad := range []string{"", "cpu 1 2", "intr 1 2 3 4 5 6 7 8 9", "cpu a 1 1 1 1 1 1 1"} {
		if _, ok := parseStat([]byte(bad)); ok {
			t.Errorf("parseStat(%q) passes", bad)
		}
	}
	cpu, ok := parseProcessStat([]byte("42 (a (b) c) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 1 1 1\n"))
	if want := 3 * time.Second; !ok || cpu != want {
		t.Errorf("process used %v, %v, want %v", cpu, ok, want)
	}
	for _, bad := range []string{"", "42 (a) S 1", "42 a S 1 42 42 0 -1 4194304 100 0 0 0 250 50"} {
		if _, ok := parseProcessStat([]byte(bad)); ok {
			t.Errorf("parseProcessStat(%q) passes", bad)
		}
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   []float64
		want spread
	}{
		{nil, spread{}},
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{5, 1, 3}, spread{3, 1, 5}},
		{[]float64{4, 1, 2, 8}, spread{3, 1, 8}},
	} {
		if got := spreadOf(c.in); got != c.want {
			t.Errorf("spreadOf(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

// TestRatiosAreOfOneRound pins that a ratio is made within a round: over medians of
// different rounds it would be 1 here.
// TestSmallRatiosAreNoZeros: a stage that the machine kept waiting for seconds is
// still measured.
func TestSmallRatiosAreNoZeros(t *testing.T) {
	t.Parallel()
	got := []string{ratio(1.456), ratio(0.01), ratio(0.00412), ratio(-0.5), ratio(0)}
	if diff := cmp.Diff([]string{"1.46", "0.01", "4.1e-03", "-0.50", "0.0e+00"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRatiosAreOfOneRound(t *testing.T) {
	t.Parallel()
	r := &report{Events: 1000, Samples: map[string][]sample{}}
	for _, st := range stages {
		for range 3 {
			r.Samples[st.name] = append(r.Samples[st.name], sample{Seconds: 0.1, CPU: 1, Settled: 1, Extra: map[string]float64{}})
		}
	}
	for i, seconds := range []float64{1, 2, 4} {
		r.Samples[storeStage][i].Seconds = seconds
		r.Samples[pipelineStage][i].Seconds = 2 * seconds
	}
	r.Samples[storeStage][0].Foreign = 0.9 // the median is what counts
	r.Samples[mapStage][0].Foreign, r.Samples[mapStage][1].Foreign = 0.2, 0.3
	first := r.ratioTable().rows[0]
	if diff := cmp.Diff([]string{"pipeline / slowest stage (store)", "0.50", "0.50..0.50", "≥ 0.90"}, first); diff != "" {
		t.Errorf("first ratio (-want +got):\n%s", diff)
	}
	if name, share := r.busiest(); name != mapStage || share != 0.2 {
		t.Errorf("busiest is %s with %v, want map with 0.2", name, share)
	}
	if notes := strings.Join(r.notes(), "\n"); !strings.Contains(notes, "WARNING: other processes took 20 % of the machine during map") {
		t.Errorf("no warning in:\n%s", notes)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		want string // of the error; "" = none
	}{
		{"-smoke", ""},
		{"-events 5000 -rounds 2", ""},
		{"extra", `unexpected argument "extra"`},
		{"-events 10", "at least 1,000 events"},
		{"-rounds 0", "one round"},
		{"-smoke -write x", "leave out -smoke or -write"},
	} {
		_, err := parse(strings.Fields(c.args), new(bytes.Buffer))
		if got := fmt.Sprint(err); (c.want == "") != (err == nil) || !strings.Contains(got, c.want) {
			t.Errorf("parse(%q): %v, want %q", c.args, err, c.want)
		}
	}
}

func TestChildRefusesNonsense(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"{"}, {`{"Stage": "nap"}`}} {
		if err := child(t.Context(), args, strings.NewReader(""), new(bytes.Buffer)); err == nil {
			t.Errorf("child(%q) has no error", args)
		}
	}
}

// TestWriteRefusesOnBusyMachine pins the rule of -write on a finished report.
func TestWriteRefusesOnBusyMachine(t *testing.T) {
	t.Parallel()
	r := &report{Events: 1000, Samples: map[string][]sample{}}
	for _, st := range stages {
		r.Samples[st.name] = []sample{{Seconds: 0.1, CPU: 1, Settled: 1, Foreign: 0.11, Extra: map[string]float64{}}}
	}
	name := filepath.Join(t.TempDir(), "RESULTS.md")
	if err := r.publish(&options{write: name}); !errors.Is(err, errBusy) {
		t.Errorf("11 %% of the machine were others': %v", err)
	}
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
	for _, o := range []*options{{write: name, force: true}, {write: name}} {
		if err := r.publish(o); err != nil {
			t.Errorf("publish(%+v): %v", o, err)
		}
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
		for _, st := range stages { // quiet from here on
			r.Samples[st.name][0].Foreign = 0.05
		}
	}
}
