package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/pipeline/kafka"
)

type lintCommand struct {
	cli.ConfigFlag
}

// Run prints every mistake. Of a file without one it prints that, after what has no effect
// in it, on standard error.
func (c *lintCommand) Run(p *cli.Program) error {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	for _, w := range cfg.Warnings() {
		fmt.Fprintf(p.Stderr, "warning: %s\n", w)
	}
	_, err = fmt.Fprintf(p.Stdout, "%s: ok\n", c.Config)
	return err
}

type produceCommand struct {
	cli.ConfigFlag
	Topic    string `required:"" placeholder:"NAME" help:"Topic to send to; it must exist."`
	KeyField string `placeholder:"FIELD" help:"Top-level field of the JSON lines to use as the record key."`
	File     string `arg:"" help:"File whose lines to send; - is standard input."`
}

// How many lines go to the producer at once: large enough to make large batches, small
// enough to hold in memory a few times.
const (
	produceChunk = 5_000
	// produceBytes is of their lines, which one may go beyond: a record batch has less than
	// a MiB, and a topic of eight partitions gets one for each.
	produceBytes = 8 << 20
)

// Run sends every line as one record and waits until the brokers have them all
// (acks=all).
func (c *produceCommand) Run(ctx context.Context, p *cli.Program) error {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	var in io.Reader = &interruptible{ctx: ctx, r: p.Stdin}
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	client, err := openKafka(cfg, newLogger(p.Stderr, &cfg.Log))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Topic(ctx, c.Topic); err != nil {
		return err
	}
	n, err := produceLines(ctx, client, c.Topic, c.KeyField, c.File, in)
	if err != nil {
		done := acknowledged(c.Topic, n, err)
		if errors.Is(err, context.Canceled) {
			return &cli.Interrupted{Done: done}
		}
		return fmt.Errorf("%s: %w", done, err)
	}
	_, err = fmt.Fprintf(p.Stdout, "%s records to %s\n", cli.Count(n), c.Topic)
	return err
}

// acknowledged tells how many lines, from the first one on, the brokers have
// acknowledged, and how many after these topic may have besides.
func acknowledged(topic string, n int64, err error) string {
	s := cli.Count(n) + " records are acknowledged"
	var unknown *unacknowledgedError
	if errors.As(err, &unknown) {
		s += fmt.Sprintf(", of the next %s some may be in topic %s, too", cli.Count(int64(unknown.lines)), topic)
	}
	return s
}

// unacknowledgedError is a call of Produce that failed: any of its lines may be in the
// topic.
type unacknowledgedError struct {
	lines int
	err   error
}

func (e *unacknowledgedError) Error() string { return e.err.Error() }
func (e *unacknowledgedError) Unwrap() error { return e.err }

// produceLines sends the lines of in, without their ends, and returns how many, from
// the first one on, the brokers have acknowledged. Where it fails with an
// unacknowledgedError they may have some of the lines after these, too. Empty lines are records, too: whoever reads the
// topic decides what they are.
func produceLines(ctx context.Context, client *kafka.Client, topic, keyField, name string, in io.Reader) (sent int64, err error) {
	producer := client.NewProducer(nil)
	defer func() { err = errors.Join(err, producer.Close()) }()
	r := bufio.NewReaderSize(in, 1<<20)
	var chunk []kafka.Message
	held := 0 // bytes of chunk's lines
	flush := func() error {
		if len(chunk) == 0 {
			return nil
		}
		if err := producer.Produce(ctx, topic, chunk...); err != nil {
			return &unacknowledgedError{lines: len(chunk), err: err}
		}
		sent += int64(len(chunk))
		clear(chunk) // of its lines
		chunk, held = chunk[:0], 0
		return nil
	}
	for line := int64(1); ; line++ {
		b, end := r.ReadBytes('\n')
		if end != nil && end != io.EOF {
			return sent, fmt.Errorf("%s:%d: %w", name, line, end)
		}
		if len(b) > 0 {
			m := kafka.Message{Value: bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r")), Partition: -1, Time: time.Now()}
			if keyField != "" {
				if m.Key, err = jsonField(m.Value, keyField); err != nil {
					return sent, fmt.Errorf("%s:%d: %w", name, line, err)
				}
			}
			chunk = append(chunk, m)
			held += len(b)
		}
		if end == io.EOF {
			err := flush() // adds to sent
			return sent, err
		}
		if len(chunk) == produceChunk || held >= produceBytes {
			if err := flush(); err != nil {
				return sent, err
			}
		}
	}
}

// jsonField returns a member of a JSON object as key bytes: a string's text,
// null none, anything else as written.
func jsonField(line []byte, field string) ([]byte, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(line, &object); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	v, ok := object[field]
	if !ok {
		return nil, fmt.Errorf("no field %q for the key", field)
	}
	var s *string
	switch err := json.Unmarshal(v, &s); {
	case err != nil:
		return v, nil
	case s == nil: // null is no key
		return nil, nil
	}
	return []byte(*s), nil
}
