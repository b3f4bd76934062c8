package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/pipeline"
	"sluice/pipeline/buffer"
)

type dlqListCommand struct {
	cli.ConfigFlag
	letterFlags
	All    bool   `help:"List those, too, that were redriven."`
	Limit  int    `default:"100" help:"List so many; the counts are of all. 0 = no bound."`
	Output string `short:"o" enum:"table,json" default:"table" help:"How to print: table or json."`
	JSON   bool   `name:"json" help:"The same as -o json."`
}

// letterLine is a letter in a list.
type letterLine struct {
	Pipeline  string `json:"pipeline"`
	Topic     string `json:"topic"`
	TopicID   string `json:"topic_id"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Time      string `json:"time"`
	Stage     string `json:"stage"`
	Class     string `json:"class"`
	Reason    string `json:"reason"`
	Attempts  int    `json:"attempts"`
	Version   string `json:"mapping_version"`
	Relayed   bool   `json:"relayed"` // the dead-letter topic has it
	State     string `json:"state"`   // dead, applied or filtered
	Redriven  string `json:"redriven,omitempty"`
}

func newLetterLine(d *buffer.DeadLetter) letterLine {
	l := letterLine{
		Pipeline: d.Pipeline, Topic: d.Topic, TopicID: hex.EncodeToString(d.TopicID[:]), Partition: d.Partition, Offset: d.Offset,
		Time: timeText(d.Time), Stage: d.Stage, Class: d.Class, Reason: d.Reason, Attempts: max(d.Attempts, 1),
		Version: d.MappingVersion, Relayed: d.Relayed, State: "dead",
	}
	if d.Redriven != 0 {
		l.State, l.Redriven = d.RedrivenAs, timeText(d.Redriven)
	}
	return l
}

func timeText(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// letterCount is how many letters are alike.
type letterCount struct {
	Pipeline string `json:"pipeline"`
	Topic    string `json:"topic"`
	Stage    string `json:"stage"`
	Class    string `json:"class"`
	State    string `json:"state"`
	Letters  int64  `json:"letters"`
}

// Run lists the letters.
func (c *dlqListCommand) Run(ctx context.Context, p *cli.Program) error {
	if c.Limit < 0 {
		return fmt.Errorf("%w: --limit is %d", cli.ErrUsage, c.Limit)
	}
	f, err := c.filter(time.Now())
	if err != nil {
		return err
	}
	f.Brief, f.State = true, pipeline.DeadLetters
	if c.All {
		f.State = pipeline.AnyLetter
	}
	return withStore(ctx, &c.ConfigFlag, p, func(cfg *config.Config, s config.Engine) error {
		lines := []letterLine{}
		sums, err := countLetters(ctx, s, &f, func(l letterLine) {
			if c.Limit == 0 || len(lines) < c.Limit {
				lines = append(lines, l)
			}
		})
		if err == nil {
			err = c.checkPipeline(cfg, c.Config, len(sums) > 0)
		}
		if err != nil {
			return err
		}
		if c.JSON || c.Output == "json" {
			return printJSON(p.Stdout, struct {
				Letters []letterLine  `json:"letters"`
				Counts  []letterCount `json:"counts"`
			}{lines, sums})
		}
		return printLetters(p.Stdout, lines, sums)
	})
}

// countLetters returns how many of the letters that f chooses are alike, and calls
// each for all.
func countLetters(ctx context.Context, s config.Engine, f *pipeline.LetterFilter, each func(letterLine)) ([]letterCount, error) {
	counts := map[letterCount]int64{}
	for d, err := range pipeline.ScanLetters(ctx, s, f) {
		if err != nil {
			return nil, err
		}
		l := newLetterLine(d)
		counts[letterCount{Pipeline: l.Pipeline, Topic: l.Topic, Stage: l.Stage, Class: l.Class, State: l.State}]++
		each(l)
	}
	sums := []letterCount{}
	for k, n := range counts {
		k.Letters = n
		sums = append(sums, k)
	}
	slices.SortFunc(sums, func(a, b letterCount) int {
		return cmp.Or(cmp.Compare(a.Pipeline, b.Pipeline), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.State, b.State),
			cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Class, b.Class))
	})
	return sums, nil
}

// reasonWidth is where a list cuts a reason: a line each, on a wide terminal.
const reasonWidth = 80

func printLetters(w io.Writer, lines []letterLine, sums []letterCount) error {
	if len(sums) == 0 {
		_, err := fmt.Fprintln(w, "no dead letters")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PIPELINE\tLETTER\tTIME\tSTATE\tSTAGE\tCLASS\tREASON")
	for i := range lines {
		l := &lines[i]
		reason := printable(strings.ReplaceAll(l.Reason, "\n", " "))
		if utf8.RuneCountInString(reason) > reasonWidth {
			reason = string([]rune(reason)[:reasonWidth-1]) + "…"
		}
		fmt.Fprintf(t, "%s\t%s/%d/%d\t%s\t%s\t%s\t%s\t%s\n", l.Pipeline, l.Topic, l.Partition, l.Offset, l.Time, l.State, l.Stage, l.Class, reason)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	total, err := printSums(w, sums)
	if err != nil {
		return err
	}
	if int64(len(lines)) < total {
		_, err := fmt.Fprintf(w, "\n%s of %s listed; --limit lists more\n", cli.Count(int64(len(lines))), cli.Count(total))
		return err
	}
	return nil
}

// printSums prints how many letters are alike, and returns how many there are in all.
func printSums(w io.Writer, sums []letterCount) (total int64, err error) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LETTERS\tPIPELINE\tTOPIC\tSTATE\tSTAGE\tCLASS")
	for _, s := range sums {
		total += s.Letters
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\n", s.Letters, s.Pipeline, s.Topic, s.State, s.Stage, s.Class)
	}
	return total, t.Flush()
}
