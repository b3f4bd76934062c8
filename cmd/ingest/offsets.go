package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/pipeline"
	"sluice/pipeline/buffer"
	"sluice/pipeline/kafka"
	"sluice/store"
)

type offsetsCommand struct {
	Show   offsetsShowCommand   `cmd:"" default:"withargs" help:"Show stored offsets, lag and the audit counts; the default."`
	Verify offsetsVerifyCommand `cmd:"" help:"Check the audit equation of every partition against the outbox and the topics."`
	Skip   offsetsSkipCommand   `cmd:"" help:"Give up offsets that cannot be read: count them as lost, and go on behind them."`
}

type offsetsShowCommand struct {
	cli.ConfigFlag
	JSON bool `name:"json" help:"Print JSON."`
}

// offsetLine is what is known of one partition of one source.
type offsetLine struct {
	Pipeline  string `json:"pipeline"`
	Topic     string `json:"topic"`
	TopicID   string `json:"topic_id"` // of the topic that is there; "" = unknown
	Partition int32  `json:"partition"`
	First     int64  `json:"first"`  // where the partition was begun; -1 = not yet
	Stored    int64  `json:"stored"` // next offset to apply; -1 = not begun
	End       int64  `json:"end"`    // log end for a read_committed reader; -1 = unknown
	Lag       int64  `json:"lag"`    // records that are there; -1 = unknown
	Gone      int64  `json:"gone"`   // offsets from Stored on that Kafka has no more; lost where on_data_loss is skip
	Applied   int64  `json:"applied"`
	Filtered  int64  `json:"filtered"`
	Duplicate int64  `json:"duplicate"`
	Unmet     int64  `json:"unmet"`
	Dead      int64  `json:"dead"`
	Redriven  int64  `json:"redriven"` // of the dead, had their effect after all
	Purged    int64  `json:"purged"`   // of the dead, were removed from the outbox
	Dropped   int64  `json:"dropped"`
	Control   int64  `json:"control"`
	Aborted   int64  `json:"aborted"` // of control, records of aborted transactions
	Late      int64  `json:"late"`    // of applied, duplicate and unmet, later than allowed_lateness
	Lost      int64  `json:"lost"`
	// Gaps are the newest ranges of offsets that Kafka no longer had, [from, to).
	Gaps     store.Gaps  `json:"gaps"`
	Skipped  int64       `json:"skipped"`  // of lost, were given up
	Skips    store.Skips `json:"skips"`    // the newest ranges of these, [from, to), and why
	Balanced bool        `json:"balanced"` // the audit equation holds
	// Mapping is the version of the rules that have mapped the records from
	// MappingFrom on; those before were mapped by another.
	Mapping     string `json:"mapping"`
	MappingFrom int64  `json:"mapping_from"`
	// Former says what is stored of topics that had the name before, where nothing is
	// of the one that has it now.
	Former []string `json:"former"`
}

// Run shows what the store holds beside what Kafka has.
func (c *offsetsShowCommand) Run(ctx context.Context, p *cli.Program) error {
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
	redriven, err := pipeline.AllRedriven(ctx, s, "")
	if err != nil {
		return err
	}
	client, err := openKafka(cfg, log)
	if err != nil {
		return err
	}
	defer client.Close()
	lines, kafkaErr := offsetLines(ctx, cfg, client, stored, redriven)
	if c.JSON {
		return errors.Join(printJSON(p.Stdout, lines), kafkaErr)
	}
	if len(lines) == 0 && kafkaErr != nil {
		return kafkaErr // no head of a table of nothing
	}
	return errors.Join(printOffsets(p.Stdout, lines), kafkaErr)
}

// offsetLines joins stored progress with the topics' partitions. Where Kafka does
// not answer, the stored half is returned with the error: of the topics that had a name
// one after the other, that of the newest.
func offsetLines(ctx context.Context, cfg *config.Config, client *kafka.Client, stored []store.PartitionProgress, redriven []buffer.Redriven) ([]offsetLine, error) {
	lines := []offsetLine{}
	var errs []error
	for _, name := range cfg.PipelineNames() {
		for _, topic := range cfg.Pipelines[name].Topics {
			info, err := client.Topic(ctx, topic)
			var ends map[int32]kafka.Offsets
			if err == nil {
				ends, err = client.ListOffsets(ctx, topic, info.Partitions)
			}
			if err != nil {
				errs = append(errs, err)
			}
			byPartition, former := storedOf(stored, name, topic, info)
			var partitions []int32
			id := ""
			if info == nil {
				partitions = slices.Sorted(maps.Keys(byPartition))
			} else {
				id = hex.EncodeToString(info.ID[:])
				read := cfg.Pipelines[name].Partitions
				partitions = slices.DeleteFunc(slices.Clone(info.Partitions), func(n int32) bool { return len(read) > 0 && !slices.Contains(read, int(n)) })
			}
			for _, n := range partitions {
				l := offsetLine{Pipeline: name, Topic: topic, TopicID: id, Partition: n, Former: []string{}, First: store.Absent, Stored: store.Absent, End: -1, Lag: -1, Balanced: true}
				if s := byPartition[n]; s != nil {
					l.stored(&s.Progress)
					l.Redriven, l.Purged = redrivenOf(redriven, &s.Source, n)
				} else if f := former[n]; f != nil {
					l.Former = f
				}
				if o, ok := ends[n]; ok {
					l.there(o)
				}
				lines = append(lines, l)
			}
		}
	}
	return lines, errors.Join(errs...)
}

// storedOf returns what is stored of a topic by partition, and of others that had its name
// what is to be said. info is what Kafka says of the topic; nil = nothing, and the newest is
// taken for it.
func storedOf(stored []store.PartitionProgress, pipeline, topic string, info *kafka.TopicInfo) (byPartition map[int32]*store.PartitionProgress, former map[int32][]string) {
	byPartition, former = map[int32]*store.PartitionProgress{}, map[int32][]string{}
	newest := newestOf(stored, pipeline, topic)
	for i := range stored {
		s := &stored[i]
		switch {
		case s.Source.Pipeline != pipeline || s.Source.Topic != topic || info == nil && s.Source != *newest:
		case info != nil && s.Source.TopicID != info.ID:
			former[s.Partition] = append(former[s.Partition], fmt.Sprintf("offset %d is stored of a topic of this name with id %x; the one that is there has id %x", s.Progress.Next, s.Source.TopicID, info.ID))
		default:
			byPartition[s.Partition] = s
		}
	}
	return byPartition, former
}

// stored takes over what is stored of the partition.
func (l *offsetLine) stored(g *store.Progress) {
	l.First, l.Stored, l.Balanced = g.First, g.Next, g.Balanced()
	l.Applied, l.Filtered, l.Dead, l.Dropped, l.Control, l.Lost = g.Applied, g.Filtered, g.Dead, g.Dropped, g.Control, g.Lost
	l.Duplicate, l.Unmet = g.Duplicate, g.Unmet
	l.Aborted, l.Late, l.Gaps = g.Aborted, g.Late, g.Gaps
	l.Skipped, l.Skips = g.Skipped, g.Skips
	l.Mapping, l.MappingFrom = g.MappingVersion, g.MappingFrom
}

// there takes over what Kafka has, behind what is stored.
func (l *offsetLine) there(o kafka.Offsets) {
	l.End = o.End
	l.Lag = max(0, o.End-max(l.Stored, o.Start))
	if l.Stored != store.Absent {
		l.Gone = max(0, o.Start-l.Stored)
	}
}

// newestOf returns which of the topics that had a name was applied last, as far as their
// records' times tell; nil where nothing is stored of any.
func newestOf(stored []store.PartitionProgress, pipeline, topic string) *store.Source {
	var newest *store.PartitionProgress
	for i := range stored {
		s := &stored[i]
		if s.Source.Pipeline == pipeline && s.Source.Topic == topic && (newest == nil || s.Progress.LastTime > newest.Progress.LastTime) {
			newest = s
		}
	}
	if newest == nil {
		return nil
	}
	return &newest.Source
}

// redrivenOf returns how many dead letters of a partition had their effect after
// all, and how many were removed from the outbox.
func redrivenOf(all []buffer.Redriven, s *store.Source, partition int32) (redriven, purged int64) {
	for i := range all {
		n := &all[i]
		if n.Pipeline == s.Pipeline && n.Topic == s.Topic && n.TopicID == s.TopicID && n.Partition == partition {
			redriven += n.Applied + n.Filtered
			purged += n.Purged()
		}
	}
	return redriven, purged
}

func printOffsets(w io.Writer, lines []offsetLine) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "PIPELINE\tTOPIC\tPARTITION\tSTORED\tEND\tLAG\tAPPLIED\tFILTERED\tDUPLICATE\tUNMET\tDEAD\tREDRIVEN\tPURGED\tDROPPED\tCONTROL\tLOST\tAUDIT\tMAPPING\t")
	for i := range lines {
		l := &lines[i]
		audit := "ok"
		if !l.Balanced {
			audit = "BROKEN"
		}
		mapping := "-"
		if l.Mapping != "" {
			mapping = fmt.Sprintf("%s@%d", l.Mapping, l.MappingFrom)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t\n", l.Pipeline, l.Topic, l.Partition,
			orDash(l.Stored), orDash(l.End), orDash(l.Lag), l.Applied, l.Filtered, l.Duplicate, l.Unmet, l.Dead, l.Redriven, l.Purged, l.Dropped, l.Control, l.Lost, audit, mapping)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range lines {
		l := &lines[i]
		for _, text := range l.Former {
			if _, err := fmt.Fprintf(w, "%s %s/%d: %s\n", l.Pipeline, l.Topic, l.Partition, text); err != nil {
				return err
			}
		}
		if l.Gone > 0 {
			if _, err := fmt.Fprintf(w, "%s %s/%d: offsets %d to %d (%d records or fewer) are gone from Kafka before they were applied\n", l.Pipeline, l.Topic, l.Partition, l.Stored, l.Stored+l.Gone-1, l.Gone); err != nil {
				return err
			}
		}
		if l.Gaps != "" {
			if _, err := fmt.Fprintf(w, "lost offsets of %s %s/%d: %s\n", l.Pipeline, l.Topic, l.Partition, l.Gaps); err != nil {
				return err
			}
		}
		if l.Skips != "" {
			if _, err := fmt.Fprintf(w, "offsets of %s %s/%d that were given up: %s\n", l.Pipeline, l.Topic, l.Partition, l.Skips); err != nil {
				return err
			}
		}
	}
	return nil
}

func orDash(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
