package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
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

type dlqRedriveCommand struct {
	cli.ConfigFlag
	letterFlags
	Limit  int      `default:"0" help:"Try so many of each pipeline; 0 = all."`
	DryRun bool     `help:"Map the letters and write nothing."`
	Letter []string `arg:"" optional:"" help:"Only these: TOPIC/PARTITION/OFFSET, as ls prints them."`
}

// errStillDead marks a redrive that left letters dead.
var errStillDead = errors.New("records are still dead letters")

// Run redrives the letters of every pipeline of the file that the flags choose.
func (c *dlqRedriveCommand) Run(ctx context.Context, p *cli.Program) error {
	f, err := c.filter(time.Now())
	if err != nil {
		return err
	}
	if c.Limit < 0 {
		return fmt.Errorf("%w: --limit is %d", cli.ErrUsage, c.Limit)
	}
	if f.Places, err = parsePlaces(c.Letter); err != nil {
		return err
	}
	return withStore(ctx, &c.ConfigFlag, p, func(cfg *config.Config, s config.Engine) error {
		names := c.pipelines(cfg)
		f.State = pipeline.DeadLetters
		over, err := c.passedOver(ctx, s, cfg, f)
		if err != nil {
			return err
		}
		var sum pipeline.RedriveCounts
		for _, name := range names {
			o, err := cfg.PipelineOptions(name)
			if err != nil {
				return err
			}
			f.Pipeline = name
			log := newLogger(p.Stderr, &cfg.Log)
			n, err := pipeline.Redrive(ctx, &pipeline.RedriveOptions{
				Engine: s, Plan: o.Plan, Filter: f, Limit: c.Limit, DryRun: c.DryRun, CreateTable: cfg.TableCreator(s, log), Logger: log,
			})
			sum.Applied += n.Applied
			sum.Filtered += n.Filtered
			sum.Refused += n.Refused
			sum.Overtaken += n.Overtaken
			if err != nil {
				return errors.Join(printRedrive(p.Stdout, &sum, c.DryRun), againError(err))
			}
		}
		if err := printRedrive(p.Stdout, &sum, c.DryRun); err != nil {
			return err
		}
		left := []error{over.tell(p.Stdout, len(f.Places) > 0, "put its rules back, or give them up by dlq purge")}
		if sum.Refused > 0 && !c.DryRun {
			left = append(left, fmt.Errorf("%s %w; dlq ls shows why", cli.Count(sum.Refused), errStillDead))
		}
		return errors.Join(left...)
	})
}

// againError says of a redrive or a purge that was cut off how to go on.
func againError(err error) error {
	return fmt.Errorf("%w; what is done stays done: run it again for the rest", err)
}

func printRedrive(w io.Writer, n *pipeline.RedriveCounts, dry bool) error {
	verb := ""
	if dry {
		verb = "would be "
	}
	_, err := fmt.Fprintf(w, "%s %sapplied, %s %sleft out by the rules, %s %srefused again\n",
		cli.Count(n.Applied), verb, cli.Count(n.Filtered), verb, cli.Count(n.Refused), verb)
	if err == nil && n.Overtaken > 0 {
		_, err = fmt.Fprintf(w, "%s were redriven by another or purged at the same time\n", cli.Count(n.Overtaken))
	}
	return err
}
