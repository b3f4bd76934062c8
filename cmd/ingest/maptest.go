package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/pipeline/mapping"
)

type testCommand struct {
	cli.ConfigFlag
	Pipeline string `arg:"" optional:"" help:"Name of the pipeline; default: all."`
}

var errTestsFailed = errors.New("tests of the mapping failed")

// Run runs the tests of the file's mappings, without Kafka and without a store.
func (c *testCommand) Run(ctx context.Context, p *cli.Program) error {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	names := cfg.PipelineNames()
	if c.Pipeline != "" {
		names = []string{c.Pipeline}
	}
	ran, failed := 0, 0
	for _, name := range names {
		o, err := cfg.PipelineOptions(name)
		if err != nil {
			return err
		}
		m := o.Plan.NewMapper()
		spec := cfg.Pipelines[name]
		for i := range spec.Tests {
			t := &spec.Tests[i]
			ran++
			diff, err := runMappingTest(ctx, m, &spec, t)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", name, t.Name, err)
			}
			if diff == "" {
				fmt.Fprintf(p.Stdout, "ok    %s: %s\n", name, t.Name)
				continue
			}
			failed++
			fmt.Fprintf(p.Stdout, "FAIL  %s: %s (-want +got)\n%s", name, t.Name, diff)
		}
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%w: %d of %d", errTestsFailed, failed, ran)
	case ran == 0:
		return fmt.Errorf("%s has no tests; write some under pipelines.NAME.tests, docs/mapping.md says how", c.Config)
	}
	_, err = fmt.Fprintf(p.Stdout, "%d passed\n", ran)
	return err
}

// runMappingTest returns the lines by which the outcome differs, or "". Its error
// is that of a schema registry.
func runMappingTest(ctx context.Context, m *mapping.Mapper, p *config.Pipeline, t *config.MappingTest) (string, error) {
	want := t.ExpectLines()
	if t.Error != "" {
		want = []string{"error " + t.Error}
	}
	got, _, err := mapped(ctx, m, p.MappingRecord(t))
	var e *mapping.Error
	switch {
	case errors.As(err, &e):
		got = []string{"error " + e.Class}
	case err != nil:
		return "", err
	}
	if slices.Equal(want, got) {
		return "", nil
	}
	diff := lineDiff(want, got)
	if e != nil {
		diff += "        " + e.Error() + "\n"
	}
	return diff, nil
}

// mapped returns the lines of what a record becomes, once its schema is fetched,
// and whether the store decides what of them is applied.
func mapped(ctx context.Context, m *mapping.Mapper, r *mapping.Record) (lines []string, decides bool, err error) {
	out, err := m.MapFetching(ctx, r)
	if err != nil {
		return nil, false, err
	}
	for line := range strings.Lines(string(out.AppendText(nil))) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	for i := range out.Records {
		decides = decides || out.Records[i].Once != nil || out.Records[i].Checks != nil
	}
	return lines, decides, nil
}

// lineDiff shows two texts as one, lines of want alone after a minus, of got alone
// after a plus, by their longest common subsequence.
func lineDiff(want, got []string) string {
	common := make([][]int, len(want)+1) // of want[i:] and got[j:]
	for i := range common {
		common[i] = make([]int, len(got)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			if want[i] == got[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var b strings.Builder
	for i, j := 0, 0; i < len(want) || j < len(got); {
		switch {
		case i < len(want) && j < len(got) && want[i] == got[j]:
			fmt.Fprintf(&b, "        %s\n", want[i])
			i, j = i+1, j+1
		case j == len(got) || i < len(want) && common[i+1][j] >= common[i][j+1]:
			fmt.Fprintf(&b, "      - %s\n", want[i])
			i++
		default:
			fmt.Fprintf(&b, "      + %s\n", got[j])
			j++
		}
	}
	return b.String()
}
