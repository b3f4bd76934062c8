package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// hbaseSample is one window of one operation on one side.
type hbaseSample struct {
	n       int64 // rows, or calls
	seconds float64
	client  float64 // seconds of CPU of this process
	servers float64 // of the gateway and of HBase; 0 = none, or not known
	foreign float64 // share of the machine that others took; < 0 = unknown
}

func (s *hbaseSample) rate() float64 { return float64(s.n) / s.seconds }

// micros returns seconds of CPU as µs a row or call.
func (s *hbaseSample) micros(seconds float64) float64 { return seconds / float64(s.n) * 1e6 }

func (s *hbaseSample) line() string {
	text := fmt.Sprintf("%9.1f k/s  CPU %6.1f + %6.1f µs", s.rate()/1000, s.micros(s.client), s.micros(s.servers))
	if s.foreign > maxForeign {
		text += fmt.Sprintf("  others took %.0f %% of the machine", 100*s.foreign)
	}
	return text
}

// hbaseKey is an operation on a side.
type hbaseKey struct{ operation, side string }

// hbaseReport is everything that a run has measured.
type hbaseReport struct {
	machine  machine
	options  *hbaseOptions
	servers  []int                      // processes of the gateway and of HBase; nil = not known
	restless int                        // operations that were begun while those did not rest
	samples  map[hbaseKey][]hbaseSample // one a round
}

const (
	// serversIdle is the share of one core that counts as rest where there are HBase's
	// processes, which never use none,
	serversIdle = 0.12
	// and serversLimit ends the wait for it.
	serversLimit = 20 * time.Second
)

// waitForServers waits until HBase's processes and this one rest: what they still flush,
// collect and compile of one operation must not slow down the next one, of the embedded
// engine above all, which has the same cores.
func (r *hbaseReport) waitForServers() error {
	if r.servers == nil {
		return nil
	}
	_, rests, err := waitForRest(func() (time.Duration, error) {
		own, err := processCPU()
		if err != nil {
			return 0, err
		}
		theirs, err := processesCPU(r.servers)
		return own + theirs, err
	}, serversIdle, serversLimit)
	if !rests {
		r.restless++
	}
	return err
}

func (r *hbaseReport) add(op *hbaseOperation, s *hbaseSide, got hbaseSample) {
	k := hbaseKey{op.what(), s.name}
	r.samples[k] = append(r.samples[k], got)
}

func (r *hbaseReport) over(op *hbaseOperation, side string, f func(*hbaseSample) float64) spread {
	var xs []float64
	of := r.samples[hbaseKey{op.what(), side}]
	for i := range of {
		xs = append(xs, f(&of[i]))
	}
	return spreadOf(xs)
}

// ratio is the spread of f of side a over f of side b, each of one round.
func (r *hbaseReport) ratio(op *hbaseOperation, a, b string, f func(*hbaseSample) float64) spread {
	var xs []float64
	of, over := r.samples[hbaseKey{op.what(), a}], r.samples[hbaseKey{op.what(), b}]
	for i := range min(len(of), len(over)) {
		xs = append(xs, f(&of[i])/f(&over[i]))
	}
	return spreadOf(xs)
}

func bounds(s spread) string { return number(s.min) + ".." + number(s.max) }

// rateGoal is what the embedded engine is to reach of HBase's rates. Of writes one by
// one many callers are meant, whose commits are made together.
func (op *hbaseOperation) rateGoal() string {
	if (op.kind == incrementOne || op.kind == checkAndPut) && op.callers < 256 {
		return ""
	}
	return "≥ 10"
}

func (r *hbaseReport) rateTable() *table {
	t := &table{head: []string{"operation", "embedded, k/s", "min..max", "HBase, k/s", "min..max", "ratio", "min..max", "goal"}}
	for i := range hbaseOperations {
		op := &hbaseOperations[i]
		rate := func(s *hbaseSample) float64 { return s.rate() / 1000 }
		e, h := r.over(op, embeddedSide, rate), r.over(op, gatewaySide, rate)
		ratio := r.ratio(op, embeddedSide, gatewaySide, rate)
		t.rows = append(t.rows, []string{op.what(), number(e.median), bounds(e), number(h.median), bounds(h), number(ratio.median), bounds(ratio), op.rateGoal()})
	}
	return t
}

func (r *hbaseReport) cpuTable() *table {
	t := &table{head: []string{"CPU a row or call, µs", "embedded", "HBase: client", "gateway and servers", "HBase / embedded"}}
	total := func(s *hbaseSample) float64 { return s.micros(s.client + s.servers) }
	for i := range hbaseOperations {
		op := &hbaseOperations[i]
		client := func(s *hbaseSample) float64 { return s.micros(s.client) }
		row := []string{op.what(), number(r.over(op, embeddedSide, client).median), number(r.over(op, gatewaySide, client).median), "?", "?"}
		if r.servers != nil {
			row[3] = number(r.over(op, gatewaySide, func(s *hbaseSample) float64 { return s.micros(s.servers) }).median)
			row[4] = number(r.ratio(op, gatewaySide, embeddedSide, total).median)
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// clientGoal bounds what the engine may cost over the generated code alone.
const clientGoal = "≤ 1.30"

func (r *hbaseReport) clientTable() *table {
	t := &table{head: []string{"CPU of the client, µs a row or call", "store/hbasestore", "bare loop", "ratio", "min..max", "goal"}}
	for i := range hbaseOperations {
		op := &hbaseOperations[i]
		if op.callers != 1 {
			continue
		}
		client := func(s *hbaseSample) float64 { return s.micros(s.client) }
		ratio := r.ratio(op, gatewaySide, bareSide, client)
		t.rows = append(t.rows, []string{
			op.what(), number(r.over(op, gatewaySide, client).median), number(r.over(op, bareSide, client).median),
			fmt.Sprintf("%.2f", ratio.median), fmt.Sprintf("%.2f..%.2f", ratio.min, ratio.max), clientGoal,
		})
	}
	return t
}

// busiest returns the operation during which others took most, by the median, and
// their share of the machine; below 0 where it is not known.
func (r *hbaseReport) busiest() (what string, share float64) {
	share = -1
	for i := range hbaseOperations {
		op := &hbaseOperations[i]
		for _, side := range []string{embeddedSide, gatewaySide, bareSide} {
			if s := r.over(op, side, func(s *hbaseSample) float64 { return s.foreign }); len(r.samples[hbaseKey{op.what(), side}]) > 0 && s.median > share {
				what, share = op.what()+" of "+side, s.median
			}
		}
	}
	return what, share
}

func (r *hbaseReport) notes() []string {
	o := r.options
	notes := []string{
		fmt.Sprintf("The same operations through store.Engine on both, one right after the other, %d rounds of %v each after one that warms up; medians, and ratios of one round. All on this machine: client, gateway and HBase share its %d cores.", o.rounds, o.window, r.machine.Cores),
		fmt.Sprintf("A row is six columns of %d bytes; tables have four regions; %d rows are read. The embedded engine is fsynced; HBase acknowledges when its log is in the kernel's memory, as it does by default.", len(hbaseValue), o.rows),
		"The store has its default of 16 connections, the bare loop one: thrift's own socket and the generated code, in package store/hbasestore/bare. A get through the store is a scan of one row, as every read is; the bare loop calls get.",
		"The embedded engine's CPU of rows in batches has its flushes and compactions until it was at rest; that of the other writes, which are few, what ran meanwhile.",
		"In the end all rows were counted and all increments and turns added up, on both: equal to what was acknowledged. Every increment's answer was the count, every condition held.",
	}
	switch {
	case r.servers == nil:
		notes = append(notes, "The CPU of the gateway and the servers is not known: -pids names no directory. What they still did of one operation may have slowed down the next one.")
	case r.restless > 0:
		notes = append(notes, fmt.Sprintf("Each operation waited for rest of HBase's processes and of this one, as they share the cores; %d times it was begun without, after %v.", r.restless, serversLimit))
	default:
		notes = append(notes, "Each operation was begun when HBase's processes and this one were at rest, as they share the cores.")
	}
	switch what, share := r.busiest(); {
	case share < 0:
		notes = append(notes, "How much other processes took is not known on this system.")
	case share > maxForeign && r.servers != nil:
		notes = append(notes, fmt.Sprintf("WARNING: other processes took %.0f %% of the machine during %s. Rates say little; CPU and ratios say more.", 100*share, what))
	}
	return notes
}

func (r *hbaseReport) tables() []*table {
	return []*table{r.rateTable(), r.cpuTable(), r.clientTable()}
}

func (r *hbaseReport) text(w io.Writer) error {
	for _, t := range r.tables() {
		fmt.Fprintln(w)
		if err := t.text(w); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, n := range r.notes() {
		if _, err := fmt.Fprintln(w, "*", n); err != nil {
			return err
		}
	}
	return nil
}

// publish writes the file that the options ask for.
func (r *hbaseReport) publish() error {
	o := r.options
	if o.write == "" {
		return nil
	}
	if what, share := r.busiest(); share > maxForeign && r.servers != nil && !o.force {
		return fmt.Errorf("%w: %.0f %% during %s; wait until it is quiet, or say -force. %s is unchanged", errBusy, 100*share, what, o.write)
	}
	b := newPage("The embedded engine beside HBase", "Written by `make bench-hbase`; [hbaseops.go](hbaseops.go) has the operations.", &r.machine)
	for i, title := range []string{"Rates", "CPU", "The client"} {
		fmt.Fprintf(b, "\n## %s\n\n", title)
		r.tables()[i].markdown(b)
	}
	return writePage(o.write, b, r.notes())
}

// readPIDs returns the process ids at the beginning of the files in dir; none where
// dir is "".
func readPIDs(dir string) ([]int, error) {
	if dir == "" {
		return nil, nil
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		fields := bytes.Fields(data)
		if len(fields) == 0 {
			return nil, fmt.Errorf("%s: no process id", filepath.Join(dir, f.Name()))
		}
		pid, err := strconv.Atoi(string(fields[0]))
		if err != nil {
			return nil, fmt.Errorf("%s: %q is no process id", filepath.Join(dir, f.Name()), fields[0])
		}
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("%s: no files of process ids", dir)
	}
	return pids, nil
}

// processesCPU returns what processes have used so far, in all.
func processesCPU(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		used, ok := parseProcessStat(data)
		if !ok {
			return 0, errors.New("/proc/PID/stat is not as on Linux")
		}
		sum += used
	}
	return sum, nil
}
