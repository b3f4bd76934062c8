package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"sluice/pipeline/kafka/embedded"
	"sluice/store/pebblestore"
)

// childArgument is the first argument of a process that is one stage, or the
// broker. The second is a spec in JSON.
const childArgument = "child"

// brokerStage is the spec's Stage of the broker.
const brokerStage = "broker"

// spec is what a child is to do.
type spec struct {
	Stage      string
	Events     int
	Partitions int
	Batch      int
	Seed       uint64
	Start      int64  // time of the first event, ms since the Unix epoch
	Broker     string // address
	BrokerPID  int
	Group      string // consumer group, a new one each run
	Dir        string // where the stage makes its files
	Batches    string // file of raw batches
	Keep       bool   // leave the store for the next stage
	Counts     bool   // keep the counts alone, and no rows
	IDs        bool   // every event has an id, by which it is applied once (dedup)
	Profile    string // file for a CPU profile; "" = none
	// Rest is how long a store may do nothing before it goes on with its
	// compactions, which settled CPU counts.
	Rest time.Duration
}

// child does what the spec in args[0] says and prints the result as JSON.
func child(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) != 1 {
		return errors.New("bench: a child needs its spec")
	}
	var s spec
	if err := json.Unmarshal([]byte(args[0]), &s); err != nil {
		return fmt.Errorf("bench: spec: %w", err)
	}
	if s.Stage == brokerStage {
		return runBroker(&s, stdin, stdout)
	}
	i := slices.IndexFunc(stages, func(st stage) bool { return st.name == s.Stage })
	if i < 0 {
		return fmt.Errorf("bench: no stage %q", s.Stage)
	}
	out, err := stages[i].run(ctx, &s)
	if err != nil {
		return fmt.Errorf("stage %s: %w", s.Stage, err)
	}
	return json.NewEncoder(stdout).Encode(out)
}

// runStage runs s in a process of its own and returns its sample. What others have left to be
// written is written before.
func runStage(ctx context.Context, s *spec) (sample, error) {
	cmd, err := childCommand(ctx, s)
	if err != nil {
		return sample{}, err
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	syncDisks()
	if err := cmd.Run(); err != nil {
		return sample{}, fmt.Errorf("stage %s: %w", s.Stage, err)
	}
	var got sample
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		return sample{}, fmt.Errorf("stage %s: result: %w", s.Stage, err)
	}
	return got, nil
}

func childCommand(ctx context.Context, s *spec) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arg, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe, childArgument, string(arg))
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// broker is the broker's process.
type broker struct {
	addr string
	pid  int
	stop func() error
}

// startBroker starts a broker with the topic in a process of its own, which ends
// when stop is called or this process is no more.
func startBroker(ctx context.Context, s *spec) (*broker, error) {
	b := *s
	b.Stage = brokerStage
	cmd, err := childCommand(ctx, &b)
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the broker: %w", err)
	}
	stop := func() error { return errors.Join(in.Close(), cmd.Wait()) }
	var addr string
	if err := json.NewDecoder(out).Decode(&addr); err != nil {
		return nil, errors.Join(fmt.Errorf("start the broker: %w", err), stop())
	}
	return &broker{addr: addr, pid: cmd.Process.Pid, stop: stop}, nil
}

// runBroker is the broker's process: it prints its address and ends with its
// standard input.
func runBroker(s *spec, stdin io.Reader, stdout io.Writer) error {
	b, err := embedded.Start(&embedded.Options{Topics: map[string]int{topic: s.Partitions}})
	if err != nil {
		return err
	}
	defer b.Close()
	if err := json.NewEncoder(stdout).Encode(b.Addr()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// measureAll fills r with the samples of all rounds.
func measureAll(ctx context.Context, o *options, r *report, w io.Writer) (err error) {
	dir, err := os.MkdirTemp(o.dir, "sluice-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	base := spec{
		Events: o.events, Partitions: o.partitions, Batch: o.batch, Seed: o.seed,
		// Yesterday: the rules keep counts by the minute for 30 days.
		Start:   time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1).UnixMilli(),
		Batches: filepath.Join(dir, "batches"),
	}
	if !o.smoke {
		base.Rest = pebblestore.GatherRest
	}
	b, err := startBroker(ctx, &base)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	base.Broker, base.BrokerPID = b.addr, b.pid

	begun := time.Now()
	if r.EventBytes, err = produce(ctx, &base); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	runtime.GC() // what is left of the producing should not be collected while others are measured
	fmt.Fprintf(w, "%d events of %.0f bytes in %d partitions, produced in %.1f s; broker in its own process, on the same %d cores\n",
		o.events, r.EventBytes, o.partitions, time.Since(begun).Seconds(), runtime.NumCPU())

	capture, err := runStage(ctx, at(&base, captureStage, filepath.Join(dir, "capture")))
	if err != nil {
		return err
	}
	r.Capture = capture
	for round := range o.rounds {
		if err := measureRound(ctx, &base, o.only, r, dir, round, w); err != nil {
			return err
		}
	}
	if o.cpuprofile == "" {
		return nil
	}
	return profile(ctx, &base, o, dir, w)
}

// measureRound runs the stages that are named, or all.
func measureRound(ctx context.Context, base *spec, only []string, r *report, dir string, round int, w io.Writer) error {
	stored := filepath.Join(dir, "stored") // by the pipeline, for what comes after
	for _, st := range stages {
		if st.name == captureStage || only != nil && !slices.Contains(only, st.name) {
			continue
		}
		s := at(base, st.name, filepath.Join(dir, st.name))
		s.Group = fmt.Sprintf("bench-%d-%s", round, st.name)
		s.share(stored)
		got, err := runStage(ctx, s)
		if err != nil {
			return err
		}
		r.Samples[st.name] = append(r.Samples[st.name], got)
		fmt.Fprintf(w, "round %d  %-9s %s\n", round+1, st.name, got.line(r.Events))
		if only != nil { // there will be no report
			for _, key := range slices.Sorted(maps.Keys(got.Extra)) {
				fmt.Fprintf(w, "%50s  %.6g\n", key, got.Extra[key])
			}
		}
	}
	return os.RemoveAll(stored)
}

// profile runs some stages once more, under the CPU profiler. These runs are in no
// median.
func profile(ctx context.Context, base *spec, o *options, dir string, w io.Writer) error {
	if err := os.MkdirAll(o.cpuprofile, 0o755); err != nil {
		return err
	}
	names := o.only
	if names == nil {
		names = []string{storeStage, pipelineStage, backfillStage}
	}
	for _, name := range names {
		s := at(base, name, filepath.Join(dir, "profiled-"+name))
		s.share(filepath.Join(dir, "profiled-stored"))
		s.Group, s.Profile = "bench-profile", filepath.Join(o.cpuprofile, name+".pprof")
		got, err := runStage(ctx, s)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "profiled %-9s %s\nCPU profile: %s\n", name, got.line(s.Events), s.Profile)
	}
	return nil
}

// share has the pipeline stage leave its store in stored, and the stages that need one
// work on that.
func (s *spec) share(stored string) {
	switch s.Stage {
	case pipelineStage:
		s.Dir, s.Keep = stored, true
	case exportStage, operationsStage, besideStage, incrementStage:
		s.Dir = stored
	}
}

func at(base *spec, name, dir string) *spec {
	s := *base
	s.Stage, s.Dir = name, dir
	return &s
}
