package join_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
	"sluice/jobs/join"
)

// TestSpillAgainstNestedLoops compares hash joins that have next to no memory with the
// definition. They stop exactly where the rows of one key take more than there is.
func TestSpillAgainstNestedLoops(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spilled := 0
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(join.Kinds()).Draw(t, "kind")
		leftOnly := kind == join.Semi || kind == join.Anti
		memory := rapid.Int64Range(120, 700).Draw(t, "memory")
		spec := &join.Spec{Kind: kind, Method: join.Hash, MemoryBytes: memory, SpillDir: dir, On: []join.On{{Left: "k"}}}
		spec.Columns = []join.Column{{Name: "key", From: "key.k"}, {Name: "lk", From: "left.k"}, {Name: "l", From: "left.l"}}
		if !leftOnly {
			spec.Columns = append(spec.Columns, join.Column{Name: "rk", From: "right.k"}, join.Column{Name: "r", From: "right.r"})
		}
		left, right := drawMany(t, "l"), drawMany(t, "r")
		j := compileRapid(t, spec, left, right)
		all := [2][][]string{left.rows, right.rows}
		// What the right side takes: all of it, the largest key, and the largest
		// that is looked at, which those that no left row shares a part with may not be.
		whole, most, asked, byKey := int64(0), int64(0), int64(0), map[string]int64{}
		for _, row := range right.rows {
			if row[0] == "-" || leftOnly && byKey[row[0]] > 0 {
				continue
			}
			n := int64(5)
			if byKey[row[0]] == 0 {
				n += 64 + 2 + int64(len(row[0])+strings.Count(row[0], "\x00"))
			}
			if !leftOnly {
				n += 3*9 + int64(len(row[0]))
			}
			whole += n
			byKey[row[0]] += n
			most = max(most, byKey[row[0]])
			if kind == join.Right || kind == join.Full || slices.ContainsFunc(left.rows, func(l []string) bool { return l[0] == row[0] }) {
				asked = max(asked, byKey[row[0]])
			}
		}
		got, err := run(j, left, right)
		switch {
		case err == nil && asked > memory:
			t.Fatalf("Got no error, and one key takes %d of %d", asked, memory)
		case err != nil && (most <= memory || !errors.Is(err, join.ErrMemory) || !strings.Contains(err.Error(), "the right side's rows with key")):
			t.Fatalf("Got %v, and one key takes %d of %d", err, most, memory)
		case err != nil:
			return
		}
		if whole > memory {
			spilled++
		}
		want := nestedLoops(kind, all[0], all[1], false, "")
		sortRows(got)
		sortRows(want)
		if d := gocmp.Diff(want, got); d != "" {
			t.Errorf("%s of %v and %v: %s", kind, all[0], all[1], d)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("Got %v, %v in the directory", left, err)
		}
	})
	if spilled == 0 {
		t.Error("No join has spilled")
	}
}

// drawMany returns rows in any order, of many keys or few.
func drawMany(t *rapid.T, side string) *rows {
	typ := rapid.SampledFrom([]columnar.Type{columnar.String, columnar.Bytes}).Draw(t, "type")
	columns := []columnar.Column{column("k", typ, true), column("n", columnar.Int64, true), column(side, columnar.Int64, false)}
	most := rapid.SampledFrom([]int{1, 3, 50}).Draw(t, "keys")
	numbers := rapid.SliceOfN(rapid.IntRange(0, most), 0, 60).Draw(t, side)
	var all [][]string
	for i, k := range numbers {
		key := fmt.Sprintf("%d\x00", k)
		if k == 1 {
			key = "-"
		}
		all = append(all, []string{key, "-", fmt.Sprint(i)})
	}
	return input(columns, rapid.IntRange(1, 9).Draw(t, "batch"), all...)
}

// TestSpillTypes: values of every type, empty ones and nulls are read as they were
// written, over several levels.
func TestSpillTypes(t *testing.T) {
	t.Parallel()
	var columns []columnar.Column
	maps, _ := columnar.Map(columnar.Bytes)
	for _, typ := range []columnar.Type{columnar.String, columnar.Int64, columnar.Float64, columnar.Bool, columnar.Timestamp, columnar.Bytes, maps, decimal38} {
		columns = append(columns, column(typ.String(), typ, true))
	}
	const n = 3000
	batch := columnar.NewBatch(columns)
	for i := range n {
		for c := range columns {
			v := batch.Vector(c)
			switch {
			case c > 0 && (i+c)%5 == 0:
				v.AppendNull()
			case columns[c].Type == columnar.Float64:
				v.AppendFloat64(float64(i) / 7)
			case columns[c].Type == columnar.Bytes:
				if err := v.AppendBytes(make([]byte, i%3*200)); err != nil {
					t.Fatal(err)
				}
			case columns[c].Type == columnar.Bool:
				v.AppendBool(i%2 == 0)
			case columns[c].Type == maps:
				for e := range i % 3 {
					if err := errors.Join(put(v.Keys(), fmt.Sprint(e)), put(v.Values(), fmt.Sprint(i))); err != nil {
						t.Fatal(err)
					}
				}
				if err := v.AppendEntries(); err != nil {
					t.Fatal(err)
				}
			default:
				if err := put(v, fmt.Sprint(i*i)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	want := columnartest.Texts(batch)
	for i := range want {
		want[i] = slices.Concat(want[i], want[i][1:])
	}
	left, right := &batches{columns, []*columnar.Batch{batch}}, &batches{columns, []*columnar.Batch{batch}}
	spec := &join.Spec{Method: join.Hash, MemoryBytes: 4000, SpillDir: t.TempDir(), On: []join.On{{Left: "string"}}, Columns: []join.Column{{Name: "key", From: "key.string"}}}
	for _, side := range []string{"left", "right"} {
		for _, c := range columns[1:] {
			spec.Columns = append(spec.Columns, join.Column{Name: side + c.Name, From: side + "." + c.Name})
		}
	}
	j, err := join.Compile(spec, columns, columns)
	if err != nil {
		t.Fatal(err)
	}
	got, err := run(j, left, right)
	if err != nil {
		t.Fatal(err)
	}
	sortRows(got)
	sortRows(want)
	if d := gocmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// batches is an Input of batches.
type batches struct {
	columns []columnar.Column
	batches []*columnar.Batch
}

func (b *batches) Columns() []columnar.Column { return b.columns }

func (b *batches) Next() (*columnar.Batch, error) {
	if len(b.batches) == 0 {
		return nil, io.EOF
	}
	next := b.batches[0]
	b.batches = b.batches[1:]
	return next, nil
}

// TestSpillStops: whatever ends a join that has spilled, nothing is left of its files.
func TestSpillStops(t *testing.T) {
	t.Parallel()
	var views, users [][]string
	for i := range 2000 {
		views = append(views, []string{fmt.Sprint(i), "/"})
		users = append(users, []string{fmt.Sprint(i), fmt.Sprint(i)})
	}
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		spec  join.Spec
		right func(*rows) join.Input
		write error
		want  error
	}{
		"done":      {},
		"write":     {write: broken, want: broken},
		"input":     {right: func(r *rows) join.Input { return failing{r, broken} }, want: broken},
		"too much":  {spec: join.Spec{SpillBytes: 20_000}, want: join.ErrDisk},
		"no dir":    {spec: join.Spec{SpillDir: filepath.Join(t.TempDir(), "none")}, want: os.ErrNotExist},
		"cancelled": {write: context.Canceled, want: context.Canceled},
	} {
		dir := t.TempDir()
		spec := test.spec
		spec.Kind, spec.Method, spec.MemoryBytes, spec.On = join.Full, join.Hash, 5000, []join.On{{Left: "user", Right: "id"}}
		if spec.SpillDir == "" {
			spec.SpillDir = dir
		}
		left, right := input(viewColumns, 100, views...), input(userColumns, 100, users...)
		j := compile(t, &spec, left, right)
		in := join.Input(right)
		if test.right != nil {
			in = test.right(right)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		rows := 0
		err := j.Run(ctx, left, in, func(b *columnar.Batch) error {
			rows += b.Rows()
			if test.write == context.Canceled {
				cancel()
				return ctx.Err()
			}
			return test.write
		})
		if !errors.Is(err, test.want) || test.want == nil && (err != nil || rows != 2000) {
			t.Errorf("%s: got %v and %d rows, want %v", name, err, rows, test.want)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: Got %v, %v in the directory", name, left, err)
		}
	}
	spec := &join.Spec{Method: join.Hash, MemoryBytes: 5000, On: []join.On{{Left: "user", Right: "id"}}}
	left, right := input(viewColumns, 100, views...), input(userColumns, 100, users...)
	j := compile(t, spec, left, right)
	if _, err := run(j, left, right); !errors.Is(err, join.ErrMemory) || !strings.HasSuffix(err.Error(), "; set spill_dir") {
		t.Errorf("Without a directory: got %v, want ErrMemory", err)
	}
	for range 300 {
		users = append(users, []string{"1234", "1"})
	}
	spec.SpillDir = t.TempDir()
	left, right = input(viewColumns, 100, views...), input(userColumns, 100, users...)
	j = compile(t, spec, left, right)
	const want = `the right side's rows with key "1234" take more than memory_bytes, 5000`
	if _, err := run(j, left, right); !errors.Is(err, join.ErrMemory) || !strings.Contains(err.Error(), want) {
		t.Errorf("A key of too many rows: got %v, want ErrMemory with %s", err, want)
	}
	spec.Kind = join.Semi // which has to know the key, not its rows
	left, right = input(viewColumns, 100, views...), input(userColumns, 100, users...)
	if got, err := run(compile(t, spec, left, right), left, right); err != nil || len(got) != 2000 {
		t.Errorf("A semi join: got %d rows, %v", len(got), err)
	}
}
