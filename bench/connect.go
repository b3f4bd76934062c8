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

// connectArgument, as the first argument, measures the pipeline beside Kafka Connect and
// nothing else: that needs a Java, and what `make bench-connect` fetches and compiles.
const connectArgument = "connect"

//go:embed connect/pom.xml
var connectPOM string

// connectVersion returns the version that connect/pom.xml pins.
func connectVersion() string { return pinned(connectPOM, "kafka.version") }

func parseConnect(args []string, stderr io.Writer) (*topicOptions, error) {
	return parseTopic(connectArgument, &topicOptions{
		events: 2_000_000, heap: "2g", jars: ".connect",
	}, "the `directory` with Kafka Connect's jars in lib and bench/connect/Sinks.java compiled in classes", args, stderr)
}

// connectJob is a connector: what its records are converted to, and what becomes of them.
type connectJob struct{ name, converter, sink string }

// goal returns that of our rate beside j's: a connector to a table decodes its records.
func (j *connectJob) goal() string {
	if j.converter == "json" {
		return "≥ 1.00"
	}
	return ""
}

var connectJobs = []connectJob{
	{"Connect, text, dropped", "string", "drop"},
	{"Connect, JSON, dropped", "json", "drop"},
	{"Connect, text to a file", "string", "file"},
	{"Connect, JSON to a file", "json", "file"},
}

// connectAnswered is what Sinks.java prints of a run.
type connectAnswered struct {
	took
	Records int `json:"records"`
	Lines   int `json:"lines"`
}

// runConnectJob runs one connector and compares what it was given, and has written, with
// the number of events.
func runConnectJob(p *javaProcess, j *connectJob, events int) (took, error) {
	var got connectAnswered
	if err := p.ask(j.name, j.converter+" "+j.sink, &got); err != nil {
		return took{}, err
	}
	want := connectAnswered{took: got.took, Records: events}
	if j.sink == "file" {
		want.Lines = events
	}
	if got != want {
		return took{}, fmt.Errorf("WRONG: %s has %+v of %d events", j.name, got, events)
	}
	return got.took, nil
}

// runConnect measures our pipeline, from the broker to fsynced rows and counts, beside
// sinks of Kafka Connect that read the same topic of the same broker and do less.
func runConnect(ctx context.Context, args []string, w, stderr io.Writer) (err error) {
	o, err := parseConnect(args, stderr)
	if err != nil {
		return err
	}
	t, err := o.begin(ctx, connectArgument)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	connect, err := startJava(ctx, o, nil, "Sinks", t.spec.Broker, topic, fmt.Sprint(o.events), fmt.Sprint(runtime.NumCPU()), filepath.Join(t.dir, "connect"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, connect.close()) }()
	r := &peerReport{
		title: "The pipeline beside Kafka Connect",
		about: "Written by `make bench-connect`; [connect.go](connect.go) and [connect/Sinks.java](connect/Sinks.java) say what is measured: page views of one topic into rows and exact counts of each page by minute, hour and day, and the same records handed to sinks that do less.",
		of:    "event", rows: o.events,
	}
	r.begin(ctx, w, connectArgument, args, o.jars, ".connect")
	// What Java compiles while it runs is in no median.
	for range 2 {
		for i := range connectJobs {
			if _, err := runConnectJob(connect, &connectJobs[i], o.events); err != nil {
				return err
			}
		}
	}
	for round := range o.rounds {
		ours, err := t.pipeline(ctx, fmt.Sprintf("bench-connect-%d", round), false)
		if err != nil {
			return err
		}
		r.add(w, round, "Sluice, rows and counts", &ours, 0)
		for i := range connectJobs {
			j := &connectJobs[i]
			if err := t.beside(w, r, round, &ours, connect, j.name, j.goal(), func() (took, error) { return runConnectJob(connect, j, o.events) }); err != nil {
				return err
			}
		}
	}
	r.notes = []string{
		t.note(),
		"Sluice's time begins with its start and ends when all is fsynced, rows and counts with the offsets that they are of. Connect's begins with the first records that a sink is given and ends when the last have been taken: neither its start, nor its first fetch, nor a commit of its offsets is in it, and nothing is fsynced.",
		"Kafka Connect " + connectVersion() + " in one standalone worker, " + fmt.Sprint(runtime.NumCPU()) + " tasks, a heap of " + o.heap + ", its defaults but for read_committed. A sink that drops its records does the least that a connector can, so that no connector to a table is faster than that with JsonConverter, without schemas. FileStreamSink, which is Kafka's own, appends a line to a file for each record. Neither counts, and a record may come twice after a crash. Each has run twice before.",
		"What the sinks were given, and the lines of the files, were counted, as were all counts of each unit and all rows in the store: equal to the number of events.",
	}
	return r.publish(w, o.write, o.force)
}
