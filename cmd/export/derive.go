package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sluice/cmd/internal/cli"
	"sluice/inverse"
	"sluice/store"
)

type deriveCommand struct {
	cli.ConfigFlag
	Tables []string `arg:"" optional:"" name:"table" help:"Tables to read; without one, all that a rule of the file writes."`
	Out    string   `default:"./sluice-export" placeholder:"DIR" help:"Directory of the jobs, or s3://BUCKET/PREFIX."`
	JSON   bool     `name:"json" help:"Print JSON: an object with the jobs, and one with what is to be said of them."`
}

// Run prints the jobs that read tables by the rules that write them. It opens no store.
func (c *deriveCommand) Run(p *cli.Program) error {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	tables := c.Tables
	if len(tables) == 0 {
		if tables = cfg.WrittenTables(); len(tables) == 0 {
			return fmt.Errorf("%w: no rule of %s writes a table of one name: name a table", cli.ErrUsage, cfg.File())
		}
	}
	jobs, err := cfg.DerivedJobs(tables, c.Out)
	switch {
	case errors.Is(err, store.ErrTableNotFound), errors.Is(err, store.ErrInvalidArgument), errors.Is(err, inverse.ErrNotWritten):
		return fmt.Errorf("%w: %w; the rules of %s write %s", cli.ErrUsage, err, cfg.File(), listOf(cfg.WrittenTables()))
	case err != nil:
		return err
	}
	if c.JSON {
		return derivedJSON(p, jobs)
	}
	var head strings.Builder
	if len(cfg.DeclaredNames()) > 0 && len(cfg.JobNames()) > 0 {
		fmt.Fprintf(&head, "# %s has jobs: already. Put what is below jobs: here behind those.\n", cfg.File())
	}
	_, err = p.Stdout.Write(inverse.AppendYAML([]byte(head.String()), jobs))
	return err
}

// derivedJob is a job as --json prints it, by the keys of the configuration.
type derivedJob struct {
	Table    string          `json:"table"`
	Rows     string          `json:"rows,omitempty"`
	Families []string        `json:"families,omitempty"`
	StartRow string          `json:"start_row,omitempty"`
	StopRow  string          `json:"stop_row,omitempty"`
	RowKey   any             `json:"row_key,omitempty"`
	Columns  []derivedColumn `json:"columns"`
	Out      string          `json:"out"`
}

type derivedColumn struct {
	Name   string `json:"name"`
	From   string `json:"from"`
	Type   string `json:"type"`
	Coding string `json:"coding,omitempty"`
}

// derivedNotes are what is to be said of a job.
type derivedNotes struct {
	Job     []string          `json:"job,omitempty"`
	Fields  map[string]string `json:"fields,omitempty"`  // of row_key, by name
	Columns map[string]string `json:"columns,omitempty"` // by name
}

func derivedJSON(p *cli.Program, jobs []inverse.Job) error {
	var out struct {
		Jobs  map[string]derivedJob   `json:"jobs"`
		Notes map[string]derivedNotes `json:"notes"`
	}
	out.Jobs, out.Notes = map[string]derivedJob{}, map[string]derivedNotes{}
	for i := range jobs {
		s := &jobs[i].Spec
		j := derivedJob{Table: s.Table, Rows: s.Rows, Families: s.Families, StartRow: s.StartRow, StopRow: s.StopRow, Out: s.Out}
		notes := derivedNotes{Job: jobs[i].Notes, Fields: map[string]string{}, Columns: map[string]string{}}
		if len(s.RowKey.Fields) > 0 {
			j.RowKey = s.RowKey
		}
		for k, f := range s.RowKey.Fields {
			if note := jobs[i].Fields[k]; note != "" && f.Name != "" {
				notes.Fields[f.Name] = note
			}
		}
		for k := range s.Columns {
			c := &s.Columns[k]
			j.Columns = append(j.Columns, derivedColumn{c.Name, c.From, c.Type, c.Coding})
			if note := jobs[i].Columns[k]; note != "" {
				notes.Columns[c.Name] = note
			}
		}
		out.Jobs[jobs[i].Name], out.Notes[jobs[i].Name] = j, notes
	}
	e := json.NewEncoder(p.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(out)
}
