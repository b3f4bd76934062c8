package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store/memstore"
	"sluice/store/pebblestore"
)

// twoSides are two embedded engines, of which the second stands for HBase.
func twoSides(t *testing.T) []*hbaseSide {
	t.Helper()
	var sides []*hbaseSide
	for _, name := range []string{embeddedSide, gatewaySide} {
		db, err := pebblestore.Open(filepath.Join(t.TempDir(), "store"), &pebblestore.Options{Sync: pebblestore.SyncNever})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		sides = append(sides, &hbaseSide{name: name, engine: db})
	}
	return sides
}

// Every operation is measured in every round, and what was written is verified.
func TestHBaseMeasures(t *testing.T) {
	t.Parallel()
	o, err := parseHBase(strings.Fields("-address h:1 -rows 1000 -rounds 1 -window 1ms"), new(bytes.Buffer))
	if err != nil {
		t.Fatal(err)
	}
	r := &hbaseReport{options: o, machine: machine{Commit: "some commit"}, samples: map[hbaseKey][]hbaseSample{}}
	sides := twoSides(t)
	var text bytes.Buffer
	if err := r.measure(t.Context(), &text, sides); err != nil {
		t.Fatal(err)
	}
	for i := range hbaseOperations {
		for _, side := range []string{embeddedSide, gatewaySide} {
			if got := r.samples[hbaseKey{hbaseOperations[i].what(), side}]; len(got) != 1 {
				t.Errorf("%s of %s: Got %d samples, want 1", hbaseOperations[i].what(), side, len(got))
			}
		}
	}
	for _, s := range sides {
		if w := &s.written; w.rows.Load() == 0 || w.increments.Load() == 0 || w.turns.Load() == 0 {
			t.Errorf("%s has written %d rows, %d increments, %d turns", s.name, w.rows.Load(), w.increments.Load(), w.turns.Load())
		}
		if names, err := s.engine.Tables(t.Context()); err != nil || len(names) > 0 {
			t.Errorf("%s has tables %q, %v", s.name, names, err)
		}
	}
	r.options.write, r.options.force = filepath.Join(t.TempDir(), "HBASE.md"), true
	if err := r.publish(); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(r.options.write)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"some commit", "check-and-put, 256 callers", "≥ 10", clientGoal} {
		if !bytes.Contains(written, []byte(want)) {
			t.Errorf("%q is not in the file:\n%s", want, written)
		}
	}
}

// A row or a count too many, or too few, is an error.
func TestHBaseVerifies(t *testing.T) {
	t.Parallel()
	s := twoSides(t)[0]
	if err := s.makeTables(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	if err := s.verify(t.Context()); err != nil {
		t.Errorf("nothing was written: %v", err)
	}
	for name, table := range map[string]string{"rows": writtenTable, "increments": singleTable} {
		m := &cell.Mutation{Table: table, Row: []byte(name)}
		m.Increment("f", countColumn, 1)
		if _, err := s.engine.MutateRow(t.Context(), nil, m); err != nil {
			t.Fatal(err)
		}
		if err := s.verify(t.Context()); err == nil || !strings.Contains(err.Error(), "WRONG") {
			t.Errorf("%s that nobody counted: Got %v", name, err)
		}
		if name == "rows" {
			s.written.rows.Add(1)
		} else {
			s.written.increments.Add(1)
		}
	}
	if err := s.verify(t.Context()); err != nil {
		t.Errorf("all is counted: %v", err)
	}
}

// No two rows of a run are the same, and all regions have some.
func TestHBaseRowKeys(t *testing.T) {
	t.Parallel()
	a, b := &hbaseSide{name: gatewaySide}, &hbaseSide{name: bareSide}
	seen, regions := map[string]bool{}, map[byte]int{}
	for n := range int64(5000) {
		for _, s := range []*hbaseSide{a, b} {
			key := make([]byte, 9)
			s.rowKey(key, n)
			seen[string(key)] = true
			regions[key[0]&0xc]++ // of a hexadecimal digit; letters have their own
		}
	}
	if len(seen) != 10_000 || len(regions) < 2 {
		t.Errorf("Got %d rows in %d places", len(seen), len(regions))
	}
}

func TestParseHBase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"-address 127.0.0.1:9090", ""},
		{"", `-address ""`},
		{"-address h", `-address "h"`},
		{"-address h:1 extra", `unexpected argument "extra"`},
		{"-address h:1 -rows 10", "at least 1,000 rows"},
		{"-address h:1 -rounds 0", "one round"},
		{"-address h:1 -window 1ns", "window of 1 ms"},
	} {
		_, err := parseHBase(strings.Fields(c.args), new(bytes.Buffer))
		if got := fmt.Sprint(err); (c.want == "") != (err == nil) || !strings.Contains(got, c.want) {
			t.Errorf("parseHBase(%q): %v, want %q", c.args, err, c.want)
		}
	}
}

func TestReadPIDs(t *testing.T) {
	t.Parallel()
	if pids, err := readPIDs(""); pids != nil || err != nil {
		t.Errorf("no directory: Got %v, %v", pids, err)
	}
	dir := t.TempDir()
	if _, err := readPIDs(dir); err == nil {
		t.Error("a directory without files passes")
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("server", fmt.Sprintf("%d 4656080\n", os.Getpid()))
	pids, err := readPIDs(dir)
	if d := cmp.Diff([]int{os.Getpid()}, pids); d != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, d)
	}
	for _, bad := range []string{"", "x"} {
		write("thrift", bad)
		if _, err := readPIDs(dir); err == nil {
			t.Errorf("a file of %q passes", bad)
		}
	}
}

// The file is not written on a machine that others use, and ratios are of one round.
func TestHBaseReport(t *testing.T) {
	t.Parallel()
	o := &hbaseOptions{write: filepath.Join(t.TempDir(), "HBASE.md"), window: time.Second}
	r := &hbaseReport{options: o, servers: []int{os.Getpid()}, restless: 3, samples: map[hbaseKey][]hbaseSample{}}
	mem, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	op := &hbaseOperations[0]
	for round, n := range []int64{1000, 2000, 4000} {
		r.add(op, &hbaseSide{name: embeddedSide, engine: mem}, hbaseSample{n: 20 * n, seconds: 1, client: 1, foreign: 0.2})
		r.add(op, &hbaseSide{name: gatewaySide, engine: mem}, hbaseSample{n: n, seconds: 1, client: float64(n) * 2.6e-6, servers: 1})
		r.add(op, &hbaseSide{name: bareSide}, hbaseSample{n: n << round, seconds: 1, client: float64(n<<round) * 2e-6})
	}
	if got := r.rateTable().rows[0]; !slices.Contains(got, "20.0..20.0") {
		t.Errorf("Got %q, want a ratio of 20 in each round", got)
	}
	if d := cmp.Diff([]string{op.what(), "2.6", "2.0", "1.30", "1.30..1.30", clientGoal}, r.clientTable().rows[0]); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if err := r.publish(); !errors.Is(err, errBusy) {
		t.Errorf("20 %% of the machine were others': %v", err)
	}
	if _, err := os.Stat(o.write); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
	o.force = true
	if err := r.publish(); err != nil {
		t.Error(err)
	}
	written, err := os.ReadFile(o.write)
	if err != nil || !bytes.Contains(written, []byte("; 3 times it was begun without, after 20s.")) {
		t.Errorf("it is not said that HBase did not rest:\n%s (%v)", written, err)
	}
}

// What is measured next waits for rest of what was measured before, and not for ever.
func TestWaitForRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var used time.Duration
		busy := 3
		cpu := func() (time.Duration, error) {
			used += time.Millisecond
			if busy--; busy >= 0 {
				used += settleStep / 2
			}
			return used, nil
		}
		begun := time.Now()
		last, rests, err := waitForRest(cpu, 0.1, time.Minute)
		if took := time.Since(begun); err != nil || !rests || last != used || took != 3*settleStep {
			t.Errorf("Got %v of %v, %t, %v after %v, want rest after three steps", last, used, rests, err, took)
		}
		busy, begun = 1000, time.Now()
		_, rests, err = waitForRest(cpu, 0.1, time.Minute)
		if took := time.Since(begun); err != nil || rests || took != time.Minute {
			t.Errorf("Got %t, %v after %v, want no rest within a minute", rests, err, took)
		}
		broken := errors.New("broken")
		if _, _, err := waitForRest(func() (time.Duration, error) { return 0, broken }, 0.1, time.Minute); !errors.Is(err, broken) {
			t.Errorf("Got %v", err)
		}
	})
}
