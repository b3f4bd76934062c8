// Command bench measures the ingest path stage by stage and as a whole, in one
// run on one machine, so that the stages can be compared: fetch, decode, decode
// and map, the write buffer, the store, raw Pebble commits of the same key-values,
// the whole pipeline with an fsynced commit, and the export of what it stored; and
// fsynced, exactly-once counters beside Redis, where a redis-server is installed.
//
// The input is the page views of internal/pageviews under the rules of
// examples/pageviews.yaml: each event of about 200 bytes becomes one row of six
// columns and three counters. The rounds are interleaved, every stage of a round
// after the other, and the medians are reported: machines drift, ratios within a
// round much less.
//
// Each stage runs in a process of its own, so that its CPU time is what getrusage
// says and the memory of one stage costs the others nothing; so does the broker,
// which shares the cores with the stage that reads from it. The program starts
// itself anew for them, with "child" as the first argument. After every run of
// the store or the pipeline the counters and rows are added up and compared with
// the number of events; a difference is an error.
//
// With "joins" as the first argument it measures the merge join of two exports beside
// DuckDB's join of the same files, and nothing else; with "copies" the writing of one
// Parquet file beside DuckDB's COPY of the same rows, on one core each. "bench joins
// -h" and "bench copies -h" have their flags.
//
// With "hbase" as the first argument it drives the same operations on the embedded
// engine, on HBase and on the generated code of its gateway's client, and nothing
// else; "bench hbase -h" has its flags.
//
// With "flink" as the first argument it measures the pipeline beside Flink jobs that
// read the same topic and keep the same counts, and rows, in their state, and nothing
// else; "bench flink -h" has its flags, and flink/PageViews.java the jobs.
//
// It is a measurement, no test of speed: nothing fails for being slow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// maxForeign is the share of the machine that other processes may take before the
// numbers say more about them than about us.
const maxForeign = 0.10

// errBusy is why -write refuses.
var errBusy = errors.New("other processes took too much of the machine")

// options is the command line.
type options struct {
	events     int
	rounds     int
	partitions int
	batch      int
	seed       uint64
	dir        string
	smoke      bool
	force      bool
	write      string
	json       string
	cpuprofile string
	only       []string // stages; nil = all

	args []string // as given, for the report
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{args: args}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	// 4,000,000 events are 20 memtables, so that flushes and compactions run beside
	// the ingest, and settled CPU counts what is still to come. They take the pipeline
	// some 6 s and an export of the rows 0.8 s: of 1,000,000, whose export takes 0.24 s,
	// the start and the end of a run are a twentieth.
	f.IntVar(&o.events, "events", 4_000_000, "events of a run")
	f.IntVar(&o.rounds, "rounds", 3, "rounds, of which the medians are reported")
	f.IntVar(&o.partitions, "partitions", 4, "partitions of the topic")
	f.IntVar(&o.batch, "batch", 20_000, "records of a partition's batch")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the events")
	f.StringVar(&o.dir, "dir", "", "directory for the stores, on the disk to be measured (default: a temporary one)")
	f.BoolVar(&o.smoke, "smoke", false, "few events and one round, to see that all of it works")
	f.BoolVar(&o.force, "force", false, "write also where other processes took more than 10 % of the machine")
	f.StringVar(&o.write, "write", "", "write the report, with machine and commit, to this `file`")
	f.StringVar(&o.json, "json", "", "write every sample to this `file`")
	f.StringVar(&o.cpuprofile, "cpuprofile", "", "write CPU profiles of one more run of store, pipeline and backfill, or of the stages of -only, to this `directory`")
	f.Func("only", "run only these `stages`, separated by commas, and print their samples and no report", func(names string) error {
		o.only = strings.Split(names, ",")
		for _, name := range o.only {
			if !slices.ContainsFunc(stages, func(st stage) bool { return st.name == name }) {
				return fmt.Errorf("there is no stage %q", name)
			}
		}
		return nil
	})
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	set := map[string]bool{}
	f.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if o.smoke {
		if !set["events"] {
			o.events = 20_000
		}
		if !set["rounds"] {
			o.rounds = 1
		}
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.events < 1000 || o.rounds < 1 || o.partitions < 1 || o.batch < 1:
		return nil, errors.New("at least 1,000 events, one round, one partition and one record a batch are needed")
	case o.smoke && o.write != "":
		return nil, errors.New("-smoke measures nothing that is worth a file: leave out -smoke or -write")
	case o.only != nil && (o.write != "" || o.json != ""):
		return nil, errors.New("-only makes no report: leave out -only, or -write and -json")
	}
	return o, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	args := os.Args[1:]
	if len(args) > 0 && args[0] == childArgument {
		if err := child(ctx, args[1:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	apart := map[string]func(context.Context, []string, io.Writer, io.Writer) error{
		joinsArgument: runJoins, copiesArgument: runCopies, hbaseArgument: runHBase, flinkArgument: runFlink, connectArgument: runConnect,
	}
	if len(args) > 0 && apart[args[0]] != nil {
		if err := apart[args[0]](ctx, args[1:], os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	o, err := parse(args, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures everything and prints the report to w, and a line for each sample
// while it goes on.
func run(ctx context.Context, o *options, w io.Writer) (err error) {
	m := thisMachine(ctx)
	m.Command = strings.Join(append([]string{"go run ./bench"}, o.args...), " ")
	r := &report{Machine: m, Events: o.events, Rounds: o.rounds, Partitions: o.partitions, Batch: o.batch, Samples: map[string][]sample{}}
	if err := measureAll(ctx, o, r, w); err != nil {
		return err
	}
	if o.only != nil {
		return nil
	}
	if err := r.text(w); err != nil {
		return err
	}
	return r.publish(o)
}

// publish writes the files that o asks for.
func (r *report) publish(o *options) error {
	if o.json != "" {
		if err := r.writeJSON(o.json); err != nil {
			return err
		}
	}
	if o.write == "" {
		return nil
	}
	if stage, share := r.busiest(); share > maxForeign && !o.force {
		return fmt.Errorf("%w: %.0f %% during stage %s; wait until it is quiet, or say -force. %s is unchanged", errBusy, 100*share, stage, o.write)
	}
	return r.writeMarkdown(o.write)
}
