package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/config"
	"sluice/internal/pageviews"
	"sluice/inverse"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/pipeline/mapping"
	"sluice/store"
	"sluice/store/memstore"
)

// derivedFile returns a file without its jobs, with those that are derived of all tables
// that its rules write.
func derivedFile(t *testing.T, name, text string) (cfg *config.Config, derived []inverse.Job) {
	t.Helper()
	text, _, _ = strings.Cut(text, "\njobs:\n")
	text = strings.TrimSuffix(text, "\n") + "\n"
	cfg, err := config.Parse(name, []byte(text), env())
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range cfg.WrittenTables() {
		js, err := cfg.DerivedJobs([]string{table}, "./sluice-export")
		if err != nil {
			t.Fatalf("%s: %s: %v", name, table, err)
		}
		derived = append(derived, js...)
	}
	section := string(inverse.AppendYAML(nil, derived))
	with, err := config.Parse(name, []byte(text+section), env())
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, section)
	}
	if len(with.Jobs) != len(derived) || len(derived) == 0 {
		t.Fatalf("%s: %d jobs of %d:\n%s", name, len(with.Jobs), len(derived), section)
	}
	for i := range derived {
		read := with.Jobs[derived[i].Name]
		if got, want := fmt.Sprintf("%+v", read), fmt.Sprintf("%+v", derived[i].Spec); got != want {
			t.Errorf("%s: the file has\n%s, want\n%s", derived[i].Name, got, want)
		}
	}
	return cfg, derived
}

// The derived jobs of every example read what its pipelines make of the demo's events, or of
// its own tests: all rows, without an error.
func TestDerivedJobsOfExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("Got %v, %v", files, err)
	}
	want := map[string]map[string]int{
		"access-log.yaml": {"access_log": 1, "path_counts": 3},
		"pageviews.yaml":  {"events": 500, "pageview_counts": -1},
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		cfg, derived := derivedFile(t, name, string(text))
		e, err := memstore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}()
		for _, s := range cfg.TableSpecs() {
			if err := e.CreateTable(t.Context(), s.Descriptor, s.Splits); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range cfg.PipelineNames() {
			ingest(t, cfg, p, e)
		}
		for i := range derived {
			rows := readJob(t, e, &derived[i])
			if n := want[name][derived[i].Name]; n < 0 && rows == 0 || n >= 0 && rows != n {
				t.Errorf("%s: job %s read %d rows, want %d", name, derived[i].Name, rows, n)
			}
		}
	}
}

// ingest stores what a pipeline makes of the demo's events, and of its tests.
func ingest(t *testing.T, cfg *config.Config, name string, e store.Engine) {
	t.Helper()
	o, err := cfg.PipelineOptions(name)
	if err != nil {
		t.Fatal(err)
	}
	p := cfg.Pipelines[name]
	var records []*mapping.Record
	for i := range p.Tests {
		records = append(records, p.MappingRecord(&p.Tests[i]))
	}
	if len(records) == 0 {
		g := pageviews.New(&pageviews.Options{Events: 500})
		for i := range 500 {
			event, ok := g.Append(nil)
			if !ok {
				t.Fatal("no more events")
			}
			records = append(records, &mapping.Record{Topic: name, Offset: int64(i), Timestamp: 1, Value: event})
		}
	}
	m := o.Plan.NewMapper()
	for _, r := range records {
		out, err := m.Map(r)
		if refused := (*mapping.Error)(nil); errors.As(err, &refused) { // as the tests have it
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for i := range out.Mutations {
			if _, err := e.MutateRow(t.Context(), nil, &out.Mutations[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// readJob returns how many rows a job reads.
func readJob(t *testing.T, e *memstore.Store, derived *inverse.Job) (rows int) {
	t.Helper()
	table, err := e.Table(t.Context(), derived.Spec.Table)
	if err != nil {
		t.Fatal(err)
	}
	job, err := jobs.Compile(derived.Name, &derived.Spec, table)
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	r, err := jobs.OpenReading(t.Context(), &jobs.ReadOptions{Job: job, Source: s})
	if err != nil {
		t.Fatal(err)
	}
	for part := range r.Parts() {
		if err := r.Read(t.Context(), part, func(b *columnar.Batch) error {
			rows += b.Rows()
			return nil
		}); err != nil {
			t.Fatalf("%s: %v", derived.Name, err)
		}
	}
	return rows
}

// What is derived of files with names of any kind is read as it was meant.
func TestDerivedJobsAreRead(t *testing.T) {
	t.Parallel()
	_, derived := derivedFile(t, "f.yaml", `
tables:
  "ns:7":
    families: {"no": {VERSIONS: 1}, c: {COUNTER: true}}
  "t_*":
    families: {f: {VERSIONS: 1}}
pipelines:
  p:
    topics: [t]
    group: g
    decode: {format: json}
    map:
      - table: "ns:7"
        row: 'id + "''\" |" + kind + "$${x}" + u16(partition)'
        put: {"no": {"a.b": id, "$${x}": id, "$x": id, "7": id, "yes": id, "it's": id, "\"q\" \\": id, "ä\u0001": id, "": id, "#": id}}
        increment: [{family: c, qualifier: kind}]
      - {table: 't_{kind}', row: id, put: {f: {a: id}}}
`)
	if len(derived) != 1 || derived[0].Name != "ns_7" || len(derived[0].Spec.RowKey.Fields) != 3 || len(derived[0].Spec.Columns) != 16 {
		t.Errorf("Got %+v", derived)
	}
}

// TestDerivedJobsRefused: tables that are not declared, or not one.
func TestDerivedJobsRefused(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse("f.yaml", []byte(tables+`
pipelines:
  p:
    topics: [t]
    group: g
    decode: {format: json}
    map: [{table: 'day_{kind}', row: id, put: {f: {a: id}}}]
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]error{"day_*": store.ErrInvalidArgument, "missing": store.ErrTableNotFound, "events": inverse.ErrNotWritten} {
		if _, err := cfg.DerivedJobs([]string{table}, "o"); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", table, err, want)
		}
	}
}
