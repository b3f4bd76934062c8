package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/pipeline"
	"sluice/pipeline/buffer"
	"sluice/pipeline/mapping"
)

type dlqCommand struct {
	Ls      dlqListCommand    `cmd:"" help:"List the dead letters of the outbox, and how many there are of each class."`
	Show    dlqShowCommand    `cmd:"" help:"Print one letter whole, with its headers and its payload."`
	Redrive dlqRedriveCommand `cmd:"" help:"Apply the original records of dead letters by the present mapping, each once."`
	Purge   dlqPurgeCommand   `cmd:"" help:"Remove letters from the outbox for good; the audit counts them."`
}

// letterFlags choose letters.
type letterFlags struct {
	Pipeline string `placeholder:"NAME" help:"Only letters of this pipeline."`
	Topic    string `placeholder:"NAME" help:"Only letters of this topic."`
	Stage    string `placeholder:"STAGE" help:"Only letters of this stage: decode, map or store."`
	Class    string `placeholder:"CLASS" help:"Only letters of this class of error."`
	Since    string `placeholder:"TIME" help:"Only records whose timestamp is at or after this time (2026-01-31T00:00:00Z), or so long ago at most (90m)."`
	Before   string `placeholder:"TIME" help:"Only records whose timestamp is before this time, or longer ago than this (720h)."`
	// Partition and Offsets are one partition's, or those of this number of all
	// topics.
	Partition []int32 `placeholder:"N" help:"Only letters of this partition; may be given again."`
	Offsets   string  `placeholder:"FROM-TO" help:"Only letters of these offsets, both included; either may be left out."`
}

func (f *letterFlags) filter(now time.Time) (pipeline.LetterFilter, error) {
	out := pipeline.LetterFilter{Pipeline: f.Pipeline, Topic: f.Topic, Stage: f.Stage, Class: f.Class, Partitions: f.Partition}
	err := errors.Join(knownFlag("--stage", f.Stage, mapping.Stages()), knownFlag("--class", f.Class, pipeline.LetterClasses()))
	if err != nil {
		return out, err
	}
	if out.Since, err = timeFlag("--since", f.Since, now); err != nil {
		return out, err
	}
	if out.Before, err = timeFlag("--before", f.Before, now); err != nil {
		return out, err
	}
	out.FromOffset, out.ToOffset, err = offsetsFlag(f.Offsets)
	return out, err
}

// checkPipeline refuses --pipeline where the file has no such one and no letter of it was
// found: one that has letters may be in the file no more.
func (f *letterFlags) checkPipeline(cfg *config.Config, file string, found bool) error {
	if names := cfg.PipelineNames(); f.Pipeline != "" && !found && !slices.Contains(names, f.Pipeline) {
		return fmt.Errorf("%w: %s has no pipeline %q, and no such letter is of it; it has %s", cli.ErrUsage, file, f.Pipeline, strings.Join(names, ", "))
	}
	return nil
}

// pipelines returns whose letters are to be dealt with: by default, those of the file.
func (f *letterFlags) pipelines(cfg *config.Config) []string {
	if f.Pipeline != "" {
		return []string{f.Pipeline}
	}
	return cfg.PipelineNames()
}

// passedOver is what a redrive or a purge does nothing about.
type passedOver struct {
	absent []pipeline.Place // named, and no letter is in the outbox
	former map[string]int64 // letters of pipelines that the file does not have, by name
}

// passedOver returns what is passed over of what chosen chooses. Of a named place that has
// letters of several pipelines, those of the file's are meant.
func (f *letterFlags) passedOver(ctx context.Context, s config.Engine, cfg *config.Config, chosen pipeline.LetterFilter) (over passedOver, err error) {
	dead := chosen.State == pipeline.DeadLetters
	if len(chosen.Places) > 0 {
		chosen = pipeline.LetterFilter{Places: chosen.Places} // redriven ones are there, too
	} else if f.Pipeline != "" {
		return over, nil
	}
	chosen.Pipeline, chosen.Brief = f.Pipeline, true
	over.former = map[string]int64{}
	names, there, own := f.pipelines(cfg), map[pipeline.Place]bool{}, map[pipeline.Place]bool{}
	var others []*buffer.DeadLetter // named
	for d, err := range pipeline.ScanLetters(ctx, s, &chosen) {
		if err != nil {
			return over, err
		}
		known := slices.Contains(names, d.Pipeline)
		passed := !known && !(dead && d.Redriven != 0)
		switch at := placeOf(d); {
		case len(chosen.Places) > 0:
			there[at], own[at] = true, own[at] || known
			if passed {
				others = append(others, d)
			}
		case passed:
			over.former[d.Pipeline]++
		}
	}
	for _, d := range others {
		if !own[placeOf(d)] {
			over.former[d.Pipeline]++
		}
	}
	for _, p := range chosen.Places {
		if !there[p] {
			over.absent = append(over.absent, p)
		}
	}
	return over, nil
}

func placeOf(d *buffer.DeadLetter) pipeline.Place {
	return pipeline.Place{Topic: d.Topic, Partition: d.Partition, Offset: d.Offset}
}

// tell says of letters of former pipelines what to do, which ends with --pipeline, and that
// there are no letters of named places. It is an error where letters were named.
func (o *passedOver) tell(w io.Writer, named bool, what string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(o.former)) {
		text := fmt.Sprintf("%s more of pipeline %s, which the file does not have: %s --pipeline %s", cli.Count(o.former[name]), name, what, name)
		if named {
			errs = append(errs, errors.New(text))
		} else if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	if n := len(o.absent); n > 0 {
		errs = append(errs, fmt.Errorf("%d of the records that were named are not in the outbox: %v: each was applied or purged, or is yet to come", n, o.absent))
	}
	return errors.Join(errs...)
}

// knownFlag refuses what no letter can have: it would choose none, as if there were none.
func knownFlag(flag, s string, known []string) error {
	if s == "" || slices.Contains(known, s) {
		return nil
	}
	return fmt.Errorf("%w: no letter has %s %q: there are %s", cli.ErrUsage, flag, s, strings.Join(known, ", "))
}

// timeFlag returns what a flag says in ms since the Unix epoch; 0 = nothing.
func timeFlag(flag, s string, now time.Time) (int64, error) {
	if s == "" {
		return 0, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return max(1, now.Add(-d).UnixMilli()), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return 0, fmt.Errorf("%w: %s %q is neither a duration such as 90m nor a time such as 2026-01-31T00:00:00Z", cli.ErrUsage, flag, s)
	}
	return max(1, t.UnixMilli()), nil
}

// offsetsFlag reads FROM-TO and returns [from, to), to = 0 where there is no bound.
func offsetsFlag(s string) (from, to int64, err error) {
	if s == "" {
		return 0, 0, nil
	}
	first, last, ok := strings.Cut(s, "-")
	if first != "" && ok {
		from, err = strconv.ParseInt(first, 10, 64)
		ok = err == nil && from >= 0
	}
	if last != "" && ok {
		to, err = strconv.ParseInt(last, 10, 64)
		to++
		ok = err == nil && to > from
	}
	if !ok || first+last == "" {
		return 0, 0, fmt.Errorf("%w: --offsets %q is not FROM-TO, such as 100-199 or 100-", cli.ErrUsage, s)
	}
	return from, to, nil
}

// parsePlace reads TOPIC/PARTITION/OFFSET. A topic has no slash in its name.
func parsePlace(s string) (pipeline.Place, error) {
	bad := fmt.Errorf("%w: %q is no letter: write TOPIC/PARTITION/OFFSET as ls prints it", cli.ErrUsage, s)
	parts := strings.Split(s, "/")
	if len(parts) != 3 || parts[0] == "" {
		return pipeline.Place{}, bad
	}
	n, err := strconv.ParseInt(parts[1], 10, 32)
	if err != nil || n < 0 {
		return pipeline.Place{}, bad
	}
	offset, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || offset < 0 {
		return pipeline.Place{}, bad
	}
	return pipeline.Place{Topic: parts[0], Partition: int32(n), Offset: offset}, nil
}

func parsePlaces(all []string) (places []pipeline.Place, err error) {
	for _, s := range all {
		p, err := parsePlace(s)
		if err != nil {
			return nil, err
		}
		places = append(places, p)
	}
	return places, nil
}

// withStore runs f on the store of the configuration, through the daemon that has
// it open or directly.
func withStore(ctx context.Context, c *cli.ConfigFlag, p *cli.Program, f func(*config.Config, config.Engine) error) (err error) {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	s, _, err := config.OpenStore(ctx, cfg, newLogger(p.Stderr, &cfg.Log))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return f(cfg, s)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printable returns s with what a terminal would act upon as escapes: a payload is
// somebody else's word.
func printable(s string) string {
	clean := true
	for _, r := range s {
		clean = clean && (r == '\n' || r == '\t' || unicode.IsPrint(r)) && r != utf8.RuneError
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\n', r == '\t', unicode.IsPrint(r) && (r != utf8.RuneError || n > 1):
			b.WriteString(s[i : i+n])
		default:
			q := strconv.QuoteToASCII(s[i : i+n])
			b.WriteString(q[1 : len(q)-1])
		}
		i += n
	}
	return b.String()
}
