package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"sluice/cell"
	"sluice/internal/thinned"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/join"
	"sluice/jobs/rowsort"
	"sluice/jobs/spill"
	"sluice/jobs/target"
	"sluice/store"
)

// counting counts the files that are open, and the most that ever were.
type counting struct {
	target.Target
	open, most atomic.Int64
}

// Open implements target.Target.
func (c *counting) Open(ctx context.Context, name string) (target.File, error) {
	f, err := c.Target.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	if n := c.open.Add(1); n > c.most.Load() {
		c.most.Store(n)
	}
	return &countedFile{f, c}, nil
}

type countedFile struct {
	target.File
	c *counting
}

func (f *countedFile) Close() error {
	f.c.open.Add(-1)
	return f.File.Close()
}

// manyPartitions publishes a table in so many partitions, in three regions, as rows or
// cells, of which the key does not tell all apart.
func manyPartitions(t *testing.T, partitions int, rowsMode string) (*Manifest, string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(9, uint64(partitions)))
	src := jobstest.NewMemory()
	var rows []cell.Row
	for i := range 40 * partitions {
		row := jobstest.Row(fmt.Sprintf("r%06d", i))
		for q := range 1 + rng.IntN(3) {
			row.Cells = append(row.Cells, jobstest.Put("f", fmt.Sprint("q", q), 1, fmt.Sprintf("p%03d", rng.IntN(partitions))))
		}
		row.Cells = append(row.Cells, jobstest.Put("f", "v", 1, strings.Repeat("v", rng.IntN(60))))
		rows = append(rows, row)
	}
	src.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, []string{"r000100", "r000900"}, rows)
	spec := &Spec{Table: "t", PartitionBy: []string{"q0"}, MaxPartitions: partitions, Columns: []columnar.ColumnSpec{
		{Name: "key", From: "$row", Type: "string"}, {Name: "q0", From: "f:q0", Type: "string"}, {Name: "v", From: "f:v", Type: "string"},
	}}
	if rowsMode == "cell" {
		spec.Rows, spec.PartitionBy, spec.MaxPartitions = "cell", []string{"value"}, 2*partitions+100
		spec.Columns = []columnar.ColumnSpec{
			{Name: "key", From: "$row", Type: "string"}, {Name: "time", From: "$timestamp", Type: "int64"}, {Name: "value", From: "$value", Type: "string"},
		}
		spec.Where = []columnar.Predicate{{Column: "value", Op: ">=", Value: "p"}, {Column: "value", Op: "<", Value: "q"}}
	}
	return published(t, src, spec, RunOptions{})
}

// TestPartitionMergeMemory: the partitions of a run come in one order, whatever memory
// there is to merge them; and what is open is bounded by it.
func TestPartitionMergeMemory(t *testing.T) {
	t.Parallel()
	for _, rowsMode := range []string{"cell", "row"}[:thinned.Of(2, 1)] {
		const partitions = 60
		m, dir := manyPartitions(t, partitions, rowsMode)
		read := func(memory int64, disk *spill.Disk) (rows [][]string, most int64, err error) {
			c := &counting{Target: mustLocal(t, dir)}
			in, err := openRunInput(t.Context(), "s3://bucket/x", func(string) (target.Target, error) { return c, nil })
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if e := in.Close(); e != nil || c.open.Load() > 0 {
					t.Errorf("Got %v, %d files open after Close", e, c.open.Load())
				}
			}()
			in.merge.memory, in.merge.disk = memory, disk
			for {
				b, err := in.Next()
				if err == io.EOF {
					return rows, c.most.Load(), nil
				}
				if err != nil {
					return rows, c.most.Load(), err
				}
				for i := range b.Rows() {
					var row []string
					for k := range b.Columns() {
						row = append(row, text(b.Vector(k), i))
					}
					rows = append(rows, row)
				}
			}
		}
		want, all, err := read(math.MaxInt64, nil)
		if err != nil || int64(len(want)) != m.Totals[0].Rows || all < partitions {
			t.Fatalf("Got %d of %d rows, %d files open, %v", len(want), m.Totals[0].Rows, all, err)
		}
		for i := range want[1:] {
			if want[i+1][0] < want[i][0] || rowsMode == "row" && want[i+1][0] == want[i][0] {
				t.Fatalf("Got %s behind %s", want[i+1], want[i])
			}
		}
		for _, c := range []struct {
			memory   int64
			most     int64 // files open
			spilling bool
		}{{1, 3, true}, {60_000, 20, true}, {200_000, partitions - 1, false}} {
			spilled := t.TempDir()
			disk := &spill.Disk{Dir: spilled, Limit: 1 << 30}
			got, most, err := read(c.memory, disk)
			if err != nil {
				t.Fatal(err)
			}
			if d := jobstest.Diff(want, got); d != "" {
				t.Errorf("%s, %d bytes: %s", rowsMode, c.memory, d)
			}
			if most > c.most || most < 2 {
				t.Errorf("%s: Got %d files open with %d bytes, want at most %d", rowsMode, most, c.memory, c.most)
			}
			if left, err := os.ReadDir(spilled); err != nil || len(left) > 0 || disk.Used() != 0 {
				t.Errorf("Got %v, %v, %d bytes left on the disk", left, err, disk.Used())
			}
			if c.spilling { // then a disk is needed
				if _, _, err := read(c.memory, &spill.Disk{}); !errors.Is(err, rowsort.ErrMemory) || !strings.Contains(err.Error(), "merge the partitions of run "+m.RunID) {
					t.Errorf("%s: Got %v without a disk", rowsMode, err)
				}
			}
		}
	}
}

// TestPartitionMergeFiles: with all the memory there is, no more than maxMerged files are
// open.
func TestPartitionMergeFiles(t *testing.T) {
	t.Parallel()
	const partitions = maxMerged + 60
	m, dir := manyPartitions(t, partitions, "row")
	c := &counting{Target: mustLocal(t, dir)}
	in, err := openRunInput(t.Context(), "s3://bucket/x", func(string) (target.Target, error) { return c, nil })
	if err != nil {
		t.Fatal(err)
	}
	in.merge.memory, in.merge.disk = 1<<40, &spill.Disk{Dir: t.TempDir(), Limit: 1 << 30}
	rows, last := int64(0), ""
	for {
		b, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Rows() {
			key := string(b.Vector(0).Bytes(i))
			if key <= last {
				t.Fatalf("Got %s behind %s", key, last)
			}
			last = key
			rows++
		}
	}
	if err := in.Close(); err != nil || rows != m.Totals[0].Rows || c.most.Load() > maxMerged+1 || c.most.Load() < maxMerged {
		t.Errorf("Got %v, %d of %d rows, %d files open", err, rows, m.Totals[0].Rows, c.most.Load())
	}
}

// TestJoinPartitionsMemory: a merge of two runs in partitions gives the same with any
// memory that holds the rows of a key, and leaves nothing on the disk.
func TestJoinPartitionsMemory(t *testing.T) {
	t.Parallel()
	_, dir := manyPartitions(t, 50, "row")
	var want [][]string
	for _, memory := range []int64{0, 1 << 20, 2_000} {
		spec := &JoinSpec{Left: JoinSide{Run: dir}, Right: JoinSide{Run: dir}, Formats: []string{Arrow}, Spec: join.Spec{
			On: []join.On{{Left: "key"}}, Columns: []join.Column{{Name: "key", From: "key.key"}, {Name: "v", From: "left.v"}, {Name: "q", From: "right.q0"}}, MemoryBytes: memory,
		}}
		j, err := CompileJoin("j", spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		out := t.TempDir()
		m, err := RunJoin(t.Context(), &JoinOptions{Join: j, Out: out})
		if err != nil {
			t.Fatal(err)
		}
		rows := readFormat(t, filepath.Join(out, runDir("j", m.LogicalTime)), m, Arrow)
		if want == nil {
			want = rows
		}
		if d := jobstest.Diff(want, rows); d != "" || len(rows) != 2000 {
			t.Errorf("%d bytes: %d rows: %s", memory, len(rows), d)
		}
		if left, err := os.ReadDir(out); err != nil || len(left) != 1 {
			t.Errorf("Got %v, %v", left, err)
		}
	}
}
