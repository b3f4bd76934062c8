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
	"text/tabwriter"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/pipeline/kafka"
	"sluice/store"
)

type lintCommand struct {
	cli.ConfigFlag
}

// Run prints every mistake; there is nothing to say about a file without one but
// that.
func (c *lintCommand) Run(p *cli.Program) error {
	if _, err := c.Load(p); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.Stdout, "%s: ok\n", c.Config)
	return err
}

type produceCommand struct {
	cli.ConfigFlag
	Topic    string `required:"" help:"Topic to send to; it must exist."`
	KeyField string `placeholder:"F" help:"Top-level field of the JSON lines to use as the record key."`
	File     string `arg:"" help:"File whose lines to send; - is standard input."`
}

// produceChunk is how many lines go to the producer at once: large enough to
// make large batches, small enough to hold in memory a few times.
const produceChunk = 5_000

// Run sends every line as one record and waits until the brokers have them all
// (acks=all).
func (c *produceCommand) Run(ctx context.Context, p *cli.Program) error {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	in := p.Stdin
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
		return fmt.Errorf("after %s records: %w", cli.Count(n), err)
	}
	_, err = fmt.Fprintf(p.Stdout, "%s records to %s\n", cli.Count(n), c.Topic)
	return err
}

// produceLines sends the lines of in, without their ends, and returns how many
// the brokers have acknowledged. Empty lines are records, too: whoever reads the
// topic decides what they are.
func produceLines(ctx context.Context, client *kafka.Client, topic, keyField, name string, in io.Reader) (sent int64, err error) {
	producer := client.NewProducer(nil)
	defer func() { err = errors.Join(err, producer.Close()) }()
	r := bufio.NewReaderSize(in, 1<<20)
	var chunk []kafka.Message
	flush := func() error {
		if len(chunk) == 0 {
			return nil
		}
		if err := producer.Produce(ctx, topic, chunk...); err != nil {
			return err
		}
		sent += int64(len(chunk))
		chunk = chunk[:0]
		return nil
	}
	for line := int64(1); ; line++ {
		b, err := r.ReadBytes('\n')
		if len(b) > 0 {
			m := kafka.Message{Value: bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r")), Partition: -1, Time: time.Now()}
			if keyField != "" {
				if m.Key, err = jsonField(m.Value, keyField); err != nil {
					return sent, fmt.Errorf("%s:%d: %w", name, line, err)
				}
			}
			chunk = append(chunk, m)
		}
		if err == io.EOF {
			return sent, flush()
		}
		if err != nil && keyField == "" {
			return sent, fmt.Errorf("%s:%d: %w", name, line, err)
		}
		if len(chunk) == produceChunk {
			if err := flush(); err != nil {
				return sent, err
			}
		}
	}
}

// jsonField returns a member of a JSON object as key bytes: a string's text,
// anything else as written.
func jsonField(line []byte, field string) ([]byte, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(line, &object); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	v, ok := object[field]
	if !ok {
		return nil, fmt.Errorf("no field %q for the key", field)
	}
	var s string
	if json.Unmarshal(v, &s) == nil {
		return []byte(s), nil
	}
	return v, nil
}

type offsetsCommand struct {
	cli.ConfigFlag
	JSON bool `name:"json" help:"Print JSON."`
}

// offsetLine is what is known of one partition of one source.
type offsetLine struct {
	Pipeline  string `json:"pipeline"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	First     int64  `json:"first"`  // where the partition was begun; -1 = not yet
	Stored    int64  `json:"stored"` // next offset to apply; -1 = not begun
	End       int64  `json:"end"`    // log end for a read_committed reader; -1 = unknown
	Lag       int64  `json:"lag"`    // records; -1 = unknown
	Applied   int64  `json:"applied"`
	Filtered  int64  `json:"filtered"`
	Dead      int64  `json:"dead"`
	Control   int64  `json:"control"`
	Lost      int64  `json:"lost"`
	Balanced  bool   `json:"balanced"` // the audit equation holds
}

// Run shows what the store holds beside what Kafka has.
func (c *offsetsCommand) Run(ctx context.Context, p *cli.Program) error {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	log := newLogger(p.Stderr, &cfg.Log)
	s, _, err := config.OpenStore(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer s.Close()
	stored, err := store.AllProgress(ctx, s)
	if err != nil {
		return err
	}
	client, err := openKafka(cfg, log)
	if err != nil {
		return err
	}
	defer client.Close()
	lines, kafkaErr := offsetLines(ctx, cfg, client, stored)
	if c.JSON {
		e := json.NewEncoder(p.Stdout)
		e.SetIndent("", "  ")
		return errors.Join(e.Encode(lines), kafkaErr)
	}
	return errors.Join(printOffsets(p.Stdout, lines), kafkaErr)
}

// offsetLines joins stored progress with the topics' partitions. Where Kafka does
// not answer, the stored half is returned with the error.
func offsetLines(ctx context.Context, cfg *config.Config, client *kafka.Client, stored []store.PartitionProgress) ([]offsetLine, error) {
	lines := []offsetLine{}
	var errs []error
	for _, name := range cfg.PipelineNames() {
		for _, topic := range cfg.Pipelines[name].Topics {
			byPartition := map[int32]*store.PartitionProgress{}
			info, err := client.Topic(ctx, topic)
			var ends map[int32]kafka.Offsets
			if err == nil {
				ends, err = client.ListOffsets(ctx, topic, info.Partitions)
			}
			if err != nil {
				errs = append(errs, err)
			}
			var partitions []int32
			if info != nil {
				partitions = info.Partitions
			}
			for i := range stored {
				s := &stored[i]
				if s.Source.Pipeline != name || s.Source.Topic != topic || info != nil && s.Source.TopicID != info.ID {
					continue
				}
				byPartition[s.Partition] = s
				if info == nil {
					partitions = append(partitions, s.Partition)
				}
			}
			for _, n := range partitions {
				l := offsetLine{Pipeline: name, Topic: topic, Partition: n, First: store.Absent, Stored: store.Absent, End: -1, Lag: -1, Balanced: true}
				if s := byPartition[n]; s != nil {
					g := &s.Progress
					l.First, l.Stored, l.Balanced = g.First, g.Next, g.Balanced()
					l.Applied, l.Filtered, l.Dead, l.Control, l.Lost = g.Applied, g.Filtered, g.Dead, g.Control, g.Lost
				}
				if o, ok := ends[n]; ok {
					l.End = o.End
					l.Lag = max(0, o.End-max(l.Stored, o.Start))
				}
				lines = append(lines, l)
			}
		}
	}
	return lines, errors.Join(errs...)
}

func printOffsets(w io.Writer, lines []offsetLine) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "PIPELINE\tTOPIC\tPARTITION\tSTORED\tEND\tLAG\tAPPLIED\tFILTERED\tDEAD\tCONTROL\tLOST\tAUDIT\t")
	for i := range lines {
		l := &lines[i]
		audit := "ok"
		if !l.Balanced {
			audit = "BROKEN"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t\n", l.Pipeline, l.Topic, l.Partition,
			orDash(l.Stored), orDash(l.End), orDash(l.Lag), l.Applied, l.Filtered, l.Dead, l.Control, l.Lost, audit)
	}
	return t.Flush()
}

func orDash(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
