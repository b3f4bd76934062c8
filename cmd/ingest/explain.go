package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
)

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
	for offset := int64(0); e.left > 0 && s.Scan(); offset++ {
		r := &mapping.Record{Topic: topic, Offset: offset, Timestamp: time.Now().UnixMilli(), Value: s.Bytes()}
		if err := e.record(ctx, r); err != nil {
			return err
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// sampled is the part of a partition that a sample takes.
type sampled struct {
	topic     string
	partition int32
	from, to  int64
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
		if err != nil {
			return err
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
		for _, p := range parts {
			p.from = max(p.from, p.to-each)
			if err := e.partition(ctx, f, p); err != nil {
				return err
			}
			if e.left <= 0 {
				break
			}
		}
		return nil
	})
	return g.Wait()
}

// partition explains [p.from, p.to) of a partition. Offsets may be missing in it:
// markers, compacted and aborted records.
func (e *explainer) partition(ctx context.Context, f *kafka.Fetcher, p sampled) error {
	r := f.Add(p.topic, p.partition, p.from)
	defer r.Close()
	for at := p.from; at < p.to; {
		wait, cancel := context.WithTimeout(ctx, explainWait)
		b, err := r.Next(wait)
		cancel()
		if err != nil {
			return err
		}
		for i := range b.Records {
			k := &b.Records[i]
			if e.left <= 0 || k.Offset >= p.to {
				break
			}
			m := &mapping.Record{Topic: p.topic, Partition: p.partition, Offset: k.Offset, Timestamp: k.Timestamp, Key: k.Key, Value: k.Value}
			for _, h := range k.Headers {
				m.Headers = append(m.Headers, mapping.Header{Key: h.Key, Value: h.Value})
			}
			if err = e.record(ctx, m); err != nil {
				break
			}
		}
		at = b.Next
		b.Release()
		if err != nil {
			return err
		}
		if e.left <= 0 {
			return nil
		}
	}
	return nil
}
