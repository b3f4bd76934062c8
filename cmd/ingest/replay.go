package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs/columnar"
	"sluice/pipeline"
	"sluice/pipeline/mapping"
	"sluice/pipeline/rebuild"
	"sluice/store"
)

type replayCommands struct {
	Rebuild rebuildCommand `cmd:"" help:"Count a pipeline's records again beside what is served, compare, and switch."`
}

type rebuildCommand struct {
	cli.ConfigFlag
	Pipeline   string `arg:"" help:"The pipeline whose counters are counted again."`
	Switch     bool   `xor:"end" help:"Serve the rebuilt counters in the place of the others."`
	Discard    bool   `xor:"end" help:"Drop the counters of a rebuild that was not switched to, and count nothing."`
	AcceptLoss bool   `help:"Count what Kafka still has, where it has not all that was applied, and serve that in the place of what pipelines have counted that the file no longer has."`
	Unused     string `enum:"keep,remove" default:"keep" help:"What becomes of counts in families in which nothing is counted any more: keep or remove, with --switch."`
	Previous   string `placeholder:"FILE" help:"The configuration by which the pipeline counted before: what only its rules count is compared, too."`
	TakeOver   bool   `help:"Take the rebuild over from another process that was killed, or that shall change nothing any more (engine hbase)."`
	JSON       bool   `help:"Print JSON: the comparison."`
}

var errCountersDiffer = errors.New("served and rebuilt counters differ")

// Run counts again, compares, and does with the outcome what the flags say. The
// daemon must not run: nothing may be applied meanwhile.
func (c *rebuildCommand) Run(ctx context.Context, p *cli.Program) error {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	if c.Discard {
		return c.discard(ctx, cfg, newLogger(p.Stderr, &cfg.Log))
	}
	o, err := cfg.PipelineOptions(c.Pipeline)
	if err != nil {
		return err
	}
	if err := cfg.CheckStore(); err != nil {
		return err
	}
	log := newLogger(p.Stderr, &cfg.Log)
	client, err := openKafka(cfg, log)
	if err != nil {
		return err
	}
	defer client.Close()
	engine, err := openRebuilds(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer engine.Close()
	previous, err := c.previous(p)
	if err != nil {
		return err
	}
	others, err := c.others(cfg)
	if err != nil {
		return err
	}
	if err := c.ensureTables(ctx, cfg, engine, log); err != nil {
		return err
	}
	ro := &rebuild.Options{
		Pipeline: c.Pipeline, Topics: o.Topics, Client: client, Plan: o.Plan, Engine: engine,
		Previous: previous, RemoveUnused: c.Unused == "remove", CreateTable: cfg.TableCreator(engine, log), Template: cfg.TableTemplate,
		AcceptLoss: c.AcceptLoss, Logger: log, Progress: countProgress(log), Holder: *c.holder(time.Now()),
	}
	for _, other := range others {
		ro.Others = append(ro.Others, other)
	}
	r, err := rebuild.Open(ctx, ro)
	if err != nil {
		return err
	}
	defer func() {
		if err := r.Close(ctx); err != nil {
			log.Warn("the next rebuild needs --take-over", "pipeline", c.Pipeline, "err", err)
		}
	}()
	if err := r.Count(ctx); err != nil {
		return err
	}
	families, err := r.Compare(ctx)
	if err != nil {
		return err
	}
	if err := c.print(p.Stdout, families, r.Totals()); err != nil {
		return err
	}
	former, err := c.former(ctx, cfg, engine, o.Topics)
	if err != nil {
		return err
	}
	return c.end(ctx, p.Stdout, others, former, r, families)
}

// former returns an error that names a pipeline which the file does not have and which has
// applied a topic of this one: what it was called before, mostly, and then what it has counted
// is in the families that would be replaced. A store.RebuildSwitcher knows who counted in
// them.
func (c *rebuildCommand) former(ctx context.Context, cfg *config.Config, e rebuild.Engine, topics []string) (former, err error) {
	if _, knows := e.(store.RebuildSwitcher); knows || c.AcceptLoss {
		return nil, nil
	}
	stored, err := store.AllProgress(ctx, e)
	if err != nil {
		return nil, err
	}
	for i := range stored {
		s := &stored[i]
		if _, there := cfg.Pipelines[s.Source.Pipeline]; !there && s.Source.OfPipeline() && s.Progress.Applied > 0 && slices.Contains(topics, s.Source.Topic) {
			return fmt.Errorf("%w: pipeline %s, which the file does not have, has applied topic %s, too: what it has counted in these families would be lost; where it counted elsewhere, or that may go, give --accept-loss", store.ErrUnsupported, s.Source.Pipeline, s.Source.Topic), nil
		}
	}
	return nil, nil
}

// openRebuilds opens the store of the file for a rebuild.
func openRebuilds(ctx context.Context, cfg *config.Config, log *slog.Logger) (rebuild.Engine, error) {
	opened, err := config.OpenEngine(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	engine, ok := opened.(rebuild.Engine)
	if !ok {
		err := fmt.Errorf("%w: engine %s cannot change tables", store.ErrUnsupported, opened.Traits().Name)
		return nil, errors.Join(err, opened.Close())
	}
	return engine, nil
}

// discard drops an unfinished rebuild, and asks no broker. The file need not have the
// pipeline any more: the daemon does not start before it is discarded.
func (c *rebuildCommand) discard(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	_, missing := cfg.PipelineOptions(c.Pipeline)
	if missing != nil && !errors.Is(missing, config.ErrNoPipeline) {
		return missing
	}
	if err := cfg.CheckStore(); err != nil {
		return err
	}
	engine, err := openRebuilds(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer engine.Close()
	if missing != nil {
		stored, err := store.AllProgress(ctx, engine)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(stored, func(s store.PartitionProgress) bool { return s.Source.Pipeline == c.Pipeline }) {
			// Its families may be there without it, in a copy of some tables, say.
			if err := pipeline.CheckNoRebuild(ctx, engine, c.Pipeline); !errors.Is(err, pipeline.ErrRebuilding) {
				return cmp.Or(err, missing)
			}
		}
	}
	return rebuild.Discard(ctx, engine, c.Pipeline, c.holder(time.Now()))
}

// ensureTables creates missing tables of the file as the daemon does, whose rules may
// count in them: a record that writes a table which is not there counts nowhere. What an
// unfinished rebuild has left is no difference here.
func (c *rebuildCommand) ensureTables(ctx context.Context, cfg *config.Config, e rebuild.Engine, log *slog.Logger) error {
	created, err := cfg.EnsureTables(ctx, e)
	for _, t := range created {
		log.Info("created table", "table", t)
	}
	if errors.Is(err, pipeline.ErrRebuilding) {
		return nil
	}
	return err
}

// holder is who rebuilds, to people.
func (c *rebuildCommand) holder(now time.Time) *store.RebuildHolder {
	host, _ := os.Hostname()
	return &store.RebuildHolder{Name: fmt.Sprintf("a command on %s, process %d, begun %s,", host, os.Getpid(), now.UTC().Format(time.RFC3339)), TakeOver: c.TakeOver}
}

// previous returns the plan by which the pipeline counted before, if it is given.
func (c *rebuildCommand) previous(p *cli.Program) ([]*mapping.Plan, error) {
	if c.Previous == "" {
		return nil, nil
	}
	before := cli.ConfigFlag{Config: c.Previous}
	cfg, err := before.Load(p)
	if err != nil {
		return nil, err
	}
	o, err := cfg.PipelineOptions(c.Pipeline)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Previous, err)
	}
	return []*mapping.Plan{o.Plan}, nil
}

// others returns the plans of the other pipelines, by name.
func (c *rebuildCommand) others(cfg *config.Config) (map[string]*mapping.Plan, error) {
	plans := map[string]*mapping.Plan{}
	for _, name := range cfg.PipelineNames() {
		if name == c.Pipeline {
			continue
		}
		o, err := cfg.PipelineOptions(name)
		if err != nil {
			return nil, err
		}
		plans[name] = o.Plan
	}
	return plans, nil
}

// end switches to the rebuilt counters, drops them, or leaves them.
func (c *rebuildCommand) end(ctx context.Context, w io.Writer, others map[string]*mapping.Plan, former error, r *rebuild.Rebuild, families []rebuild.Comparison) error {
	same := !slices.ContainsFunc(families, func(f rebuild.Comparison) bool { return !f.Same() && (!f.Unused || c.Unused == "remove") })
	say := func(text string) error {
		if c.JSON {
			return nil
		}
		_, err := fmt.Fprintln(w, text)
		return err
	}
	if same {
		if err := r.Discard(ctx); err != nil {
			return err
		}
		if !slices.ContainsFunc(families, func(f rebuild.Comparison) bool { return f.Equal > 0 }) {
			return say("no counters were counted again, so that nothing was compared")
		}
		return say("all are equal; the rebuilt counters are dropped")
	}
	switch err := cmp.Or(alone(others, families), former); {
	case !c.Switch && err != nil:
		return fmt.Errorf("%w; the rebuilt ones cannot be served: %w; --discard drops them", errCountersDiffer, err)
	case !c.Switch:
		return fmt.Errorf("%w; run it again with --switch to serve the rebuilt ones, or with --discard to drop them", errCountersDiffer)
	case err != nil:
		return err
	}
	if err := r.Switch(ctx); err != nil {
		return err
	}
	return say("the rebuilt counters are served")
}

// alone reports that other pipelines write tables whose families would be
// replaced: their counts would be lost. What is unused is in no rule of theirs.
func alone(others map[string]*mapping.Plan, families []rebuild.Comparison) error {
	for _, name := range slices.Sorted(maps.Keys(others)) {
		for i := range families {
			if f := &families[i]; !f.Unused && others[name].MayWrite(f.Table) {
				return fmt.Errorf("%w: pipeline %s writes table %s, too: what it has counted would be lost", store.ErrUnsupported, name, f.Table)
			}
		}
	}
	return nil
}

// countProgress returns a function that logs how far a count is, now and then.
func countProgress(log *slog.Logger) func(rebuild.Progress) {
	begun := time.Now()
	last := begun
	return func(p rebuild.Progress) {
		now := time.Now()
		if now.Sub(last) < 5*time.Second && p.Done < p.Total {
			return
		}
		last = now
		log.Info("counting again", "offsets", p.Done, "of", p.Total, "took", now.Sub(begun).Round(time.Millisecond))
	}
}

// differenceLine is one counter that the generations do not agree on.
type differenceLine struct {
	Row       string `json:"row"` // both as row keys are in manifests
	Qualifier string `json:"qualifier"`
	Served    *int64 `json:"served"` // null = not there
	Rebuilt   *int64 `json:"rebuilt"`
}

// comparisonLine is a family of a comparison as JSON has it.
type comparisonLine struct {
	Table       string           `json:"table"`
	Family      string           `json:"family"`
	Unused      bool             `json:"unused"`   // nothing is counted in it any more
	Distinct    bool             `json:"distinct"` // it counts different values
	Equal       int64            `json:"equal"`
	Different   int64            `json:"different"`
	Missing     int64            `json:"missing"` // served only
	Extra       int64            `json:"extra"`   // rebuilt only
	Differences []differenceLine `json:"differences"`
}

func (c *rebuildCommand) print(w io.Writer, families []rebuild.Comparison, totals rebuild.Totals) error {
	lines := make([]comparisonLine, len(families))
	for i, f := range families {
		lines[i] = comparisonLine{Table: f.Table, Family: f.Family, Unused: f.Unused, Distinct: f.Distinct, Equal: f.Equal, Different: f.Different, Missing: f.Missing, Extra: f.Extra, Differences: []differenceLine{}}
		for _, d := range f.Differences {
			lines[i].Differences = append(lines[i].Differences, differenceLine{columnar.EscapeKey(d.Row), columnar.EscapeKey(d.Qualifier), d.Served, d.Rebuilt})
		}
	}
	if c.JSON {
		return printJSON(w, map[string]any{"applied": totals.Applied, "filtered": totals.Filtered, "dead": totals.Dead, "control": totals.Control, "families": lines})
	}
	fmt.Fprintf(w, "counted again: %d records applied, %d filtered, %d dead, %d offsets without one\n", totals.Applied, totals.Filtered, totals.Dead, totals.Control)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TABLE\tFAMILY\tEQUAL\tDIFFERENT\tSERVED ONLY\tREBUILT ONLY")
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\n", l.Table, l.Family, l.Equal, l.Different, l.Missing, l.Extra)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, l := range lines {
		for _, d := range l.Differences {
			of := ""
			if l.Distinct && d.Served != nil && d.Rebuilt != nil {
				of = " different values, not all the same"
			}
			fmt.Fprintf(w, "  %s %q %s:%q: served %s, rebuilt %s%s\n", l.Table, d.Row, l.Family, d.Qualifier, orNone(d.Served), orNone(d.Rebuilt), of)
		}
	}
	for _, l := range lines {
		if !l.Unused {
			continue
		}
		fate := "they are kept; --unused remove takes them away with --switch"
		if c.Unused == "remove" {
			fate = "--switch takes them away"
		}
		fmt.Fprintf(w, "nothing is counted any more in family %s of table %s, which has %d counters: %s\n", l.Family, l.Table, l.Missing, fate)
	}
	return nil
}

func orNone(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}
