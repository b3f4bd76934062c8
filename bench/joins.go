package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"sluice/cell"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/join"
	"sluice/region"
	"sluice/store"
)

// joinsArgument, as the first argument, measures joins and nothing else: they need no
// broker and no store, but a Python with DuckDB.
const joinsArgument = "joins"

//go:embed joins.py
var joinsScript string

// joinsOptions is the command line after joinsArgument.
type joinsOptions struct {
	rows   int
	rounds int
	python string
	dir    string
	write  string
	force  bool
}

// eventsOfUser is how many rows of the left side have the key of one of the right.
const eventsOfUser = 10

func parseJoins(args []string, stderr io.Writer) (*joinsOptions, error) {
	o := &joinsOptions{}
	f := flag.NewFlagSet("bench joins", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.rows, "rows", 2_000_000, "rows of the left side; the right one has a tenth")
	f.IntVar(&o.rounds, "rounds", 5, "rounds, of which the medians are reported")
	f.StringVar(&o.python, "python", "python3", "a Python with the package duckdb (internal/integration/requirements.txt)")
	f.StringVar(&o.dir, "dir", "", "directory for the files, on the disk to be measured (default: a temporary one)")
	f.StringVar(&o.write, "write", "", "write the results, with machine and commit, to this `file`")
	f.BoolVar(&o.force, "force", false, "write also where other processes took more than 10 % of the machine")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.rows < 1000 || o.rows%eventsOfUser != 0 || o.rounds < 1:
		return nil, fmt.Errorf("at least 1,000 rows, a multiple of %d, and one round are needed", eventsOfUser)
	}
	return o, nil
}

// joinRows is a Source of two tables that are made while they are read: events, whose
// row key is their user and a number, and users.
type joinRows struct{ events int }

var _ instant.Source = joinRows{}

func (joinRows) Sequence() uint64 { return 1 }

func (joinRows) Table(_ context.Context, name string) (*store.TableDescriptor, error) {
	return &store.TableDescriptor{Name: name, Families: []store.FamilyDescriptor{store.NewFamily("e")}}, nil
}

func (joinRows) Regions(_ context.Context, name string) (*region.Map, error) {
	return region.NewMap(name, []region.Info{{Table: name, ID: 1}})
}

func (j joinRows) Scan(_ context.Context, s *store.Scan) store.Scanner {
	switch s.Table {
	case "events":
		return &joinScanner{n: j.events, fill: func(i int, r *joinScanner) {
			user := fmt.Appendf(nil, "u%08d", i/eventsOfUser)
			r.row(fmt.Appendf(nil, "%s %02d", user, i%eventsOfUser)).
				cell("ms", fmt.Append(nil, i*7919%100_003)).cell("page", fmt.Appendf(nil, "/p/%d", i*31%997)).cell("user", user)
		}}
	case "users":
		return &joinScanner{n: j.events / eventsOfUser, fill: func(i int, r *joinScanner) {
			r.row(fmt.Appendf(nil, "u%08d", i)).
				cell("age", fmt.Append(nil, i*13%97)).cell("country", fmt.Appendf(nil, "c%03d", i*17%211))
		}}
	}
	return &joinScanner{err: fmt.Errorf("%w: %s", store.ErrTableNotFound, s.Table)}
}

// joinScanner is n rows that fill makes.
type joinScanner struct {
	n, next int
	fill    func(i int, r *joinScanner)
	current cell.Row
	err     error
}

// row begins the current row; its cells are added in order of their qualifiers.
func (s *joinScanner) row(key []byte) *joinScanner {
	s.current.Key, s.current.Cells = key, s.current.Cells[:0]
	return s
}

func (s *joinScanner) cell(qualifier string, value []byte) *joinScanner {
	s.current.Cells = append(s.current.Cells, cell.Cell{Family: "e", Qualifier: []byte(qualifier), Time: 1, Kind: cell.KindPut, Value: value})
	return s
}

func (s *joinScanner) Next() bool {
	if s.err != nil || s.next == s.n {
		return false
	}
	s.fill(s.next, s)
	s.next++
	return true
}

func (s *joinScanner) Row() *cell.Row { return &s.current }
func (s *joinScanner) Err() error     { return s.err }
func (s *joinScanner) Close() error   { return nil }

// joinFiles exports both tables to out and returns the Parquet files of each.
func joinFiles(ctx context.Context, o *joinsOptions, out string) (files map[string][]string, err error) {
	files = map[string][]string{}
	for table, columns := range map[string][]columnar.ColumnSpec{
		"events": {
			{Name: "key", From: "$row", Type: "string"},
			{Name: "user", From: "e:user", Type: "string"},
			{Name: "page", From: "e:page", Type: "string"},
			{Name: "ms", From: "e:ms", Type: "int64"},
		},
		"users": {{Name: "name", From: "$row", Type: "string"}, {Name: "country", From: "e:country", Type: "string"}, {Name: "age", From: "e:age", Type: "int64"}},
	} {
		job, err := jobs.Compile(table, &jobs.Spec{Table: table, Columns: columns}, nil)
		if err != nil {
			return nil, err
		}
		if _, err := jobs.Run(ctx, &jobs.RunOptions{Job: job, Source: joinRows{o.rows}, Out: out}); err != nil {
			return nil, err
		}
		if files[table], err = filesOf(ctx, filepath.Join(out, table)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// filesOf returns the files of the latest run of a job.
func filesOf(ctx context.Context, job string) ([]string, error) {
	m, dir, err := jobs.ReadRun(ctx, job)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, f := range m.Files {
		files = append(files, filepath.Join(dir, f.Path))
	}
	return files, nil
}

// joinAsked is what joins.py reads, joinAnswered what it prints.
type joinAsked struct {
	Events  []string `json:"events"`
	Users   []string `json:"users"`
	Ours    []string `json:"ours"` // what we have made of them
	Out     string   `json:"out"`
	Threads int      `json:"threads"`
}

type joinAnswered struct {
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"`
	Rows    int     `json:"rows"`
	Same    bool    `json:"same"` // as our rows, whatever their order
	Version string  `json:"version"`
}

// duckDB joins the files by DuckDB.
func duckDB(ctx context.Context, o *joinsOptions, asked *joinAsked) (*joinAnswered, error) {
	answered := new(joinAnswered)
	if err := askDuckDB(ctx, o.python, joinsScript, asked, answered); err != nil {
		return nil, err
	}
	switch {
	case answered.Rows != o.rows:
		return nil, fmt.Errorf("WRONG: DuckDB's join has %d rows, not %d", answered.Rows, o.rows)
	case !answered.Same:
		return nil, errors.New("WRONG: DuckDB's join has other rows than ours")
	}
	return answered, os.Remove(asked.Out)
}

// runJoins measures the merge join of two published exports beside DuckDB's join of
// the same files, both from Parquet to Parquet with zstd, a round of each after the
// other. Ours reads every file twice, as it compares their checksums, and hashes what
// it writes; it uses one core.
func runJoins(ctx context.Context, args []string, w, stderr io.Writer) (err error) {
	o, err := parseJoins(args, stderr)
	if err != nil {
		return err
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "sluice-joins-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	files, err := joinFiles(ctx, o, o.dir)
	if err != nil {
		return err
	}
	declared := &jobs.JoinSpec{
		Left: jobs.JoinSide{Run: filepath.Join(o.dir, "events")}, Right: jobs.JoinSide{Run: filepath.Join(o.dir, "users")},
		Spec: join.Spec{On: []join.On{{Left: "user", Right: "name"}}, Columns: []join.Column{
			{Name: "key", From: "left.key"},
			{Name: "page", From: "left.page"},
			{Name: "ms", From: "left.ms"},
			{Name: "country", From: "right.country"},
			{Name: "age", From: "right.age"},
		}},
	}
	j, err := jobs.CompileJoin("joined", declared, nil)
	if err != nil {
		return err
	}
	threads := map[string]int{"one thread": 1, "all threads": runtime.NumCPU()}
	r := &peerReport{
		title: "Joins beside DuckDB",
		about: "Written by `make bench-joins`; [joins.go](joins.go) says what is measured: the merge join of two published exports beside DuckDB's join of the same files, from Parquet to Parquet with zstd.",
		rows:  o.rows,
	}
	r.begin(ctx, w, joinsArgument, args, o.python, "python3")
	for round := range o.rounds {
		var published *jobs.Manifest
		_, ours, err := measured(&spec{}, func() (err error) {
			published, err = jobs.RunJoin(ctx, &jobs.JoinOptions{Join: j, Out: o.dir})
			return err
		})
		if err != nil {
			return err
		}
		if published.Totals[0].Rows != int64(o.rows) {
			return fmt.Errorf("WRONG: our join has %d rows, not %d", published.Totals[0].Rows, o.rows)
		}
		r.add(w, round, "merge join", &ours, 0)
		made, err := filesOf(ctx, filepath.Join(o.dir, "joined"))
		if err != nil {
			return err
		}
		for _, name := range []string{"one thread", "all threads"} {
			var got *joinAnswered
			foreign, err := foreignWhile(nil, func() (err error) {
				got, err = duckDB(ctx, o, &joinAsked{Events: files["events"], Users: files["users"], Ours: made, Out: filepath.Join(o.dir, "duckdb.parquet"), Threads: threads[name]})
				return err
			})
			if err != nil {
				return err
			}
			theirs := sample{Seconds: got.Seconds, CPU: got.CPU, Foreign: foreign}
			r.add(w, round, "DuckDB, "+name, &theirs, 0)
			r.ratio("time: DuckDB, "+name+" / merge join", "≥ 1.00", theirs.Seconds/ours.Seconds)
			r.ratio("CPU: DuckDB, "+name+" / merge join", "", theirs.CPU/ours.CPU)
			r.notes = []string{
				fmt.Sprintf("%d rows of events, each with the one row of its user: %d rows come out. DuckDB %s.", o.rows, o.rows, got.Version),
				"Ours reads every file twice, as it compares their checksums, hashes what it writes and syncs it. One goroutine joins, and one writes.",
				"DuckDB's rows were compared with ours, whatever their order.",
			}
		}
		if err := os.RemoveAll(filepath.Join(o.dir, "joined")); err != nil {
			return err
		}
	}
	return r.publish(w, o.write, o.force)
}
