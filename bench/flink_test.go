package main

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

func TestFlinkFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-events", "10"}, {"-rounds", "0"}, {"-partitions", "0"}, {"-batch", "0"}, {"more"}, {"-unknown"}} {
		if _, err := parseFlink(args, io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	o, err := parseFlink([]string{"-rounds", "5", "-flink", "dir"}, io.Discard)
	if err != nil || o.rounds != 5 || o.jars != "dir" || o.events != 4_000_000 {
		t.Errorf("Got %+v, %v", o, err)
	}
	if v := flinkVersion(); strings.Count(v, ".") != 2 || strings.ContainsAny(v, "<> \n") {
		t.Errorf("Flink's version is %q", v)
	}
}

// What Flink has counted must be the events, or the run is none.
func TestFlinkAnswerIsCompared(t *testing.T) {
	t.Parallel()
	job := &flinkJob{"Flink", "hashmap"}
	for _, c := range []struct{ what, answer, want string }{
		{"counts", `{"seconds":2,"cpu":3,"minute":7,"hour":7,"day":7,"counters":4,"rows":0}`, ""},
		{"rows", `{"seconds":2,"cpu":3,"minute":7,"hour":7,"day":7,"counters":4,"rows":7}`, ""},
		{"counts", `{"seconds":2,"cpu":3,"minute":7,"hour":6,"day":7,"counters":4,"rows":0}`, "WRONG"},
		{"rows", `{"seconds":2,"cpu":3,"minute":7,"hour":7,"day":7,"counters":4,"rows":6}`, "WRONG"},
		{"rows", "no JSON", "no JSON"},
		{"rows", "", "ended without an answer"},
	} {
		var asked strings.Builder
		p := &javaProcess{in: nopCloser{&asked}, out: bufio.NewScanner(strings.NewReader(c.answer)), wait: func() error { return nil }}
		got, err := runFlinkJob(p, job, c.what, 7)
		switch {
		case asked.String() != "hashmap "+c.what+"\n":
			t.Errorf("Asked %q", asked.String())
		case c.want == "" && (err != nil || got.Seconds != 2 || got.CPU != 3):
			t.Errorf("%s: got %+v, %v", c.answer, got, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %s", c.answer, err, c.want)
		}
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// The pipeline of the counts alone is that of the example without its first rule.
func TestCountsAlone(t *testing.T) {
	t.Parallel()
	for counts, want := range map[bool]int{false: 2, true: 1} {
		c, err := loadConfig(&spec{Counts: counts, Broker: "127.0.0.1:1"}, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Pipelines[pipelineName].Rules; len(got) != want || got[want-1].Table != countTable {
			t.Errorf("counts alone %t: %+v", counts, got)
		}
	}
}
