package iceberg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs/columnar"
	"sluice/jobs/target"
	"sluice/jobs/target/targettest"
)

// day is what the n-th run is for.
func day(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }

// testRun is a run with some files.
func testRun(n, files int) *Run {
	r := &Run{
		ID: fmt.Sprintf("id%d", n), LogicalTime: day(n), FinishedAt: day(n).Add(time.Minute), Dir: fmt.Sprintf("run=%d", n), Sequence: uint64(100 * n), Version: "v",
		Columns: []columnar.Column{{Name: "page", Type: columnar.String}, {Name: "n", Type: columnar.Int64, Nullable: true}},
		Order:   columnar.Ascending("page"), Key: "page",
	}
	for i := range files {
		r.Files = append(r.Files, File{Path: fmt.Sprintf("part-%d.parquet", i), Rows: int64(10 * (i + 1)), Bytes: int64(1000 + i), Min: fmt.Append(nil, "a", i), Max: fmt.Append(nil, "b", i)})
	}
	return r
}

// lake is a table with the runs that were published in it.
type lake struct {
	t     *testing.T
	table *Table
	runs  map[string]*Run // by directory
}

func newLake(t *testing.T, tg target.Target) *lake {
	return &lake{t: t, table: &Table{Target: tg, Dir: "views", Job: "views"}, runs: map[string]*Run{}}
}

func openLocal(t *testing.T) target.Target {
	tg, err := target.CreateLocal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tg.Close() })
	return tg
}

func openS3(t *testing.T) target.Target {
	f := targettest.NewFakeS3(t)
	tg, err := target.NewS3(&target.S3Options{Endpoint: f.URL(), Bucket: "bucket", Prefix: "out", AccessKey: "access", SecretKey: "secret", Backoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return tg
}

func (l *lake) previous(_ context.Context, dir string) (runs []*Run, err error) {
	if r := l.runs[dir]; r != nil {
		runs = l.chain(r)
	}
	return runs, nil
}

// chain returns what r goes on from, the whole run first, and r.
func (l *lake) chain(r *Run) []*Run {
	if r.Base == "" {
		return []*Run{r}
	}
	for _, base := range l.runs {
		if base.ID == r.Base {
			return append(l.chain(base), r)
		}
	}
	l.t.Fatalf("run %s goes on from %s, which is not there", r.ID, r.Base)
	return nil
}

func (l *lake) publish(r *Run) {
	l.t.Helper()
	l.runs[r.Dir] = r
	if err := l.table.Publish(l.t.Context(), r, l.previous); err != nil {
		l.t.Fatal(err)
	}
}

// read reads the table and checks what holds of every version: it is the hint's, its parts
// fit each other, and each snapshot is a run, whole. It returns the metadata.
func (l *lake) read() *metadata {
	l.t.Helper()
	ctx := l.t.Context()
	m, version, err := l.table.read(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	text, err := target.ReadFile(ctx, l.table.Target, l.table.name(versionName(version)), 1<<20)
	if err != nil || strings.Contains(string(text), "null,") {
		l.t.Errorf("a list is null, which readers refuse: %s, %v", text, err)
	}
	hint, err := target.ReadFile(ctx, l.table.Target, l.table.name(versionHint), 100)
	if err != nil || string(hint) != strconv.Itoa(version) {
		l.t.Errorf("the hint is %q (%v), the version %d", hint, err, version)
	}
	ids := map[int64]bool{}
	for i := range m.Snapshots {
		s := &m.Snapshots[i]
		ids[s.ID] = true
		l.check(m, s)
		if i > 0 && (s.Time <= m.Snapshots[i-1].Time || s.Sequence <= m.Snapshots[i-1].Sequence) {
			l.t.Errorf("snapshot %d has sequence %d and time %d, the one before %d and %d", s.ID, s.Sequence, s.Time, m.Snapshots[i-1].Sequence, m.Snapshots[i-1].Time)
		}
	}
	for _, e := range m.SnapshotLog {
		if !ids[e.Snapshot] {
			l.t.Errorf("the log has snapshot %d, which is not there", e.Snapshot)
		}
	}
	if m.Refs[mainBranch].Snapshot != m.CurrentSnapshotID || !ids[m.CurrentSnapshotID] {
		l.t.Errorf("current is %d, main %v", m.CurrentSnapshotID, m.Refs)
	}
	return m
}

// file reads what a URL of the metadata names.
func (l *lake) file(url string) []byte {
	l.t.Helper()
	name, ok := strings.CutPrefix(url, l.table.Target.URL(".")+"/")
	if !ok {
		l.t.Fatalf("%s is not below %s", url, l.table.Target.URL("."))
	}
	data, err := target.ReadFile(l.t.Context(), l.table.Target, name, 1<<20)
	if err != nil {
		l.t.Fatal(err)
	}
	return data
}

// entriesOf returns the entries of a snapshot, and checks the list against its manifests.
func (l *lake) entriesOf(s *snapshot) (all []map[string]any) {
	l.t.Helper()
	header, list := avroRead(l.t, l.file(s.ManifestList))
	if header["snapshot-id"] != strconv.FormatInt(s.ID, 10) || header["sequence-number"] != strconv.FormatInt(s.Sequence, 10) {
		l.t.Errorf("the list of snapshot %d, sequence %d, says %v", s.ID, s.Sequence, header)
	}
	for _, m := range list {
		data := l.file(m["manifest_path"].(string))
		now := m["sequence_number"] == s.Sequence && m["added_snapshot_id"] == s.ID
		before := m["sequence_number"].(int64) < s.Sequence && m["sequence_number"].(int64) >= s.whole() && m["added_snapshot_id"] != s.ID
		if m["manifest_length"] != int64(len(data)) || !now && !before {
			l.t.Errorf("a manifest of %d bytes of snapshot %d, sequence %d, is listed as %v", len(data), s.ID, s.Sequence, m)
		}
		header, entries := avroRead(l.t, data)
		if want := map[any]string{int64(0): "data", int64(1): "deletes"}[m["content"]]; header["content"] != want {
			l.t.Errorf("a manifest of %v is listed as of %v", header["content"], m["content"])
		}
		files, rows := map[int64]int64{}, map[int64]int64{}
		for _, e := range entries {
			files[e["status"].(int64)]++
			rows[e["status"].(int64)] += e["data_file"].(map[string]any)["record_count"].(int64)
			if e["snapshot_id"] != m["added_snapshot_id"] {
				l.t.Errorf("an entry says snapshot %v, the list %v", e["snapshot_id"], m["added_snapshot_id"])
			}
			if status, content := e["status"], e["data_file"].(map[string]any)["content"]; (content != int64(contentData)) != (m["content"] == int64(1)) || before && status == int64(statusDeleted) {
				l.t.Errorf("an entry of status %v and content %v is in a manifest of %v", status, content, m)
			}
		}
		want := []any{files[statusAdded], rows[statusAdded], files[statusDeleted], rows[statusDeleted], int64(0), int64(0)}
		got := []any{m["added_files_count"], m["added_rows_count"], m["deleted_files_count"], m["deleted_rows_count"], m["existing_files_count"], m["existing_rows_count"]}
		if d := cmp.Diff(want, got); d != "" {
			l.t.Errorf("counts of a manifest: %s", d)
		}
		all = append(all, entries...)
	}
	return all
}

// check checks that a snapshot has the files of its run.
func (l *lake) check(m *metadata, s *snapshot) {
	l.t.Helper()
	r := l.runs[path.Dir(s.Summary[summaryManifest])]
	if r == nil || r.ID != s.Summary[summaryRun] || m.schema(s.SchemaID) == nil {
		l.t.Fatalf("snapshot %+v is of no run", s)
	}
	want := map[string]int64{}
	for _, r := range l.chain(r) {
		for _, f := range r.Files {
			want[l.table.Target.URL(path.Join("views", r.Dir, f.Path))] = f.Rows
		}
	}
	got := map[string]int64{}
	for _, e := range l.entriesOf(s) {
		if f := e["data_file"].(map[string]any); e["status"] == int64(statusAdded) && f["content"] == int64(contentData) {
			got[f["file_path"].(string)] = f["record_count"].(int64)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		l.t.Errorf("files of snapshot %d: %s", s.ID, d)
	}
}

// metadataFiles returns the names of the metadata's files.
func (l *lake) metadataFiles() (names []string) {
	l.t.Helper()
	list, err := l.table.Target.List(l.t.Context(), l.table.name(""))
	if err != nil {
		l.t.Fatal(err)
	}
	for _, f := range list {
		names = append(names, f.Name)
	}
	return names
}

func runsOf(m *metadata) (ids []string) {
	for i := range m.Snapshots {
		ids = append(ids, m.Snapshots[i].Summary[summaryRun])
	}
	return ids
}

// TestPublish: each run is a snapshot that replaces the one before, says so, and says of
// each file what readers need.
func TestPublish(t *testing.T) {
	for name, open := range map[string]func(*testing.T) target.Target{"local": openLocal, "s3": openS3} {
		t.Run(name, func(t *testing.T) {
			l := newLake(t, open(t))
			l.publish(testRun(1, 2))
			m := l.read()
			if got := m.current(); got.Parent != 0 || got.Summary["operation"] != "append" || got.Summary["total-records"] != "30" || got.Time != day(1).Add(time.Minute).UnixMilli() {
				t.Errorf("Got %+v", got)
			}
			entry := l.entriesOf(m.current())[1]["data_file"]
			page := int64(columnar.FieldID("page", columnar.String))
			if d := cmp.Diff(map[string]any{
				"content": int64(0), "file_path": l.table.Target.URL("views/run=1/part-1.parquet"), "file_format": "PARQUET", "partition": map[string]any{},
				"record_count": int64(20), "file_size_in_bytes": int64(1001), "equality_ids": nil, "sort_order_id": int64(m.DefaultSortOrder),
				"lower_bounds": []any{map[string]any{"key": page, "value": []byte("a1")}},
				"upper_bounds": []any{map[string]any{"key": page, "value": []byte("b1")}},
			}, entry); d != "" {
				t.Error(d)
			}
			l.publish(testRun(2, 3))
			m = l.read()
			current := m.current()
			if current.Parent != m.Snapshots[0].ID || current.Summary["operation"] != "overwrite" || current.Summary["deleted-records"] != "30" || current.Summary["total-records"] != "60" {
				t.Errorf("Got %+v", current)
			}
			deleted := map[string]any{}
			for _, e := range l.entriesOf(current) {
				if e["status"] == int64(statusDeleted) {
					deleted[path.Base(path.Dir(e["data_file"].(map[string]any)["file_path"].(string)))] = e["sequence_number"]
				}
			}
			if d := cmp.Diff(map[string]any{"run=1": m.Snapshots[0].Sequence}, deleted); d != "" {
				t.Errorf("deleted: %s", d)
			}
			if run, err := l.table.Current(t.Context()); run != "id2" || err != nil {
				t.Errorf("Got %q, %v", run, err)
			}
		})
	}
}

// TestPublishAgain: a run that is published again, and one for an earlier time, change
// nothing.
func TestPublishAgain(t *testing.T) {
	l := newLake(t, openLocal(t))
	l.publish(testRun(2, 1))
	l.publish(testRun(3, 1))
	before := l.metadataFiles()
	l.publish(testRun(3, 1))
	l.publish(testRun(1, 1))
	if d := cmp.Diff(before, l.metadataFiles()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"id2", "id3"}, runsOf(l.read())); d != "" {
		t.Error(d)
	}
}

// TestTimes: times of snapshots ascend, whatever the clocks of the runs said.
func TestTimes(t *testing.T) {
	l := newLake(t, openLocal(t))
	for n := 1; n < 4; n++ {
		r := testRun(n, 1)
		r.FinishedAt = day(10 - n)
		l.publish(r)
	}
	l.read()
}

// TestPreviousGone: where nobody knows what a snapshot replaces, it replaces the table.
func TestPreviousGone(t *testing.T) {
	l := newLake(t, openLocal(t))
	l.publish(testRun(1, 1))
	r := testRun(2, 1)
	l.runs[r.Dir] = r
	if err := l.table.Publish(t.Context(), r, func(context.Context, string) ([]*Run, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	s := l.read().current()
	if s.Parent != 0 || s.Summary["operation"] != "append" || len(l.entriesOf(s)) != 1 {
		t.Errorf("Got %+v", s)
	}
}

// TestSchemas: a column keeps its id as long as it keeps its name and type; snapshots keep
// their schema; what comes again is not a new one.
func TestSchemas(t *testing.T) {
	l := newLake(t, openLocal(t))
	first, second, third, fourth := testRun(1, 1), testRun(2, 1), testRun(3, 1), testRun(4, 1)
	counts, _ := columnar.Map(columnar.Int64)
	price, _ := columnar.ParseType("decimal(10,2)")
	second.Columns = append(second.Columns, columnar.Column{Name: "rest", Type: counts}, columnar.Column{Name: "price", Type: price, Nullable: true})
	third.Columns = []columnar.Column{{Name: "n", Type: columnar.String}, {Name: "page", Type: columnar.String}}
	l.publish(first)
	l.publish(second)
	l.publish(third)
	l.publish(fourth)
	m := l.read()
	if len(m.Schemas) != 3 || m.CurrentSchemaID != m.Snapshots[0].SchemaID {
		t.Fatalf("Got %d schemas, the current one is %d", len(m.Schemas), m.CurrentSchemaID)
	}
	ids := func(s *snapshot) map[string]int32 {
		all := map[string]int32{}
		for _, f := range m.schema(s.SchemaID).Fields {
			all[f.Name] = f.ID
			if f.ID > m.LastColumnID {
				t.Errorf("%s has id %d, the last is %d", f.Name, f.ID, m.LastColumnID)
			}
		}
		return all
	}
	a, b, c := ids(&m.Snapshots[0]), ids(&m.Snapshots[1]), ids(&m.Snapshots[2])
	if a["page"] != b["page"] || a["page"] != c["page"] || a["n"] != b["n"] || a["n"] == c["n"] {
		t.Errorf("ids: %v, %v, %v", a, b, c)
	}
	for _, f := range m.schema(m.Snapshots[1].SchemaID).Fields {
		switch f.Name {
		case "page":
			if !f.Required || f.Type != "string" {
				t.Errorf("Got %+v", f)
			}
		case "price":
			if f.Required || f.Type != "decimal(10, 2)" {
				t.Errorf("Got %+v", f)
			}
		case "rest":
			key, value := columnar.EntryIDs("rest", counts)
			want := map[string]any{"type": "map", "key-id": float64(key), "key": "string", "value-id": float64(value), "value": "long", "value-required": true}
			if d := cmp.Diff(want, f.Type); d != "" {
				t.Error(d)
			}
		}
	}
}

// partitioned makes r divided by these columns, with values of each type, and null.
func partitioned(r *Run, by ...string) *Run {
	r.Columns = append(r.Columns, columnar.Column{Name: "day", Type: columnar.String, Nullable: true}, columnar.Column{Name: "hour", Type: columnar.Int64, Nullable: true}, columnar.Column{Name: "bot", Type: columnar.Bool, Nullable: true})
	r.PartitionBy = by
	text := func(s string) *string { return &s }
	for i := range r.Files {
		all := map[string]*string{"day": text("2026-01-01"), "hour": text("-7"), "bot": text("true")}
		if i == 1 {
			clear(all)
		}
		r.Files[i].Partition = nil
		for _, name := range by {
			r.Files[i].Partition = append(r.Files[i].Partition, all[name])
		}
	}
	return r
}

// TestPartitions: files have the values of their partitions; a column keeps its field, and a
// snapshot whose column is gone leaves the table, which engines could not open with it.
func TestPartitions(t *testing.T) {
	l := newLake(t, openLocal(t))
	l.publish(partitioned(testRun(1, 2), "day", "hour", "bot"))
	m := l.read()
	var got []any
	for _, e := range l.entriesOf(m.current()) {
		got = append(got, e["data_file"].(map[string]any)["partition"])
	}
	if d := cmp.Diff([]any{map[string]any{"day": "2026-01-01", "hour": int64(-7), "bot": true}, map[string]any{"day": nil, "hour": nil, "bot": nil}}, got); d != "" {
		t.Error(d)
	}
	l.publish(partitioned(testRun(2, 2), "hour"))
	l.publish(partitioned(testRun(3, 2)))
	m = l.read()
	if len(m.Specs) != 3 || m.Specs[0].Fields[1] != m.Specs[1].Fields[0] || m.DefaultSpecID != m.Specs[2].ID || len(m.Specs[2].Fields) != 0 {
		t.Errorf("Got %+v, default %d", m.Specs, m.DefaultSpecID)
	}
	l.publish(testRun(4, 1)) // without the columns
	m = l.read()
	if d := cmp.Diff([]string{"id4"}, runsOf(m)); d != "" {
		t.Errorf("snapshots: %s", d)
	}
	if len(m.Specs) != 1 || m.current().Parent != 0 {
		t.Errorf("Got %+v, parent %d", m.Specs, m.current().Parent)
	}
	bad := partitioned(testRun(5, 1), "hour")
	seven := "seven"
	bad.Files[0].Partition[0] = &seven
	if err := l.table.Publish(t.Context(), bad, l.previous); err == nil || !strings.Contains(err.Error(), "part-0.parquet") {
		t.Errorf("Got %v", err)
	}
}

// TestExpire: snapshots of removed runs go, with their files, but not the current one; so
// do old versions of the metadata.
func TestExpire(t *testing.T) {
	for name, open := range map[string]func(*testing.T) target.Target{"local": openLocal, "s3": openS3} {
		t.Run(name, func(t *testing.T) {
			l := newLake(t, open(t))
			if err := l.table.Expire(t.Context(), []string{"id1"}); err != nil {
				t.Fatal(err)
			}
			if run, err := l.table.Current(t.Context()); run != "" || err != nil {
				t.Errorf("Got %q, %v", run, err)
			}
			for n := 1; n <= 4; n++ {
				l.publish(testRun(n, 1))
			}
			if err := l.table.Expire(t.Context(), []string{"id1", "id3", "id4", "other"}); err != nil {
				t.Fatal(err)
			}
			m := l.read()
			if d := cmp.Diff([]string{"id2", "id4"}, runsOf(m)); d != "" {
				t.Error(d)
			}
			if len(m.SnapshotLog) != 1 || m.SnapshotLog[0].Snapshot != m.CurrentSnapshotID {
				t.Errorf("the log leads past an expired snapshot: %+v", m.SnapshotLog)
			}
			for n := 5; n <= 20; n++ {
				l.publish(testRun(n, 1))
				if err := l.table.Expire(t.Context(), []string{fmt.Sprintf("id%d", n-1)}); err != nil {
					t.Fatal(err)
				}
			}
			m = l.read()
			kinds := map[string]int{}
			for _, f := range l.metadataFiles() {
				kinds[path.Ext(f)]++
			}
			// Of snapshot 2 a list and two manifests, as of 20.
			if d := cmp.Diff(map[string]int{".json": keptVersions + 1, ".avro": 6, ".text": 1}, kinds); d != "" {
				t.Errorf("%s: %v", d, l.metadataFiles())
			}
			for _, p := range m.MetadataLog {
				l.file(p.File)
			}
		})
	}
}

// TestMaxSnapshots: a table of many runs has the newest.
func TestMaxSnapshots(t *testing.T) {
	m := newMetadata("file:///x", "views")
	m.setSchema(testRun(1, 0).Columns)
	for n := range maxSnapshots + 5 {
		m.add(snapshot{ID: int64(n + 1), Sequence: int64(n + 1), Summary: map[string]string{summaryRun: strconv.Itoa(n)}}, day(1))
	}
	if len(m.Snapshots) != maxSnapshots || m.Snapshots[0].ID != 6 || len(m.SnapshotLog) != maxSnapshots || m.current() == nil {
		t.Errorf("%d snapshots from %d on, %d logged", len(m.Snapshots), m.Snapshots[0].ID, len(m.SnapshotLog))
	}
}

// TestTogether: of publications at one moment each wins some time, and none is lost that is
// not for an earlier time than one that was faster.
func TestTogether(t *testing.T) {
	for name, open := range map[string]func(*testing.T) target.Target{"local": openLocal, "s3": openS3} {
		t.Run(name, func(t *testing.T) {
			const n = 8
			l := newLake(t, open(t))
			for i := 1; i <= n; i++ {
				r := testRun(i, 2)
				l.runs[r.Dir] = r
			}
			var wg sync.WaitGroup
			for i := 1; i <= n; i++ {
				wg.Go(func() {
					if err := l.table.Publish(t.Context(), testRun(i, 2), l.previous); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			m := l.read()
			if run := m.current().Summary[summaryRun]; run != fmt.Sprintf("id%d", n) {
				t.Errorf("the table is %s", run)
			}
			if ids := runsOf(m); !slices.IsSorted(ids) {
				t.Errorf("snapshots of %v", ids)
			}
		})
	}
}

// failing is a target that fails at its n-th change, before or after it was made.
type failing struct {
	target.Collector
	n     int
	after bool
}

var errKilled = errors.New("killed")

func (f *failing) Update(ctx context.Context, name string, change func([]byte) ([]byte, error)) error {
	return f.step(func() error { return f.Collector.Update(ctx, name, change) })
}

func (f *failing) RemoveFile(ctx context.Context, name string) error {
	return f.step(func() error { return f.Collector.RemoveFile(ctx, name) })
}

func (f *failing) step(do func() error) error {
	if f.n--; f.n > 0 {
		return do()
	}
	if f.n == 0 && f.after {
		return errors.Join(do(), errKilled)
	}
	return errKilled
}

// TestKilled: whatever step a publication or an expiry is cut off at, the table is that of
// before or of afterwards, the same again finishes it, and nothing is left.
func TestKilled(t *testing.T) {
	t.Run("whole", func(t *testing.T) { testKilled(t, 13, testRun) })
	t.Run("increment", func(t *testing.T) { testKilled(t, 4, testIncrement) })
}

// testKilled cuts off the publication of the last-th run, behind whole ones.
func testKilled(t *testing.T, last int, make func(n, files int) *Run) {
	id := func(n int) string { return fmt.Sprintf("id%d", n) }
	goes := []string{id(last - 3), id(last - 2)}
	for _, after := range []bool{false, true} {
		for step := 1; ; step++ {
			l := newLake(t, openLocal(t))
			for n := 1; n < last; n++ {
				l.publish(testRun(n, 1))
			}
			whole := l.table.Target.(target.Collector)
			f := &failing{whole, step, after}
			l.table.Target = f
			r := make(last, 2)
			l.runs[r.Dir] = r
			err := l.table.Publish(t.Context(), r, l.previous)
			if err == nil {
				err = l.table.Expire(t.Context(), goes)
			}
			if err != nil && !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			done := f.n > 0
			l.table.Target = whole
			m, _, err := l.table.read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range m.Snapshots {
				l.check(m, &m.Snapshots[i])
			}
			l.publish(make(last, 2))
			if err := l.table.Expire(t.Context(), goes); err != nil {
				t.Fatal(err)
			}
			l.publish(testRun(last+1, 1))
			m = l.read()
			if ids := runsOf(m); !slices.Equal(ids[len(ids)-3:], []string{id(last - 1), id(last), id(last + 1)}) || slices.Contains(ids, goes[0]) || slices.Contains(ids, goes[1]) {
				t.Errorf("step %d, after %t: snapshots of %v", step, after, ids)
			}
			used := map[string]bool{}
			for i := range m.Snapshots {
				stem, _, _ := stemOf(path.Base(m.Snapshots[i].ManifestList))
				used[stem] = true
			}
			for _, name := range l.metadataFiles() {
				if stem, _, ok := stemOf(name); ok && !used[stem] {
					t.Errorf("step %d, after %t: %s is left", step, after, name)
				}
			}
			if done {
				if step < 8 {
					t.Errorf("there were %d steps", step)
				}
				break
			}
		}
	}
}

// between is a target that does something once, before a file is made.
type between struct {
	target.Collector
	name string
	do   func()
}

func (b *between) Update(ctx context.Context, name string, change func([]byte) ([]byte, error)) error {
	if do := b.do; do != nil && path.Base(name) == b.name {
		b.do = nil
		do()
	}
	return b.Collector.Update(ctx, name, change)
}

// TestOvertaken: a commit that stands still until others have swept away the version that it
// makes has not made the table, and takes nothing from it.
func TestOvertaken(t *testing.T) {
	l := newLake(t, openLocal(t))
	l.publish(testRun(1, 1))
	l.publish(testIncrement(2, 2))
	whole := l.table.Target.(target.Collector)
	l.table.Target = &between{whole, versionName(3), func() {
		for n := 3; n < 5+keptVersions; n++ {
			l.publish(testIncrement(n, 2))
		}
		if slices.Contains(l.metadataFiles(), versionName(3)) {
			t.Error("version 3 is there")
		}
	}}
	l.publish(testRun(20, 1))
	l.table.Target = whole
	m := l.read()
	if ids := runsOf(m); ids[len(ids)-1] != "id20" || ids[2] != "id3" {
		t.Errorf("Got %v", ids)
	}
}

// TestHintLeft: who publishes a run again makes up for a process that was killed before the
// hint, by which some readers go.
func TestHintLeft(t *testing.T) {
	l := newLake(t, openLocal(t))
	l.publish(testRun(1, 1))
	l.publish(testRun(2, 1))
	if err := l.table.Target.Update(t.Context(), l.table.name(versionHint), func([]byte) ([]byte, error) { return []byte("1"), nil }); err != nil {
		t.Fatal(err)
	}
	l.publish(testRun(2, 1))
	l.read()
}

// TestMadeAgain: a run that was removed by hand and made again, for the same time, is another
// one: the snapshots that had its files go.
func TestMadeAgain(t *testing.T) {
	again := func(n, files int) *Run {
		r := testRun(n, files)
		r.FinishedAt = r.FinishedAt.Add(time.Hour)
		return r
	}
	build := func(t *testing.T) *lake {
		l := newLake(t, openLocal(t))
		l.publish(testRun(1, 1))
		l.publish(testRun(2, 1))
		l.publish(testIncrement(3, 2))
		l.publish(testIncrement(4, 2))
		return l
	}
	for name, test := range map[string]struct {
		r    *Run
		want []string
	}{
		"the current one":        {again(4, 3), []string{"id1", "id2", "id3", "id4"}},
		"what others go on from": {again(2, 3), []string{"id1", "id2"}},
		"an earlier one":         {again(1, 3), []string{"id2", "id3", "id4"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := build(t)
			l.publish(test.r)
			if d := cmp.Diff(test.want, runsOf(l.read())); d != "" {
				t.Error(d)
			}
			l.publish(testRun(5, 1))
			l.read()
		})
	}
	l := build(t)
	r := testIncrement(5, 1)
	r.BaseSequence++ // of a run that was made again, and is no snapshot
	if err := l.table.Publish(t.Context(), r, l.previous); !errors.Is(err, ErrBase) {
		t.Errorf("Got %v", err)
	}
	for r, want := range map[*Run]bool{testIncrement(4, 1): true, again(4, 1): false, testRun(3, 1): false} {
		if is, err := l.table.Is(t.Context(), r); is != want || err != nil {
			t.Errorf("Got %v, %v for %s of %v", is, err, r.ID, r.FinishedAt)
		}
	}
}

// TestListMissing: a table of which a file is missing is an error that says which, and not
// one of a run that is not there.
func TestListMissing(t *testing.T) {
	l := newLake(t, openLocal(t))
	l.publish(testRun(1, 1))
	name := l.table.name(path.Base(l.read().current().ManifestList))
	if err := l.table.Target.(target.Collector).RemoveFile(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if err := l.table.Publish(t.Context(), testIncrement(2, 1), l.previous); err == nil || errors.Is(err, target.ErrNotFound) || !strings.Contains(err.Error(), name) {
		t.Errorf("Got %v", err)
	}
}

// TestForeign: what another writer has committed to is left as it is.
func TestForeign(t *testing.T) {
	l := newLake(t, openLocal(t))
	l.publish(testRun(1, 1))
	m := l.read()
	set := func(name, content string) {
		if err := l.table.Target.Update(t.Context(), l.table.name(name), func([]byte) ([]byte, error) { return []byte(content), nil }); err != nil {
			t.Fatal(err)
		}
	}
	data, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	moved := *m
	moved.Location = "file:///elsewhere"
	movedData, _ := moved.encode()
	for name, content := range map[string]string{
		"another field":    strings.Replace(string(data), `"format-version": 2,`, `"format-version": 2, "statistics": [],`, 1),
		"another snapshot": strings.Replace(string(data), summaryRun, "spark.app.id", 1),
		"another format":   strings.Replace(string(data), `"format-version": 2,`, `"format-version": 3,`, 1),
		"no current":       strings.Replace(string(data), `"current-snapshot-id": `, `"current-snapshot-id": 1`, 1),
		"another place":    string(movedData),
	} {
		t.Run(name, func(t *testing.T) {
			if content == string(data) {
				t.Fatal("it is the same")
			}
			set("v2.metadata.json", content)
			before := l.metadataFiles()
			r := testRun(2, 1)
			l.runs[r.Dir] = r
			if err := l.table.Publish(t.Context(), r, l.previous); !errors.Is(err, ErrForeign) {
				t.Errorf("Got %v", err)
			}
			if d := cmp.Diff(before, l.metadataFiles()); d != "" {
				t.Error(d)
			}
		})
	}
	set("v2.metadata.json", "{")
	if err := l.table.Publish(t.Context(), testRun(2, 1), l.previous); err == nil {
		t.Error("Got no error for what is no JSON")
	}
	set("00003-uuid.metadata.json", string(data))
	if _, err := l.table.Current(t.Context()); !errors.Is(err, ErrForeign) {
		t.Errorf("Got %v", err)
	}
}

// TestCheck: two columns with one id are refused, by name.
func TestCheck(t *testing.T) {
	columns := []columnar.Column{{Name: "a", Type: columnar.String}, {Name: "b", Type: columnar.String}}
	if err := Check(columns); err != nil {
		t.Error(err)
	}
	columns[1].Name = "a"
	if err := Check(columns); !errors.Is(err, ErrColumns) {
		t.Errorf("Got %v", err)
	}
	r := testRun(1, 1)
	r.Columns = columns
	if err := newLake(t, openLocal(t)).table.Publish(t.Context(), r, nil); !errors.Is(err, ErrColumns) {
		t.Errorf("Got %v", err)
	}
}

// FuzzDecode: whatever a file holds, it is read as it is written, or refused.
func FuzzDecode(f *testing.F) {
	m := newMetadata("file:///x", "views")
	m.setSchema(testRun(1, 0).Columns)
	if _, err := m.spec(testRun(1, 0).Columns, []string{"page"}); err != nil {
		f.Fatal(err)
	}
	m.add(snapshot{ID: 7, Sequence: 1, Summary: map[string]string{summaryRun: "id"}}, day(1))
	data, err := m.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decode(data)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		n, err := decode(again)
		if err != nil {
			t.Fatalf("%v: %s", err, again)
		}
		if d := cmp.Diff(m, n); d != "" {
			t.Error(d)
		}
		if !maps.Equal(m.Properties, n.Properties) {
			t.Error("other properties")
		}
		n.expire(map[string]bool{"id": true})
		n.unbind()
	})
}
