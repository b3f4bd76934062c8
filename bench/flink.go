package main

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"sluice/store/pebblestore"
)

// flinkArgument, as the first argument, measures the pipeline beside Flink and nothing
// else: that needs a Java, and what `make bench-flink` fetches and compiles.
const flinkArgument = "flink"

//go:embed flink/pom.xml
var flinkPOM string

// flinkVersion returns the version that flink/pom.xml pins.
func flinkVersion() string {
	_, v, _ := strings.Cut(flinkPOM, "<flink.version>")
	v, _, _ = strings.Cut(v, "<")
	return v
}

// flinkOptions is the command line after flinkArgument.
type flinkOptions struct {
	events     int
	rounds     int
	partitions int
	batch      int
	seed       uint64
	java       string
	heap       string
	flink      string
	dir        string
	write      string
	force      bool
}

func parseFlink(args []string, stderr io.Writer) (*flinkOptions, error) {
	o := &flinkOptions{}
	f := flag.NewFlagSet("bench flink", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.events, "events", 4_000_000, "events of a run, which take our pipeline some seconds: the first one is its start's, and Flink has begun before")
	f.IntVar(&o.rounds, "rounds", 3, "rounds, of which the medians are reported, after one that warms up")
	f.IntVar(&o.partitions, "partitions", 4, "partitions of the topic")
	f.IntVar(&o.batch, "batch", 20_000, "records of a partition's batch in our pipeline")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the events")
	f.StringVar(&o.java, "java", "java", "a Java of version 17")
	f.StringVar(&o.heap, "heap", "12g", "heap of Flink's process, with room for all rows of a run and what is collected")
	f.StringVar(&o.flink, "flink", ".flink", "the `directory` with Flink's jars in lib and bench/flink/PageViews.java compiled in classes")
	f.StringVar(&o.dir, "dir", "", "directory for the stores and checkpoints, on the disk to be measured (default: a temporary one)")
	f.StringVar(&o.write, "write", "", "write the results, with machine and commit, to this `file`")
	f.BoolVar(&o.force, "force", false, "write also where other processes took more than 10 % of the machine")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.events < 1000 || o.rounds < 1 || o.partitions < 1 || o.batch < 1:
		return nil, errors.New("at least 1,000 events, one round, one partition and one record a batch are needed")
	}
	return o, nil
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
	Seconds  float64 `json:"seconds"`
	CPU      float64 `json:"cpu"`
	Minute   int     `json:"minute"`
	Hour     int     `json:"hour"`
	Day      int     `json:"day"`
	Counters int     `json:"counters"`
	Rows     int     `json:"rows"`
}

// flinkProcess is the Java that runs Flink, one job after the other.
type flinkProcess struct {
	pid  int
	in   io.WriteCloser
	out  *bufio.Scanner
	wait func() error
}

// flinkJVM are the arguments that Flink's own scripts give to Java 17.
var flinkJVM = []string{
	"--add-exports=java.base/sun.net.util=ALL-UNNAMED", "--add-exports=java.management/sun.management=ALL-UNNAMED",
	"--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.net=ALL-UNNAMED", "--add-opens=java.base/java.io=ALL-UNNAMED",
	"--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED", "--add-opens=java.base/java.text=ALL-UNNAMED",
	"--add-opens=java.base/java.time=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
	"--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED", "--add-opens=java.base/java.util.concurrent.locks=ALL-UNNAMED",
}

// startFlink starts a Java that ends with this process's pipe to it.
func startFlink(ctx context.Context, o *flinkOptions, bootstrap, dir string) (*flinkProcess, error) {
	classpath := filepath.Join(o.flink, "classes") + string(filepath.ListSeparator) + filepath.Join(o.flink, "lib", "*")
	args := append(append([]string{"-Xms" + o.heap, "-Xmx" + o.heap}, flinkJVM...), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classpath, "PageViews", bootstrap, topic, fmt.Sprint(o.events), dir)
	cmd := exec.CommandContext(ctx, o.java, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start Flink: %w", err)
	}
	return &flinkProcess{cmd.Process.Pid, in, bufio.NewScanner(out), cmd.Wait}, nil
}

func (p *flinkProcess) close() error { return errors.Join(p.in.Close(), p.wait()) }

// run runs one job and compares what it has counted with the number of events.
func (p *flinkProcess) run(j *flinkJob, what string, events int) (*flinkAnswered, error) {
	if _, err := fmt.Fprintln(p.in, j.backend, what); err != nil {
		return nil, fmt.Errorf("%s: %w", j.name, err)
	}
	if !p.out.Scan() {
		return nil, fmt.Errorf("%s: Flink has ended without an answer: %w", j.name, cmp.Or(p.out.Err(), io.ErrUnexpectedEOF))
	}
	got := new(flinkAnswered)
	if err := json.Unmarshal(p.out.Bytes(), got); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", j.name, err, p.out.Bytes())
	}
	want := flinkAnswered{Seconds: got.Seconds, CPU: got.CPU, Minute: events, Hour: events, Day: events, Counters: got.Counters}
	if what == "rows" {
		want.Rows = events
	}
	if *got != want {
		return nil, fmt.Errorf("WRONG: %s has %+v of %d events", j.name, *got, events)
	}
	return got, nil
}

// runFlink measures our pipeline, from the broker to fsynced rows and counts, beside
// Flink jobs that read the same topic of the same broker and keep the counts, and the
// rows, in their state.
func runFlink(ctx context.Context, args []string, w, stderr io.Writer) (err error) {
	o, err := parseFlink(args, stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "sluice-flink-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	base := &spec{
		Events: o.events, Partitions: o.partitions, Batch: o.batch, Seed: o.seed, Rest: pebblestore.GatherRest,
		Start: time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1).UnixMilli(),
	}
	b, err := startBroker(ctx, base)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	base.Broker, base.BrokerPID = b.addr, b.pid
	size, err := produce(ctx, base)
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	flink, err := startFlink(ctx, o, b.addr, filepath.Join(dir, "flink"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, flink.close()) }()
	r := &peerReport{
		title: "The pipeline beside Flink",
		about: "Written by `make bench-flink`; [flink.go](flink.go) and [flink/PageViews.java](flink/PageViews.java) say what is measured: page views of one topic into exact counts of each page by minute, hour and day, and rows.",
		of:    "event", rows: o.events,
	}
	r.begin(ctx, w, flinkArgument, args, o.flink, ".flink")
	// What Java compiles while it runs is in no median.
	for _, task := range flinkTasks {
		for i := range task.jobs {
			for range 2 {
				if _, err := flink.run(&task.jobs[i], task.what, o.events); err != nil {
					return err
				}
			}
		}
	}
	for round := range o.rounds {
		for _, task := range flinkTasks {
			s := at(base, pipelineStage, filepath.Join(dir, pipelineStage))
			s.Group, s.Counts = fmt.Sprintf("bench-flink-%d-%s", round, task.what), task.what == "counts"
			ours, err := runStage(ctx, s)
			if err != nil {
				return err
			}
			r.add(w, round, task.name, &ours, 0)
			for i := range task.jobs {
				j := &task.jobs[i]
				var got *flinkAnswered
				foreign, err := foreignWhile([]int{b.pid, flink.pid}, func() (err error) {
					got, err = flink.run(j, task.what, o.events)
					return err
				})
				if err != nil {
					return err
				}
				theirs := sample{Seconds: got.Seconds, CPU: got.CPU, Foreign: foreign}
				r.add(w, round, j.name, &theirs, 0)
				r.ratio("rate: Sluice / "+j.name, "≥ 1.00", theirs.Seconds/ours.Seconds)
				r.ratio("CPU: "+j.name+" / Sluice", "", theirs.CPU/ours.CPU)
			}
		}
	}
	r.notes = []string{
		fmt.Sprintf("%d events of %.0f bytes in %d partitions of the broker that all of them read, which runs in a process of its own on the same %d cores.", o.events, size, o.partitions, runtime.NumCPU()),
		"Sluice's time ends when all is fsynced, rows and counts with the offsets that they are of. Flink's ends when the last event is in its state: the checkpoint that makes it durable comes up to a second later, and is not in it; nor is Flink's start, nor what the compactions of either have left to do.",
		"Flink " + flinkVersion() + " in one process, parallelism " + fmt.Sprint(runtime.NumCPU()) + ", a heap of " + o.heap + ", as bench/flink/pom.xml has it: exactly-once checkpoints to a local directory each second, incremental with RocksDB, objects reused, no sink behind the state, which each event changes by itself: there is no mini-batch, which Flink's SQL has. Each checkpoint of the rows in memory writes all of them, as that state has no increments; RocksDB's writes what is new. Each job has run twice before.",
		"All counts of each unit were added up, and all rows counted, in the store and in Flink's state: equal to the number of events.",
	}
	return r.publish(w, o.write, o.force)
}
