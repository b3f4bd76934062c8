package main

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

func TestConnectFlags(t *testing.T) {
	t.Parallel()
	if _, err := parseConnect([]string{"-events", "10"}, io.Discard); err == nil {
		t.Error("10 events are taken")
	}
	o, err := parseConnect([]string{"-rounds", "5", "-connect", "dir"}, io.Discard)
	if err != nil || o.rounds != 5 || o.jars != "dir" || o.heap != "2g" {
		t.Errorf("Got %+v, %v", o, err)
	}
	if v := connectVersion(); strings.Count(v, ".") != 2 || strings.ContainsAny(v, "<> \n") {
		t.Errorf("Connect's version is %q", v)
	}
}

// What a sink was given and has written must be the events, or the run is none.
func TestConnectAnswerIsCompared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ sink, answer, want string }{
		{"drop", `{"seconds":2,"cpu":3,"records":7,"lines":0}`, ""},
		{"file", `{"seconds":2,"cpu":3,"records":7,"lines":7}`, ""},
		{"drop", `{"seconds":2,"cpu":3,"records":8,"lines":0}`, "WRONG"},
		{"file", `{"seconds":2,"cpu":3,"records":7,"lines":6}`, "WRONG"},
		{"drop", "", "ended without an answer"},
	} {
		var asked strings.Builder
		p := &javaProcess{in: nopCloser{&asked}, out: bufio.NewScanner(strings.NewReader(c.answer)), wait: func() error { return nil }}
		got, err := runConnectJob(p, &connectJob{"Connect", "json", c.sink}, 7)
		switch {
		case asked.String() != "json "+c.sink+"\n":
			t.Errorf("Asked %q", asked.String())
		case c.want == "" && (err != nil || got.Seconds != 2 || got.CPU != 3):
			t.Errorf("%s: got %+v, %v", c.answer, got, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %s", c.answer, err, c.want)
		}
	}
}
