package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/pipeline"
	"sluice/store"
)

type offsetsVerifyCommand struct {
	cli.ConfigFlag
	Pipeline []string `placeholder:"NAME" help:"Only this pipeline; may be given again."`
	Deep     bool     `help:"Read the topics and count their records again."`
	Offline  bool     `help:"Do not ask Kafka: check what the store says only."`
	Output   string   `short:"o" enum:"table,json" default:"table" help:"How to print: table or json."`
	JSON     bool     `name:"json" help:"The same as -o json."`
}

// errAudit marks an audit equation that does not hold.
var errAudit = errors.New("the audit equation does not hold")

// auditLine is an audit as it is printed.
type auditLine struct {
	Pipeline  string      `json:"pipeline"`
	Topic     string      `json:"topic"`
	TopicID   string      `json:"topic_id"`
	Partition int32       `json:"partition"`
	First     int64       `json:"first"`
	Next      int64       `json:"next"`
	Applied   int64       `json:"applied"`
	Filtered  int64       `json:"filtered"`
	Duplicate int64       `json:"duplicate"`
	Unmet     int64       `json:"unmet"`
	Dead      int64       `json:"dead"`
	Dropped   int64       `json:"dropped"`
	Control   int64       `json:"control"`
	Aborted   int64       `json:"aborted"` // of control
	Late      int64       `json:"late"`    // of applied, duplicate and unmet
	Lost      int64       `json:"lost"`
	Gaps      store.Gaps  `json:"gaps"`     // the newest ranges of offsets that Kafka no longer had, [from, to)
	Skipped   int64       `json:"skipped"`  // of lost, were given up
	Skips     store.Skips `json:"skips"`    // the newest ranges of these, [from, to), and why
	Letters   int64       `json:"letters"`  // in the outbox
	Redriven  int64       `json:"redriven"` // of the dead, had their effect after all
	Purged    int64       `json:"purged"`   // were there and were removed
	From      int64       `json:"from"`     // records were counted again from here on; -1 = not
	Records   int64       `json:"records"`  // there; -1 = not counted
	Notes     []string    `json:"notes"`
	Problems  []string    `json:"problems"`
}

// Run audits one instant of the store: through a checkpoint where a daemon has it
// open.
func (c *offsetsVerifyCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	if c.Deep && c.Offline {
		return fmt.Errorf("%w: --deep reads the topics, --offline does not", cli.ErrUsage)
	}
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	log := newLogger(p.Stderr, &cfg.Log)
	instant, err := config.OpenInstant(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, instant.Close()) }()
	o := &pipeline.AuditOptions{Store: instant, Deep: c.Deep, Pipelines: c.Pipeline}
	if u := instant.Unfrozen(); u != nil {
		o.Begun = u
	}
	if !c.Offline {
		if o.Client, err = openKafka(cfg, log); err != nil {
			return err
		}
		defer o.Client.Close()
	}
	audits, auditErr := pipeline.RunAudit(ctx, o)
	if auditErr != nil && (len(audits) == 0 || ctx.Err() != nil) {
		return auditErr
	}
	for _, name := range c.Pipeline { // one that is stored may be in the file no more
		if auditErr == nil && !slices.Contains(cfg.PipelineNames(), name) && !slices.ContainsFunc(audits, func(a pipeline.Audit) bool { return a.Source.Pipeline == name }) {
			return fmt.Errorf("%w: %s has no pipeline %q, and nothing is stored of one; it has %s", cli.ErrUsage, c.Config, name, strings.Join(cfg.PipelineNames(), ", "))
		}
	}
	broken := 0
	lines := []auditLine{}
	for i := range audits {
		a := &audits[i]
		g := &a.Progress
		lines = append(lines, auditLine{
			Pipeline: a.Source.Pipeline, Topic: a.Source.Topic, TopicID: hex.EncodeToString(a.Source.TopicID[:]), Partition: a.Partition,
			First: g.First, Next: g.Next, Applied: g.Applied, Filtered: g.Filtered, Duplicate: g.Duplicate, Unmet: g.Unmet, Dead: g.Dead, Dropped: g.Dropped, Control: g.Control, Aborted: g.Aborted, Late: g.Late, Lost: g.Lost, Gaps: g.Gaps, Skipped: g.Skipped, Skips: g.Skips,
			Letters: a.Letters, Redriven: a.Redriven, Purged: a.Purged, From: a.From, Records: a.Records,
			Notes: append([]string{}, a.Notes...), Problems: append([]string{}, a.Problems...),
		})
		if len(a.Problems) > 0 {
			broken++
		}
	}
	if c.JSON || c.Output == "json" {
		err = printJSON(p.Stdout, lines)
	} else {
		err = printAudits(p.Stdout, lines)
	}
	if err == nil && broken > 0 {
		err = fmt.Errorf("%w in %d of %d partitions", errAudit, broken, len(lines))
	}
	return errors.Join(err, auditErr)
}

func printAudits(w io.Writer, lines []auditLine) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "PIPELINE\tTOPIC\tPARTITION\tFIRST\tNEXT\tAPPLIED\tFILTERED\tDUPLICATE\tUNMET\tDEAD\tREDRIVEN\tPURGED\tDROPPED\tCONTROL\tLOST\tRECORDS\tAUDIT\t")
	for i := range lines {
		l := &lines[i]
		verdict := "ok"
		if len(l.Problems) > 0 {
			verdict = "BROKEN"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t\n", l.Pipeline, l.Topic, l.Partition, l.First, l.Next,
			l.Applied, l.Filtered, l.Duplicate, l.Unmet, l.Dead, l.Redriven, l.Purged, l.Dropped, l.Control, l.Lost, orDash(l.Records), verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range lines {
		l := &lines[i]
		texts := append(append([]string{}, l.Notes...), l.Problems...)
		for j, text := range texts {
			kind := "note"
			if j >= len(l.Notes) {
				kind = "BROKEN"
			}
			if _, err := fmt.Fprintf(w, "%s: %s %s/%d: %s\n", kind, l.Pipeline, l.Topic, l.Partition, text); err != nil {
				return err
			}
		}
	}
	return nil
}
