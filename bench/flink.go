package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
)

// flinkArgument, as the first argument, measures the pipeline beside Flink and nothing
// else: that needs a Java, and what `make bench-flink` fetches and compiles.
const flinkArgument = "flink"

//go:embed flink/pom.xml
var flinkPOM string

// flinkVersion returns the version that flink/pom.xml pins.
func flinkVersion() string { return pinned(flinkPOM, "flink.version") }

func parseFlink(args []string, stderr io.Writer) (*topicOptions, error) {
	return parseTopic(flinkArgument, &topicOptions{
		events: 4_000_000, heap: "12g", jars: ".flink",
	}, "the `directory` with Flink's jars in lib and bench/flink/PageViews.java compiled in classes", args, stderr)
}

// flinkJob is what a run of Flink keeps, and where.
type flinkJob struct{ name, backend string }

// flinkTasks are what both do, ours first.
var flinkTasks = []struct {
	what, name string
	jobs       []flinkJob
}{
	{"counts", "Sluice, counts alone", []flinkJob{
		{"Flink, counts alone, in memory", "hashmap"},
		{"Flink, counts alone, in RocksDB", "rocksdb"},
	}},
	{"rows", "Sluice, rows and counts", []flinkJob{
		{"Flink, rows and counts, in memory", "hashmap"},
		{"Flink, rows and counts, in RocksDB", "rocksdb"},
	}},
}

// flinkAnswered is what PageViews.java prints of a run.
type flinkAnswered struct {
	took
	Minute   int `json:"minute"`
	Hour     int `json:"hour"`
	Day      int `json:"day"`
	Counters int `json:"counters"`
	Rows     int `json:"rows"`
}

// flinkJVM are the arguments that Flink's own scripts give to Java 17.
var flinkJVM = []string{
	"--add-exports=java.base/sun.net.util=ALL-UNNAMED", "--add-exports=java.management/sun.management=ALL-UNNAMED",
	"--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.net=ALL-UNNAMED", "--add-opens=java.base/java.io=ALL-UNNAMED",
	"--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED", "--add-opens=java.base/java.text=ALL-UNNAMED",
	"--add-opens=java.base/java.time=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
	"--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED", "--add-opens=java.base/java.util.concurrent.locks=ALL-UNNAMED",
}

// runFlinkJob runs one job and compares what it has counted with the number of events.
func runFlinkJob(p *javaProcess, j *flinkJob, what string, events int) (took, error) {
	var got flinkAnswered
	if err := p.ask(j.name, j.backend+" "+what, &got); err != nil {
		return took{}, err
	}
	want := flinkAnswered{took: got.took, Minute: events, Hour: events, Day: events, Counters: got.Counters}
	if what == "rows" {
		want.Rows = events
	}
	if got != want {
		return took{}, fmt.Errorf("WRONG: %s has %+v of %d events", j.name, got, events)
	}
	return got.took, nil
}

// runFlink measures our pipeline, from the broker to fsynced rows and counts, beside
// Flink jobs that read the same topic of the same broker and keep the counts, and the
// rows, in their state.
func runFlink(ctx context.Context, args []string, w, stderr io.Writer) (err error) {
	o, err := parseFlink(args, stderr)
	if err != nil {
		return err
	}
	t, err := o.begin(ctx, flinkArgument)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	flink, err := startJava(ctx, o, flinkJVM, "PageViews", t.spec.Broker, topic, fmt.Sprint(o.events), filepath.Join(t.dir, "flink"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, flink.close()) }()
	r := &peerReport{
		title: "The pipeline beside Flink",
		about: "Written by `make bench-flink`; [flink.go](flink.go) and [flink/PageViews.java](flink/PageViews.java) say what is measured: page views of one topic into exact counts of each page by minute, hour and day, and rows.",
		of:    "event", rows: o.events,
	}
	r.begin(ctx, w, flinkArgument, args, o.jars, ".flink")
	// What Java compiles while it runs is in no median.
	for _, task := range flinkTasks {
		for i := range task.jobs {
			for range 2 {
				if _, err := runFlinkJob(flink, &task.jobs[i], task.what, o.events); err != nil {
					return err
				}
			}
		}
	}
	for round := range o.rounds {
		for _, task := range flinkTasks {
			ours, err := t.pipeline(ctx, fmt.Sprintf("bench-flink-%d-%s", round, task.what), task.what == "counts")
			if err != nil {
				return err
			}
			r.add(w, round, task.name, &ours, 0)
			for i := range task.jobs {
				j := &task.jobs[i]
				if err := t.beside(w, r, round, &ours, flink, j.name, "≥ 1.00", func() (took, error) { return runFlinkJob(flink, j, task.what, o.events) }); err != nil {
					return err
				}
			}
		}
	}
	r.notes = []string{
		t.note(),
		"Sluice's time ends when all is fsynced, rows and counts with the offsets that they are of. Flink's ends when the last event is in its state: the checkpoint that makes it durable comes up to a second later, and is not in it; nor is Flink's start, nor what the compactions of either have left to do.",
		"Flink " + flinkVersion() + " in one process, parallelism " + fmt.Sprint(runtime.NumCPU()) + ", a heap of " + o.heap + ", as bench/flink/pom.xml has it: exactly-once checkpoints to a local directory each second, incremental with RocksDB, objects reused, no sink behind the state, which each event changes by itself: there is no mini-batch, which Flink's SQL has. Each checkpoint of the rows in memory writes all of them, as that state has no increments; RocksDB's writes what is new. Each job has run twice before.",
		"All counts of each unit were added up, and all rows counted, in the store and in Flink's state: equal to the number of events.",
	}
	return r.publish(w, o.write, o.force)
}
