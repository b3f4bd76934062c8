package main

import (
	"bufio"
	"cmp"
	"context"
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

// topicOptions is the command line of what is measured beside a program in Java that
// reads the same topic.
type topicOptions struct {
	events     int
	rounds     int
	partitions int
	batch      int
	seed       uint64
	java       string
	heap       string
	jars       string // a directory
	dir        string
	write      string
	force      bool
}

// parseTopic reads args, which stand behind argument, over the defaults that o has. The
// flag that names jars is called argument, too; usage says what is in there.
func parseTopic(argument string, o *topicOptions, usage string, args []string, stderr io.Writer) (*topicOptions, error) {
	f := flag.NewFlagSet("bench "+argument, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.events, "events", o.events, "events of a run, which take our pipeline some seconds: the first one is its start's, and the other has begun before")
	f.IntVar(&o.rounds, "rounds", 3, "rounds, of which the medians are reported, after those that warm up")
	f.IntVar(&o.partitions, "partitions", 4, "partitions of the topic")
	f.IntVar(&o.batch, "batch", 20_000, "records of a partition's batch in our pipeline")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the events")
	f.StringVar(&o.java, "java", "java", "a Java of version 17")
	f.StringVar(&o.heap, "heap", o.heap, "heap of the Java")
	f.StringVar(&o.jars, argument, o.jars, usage)
	f.StringVar(&o.dir, "dir", "", "directory for what is stored, on the disk to be measured (default: a temporary one)")
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

// pinned returns a property of a pom.xml.
func pinned(pom, property string) string {
	_, v, _ := strings.Cut(pom, "<"+property+">")
	v, _, _ = strings.Cut(v, "<")
	return v
}

// filledTopic is a topic with the events, in a broker that is a process of its own.
type filledTopic struct {
	spec   *spec
	broker *broker
	dir    string  // of all that is stored
	size   float64 // of an event, bytes
}

// begin starts the broker and fills the topic.
func (o *topicOptions) begin(ctx context.Context, name string) (t *filledTopic, err error) {
	t = &filledTopic{spec: &spec{
		Events: o.events, Partitions: o.partitions, Batch: o.batch, Seed: o.seed, Rest: pebblestore.GatherRest,
		Start: time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1).UnixMilli(),
	}}
	if t.dir, err = os.MkdirTemp(o.dir, "sluice-"+name+"-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	if t.broker, err = startBroker(ctx, t.spec); err != nil {
		return nil, err
	}
	t.spec.Broker, t.spec.BrokerPID = t.broker.addr, t.broker.pid
	if t.size, err = produce(ctx, t.spec); err != nil {
		return nil, fmt.Errorf("produce: %w", err)
	}
	return t, nil
}

func (t *filledTopic) close() (err error) {
	if t.broker != nil {
		err = t.broker.stop()
	}
	return errors.Join(err, os.RemoveAll(t.dir))
}

// pipeline runs our pipeline over the topic.
func (t *filledTopic) pipeline(ctx context.Context, group string, counts bool) (sample, error) {
	s := at(t.spec, pipelineStage, filepath.Join(t.dir, pipelineStage))
	s.Group, s.Counts = group, counts
	return runStage(ctx, s)
}

// javaProcess is a program in Java that answers each line with a line of JSON.
type javaProcess struct {
	pid  int
	in   io.WriteCloser
	out  *bufio.Scanner
	wait func() error
}

// startJava starts a program that ends with this process's pipe to it.
func startJava(ctx context.Context, o *topicOptions, jvm []string, class string, args ...string) (*javaProcess, error) {
	classpath := filepath.Join(o.jars, "classes") + string(filepath.ListSeparator) + filepath.Join(o.jars, "lib", "*")
	all := append([]string{"-Xms" + o.heap, "-Xmx" + o.heap}, jvm...)
	all = append(append(all, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classpath, class), args...)
	cmd := exec.CommandContext(ctx, o.java, all...)
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
		return nil, fmt.Errorf("start %s: %w", class, err)
	}
	return &javaProcess{cmd.Process.Pid, in, bufio.NewScanner(out), cmd.Wait}, nil
}

func (p *javaProcess) close() error { return errors.Join(p.in.Close(), p.wait()) }

// ask sends a line and decodes the one that comes back into answer. name is what runs
// meanwhile, for errors.
func (p *javaProcess) ask(name, line string, answer any) error {
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !p.out.Scan() {
		return fmt.Errorf("%s: the Java has ended without an answer: %w", name, cmp.Or(p.out.Err(), io.ErrUnexpectedEOF))
	}
	if err := json.Unmarshal(p.out.Bytes(), answer); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, p.out.Bytes())
	}
	return nil
}

// took is what a program in Java answers of a run: the time of it, and of its process's CPU.
type took struct {
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"`
}

// beside reports what run took in one round, in p beside the broker, and how that compares
// with ours; goal is that of our rate, empty where there is none.
func (t *filledTopic) beside(w io.Writer, r *peerReport, round int, ours *sample, p *javaProcess, name, goal string, run func() (took, error)) error {
	var got took
	foreign, err := foreignWhile([]int{t.spec.BrokerPID, p.pid}, func() (err error) {
		got, err = run()
		return err
	})
	if err != nil {
		return err
	}
	theirs := sample{Seconds: got.Seconds, CPU: got.CPU, Foreign: foreign}
	r.add(w, round, name, &theirs, 0)
	r.ratio("rate: Sluice / "+name, goal, theirs.Seconds/ours.Seconds)
	r.ratio("CPU: "+name+" / Sluice", "", theirs.CPU/ours.CPU)
	return nil
}

// note says what was read, and where it comes from.
func (t *filledTopic) note() string {
	return fmt.Sprintf("%d events of %.0f bytes in %d partitions of the broker that all of them read, which runs in a process of its own on the same %d cores.", t.spec.Events, t.size, t.spec.Partitions, runtime.NumCPU())
}
