package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
)

type explainCommand struct {
	cli.ConfigFlag
	Pipeline string `arg:"" optional:"" help:"The pipeline; needed where the file has several."`
	Sample   int    `default:"5" help:"How many records: the newest of every partition, as many of each as make up the sample."`
	File     string `placeholder:"FILE" help:"Take the records from the lines of this file instead of Kafka, or one record of avro, protobuf, or a compression or framing from all of it; - is standard input."`
}

// Run prints what records would do, without joining the group and without writing.
func (c *explainCommand) Run(ctx context.Context, p *cli.Program) error {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	if c.Sample < 1 {
		return fmt.Errorf("%w: --sample is %d, must be 1 or more", cli.ErrUsage, c.Sample)
	}
	names := cfg.PipelineNames()
	switch {
	case c.Pipeline != "":
		names = []string{c.Pipeline}
	case len(names) != 1:
		return fmt.Errorf("%w: name one of the pipelines %s", cli.ErrUsage, strings.Join(names, ", "))
	}
	o, err := cfg.PipelineOptions(names[0])
	if err != nil {
		return err
	}
	e := &explainer{out: p.Stdout, mapper: o.Plan.NewMapper(), poison: &o.Poison, left: c.Sample}
	if c.File != "" {
		spec := cfg.Pipelines[names[0]]
		return e.file(ctx, p, c.File, o.Topics[0], spec.Decode.Binary())
	}
	return e.topics(ctx, cfg, newLogger(p.Stderr, &cfg.Log), o.Topics)
}

// explainer prints what records become.
type explainer struct {
	out    io.Writer
	mapper *mapping.Mapper
	poison *pipeline.Poison
	left   int // of the sample
}

// refused says what becomes of a record that is not mapped. Of the breaker it says
// nothing: that is for many records.
func (e *explainer) refused(err *mapping.Error) string {
	switch e.poison.Policy(err.Stage, err.Class) {
	case pipeline.DropRecords:
		return "dropped, and not kept: "
	case pipeline.StopPipeline:
		return "stops the pipeline: "
	case pipeline.RetryRecords:
		return fmt.Sprintf("pauses the partition, is tried %d times more, and then is a dead letter: ", cmp.Or(e.poison.Retries, pipeline.DefaultRetries))
	}
	return "dead letter: "
}

func (e *explainer) record(ctx context.Context, r *mapping.Record) error {
	e.left--
	lines, decides, err := mapped(ctx, e.mapper, r)
	outcome := fmt.Sprintf("%d operations", len(lines))
	if len(lines) == 1 {
		outcome = "1 operation"
	}
	if decides {
		outcome = "the store decides"
	}
	var refused *mapping.Error
	switch {
	case errors.As(err, &refused):
		outcome = e.refused(refused) + refused.Error()
	case err != nil:
		return err
	case len(lines) == 0:
		outcome = "left out by the rules"
	}
	if _, err := fmt.Fprintf(e.out, "%s/%d@%d: %s\n", r.Topic, r.Partition, r.Offset, outcome); err != nil {
		return err
	}
	for _, line := range lines {
		if _, err := fmt.Fprintf(e.out, "  %s\n", line); err != nil {
			return err
		}
	}
	return nil
}

// explainWait bounds the wait for the next records of a partition that has some.
const explainWait = 10 * time.Second

// maxExplained bounds a record of a file.
const maxExplained = 64 << 20

// file explains the lines of a file, or all of it, as records of partition 0.
func (e *explainer) file(ctx context.Context, p *cli.Program, name, topic string, whole bool) error {
	var in io.Reader = &interruptible{ctx: ctx, r: p.Stdin}
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	if whole {
		value, err := io.ReadAll(io.LimitReader(in, maxExplained+1))
		if err == nil && len(value) > maxExplained {
			err = fmt.Errorf("a record of more than %d bytes", maxExplained)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return e.record(ctx, &mapping.Record{Topic: topic, Timestamp: time.Now().UnixMilli(), Value: value})
	}
	s := bufio.NewScanner(in)
	s.Buffer(nil, maxExplained)
	offset := int64(0)
	for ; e.left > 0 && s.Scan(); offset++ {
		r := &mapping.Record{Topic: topic, Offset: offset, Timestamp: time.Now().UnixMilli(), Value: s.Bytes()}
		if err := e.record(ctx, r); err != nil {
			return err
		}
	}
	switch err := s.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("%s:%d: a record of more than %d bytes", name, offset+1, maxExplained)
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case offset == 0:
		_, err := fmt.Fprintf(e.out, "%s holds no records\n", name)
		return err
	case e.left == 0 && name != "-" && s.Scan(): // whoever writes to a pipe may not write on
		fmt.Fprintf(p.Stderr, "%s has more lines than these %d: --sample N is for more\n", name, offset)
	}
	return nil
}

// maxLookedBack is how many offsets of a partition are looked through for the records of a
// sample: the newest may be markers, records of aborted transactions, or gaps of compaction.
const maxLookedBack = 1 << 16

// sampled is a partition of which a sample takes records, which holds [start, end).
type sampled struct {
	topic      string
	partition  int32
	start, end int64
}

// topics explains the newest records of the topics, without a group.
func (e *explainer) topics(ctx context.Context, cfg *config.Config, log *slog.Logger, topics []string) error {
	client, err := openKafka(cfg, log)
	if err != nil {
		return err
	}
	defer client.Close()
	var parts []sampled
	for _, topic := range topics {
		info, err := client.Topic(ctx, topic)
		if err != nil {
			return err
		}
		all, err := client.ListOffsets(ctx, topic, info.Partitions)
		if err != nil && (len(all) == 0 || !kafka.Temporary(err)) {
			return err
		}
		if err != nil {
			log.Warn("partitions are left out: no leader tells their offsets", "topic", topic, "err", err)
		}
		for _, n := range info.Partitions {
			if o := all[n]; o.End > o.Start {
				parts = append(parts, sampled{topic, n, o.Start, o.End})
			}
		}
	}
	if len(parts) == 0 {
		_, err := fmt.Fprintln(e.out, "the topics hold no records")
		return err
	}
	each := int64((e.left + len(parts) - 1) / len(parts))
	f := client.NewFetcher(nil)
	ctx, cancel := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := f.Run(ctx); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		defer cancel()
		sample := e.left
		for _, p := range parts {
			if err := e.partition(ctx, f, p, each); err != nil {
				return err
			}
			if e.left <= 0 {
				break
			}
		}
		if e.left < sample {
			return nil
		}
		_, err := fmt.Fprintln(e.out, "no record is among the newest offsets of the topics: they are markers, of aborted transactions, or gaps of compaction")
		return err
	})
	return g.Wait()
}

// partition explains the newest records of a partition, n or fewer.
func (e *explainer) partition(ctx context.Context, f *kafka.Fetcher, p sampled, n int64) error {
	from := max(p.start, p.end-n)
	there := int64(0)
	for {
		there = 0
		if err := records(ctx, f, p, from, func(*kafka.Record) error { there++; return nil }); err != nil {
			return err
		}
		looked := p.end - from
		if there >= n || from == p.start || looked >= maxLookedBack {
			break
		}
		from = max(p.start, p.end-min(8*looked, maxLookedBack))
	}
	if there == 0 {
		return nil
	}
	return records(ctx, f, p, from, func(k *kafka.Record) error {
		if there--; there >= n || e.left <= 0 {
			return nil
		}
		m := &mapping.Record{Topic: p.topic, Partition: p.partition, Offset: k.Offset, Timestamp: k.Timestamp, Key: k.Key, Value: k.Value}
		for _, h := range k.Headers {
			m.Headers = append(m.Headers, mapping.Header{Key: h.Key, Value: h.Value})
		}
		return e.record(ctx, m)
	})
}

// records calls each for the records of a partition from an offset on. Offsets may be
// missing: markers, compacted and aborted records.
func records(ctx context.Context, f *kafka.Fetcher, p sampled, from int64, each func(*kafka.Record) error) error {
	r := f.Add(p.topic, p.partition, from)
	defer r.Close()
	for at := from; at < p.end; {
		wait, cancel := context.WithTimeout(ctx, explainWait)
		b, err := r.Next(wait)
		cancel()
		if err != nil {
			return err
		}
		for i := range b.Records {
			if k := &b.Records[i]; k.Offset < p.end && err == nil {
				err = each(k)
			}
		}
		at = b.Next
		b.Release()
		if err != nil {
			return err
		}
	}
	return nil
}
