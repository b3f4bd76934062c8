package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluice/config"
	"sluice/store/hbasestore"
	"sluice/store/hbasestore/bare"
	"sluice/store/pebblestore"
)

// hbaseArgument, as the first argument, measures the embedded engine beside an HBase
// and nothing else.
const hbaseArgument = "hbase"

// hbaseOptions is the command line after hbaseArgument.
type hbaseOptions struct {
	address string
	framed  bool
	pids    string
	dir     string
	rows    int
	rounds  int
	window  time.Duration
	write   string
	force   bool

	args []string // as given, for the report
}

func parseHBase(args []string, stderr io.Writer) (*hbaseOptions, error) {
	o := &hbaseOptions{args: args}
	f := flag.NewFlagSet("bench hbase", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.address, "address", "", "`host:port` of the Thrift2 gateway; tables whose names begin with "+hbaseTables+" are dropped there")
	f.BoolVar(&o.framed, "framed", false, "the gateway runs with framed transport")
	f.StringVar(&o.pids, "pids", "", "`directory` of files that begin with the process ids of the gateway and of HBase's servers, on this machine: their CPU is counted")
	f.StringVar(&o.dir, "dir", "", "directory for the embedded engine, on the disk to be measured (default: a temporary one)")
	// Three to four seconds of the gateway's scans, several blocks of each region.
	f.IntVar(&o.rows, "rows", 100_000, "rows of the table that is read")
	f.IntVar(&o.rounds, "rounds", 3, "rounds, of which the medians are reported; one more warms up")
	f.DurationVar(&o.window, "window", 1500*time.Millisecond, "how long each operation is measured in a round")
	f.StringVar(&o.write, "write", "", "write the report, with machine and commit, to this `file`")
	f.BoolVar(&o.force, "force", false, "write also where other processes took more than 10 % of the machine")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if _, _, err := net.SplitHostPort(o.address); err != nil {
		return nil, fmt.Errorf("-address %q: want the host:port of a Thrift2 gateway", o.address)
	}
	if o.rows < 1000 || o.rounds < 1 || o.window < time.Millisecond {
		return nil, errors.New("at least 1,000 rows, one round and a window of 1 ms are needed")
	}
	return o, nil
}

// runHBase drives the same operations through store.Engine on the embedded engine and
// on HBase, and those of one caller through the generated client code alone, one right
// after the other in each round.
func runHBase(ctx context.Context, args []string, w, stderr io.Writer) (err error) {
	o, err := parseHBase(args, stderr)
	if err != nil {
		return err
	}
	servers, err := readPIDs(o.pids)
	if err != nil {
		return err
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "sluice-hbase-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	}
	embedded, err := pebblestore.Open(filepath.Join(o.dir, "store"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, embedded.Close()) }()
	gateway, err := hbasestore.Open(ctx, &hbasestore.Options{Addresses: []string{o.address}, Framed: o.framed})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gateway.Close()) }()
	plain, err := bare.Dial(o.address, o.framed, time.Minute)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.Close()) }()

	r := &hbaseReport{machine: thisMachine(ctx), options: o, servers: servers, samples: map[hbaseKey][]hbaseSample{}}
	// Directories are this machine's, and nobody else's business.
	command := strings.Join(append([]string{"go run ./bench", hbaseArgument}, args...), " ")
	for _, dir := range []string{o.pids, o.dir} {
		if dir != "" {
			command = strings.ReplaceAll(command, dir, "DIR")
		}
	}
	r.machine.Command = command
	if err := r.measure(ctx, w, []*hbaseSide{
		{name: embeddedSide, engine: embedded},
		{name: gatewaySide, engine: gateway, servers: servers},
		{name: bareSide, engine: gateway, bare: plain, servers: servers},
	}); err != nil {
		return err
	}
	if err := r.text(w); err != nil {
		return err
	}
	return r.publish()
}

// measure drives everything on the sides, the embedded engine, HBase and, where there
// is one, the bare loop, and verifies what they have written.
func (r *hbaseReport) measure(ctx context.Context, w io.Writer, sides []*hbaseSide) (err error) {
	o := r.options
	tables := sides[:2] // the bare loop uses those of the gateway
	for _, s := range tables {
		defer func() { err = errors.Join(err, dropHBaseTables(context.WithoutCancel(ctx), s.engine)) }()
		if err := s.makeTables(ctx, o.rows); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	for _, s := range sides[2:] {
		s.keys = sides[1].keys
	}
	for round := range o.rounds + 1 {
		for i := range hbaseOperations {
			op := &hbaseOperations[i]
			for _, s := range sides {
				if !op.of(s) {
					continue
				}
				if err := r.waitForServers(); err != nil {
					return err
				}
				got, err := s.measure(ctx, op, o.window)
				if err != nil {
					return fmt.Errorf("%s of %s: %w", op.what(), s.name, err)
				}
				if round == 0 {
					continue // the servers' compilers and caches are warm now
				}
				r.add(op, s, got)
				if _, err := fmt.Fprintf(w, "round %d  %-48s%-10s%s\n", round, op.what(), s.name, got.line()); err != nil {
					return err
				}
			}
		}
	}
	for _, s := range sides[2:] {
		sides[1].written.add(&s.written)
	}
	for _, s := range tables {
		if err := s.verify(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// dropHBaseTables drops the tables of a run, of one that was broken off as well.
func dropHBaseTables(ctx context.Context, e config.Engine) error {
	names, err := e.Tables(ctx)
	for _, name := range names {
		if strings.HasPrefix(name, hbaseTables) {
			// Disabled before by a run that was broken off is as good.
			_ = e.DisableTable(ctx, name)
			err = errors.Join(err, e.DropTable(ctx, name))
		}
	}
	return err
}
