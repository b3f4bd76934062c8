package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/pipeline"
	"sluice/pipeline/buffer"
)

type dlqShowCommand struct {
	cli.ConfigFlag
	Pipeline string `placeholder:"NAME" help:"The letter of this pipeline, where several have read the record."`
	Raw      bool   `help:"Print the payload alone, byte for byte."`
	Output   string `short:"o" enum:"text,json" default:"text" help:"How to print: text or json (bytes in base64)."`
	JSON     bool   `name:"json" help:"The same as -o json."`
	Letter   string `arg:"" help:"TOPIC/PARTITION/OFFSET, as ls prints it."`
}

// Run prints a letter. A topic that was created anew may have several of one
// place: they are printed all.
func (c *dlqShowCommand) Run(ctx context.Context, p *cli.Program) error {
	place, err := parsePlace(c.Letter)
	if err != nil {
		return err
	}
	return withStore(ctx, &c.ConfigFlag, p, func(_ *config.Config, s config.Engine) error {
		f := pipeline.LetterFilter{Pipeline: c.Pipeline, Topic: place.Topic, Places: []pipeline.Place{place}, Brief: true}
		var found []*buffer.DeadLetter
		for d, err := range pipeline.ScanLetters(ctx, s, &f) {
			if err != nil {
				return err
			}
			found = append(found, d)
		}
		switch {
		case len(found) == 0:
			return fmt.Errorf("%s is not in the outbox: it was applied or purged, or is yet to come", place)
		case c.Raw && slices.ContainsFunc(found, func(d *buffer.DeadLetter) bool { return d.Pipeline != found[0].Pipeline }):
			return fmt.Errorf("%w: %d letters are of %s: name the --pipeline", cli.ErrUsage, len(found), place)
		case c.Raw && len(found) > 1:
			return fmt.Errorf("%w: %d letters are of %s, of topics that had the name one after the other: --json prints them all, with their topic ids", cli.ErrUsage, len(found), place)
		}
		for i, d := range found {
			d, err := pipeline.ReadLetter(ctx, s, d)
			if err != nil {
				return err
			}
			switch {
			case c.Raw:
				_, err = p.Stdout.Write(d.Value)
			case c.JSON || c.Output == "json":
				err = printJSON(p.Stdout, newWholeLetter(d))
			default:
				if i > 0 {
					fmt.Fprintln(p.Stdout)
				}
				err = printLetter(p.Stdout, d)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// wholeLetter is a letter with what may be large. Bytes are base64, null is
// Kafka's null.
type wholeLetter struct {
	letterLine
	Headers []wholeHeader `json:"headers"`
	Key     []byte        `json:"key"`
	Value   []byte        `json:"value"`
}

type wholeHeader struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

func newWholeLetter(d *buffer.DeadLetter) *wholeLetter {
	w := &wholeLetter{letterLine: newLetterLine(d), Headers: []wholeHeader{}, Key: d.Key, Value: d.Value}
	for _, h := range d.Headers {
		w.Headers = append(w.Headers, wholeHeader(h))
	}
	return w
}

func printLetter(w io.Writer, d *buffer.DeadLetter) error {
	l := newLetterLine(d)
	var b bytes.Buffer
	field := func(name, value string) { fmt.Fprintf(&b, "%-10s %s\n", name, value) }
	field("letter", fmt.Sprintf("%s/%d/%d", l.Topic, l.Partition, l.Offset))
	field("pipeline", l.Pipeline)
	field("topic id", l.TopicID)
	field("time", l.Time)
	state := l.State
	if l.Redriven != "" {
		state += " at " + l.Redriven + " by redrive " + d.RedrivenBy
	}
	field("state", state)
	field("stage", l.Stage)
	field("class", l.Class)
	field("reason", printable(l.Reason))
	field("attempts", strconv.Itoa(l.Attempts))
	field("mapping", l.Version)
	field("relayed", strconv.FormatBool(l.Relayed))
	for _, h := range d.Headers {
		field("header", printable(string(h.Key))+": "+inline(h.Value))
	}
	field("key", inline(d.Key))
	if d.Value == nil {
		field("value", "null")
	} else {
		field("value", cli.Bytes(int64(len(d.Value))))
		if utf8.Valid(d.Value) {
			b.WriteString(printable(string(d.Value)))
			b.WriteByte('\n')
		} else {
			b.WriteString(hex.Dump(d.Value))
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// inline prints bytes on a line.
func inline(v []byte) string {
	switch {
	case v == nil:
		return "null"
	case utf8.Valid(v):
		return printable(strings.ReplaceAll(string(v), "\n", `\n`))
	}
	return "hex " + hex.EncodeToString(v)
}
