package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/cmd/internal/cli"
	"sluice/pipeline/kafka"
)

// One Ctrl-C ends a command that waits for its standard input.
func TestStdinIsInterrupted(t *testing.T) {
	t.Parallel()
	file, err := filepath.Abs(filepath.Join("..", "..", "examples", "access-log.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "access-log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	for name, run := range map[string]func(ctx context.Context, p *cli.Program) error{
		"produce": (&produceCommand{ConfigFlag: cli.ConfigFlag{Config: file}, Topic: "access-log", File: "-"}).Run,
		"explain": (&explainCommand{ConfigFlag: cli.ConfigFlag{Config: file}, Sample: 5, File: "-"}).Run,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, w := io.Pipe()
			defer w.Close()
			ctx, cancel := context.WithCancel(t.Context())
			var out bytes.Buffer
			p := &cli.Program{Stdin: in, Stdout: &out, Stderr: io.Discard, LookupEnv: func(key string) (string, bool) {
				return broker.ListenAddrs()[0], key == "SLUICE_BROKERS"
			}}
			ended := make(chan error, 1)
			go func() { ended <- run(ctx, p) }()
			// The second write is taken only when the first has been read.
			for range 2 {
				if _, err := io.WriteString(w, "half a line "); err != nil {
					t.Fatal(err)
				}
			}
			cancel()
			select {
			case err := <-ended:
				if cli.Status(err) != cli.StatusInterrupted {
					t.Errorf("Got %v, want status %d", err, cli.StatusInterrupted)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("It waits on")
			}
		})
	}
}

// Who interrupts produce is told how many records the topic has, and how many it may
// have: none of what was read and not sent yet, any of a request without an answer.
func TestProduceInterruptedSaysHowFar(t *testing.T) {
	t.Parallel()
	file, err := filepath.Abs(filepath.Join("..", "..", "examples", "access-log.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "access-log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	interrupt := func(silent bool) string {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		in, w := io.Pipe()
		defer w.Close()
		asked := make(chan struct{}, 100)
		requests := 0
		broker.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			broker.KeepControl()
			asked <- struct{}{}
			if requests++; !silent || requests == 1 {
				return nil, nil, false
			}
			broker.SleepControl(func() { <-ctx.Done() }) // the log has no answer for it
			return nil, errors.New("too late"), true
		})
		var out bytes.Buffer
		p := &cli.Program{Stdin: in, Stdout: &out, Stderr: io.Discard, LookupEnv: func(key string) (string, bool) {
			return broker.ListenAddrs()[0], key == "SLUICE_BROKERS"
		}}
		ended := make(chan error, 1)
		go func() {
			ended <- (&produceCommand{ConfigFlag: cli.ConfigFlag{Config: file}, Topic: "access-log", File: "-"}).Run(ctx, p)
		}()
		lines := produceChunk + 7
		if silent {
			lines = 2 * produceChunk
		}
		go func() { _, _ = io.WriteString(w, strings.Repeat("a line\n", lines)+"half a") }()
		<-asked
		if silent {
			<-asked
		} else if _, err := io.WriteString(w, " line"); err != nil { // taken when all before was read
			t.Fatal(err)
		}
		cancel()
		err := <-ended
		if cli.Status(err) != cli.StatusInterrupted {
			t.Errorf("Got %v, want status %d", err, cli.StatusInterrupted)
		}
		return cli.Explain("ingest", err)
	}
	if got, want := interrupt(false), "ingest: interrupted: 5,000 records are acknowledged"; got != want {
		t.Errorf("Got %q, want %q", got, want)
	}
	if got, want := interrupt(true), "ingest: interrupted: 5,000 records are acknowledged, of the next 5,000 some may be in topic access-log, too"; got != want {
		t.Errorf("Got %q, want %q", got, want)
	}
}

// What is read is what is there, in whatever pieces, with its end.
func TestInterruptibleReads(t *testing.T) {
	t.Parallel()
	if err := iotest.TestReader(&interruptible{ctx: t.Context(), r: iotest.OneByteReader(strings.NewReader("some text"))}, []byte("some text")); err != nil {
		t.Error(err)
	}
}

// producible returns a broker that has a topic t of one partition, and a client of it.
func producible(t *testing.T) (*kfake.Cluster, *kafka.Client) {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	client, err := kafka.NewClient(&kafka.Options{Brokers: broker.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return broker, client
}

// A file that cannot be read ends produce, with keys as without them.
func TestProduceUnreadable(t *testing.T) {
	t.Parallel()
	_, client := producible(t)
	for _, key := range []string{"", "user"} {
		broken := errors.New("is a directory")
		tries := 0
		in := readerFunc(func([]byte) (int, error) {
			if tries++; tries > 50 {
				panic("read on after an error")
			}
			return 0, broken
		})
		if _, err := produceLines(t.Context(), client, "t", key, "dir", in); !errors.Is(err, broken) || !strings.Contains(err.Error(), "dir:1: ") || tries != 1 {
			t.Errorf("key %q: Got %v after %d reads, want %v", key, err, tries, broken)
		}
	}
	// The last line has no end; a line that is cut off by an error is not sent.
	if n, err := produceLines(t.Context(), client, "t", "user", "file", strings.NewReader("{\"user\":1}\n{\"user\":2}")); n != 2 || err != nil {
		t.Errorf("Got %d records, %v", n, err)
	}
	broken := errors.New("input/output error")
	cut := io.MultiReader(strings.NewReader("{\"user\":1}\n{\"us"), iotest.ErrReader(broken))
	if _, err := produceLines(t.Context(), client, "t", "user", "file", cut); !errors.Is(err, broken) || !strings.Contains(err.Error(), "file:2: ") {
		t.Errorf("Got %v, want %v", err, broken)
	}
}

// Lines are sent before there are many bytes of them, however few they are.
func TestProduceHoldsFewBytes(t *testing.T) {
	t.Parallel()
	broker, client := producible(t)
	broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord, Count: -1})
	const size = produceBytes / 16
	lines := strings.Repeat(strings.Repeat("x", size-1)+"\n", 40)
	_, err := produceLines(t.Context(), client, "t", "", "file", strings.NewReader(lines))
	var unknown *unacknowledgedError
	if !errors.As(err, &unknown) || unknown.lines != produceBytes/size {
		t.Errorf("Got %v, want that one of %d lines was refused", err, produceBytes/size)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// The key is the field's text; null is no key, so that such records are not all of one
// partition.
func TestKeyField(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ line, want string }{
		{`{"k":"a"}`, `"a"`},
		{`{"k":""}`, `""`},
		{`{"k":5}`, `"5"`},
		{`{"k":{"a": 1}}`, `"{\"a\": 1}"`},
		{`{"k": null }`, "nil"},
		{`{"x":1}`, `no field "k" for the key`},
		{`[1]`, "not a JSON object: json: cannot unmarshal array into Go value of type map[string]json.RawMessage"},
	} {
		key, err := jsonField([]byte(tt.line), "k")
		got := "nil"
		switch {
		case err != nil:
			got = err.Error()
		case key != nil:
			got = strconv.Quote(string(key))
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.line, got, tt.want)
		}
	}
}
