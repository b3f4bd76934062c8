package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/schedule"
	"sluice/store"
)

// drawSpan draws a range of times 0 to 6 and what of them is in it.
func drawSpan(rt *rapid.T, name string) (s TimeSpan, in func(int64) bool) {
	from, to := int64(rapid.IntRange(0, 5).Draw(rt, name+" from")), int64(math.MaxInt64)
	if from > 0 || rapid.Bool().Draw(rt, name+" says 0") {
		s.From = fmt.Sprint(from)
	}
	if rapid.Bool().Draw(rt, name+" has an end") {
		to = from + int64(rapid.IntRange(1, 4).Draw(rt, name+" to"))
		s.To = fmt.Sprint(to)
	}
	return s, func(t int64) bool { return from <= t && t < to }
}

// TestTimeRangeIsTheModel: over random histories, what is exported of a range of times is
// what the model has in it: of versions the newest of those in it, of deletes those that
// are later than the start, whatever the range's end, and of a row what is left of it.
func TestTimeRangeIsTheModel(t *testing.T) {
	t.Parallel()
	dir, db := t.TempDir(), jobstest.OpenPebble(t, t.TempDir())
	cases := 0
	rapid.Check(t, func(rt *rapid.T) {
		cases++
		d := versionsTable(fmt.Sprint("t", cases))
		if err := db.CreateTable(t.Context(), d, [][]byte{[]byte("b")}); err != nil {
			rt.Fatal(err)
		}
		model := versionModel{}
		for range rapid.IntRange(0, 60).Draw(rt, "writes") {
			model.draw(t, rt, db, d.Name)
		}
		spec := &Spec{Table: d.Name, Formats: []string{Parquet, Arrow}, Families: rapid.SampledFrom([][]string{nil, {"f"}}).Draw(rt, "families")}
		var in, inF func(int64) bool
		spec.TimeRange.TimeSpan, in = drawSpan(rt, "all")
		inF = in
		if rapid.Bool().Draw(rt, "own") {
			spec.TimeRange.Families = map[string]TimeSpan{}
			spec.TimeRange.Families["f"], inF = drawSpan(rt, "f")
		}
		inside := func(family string, at int64) bool {
			if family == "f" {
				return inF(at)
			}
			return in(at)
		}
		seen := versionModel{} // what the range shows, markers aside
		for w, v := range model {
			if w.op == columnar.OpPut && !model.deleted(w) && inside(w.family, int64(w.at)) {
				seen[w] = v
			}
		}
		var want [][]string
		switch rapid.SampledFrom([]string{"rows", ModeVersions, ModeHistory}).Draw(rt, "what") {
		case "rows":
			spec.Columns = []columnar.ColumnSpec{
				{Name: "key", From: "$row", Type: "bytes"}, {Name: "fa", From: "f:a", Type: "bytes"}, {Name: "time", From: "$timestamp", Type: "timestamp"},
			}
			if spec.Families == nil {
				spec.Columns = append(spec.Columns, columnar.ColumnSpec{Name: "ga", From: "g:a", Type: "bytes"})
			}
			rows := map[string][]string{}
			for _, r := range seen.versions(spec.Families, 1) {
				row := rows[r[0]]
				if row == nil {
					row = []string{r[0], "-", "0", "-"}[:len(spec.Columns)]
					rows[r[0]] = row
				}
				switch {
				case r[1] == "f" && r[2] == "a":
					row[1] = r[4]
				case r[1] == "g" && r[2] == "a":
					row[3] = r[4]
				}
				row[2] = max(row[2], r[3]) // of one digit
			}
			for _, key := range slices.Sorted(maps.Keys(rows)) {
				want = append(want, rows[key])
			}
		case ModeVersions:
			spec.Rows, spec.Mode, spec.Columns, spec.Versions = "cell", ModeVersions, versionColumns(), rapid.SampledFrom([]int{1, 2, math.MaxInt32}).Draw(rt, "versions")
			want = seen.versions(spec.Families, spec.Versions)
		default:
			spec.Rows, spec.Mode, spec.Columns = "cell", ModeHistory, historyColumns
			for _, row := range model.rows(spec.Families) {
				var at int64
				fmt.Sscan(row[4], &at)
				if inside(row[2], at) {
					want = append(want, row)
				}
			}
		}
		// A flush drops markers, and versions in excess of VERSIONS, which a range may show:
		// of family f there are none, and what its markers mask no range shows.
		if spec.Families != nil && spec.Mode != ModeHistory && rapid.Bool().Draw(rt, "flush") {
			if err := db.Flush(t.Context()); err != nil {
				rt.Fatal(err)
			}
		}
		snapshot, err := db.Snapshot(t.Context())
		if err != nil {
			rt.Fatal(err)
		}
		defer snapshot.Close()
		job := mustCompile(t, "j", spec, d)
		plan, err := Plan(t.Context(), &PlanOptions{Job: job, Source: snapshot})
		if err != nil || plan.Count != int64(len(want)) || plan.TimeRange == nil != spec.TimeRange.IsZero() {
			rt.Fatalf("Got a plan of %d rows (%v, times %v), want %d", plan.Count, err, plan.TimeRange, len(want))
		}
		out := filepath.Join(dir, fmt.Sprint(cases))
		m, err := Run(t.Context(), &RunOptions{Job: job, Source: snapshot, Out: out, batchRows: rapid.SampledFrom([]int{0, 1}).Draw(rt, "batch rows")})
		if err != nil {
			rt.Fatal(err)
		}
		r, err := Verify(t.Context(), filepath.Join(out, "j"))
		if err != nil || !r.OK() {
			rt.Fatalf("verify: %v, %v", err, r.Err())
		}
		for _, format := range spec.Formats {
			got := readFormat(t, r.Dir, m, format)
			if spec.Rows == "" {
				for _, row := range got {
					row[2] = strings.TrimSuffix(row[2], "000") // µs
				}
			}
			if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				rt.Fatalf("%s of %+v (-model +export):\n%s", format, spec.TimeRange, diff)
			}
		}
		if err := errors.Join(os.RemoveAll(out), db.DisableTable(t.Context(), d.Name), db.DropTable(t.Context(), d.Name)); err != nil {
			rt.Fatal(err)
		}
	})
}

func timeRangeTable() *store.TableDescriptor {
	f, n := store.NewFamily("f"), store.NewFamily("n")
	f.Versions, n.Counter = store.AllVersions, true
	return &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f, n}}
}

var timeRangeColumns = []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "q", From: "f:q", Type: "string"}}

func TestCompileTimeRange(t *testing.T) {
	t.Parallel()
	span := func(from, to string) TimeRange { return TimeRange{TimeSpan: TimeSpan{From: from, To: to}} }
	f := []string{"f"}
	daily := schedule.Spec{Cron: "@daily"}
	const whole = "family n is COUNTER or DISTINCT: a count has one timestamp, that of its newest event, and a range leaves it out or has all of it, whatever it has counted when; " +
		"name the job's other families, or give it a range of its own, families: {n: {}} for all times"
	for _, c := range []struct {
		name string
		spec Spec
		want []string
	}{
		{"times", Spec{Families: f, TimeRange: span("2026-01-01T00:00:00+01:00", "1800000000000")}, nil},
		{"by the run", Spec{Families: f, TimeRange: span("$time-7d", "$time-30m")}, nil},
		{"by the schedule", Spec{Families: f, TimeRange: span("$interval_start", "$interval_end"), Schedule: daily}, nil},
		{"no time", Spec{Families: f, TimeRange: span("yesterday", "2026-01-01T00:00")}, []string{
			`time_range.from: "yesterday" is neither a time such as 2006-01-02T15:04:05Z nor ms since 1970, and does not begin with $time, $interval_start or $interval_end`,
			`time_range.to: "2026-01-01T00:00" is no time such as 2006-01-02T15:04:05Z`,
		}},
		{"no such time", Spec{Families: f, TimeRange: span("$now", "$time-1w")}, []string{
			`time_range.from: "$now" is no time; those that go by the run are $time, $interval_start and $interval_end`,
			`time_range.to: "$time-1w": "1w" is no duration such as 24h or 7d`,
		}},
		{"negative", Spec{Families: f, TimeRange: span("-5", "")}, []string{`time_range.from: "-5" is before 1970, and timestamps are not`}},
		{"turned around", Spec{Families: f, TimeRange: span("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z")}, []string{
			"time_range: from 2026-01-02T00:00:00Z to 2026-01-01T00:00:00Z is no time",
		}},
		{"empty", Spec{Families: f, TimeRange: span("", "0")}, []string{"time_range: from 0 to 0 is no time"}},
		{"no schedule", Spec{Families: f, TimeRange: span("$interval_start", "")}, []string{
			"time_range.from: $interval_start goes by the job's schedule, and it has none that is right; $time-24h goes by the time that a run is for",
		}},
		{"incremental", Spec{TimeRange: TimeRange{TimeSpan: TimeSpan{From: "$time-7d"}, Families: map[string]TimeSpan{"n": {}}}, Incremental: Incremental{FullEvery: 2}}, []string{
			"time_range.from: $time is another time in each run, and with incremental rows would leave the range that nobody has changed; name a time, or make every run full",
		}},
		{"counters", Spec{TimeRange: span("5", "")}, []string{"time_range: " + whole}},
		{"counters of all times", Spec{TimeRange: TimeRange{TimeSpan: TimeSpan{From: "5"}, Families: map[string]TimeSpan{"n": {}}}}, nil},
		{"counters of their own times", Spec{TimeRange: TimeRange{Families: map[string]TimeSpan{"n": {To: "5"}}}}, nil},
		{"families", Spec{Families: f, TimeRange: TimeRange{Families: map[string]TimeSpan{"n": {}, "x": {From: "z"}}}}, []string{
			`time_range.families.n: family "n" is not among families`,
			`time_range.families.x.from: "z" is neither a time such as 2006-01-02T15:04:05Z nor ms since 1970, and does not begin with $time, $interval_start or $interval_end`,
			`time_range.families.x: table t has no family "x"`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.spec.Table, c.spec.Out, c.spec.Columns = "t", "out", timeRangeColumns
			if c.spec.Incremental.FullEvery > 0 {
				c.spec.Columns = append(slices.Clone(timeRangeColumns), columnar.ColumnSpec{Name: "op", From: "$op", Type: "string"})
			}
			_, err := Compile("j", &c.spec, timeRangeTable())
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
				slices.SortStableFunc(got, func(a, b string) int { return cmp.Compare(a[:min(len(a), 16)], b[:min(len(b), 16)]) })
			}
			if d := gocmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestTimeRangeOfRuns: what goes by the run is of the run's time, whenever that is made, and
// the manifest has it in ms.
func TestTimeRangeOfRuns(t *testing.T) {
	t.Parallel()
	db, d, out := jobstest.OpenPebble(t, t.TempDir()), timeRangeTable(), t.TempDir()
	if err := db.CreateTable(t.Context(), d, nil); err != nil {
		t.Fatal(err)
	}
	day := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)
	for i := range 10 {
		at := day.Add(time.Duration(i-5) * 12 * time.Hour)
		jobstest.Mutate(t, db, "t", "r", jobstest.PutOp("f", "q", cell.Timestamp(at.UnixMilli()), at.Format("02T15")))
	}
	snapshot := jobstest.SnapshotOf(t, db)
	columns := []columnar.ColumnSpec{{Name: "q", From: "$value", Type: "string"}}
	for _, c := range []struct {
		name       string
		from, to   string
		logical    time.Time
		want       string
		start, end time.Time
	}{
		{"before", "$time-1d", "$time", day, "09T12 09T00", day.AddDate(0, 0, -1), day},
		{"interval", "$interval_start", "$interval_end", day, "09T12 09T00", day.AddDate(0, 0, -1), day},
		{"by hand", "$interval_start", "$interval_end", day.Add(7 * time.Hour), "09T12 09T00", day.AddDate(0, 0, -1), day},
		{"backfill", "$interval_start", "$interval_end", day.AddDate(0, 0, -1), "08T12 08T00", day.AddDate(0, 0, -2), day.AddDate(0, 0, -1)},
		{"later", "$interval_end+12h", "", day, "12T00 11T12 11T00 10T12", day.Add(12 * time.Hour), time.Time{}},
	} {
		s := &Spec{
			Table: "t", Rows: "cell", Mode: ModeVersions, Versions: 100, Families: []string{"f"}, Columns: columns, Schedule: schedule.Spec{Cron: "@daily"}, Out: out,
			TimeRange: TimeRange{TimeSpan: TimeSpan{From: c.from, To: c.to}},
		}
		m, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, c.name[:2], s, d), Source: snapshot, LogicalTime: c.logical})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		want := &ReadTimes{ReadSpan: ReadSpan{From: cell.Timestamp(c.start.UnixMilli())}}
		if !c.end.IsZero() {
			want.To = cell.Timestamp(c.end.UnixMilli())
		}
		if d := gocmp.Diff(want, m.TimeRange); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		var got []string
		for _, row := range readFormat(t, filepath.Join(out, runDir(m.Job, m.LogicalTime)), m, Parquet) {
			got = append(got, row[0])
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %q, want %s", c.name, got, c.want)
		}
	}
	// What is no time is told before anything is written.
	s := &Spec{Table: "t", Families: []string{"f"}, Columns: timeRangeColumns, Out: out, TimeRange: TimeRange{TimeSpan: TimeSpan{From: "$time", To: "2026-01-01T00:00:00Z"}}}
	_, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "none", s, d), Source: snapshot, LogicalTime: day})
	const no = "export none: store: invalid argument: a run for 2026-03-10T00:00:00Z: time_range: from 2026-03-10T00:00:00Z to 2026-01-01T00:00:00Z is no time"
	if err == nil || err.Error() != no {
		t.Errorf("Got %v, want %s", err, no)
	}
}

// TestTimeRangeOfCounters: a range that is a COUNTER family's own leaves out what has
// counted nothing in it; on an engine whose counters have offsets for timestamps it is
// refused, also where the job was compiled without the schema.
func TestTimeRangeOfCounters(t *testing.T) {
	t.Parallel()
	db, d, out := jobstest.OpenPebble(t, t.TempDir()), timeRangeTable(), t.TempDir()
	if err := db.CreateTable(t.Context(), d, nil); err != nil {
		t.Fatal(err)
	}
	for i, row := range []string{"a", "b", "c"} {
		jobstest.Mutate(t, db, "t", row, jobstest.PutOp("f", "q", 5, "v"),
			cell.Op{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("q"), Time: cell.Timestamp(10 * (i + 1)), Delta: 7})
	}
	snapshot := jobstest.SnapshotOf(t, db)
	spec := &Spec{
		Table: "t", Out: out, TimeRange: TimeRange{TimeSpan: TimeSpan{To: "5"}, Families: map[string]TimeSpan{"n": {From: "15", To: "25"}}},
		Columns: append(slices.Clone(timeRangeColumns), columnar.ColumnSpec{Name: "n", From: "n:q", Type: "int64", Coding: "int64be"}),
	}
	m, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "j", spec, d), Source: snapshot})
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff([][]string{{"b", "-", "7"}}, readFormat(t, filepath.Join(out, runDir("j", m.LogicalTime)), m, Parquet)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	all := *spec
	all.TimeRange.Families = nil
	if _, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "all", &all, nil), Source: snapshot}); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "time_range of table t: family n is COUNTER") {
		t.Errorf("Got %v", err)
	}

	u := newUnfrozen(t, func(s *Spec) {
		s.Families, s.TimeRange = nil, TimeRange{TimeSpan: TimeSpan{From: "15"}, Families: map[string]TimeSpan{"n": {From: "15"}}}
	})
	if _, err := Run(t.Context(), &RunOptions{Job: u.job, Source: u.open()}); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "are offsets here") {
		t.Errorf("Got %v", err)
	}
	u.job.spec.TimeRange.Families["n"] = TimeSpan{}
	u.put("a", "old", 10)
	u.put("b", "new", 20)
	u.count("c", 1)
	m, err = Run(t.Context(), &RunOptions{Job: u.job, Source: u.open()})
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff([]string{"b=new", "c=-"}, u.rows(m, Parquet)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestTimeRangeOfUnfrozenIncrements: increments that are found by timestamps are of the
// range, too.
func TestTimeRangeOfUnfrozenIncrements(t *testing.T) {
	t.Parallel()
	s := newUnfrozen(t, func(s *Spec) {
		s.Families, s.Incremental, s.TimeRange.TimeSpan = []string{"f"}, Incremental{FullEvery: 5}, TimeSpan{From: "100", To: "2000000"}
		s.Columns = append(s.Columns, columnar.ColumnSpec{Name: "op", From: "$op", Type: "string"})
	})
	run := func(want ...string) *Manifest {
		t.Helper()
		m, err := Run(t.Context(), &RunOptions{Job: s.job, Source: s.open(), StoreID: "c", LogicalTime: time.UnixMilli(int64(s.now))})
		if err != nil {
			t.Fatal(err)
		}
		if d := gocmp.Diff(want, s.rows(m, Parquet)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		return m
	}
	s.put("a", "early", 50)
	s.put("b", "there", 500)
	run("b=there=upsert")
	s.put("c", "new", s.now)
	s.now = 3_000_000
	if m := run("c=new=upsert"); m.Incremental.Number != 1 {
		t.Errorf("Got increment %d", m.Incremental.Number)
	}
	s.put("d", "late", s.now)
	s.now++
	run() // of times after the range's end nothing is left to be found
	s.job.spec.TimeRange.From = "10"
	s.now++
	if m := run("a=early=upsert", "b=there=upsert", "c=new=upsert"); m.increment() {
		t.Error("Got an increment of a job whose range was changed")
	}
}

// TestTimeRangeIsVerified: rows of other times than the manifest says are found, where a
// column tells the time.
func TestTimeRangeIsVerified(t *testing.T) {
	t.Parallel()
	db, d, out := jobstest.OpenPebble(t, t.TempDir()), timeRangeTable(), t.TempDir()
	if err := db.CreateTable(t.Context(), d, nil); err != nil {
		t.Fatal(err)
	}
	jobstest.Mutate(t, db, "t", "r", jobstest.PutOp("f", "q", 15, "v"))
	for _, typ := range []string{"int64", "timestamp"} {
		for _, columns := range [][]columnar.ColumnSpec{
			{{Name: "at", From: "$timestamp", Type: typ}},
			{{Name: "family", From: "$family", Type: "string"}, {Name: "at", From: "$timestamp", Type: typ}},
		} {
			spec := &Spec{Table: "t", Rows: "cell", Families: []string{"f"}, Columns: columns, Out: out, TimeRange: TimeRange{TimeSpan: TimeSpan{From: "10", To: "20"}}}
			m, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, fmt.Sprint(typ, len(columns)), spec, d), Source: jobstest.SnapshotOf(t, db)})
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(out, runDir(m.Job, m.LogicalTime))
			if r, err := Verify(t.Context(), dir); err != nil || !r.OK() {
				t.Fatal(err, r.Err())
			}
			m.TimeRange.From = 16
			if len(columns) == 2 {
				m.TimeRange = &ReadTimes{ReadSpan: ReadSpan{From: 10}, Families: map[string]ReadSpan{"f": {To: 15}}}
			}
			data, err := m.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, ManifestName), data, 0o644); err != nil {
				t.Fatal(err)
			}
			r, err := Verify(t.Context(), dir)
			if err != nil || r.OK() || !strings.Contains(r.Err().Error(), "has timestamp 1970-01-01T00:00:00.015Z, which is not in time_range (") {
				t.Errorf("%s: Got %v, %v", m.Job, err, r.Err())
			}
		}
	}
}
