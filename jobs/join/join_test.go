package join_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
	"sluice/jobs/join"
)

// rows is an Input of rows whose values are texts, "-" for null. It hands out a few
// at a time in a batch that it overwrites.
type rows struct {
	columns []columnar.Column
	rows    [][]string
	batch   *columnar.Batch
	size    int
}

func input(columns []columnar.Column, size int, all ...[]string) *rows {
	return &rows{columns: columns, rows: all, batch: columnar.NewBatch(columns), size: size}
}

func (r *rows) Columns() []columnar.Column { return r.columns }

func (r *rows) Next() (*columnar.Batch, error) {
	if len(r.rows) == 0 {
		return nil, io.EOF
	}
	// What an earlier batch held must not be read any more.
	for i := range r.columns {
		v := r.batch.Vector(i)
		if text(r.columns[i].Type) {
			for n := range v.Len() {
				for b := range v.Bytes(n) {
					v.Bytes(n)[b] = 0xEE
				}
			}
		}
	}
	r.batch.Reset()
	n := min(r.size, len(r.rows))
	for _, row := range r.rows[:n] {
		for i, value := range row {
			if err := put(r.batch.Vector(i), value); err != nil {
				return nil, err
			}
		}
	}
	r.rows = r.rows[n:]
	return r.batch, nil
}

var (
	mapType, _   = columnar.Map(columnar.Bytes)
	decimal38, _ = columnar.Decimal(38, 2)
)

func text(t columnar.Type) bool { return t == columnar.String || t == columnar.Bytes }

func put(v *columnar.Vector, value string) error {
	switch {
	case value == "-":
		v.AppendNull()
	case text(v.Type()), v.Type() == columnar.JSON:
		return v.AppendBytes([]byte(value))
	case v.Type() == columnar.Bool:
		v.AppendBool(value == "true")
	case v.Type() == decimal38: // without the point
		x, ok := new(big.Int).SetString(value, 10)
		if !ok {
			return fmt.Errorf("%q is no number", value)
		}
		low := new(big.Int).And(x, new(big.Int).SetUint64(math.MaxUint64))
		v.AppendDecimal(columnar.NewInt128(new(big.Int).Rsh(x, 64).Int64(), low.Uint64()))
	default:
		var n int64
		if _, err := fmt.Sscan(value, &n); err != nil {
			return err
		}
		v.AppendInt64(n)
	}
	return nil
}

// finder finds rows by the text of a column. It counts its answers.
type finder struct {
	*rows
	column  string
	answers int
	err     error
}

func (f *finder) Find(keys [][]byte) (join.Input, error) {
	if !slices.IsSortedFunc(keys, bytes.Compare) || len(keys) != len(slices.CompactFunc(slices.Clone(keys), bytes.Equal)) {
		return nil, fmt.Errorf("keys %q are not in order, or not different", keys)
	}
	f.answers++
	i := slices.IndexFunc(f.columns, func(c columnar.Column) bool { return c.Name == f.column })
	var found [][]string
	for _, row := range f.rows.rows {
		if row[i] != "-" && slices.ContainsFunc(keys, func(k []byte) bool { return string(k) == row[i] }) {
			found = append(found, row)
		}
	}
	return input(f.columns, f.size, found...), f.err
}

func column(name string, t columnar.Type, nullable bool) columnar.Column {
	return columnar.Column{Name: name, Type: t, Nullable: nullable}
}

// run joins and returns the rows of the output as texts.
func run(j *join.Join, left, right join.Input) ([][]string, error) {
	var out [][]string
	write := func(b *columnar.Batch) error {
		out = append(out, columnartest.Texts(b)...)
		for i, c := range b.Columns() {
			if !c.Nullable && b.Vector(i).Nulls() > 0 {
				return fmt.Errorf("column %s is not nullable and has nulls", c.Name)
			}
		}
		return nil
	}
	if j.Method() == join.Lookup {
		return out, j.RunLookup(context.Background(), left, &finder{rows: right.(*rows), column: j.On()[0].Right}, write)
	}
	return out, j.Run(context.Background(), left, right, write)
}

func compile(t testing.TB, s *join.Spec, left, right *rows) *join.Join {
	t.Helper()
	j, err := join.Compile(s, left.columns, right.columns)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

var (
	viewColumns = []columnar.Column{column("user", columnar.String, true), column("page", columnar.String, false)}
	userColumns = []columnar.Column{column("id", columnar.Bytes, true), column("age", columnar.Int64, true)}
)

// TestKinds is every kind, with keys that are null, that come twice on both sides,
// and on one side only.
func TestKinds(t *testing.T) {
	t.Parallel()
	views := [][]string{{"-", "/n"}, {"a", "/1"}, {"b", "/2"}, {"b", "/3"}, {"d", "/4"}}
	users := [][]string{{"-", "1"}, {"b", "2"}, {"b", "-"}, {"c", "4"}, {"d", "5"}}
	pairs := []string{`"b" "/2" 2`, `"b" "/2" null`, `"b" "/3" 2`, `"b" "/3" null`, `"d" "/4" 5`}
	onlyViews := []string{`null "/n" null`, `"a" "/1" null`}
	onlyUsers := []string{`null null 1`, `"c" null 4`}
	for kind, want := range map[string][]string{
		join.Inner: pairs,
		join.Left:  slices.Concat(pairs, onlyViews),
		join.Right: slices.Concat(pairs, onlyUsers),
		join.Full:  slices.Concat(pairs, onlyViews, onlyUsers),
		join.Semi:  {`"b" "/2"`, `"b" "/3"`, `"d" "/4"`},
		join.Anti:  {`null "/n"`, `"a" "/1"`},
	} {
		for _, method := range []string{join.Merge, join.Hash} {
			left, right := input(viewColumns, 2, views...), input(userColumns, 2, users...)
			j := compile(t, &join.Spec{Kind: kind, Method: method, On: []join.On{{Left: "user", Right: "id"}}}, left, right)
			got, err := run(j, left, right)
			if err != nil {
				t.Errorf("%s %s: %v", method, kind, err)
			}
			lines := make([]string, len(got))
			for i := range got {
				lines[i] = strings.Join(got[i], " ")
			}
			slices.Sort(lines)
			want := slices.Sorted(slices.Values(want))
			if d := gocmp.Diff(want, lines); d != "" {
				t.Errorf("%s %s: %s", method, kind, d)
			}
		}
	}
}

// TestAgainstNestedLoops compares all methods with the definition: every left row
// with every right row.
func TestAgainstNestedLoops(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		two := rapid.Bool().Draw(t, "two keys")
		method := rapid.SampledFrom(join.Methods()).Draw(t, "method")
		kind := rapid.SampledFrom(join.Kinds()).Draw(t, "kind")
		if method == join.Lookup {
			two, kind = false, rapid.SampledFrom([]string{join.Inner, join.Left, join.Semi, join.Anti}).Draw(t, "kind of lookup")
		}
		until := ""
		if rapid.Bool().Draw(t, "part") {
			until = "\x01"
		}
		spec := &join.Spec{Kind: kind, Method: method, On: []join.On{{Left: "k", LeftPart: join.Part{Until: until}}}}
		spec.Columns = []join.Column{{Name: "key", From: "key.k"}, {Name: "lk", From: "left.k"}, {Name: "l", From: "left.l"}}
		if kind != join.Semi && kind != join.Anti {
			spec.Columns = append(spec.Columns, join.Column{Name: "rk", From: "right.k"}, join.Column{Name: "r", From: "right.r"})
		}
		if two {
			spec.On = append(spec.On, join.On{Left: "n"})
			spec.Columns = append(spec.Columns, join.Column{Name: "n", From: "key.n"})
		}
		left := draw(t, "l", two, until)
		right := draw(t, "r", two, "")
		j := compileRapid(t, spec, left, right)
		all := [2][][]string{left.rows, right.rows}
		got, err := run(j, left, right)
		if err != nil {
			t.Fatal(err)
		}
		want := nestedLoops(kind, all[0], all[1], two, until)
		if method == join.Merge {
			if order := j.Order(); len(order) > 0 && !slices.IsSortedFunc(got, func(a, b []string) int { return cmp.Compare(a[0], b[0]) }) {
				t.Errorf("not sorted by %v: %v", order, got)
			}
		}
		sortRows(got)
		sortRows(want)
		if d := gocmp.Diff(want, got); d != "" {
			t.Errorf("%s %s of %v and %v: %s", method, kind, all[0], all[1], d)
		}
	})
}

// TestOrderBesideNulls: what a merge says that its rows are sorted by they are, also where
// columns of the key behind the first are null in some.
func TestOrderBesideNulls(t *testing.T) {
	t.Parallel()
	columns := func(side string, nullable bool) []columnar.Column {
		return []columnar.Column{column("a", columnar.String, false), column("b", columnar.String, nullable), column(side, columnar.Int64, false)}
	}
	left := [][]string{{"a", "x", "1"}, {"b", "-", "2"}, {"c", "-", "3"}, {"c", "x", "4"}, {"e", "-", "5"}}
	right := [][]string{{"a", "x", "1"}, {"b", "-", "2"}, {"b", "y", "3"}, {"d", "-", "4"}, {"d", "x", "5"}}
	for _, kind := range join.Kinds() {
		for _, nullable := range [][2]bool{{true, true}, {true, false}, {false, true}, {false, false}} {
			rows := func(all [][]string, nulls bool) [][]string {
				return slices.DeleteFunc(slices.Clone(all), func(row []string) bool { return row[1] == "-" && !nulls })
			}
			l := input(columns("l", nullable[0]), 2, rows(left, nullable[0])...)
			r := input(columns("r", nullable[1]), 2, rows(right, nullable[1])...)
			spec := &join.Spec{Kind: kind, On: []join.On{{Left: "a"}, {Left: "b"}}, Columns: []join.Column{{Name: "a", From: "key.a"}, {Name: "b", From: "key.b"}}}
			j, err := join.Compile(spec, l.columns, r.columns)
			if err != nil {
				t.Fatal(err)
			}
			got, err := run(j, l, r)
			if err != nil {
				t.Fatal(err)
			}
			by := j.Order()
			if !slices.IsSortedFunc(got, func(x, y []string) int { return slices.Compare(x[:len(by)], y[:len(by)]) }) {
				t.Errorf("%s, nullable %v: not sorted by %v: %v", kind, nullable, by, got)
			}
			if kind == join.Inner && len(by) != 2 {
				t.Errorf("%s, nullable %v: sorted by %v", kind, nullable, by)
			}
		}
	}
}

func compileRapid(t *rapid.T, s *join.Spec, left, right *rows) *join.Join {
	j, err := join.Compile(s, left.columns, right.columns)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// draw returns rows sorted by the key, nulls anywhere.
func draw(t *rapid.T, side string, two bool, until string) *rows {
	types := []columnar.Type{columnar.String, columnar.Bytes}
	columns := []columnar.Column{
		column("k", rapid.SampledFrom(types).Draw(t, "type"), true), column("n", columnar.Int64, true), column(side, columnar.Int64, false),
	}
	texts := []string{"", "a", "ab", "b", "a\x00", "\x00"}
	keys := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) [2]string {
		k := rapid.SampledFrom(append(texts, "-")).Draw(t, "k")
		if until != "" && k != "-" && rapid.Bool().Draw(t, "rest") {
			k += until + rapid.SampledFrom(texts).Draw(t, "after")
		}
		return [2]string{k, rapid.SampledFrom([]string{"-9", "0", "7", "-"}).Draw(t, "n")}
	}), 0, 12).Draw(t, side)
	slices.SortStableFunc(keys, func(a, b [2]string) int {
		x, y := 0, 0
		_, _ = fmt.Sscan(a[1], &x)
		_, _ = fmt.Sscan(b[1], &y)
		if !two {
			x, y = 0, 0
		}
		return cmp.Or(cmp.Compare(part(a[0], until), part(b[0], until)), cmp.Compare(x, y))
	})
	var all [][]string
	for i, k := range keys {
		all = append(all, []string{k[0], k[1], fmt.Sprint(i)})
	}
	return input(columns, rapid.IntRange(1, 4).Draw(t, "batch"), all...)
}

func part(k, until string) string {
	if until == "" {
		return k
	}
	before, _, _ := strings.Cut(k, until)
	return before
}

// nestedLoops is the definition of a join.
func nestedLoops(kind string, left, right [][]string, two bool, until string) [][]string {
	quote := func(s string) string {
		if s == "-" {
			return "null"
		}
		return fmt.Sprintf("%q", s)
	}
	null := func(s string) string {
		if s == "-" {
			return "null"
		}
		return s
	}
	outer := kind != join.Semi && kind != join.Anti
	row := func(l, r []string) []string {
		either, k := l, until
		if l == nil {
			either, k = r, ""
		}
		key := either[0]
		if key != "-" {
			key = part(key, k)
		}
		out := []string{quote(key), "null", "null"}
		if l != nil {
			out[1], out[2] = quote(l[0]), l[2]
		}
		if outer && r != nil {
			out = append(out, quote(r[0]), r[2])
		} else if outer {
			out = append(out, "null", "null")
		}
		if two {
			out = append(out, null(either[1]))
		}
		return out
	}
	equal := func(l, r []string) bool {
		if l[0] == "-" || r[0] == "-" || two && (l[1] == "-" || r[1] == "-") {
			return false
		}
		return part(l[0], until) == r[0] && (!two || l[1] == r[1])
	}
	var out [][]string
	for _, l := range left {
		found := false
		for _, r := range right {
			if equal(l, r) {
				if outer {
					out = append(out, row(l, r))
				}
				found = true
			}
		}
		if kind == join.Semi && found || !found && (kind == join.Anti || kind == join.Left || kind == join.Full) {
			out = append(out, row(l, nil))
		}
	}
	if kind == join.Right || kind == join.Full {
		for _, r := range right {
			if !slices.ContainsFunc(left, func(l []string) bool { return equal(l, r) }) {
				out = append(out, row(nil, r))
			}
		}
	}
	return out
}

func sortRows(all [][]string) {
	slices.SortFunc(all, slices.Compare)
}

// TestMemory: what does not fit is an error that says what, not more memory.
func TestMemory(t *testing.T) {
	t.Parallel()
	many := func(n int, key func(i int) string) [][]string {
		var all [][]string
		for i := range n {
			all = append(all, []string{key(i), "1"})
		}
		return all
	}
	for name, test := range map[string]struct {
		method string
		right  [][]string
		fits   bool
		want   string
	}{
		"merge, many keys": {join.Merge, many(5000, func(i int) string { return fmt.Sprintf("%06d", i) }), true, ""},
		"merge, one key":   {join.Merge, many(5000, func(int) string { return "k" }), false, `key "k"`},
		"hash":             {join.Hash, many(5000, func(i int) string { return fmt.Sprintf("%06d", i) }), false, "the right side"},
		"hash, few":        {join.Hash, many(50, func(i int) string { return fmt.Sprintf("%06d", i) }), true, ""},
	} {
		left, right := input(viewColumns, 100, []string{"k", "/"}), input(userColumns, 100, test.right...)
		j := compile(t, &join.Spec{Method: test.method, MemoryBytes: 20 << 10, On: []join.On{{Left: "user", Right: "id"}}}, left, right)
		_, err := run(j, left, right)
		if test.fits && err != nil || !test.fits && (!errors.Is(err, join.ErrMemory) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want ErrMemory with %q: %t", name, err, test.want, !test.fits)
		}
	}
}

// A key that takes too much memory is written as the column's values are.
func TestMemoryNamesKey(t *testing.T) {
	t.Parallel()
	for typ, key := range map[columnar.Type][2]string{
		columnar.Int64:     {"1767225600000000", "key 1767225600000000 take"},
		columnar.Timestamp: {"1767225600000000", "key 2026-01-01T00:00:00Z take"},
		columnar.Bytes:     {"a\x00b", `key "a\x00b" take`},
	} {
		columns := []columnar.Column{column("k", typ, false)}
		many := make([][]string, 5000)
		for i := range many {
			many[i] = []string{key[0]}
		}
		for _, method := range []string{join.Merge, join.Hash} {
			left, right := input(columns, 100, many[0]), input(columns, 100, many...)
			j := compile(t, &join.Spec{Method: method, MemoryBytes: 20 << 10, On: []join.On{{Left: "k", Right: "k"}}}, left, right)
			if _, err := run(j, left, right); !errors.Is(err, join.ErrMemory) || !strings.Contains(err.Error(), key[1]) {
				t.Errorf("%s, %s: got %v, want %s", method, typ, err, key[1])
			}
		}
	}
}

// JSON documents take memory, too, of what is held and of a batch that is handed out.
func TestMemoryOfJSON(t *testing.T) {
	t.Parallel()
	columns := []columnar.Column{{Name: "id", Type: columnar.String}, {Name: "doc", Type: columnar.JSON}}
	document := `"` + strings.Repeat("x", 100<<10) + `"`
	var users, views [][]string
	for i := range 60 {
		users = append(users, []string{fmt.Sprintf("%02d", i), document})
		views = append(views, []string{fmt.Sprintf("%02d", i), "/"})
	}
	inputs := func() (left, right *rows) { return input(viewColumns, 10, views...), input(columns, 10, users...) }
	for _, test := range []struct {
		memory int64
		fits   bool
	}{{5 << 20, false}, {8 << 20, true}} {
		left, right := inputs()
		j := compile(t, &join.Spec{Method: join.Hash, MemoryBytes: test.memory, On: []join.On{{Left: "user", Right: "id"}}}, left, right)
		batches, most := 0, 0
		err := j.Run(t.Context(), left, right, func(b *columnar.Batch) error {
			batches++
			most = max(most, b.Rows())
			return nil
		})
		if test.fits && err != nil || !test.fits && !errors.Is(err, join.ErrMemory) {
			t.Errorf("memory of %d: Got %v", test.memory, err)
		}
		if test.fits && (batches < 2 || most > columnar.DefaultBatchBytes/len(document)+1) {
			t.Errorf("Got %d batches of up to %d rows of 100 KB", batches, most)
		}
	}
}

// TestLookup: a lookup asks once for a batch of the left side, for less where the
// answer does not fit memory, for nothing where all keys are null, and gives the rows
// in the order of the left side.
func TestLookup(t *testing.T) {
	t.Parallel()
	var views, users, want [][]string
	for i := range 100 {
		id := fmt.Sprintf("%02d", i*37%100)
		views = append(views, []string{id, "/"})
		users = append(users, []string{fmt.Sprintf("%02d", i), fmt.Sprint(i)})
		want = append(want, []string{fmt.Sprintf("%q", id), `"/"`, fmt.Sprint(i * 37 % 100)})
	}
	views = append(views, []string{"-", "/"})
	const all = 100 * (2*9 + 2 + 5 + 64 + 4)
	for name, test := range map[string]struct {
		memory  int64
		size    int
		answers int
	}{
		"all fit":                  {memory: all, size: 101, answers: 1},
		"in batches":               {memory: all, size: 10, answers: 10}, // the last has a null alone
		"one half, then the other": {memory: all / 2, size: 101, answers: 3},
	} {
		left, right := input(viewColumns, test.size, views...), input(userColumns, 7, users...)
		spec := &join.Spec{Method: join.Lookup, MemoryBytes: test.memory, On: []join.On{{Left: "user", Right: "id"}}}
		j := compile(t, spec, left, right)
		f := &finder{rows: right, column: "id"}
		var got [][]string
		err := j.RunLookup(t.Context(), left, f, func(b *columnar.Batch) error {
			got = append(got, columnartest.Texts(b)...)
			return nil
		})
		if err != nil || f.answers != test.answers {
			t.Errorf("%s: Got %d answers, %v, want %d", name, f.answers, err, test.answers)
		}
		if d := gocmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	left, right := input(viewColumns, 1, views...), input(userColumns, 1, users...)
	j := compile(t, &join.Spec{Method: join.Lookup, MemoryBytes: 50, On: []join.On{{Left: "user", Right: "id"}}}, left, right)
	if _, err := run(j, left, right); !errors.Is(err, join.ErrMemory) {
		t.Errorf("A row larger than the memory: got %v, want ErrMemory", err)
	}
	broken := errors.New("broken")
	left = input(viewColumns, 1, []string{"a", "/"})
	if err := j.RunLookup(t.Context(), left, &finder{rows: right, column: "id", err: broken}, nil); !errors.Is(err, broken) {
		t.Errorf("Got %v, want the finder's error", err)
	}
	if err := j.Run(t.Context(), left, right, nil); err == nil {
		t.Error("Run did a lookup")
	}
	if err := compile(t, &join.Spec{On: j.On()}, left, right).RunLookup(t.Context(), left, &finder{rows: right}, nil); err == nil {
		t.Error("RunLookup did a merge")
	}
}

// TestNotSorted: a merge of what is not sorted is refused, whichever side it is.
func TestNotSorted(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"left", "right"} {
		views, users := [][]string{{"a", "/"}, {"c", "/"}}, [][]string{{"a", "1"}, {"b", "1"}}
		want := `right side has "a" after "b"`
		if side == "left" {
			slices.Reverse(views)
			want = `left side has "a" after "c"`
		} else {
			slices.Reverse(users)
		}
		left, right := input(viewColumns, 1, views...), input(userColumns, 1, users...)
		j := compile(t, &join.Spec{Kind: join.Full, On: []join.On{{Left: "user", Right: "id"}}}, left, right)
		if _, err := run(j, left, right); !errors.Is(err, join.ErrNotSorted) || !strings.Contains(err.Error(), want) {
			t.Errorf("Got %v, want ErrNotSorted with %s", err, want)
		}
	}
}

// TestStops: the errors of inputs, of write and of the context end a join.
func TestStops(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, method := range []string{join.Merge, join.Hash} {
		spec := &join.Spec{Kind: join.Full, Method: method, On: []join.On{{Left: "user", Right: "id"}}}
		left, right := input(viewColumns, 1, []string{"a", "/"}), input(userColumns, 1, []string{"a", "1"})
		j := compile(t, spec, left, right)
		if err := j.Run(t.Context(), left, right, func(*columnar.Batch) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("%s, write: got %v", method, err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(broken)
		left, right = input(viewColumns, 1, []string{"a", "/"}), input(userColumns, 1, []string{"a", "1"})
		if err := j.Run(ctx, left, right, func(*columnar.Batch) error { return nil }); !errors.Is(err, broken) {
			t.Errorf("%s, cancelled: got %v", method, err)
		}
		for side := range 2 {
			in := []join.Input{input(viewColumns, 1, []string{"a", "/"}), input(userColumns, 1, []string{"a", "1"})}
			in[side] = failing{in[side].(*rows), broken}
			if err := j.Run(t.Context(), in[0], in[1], func(*columnar.Batch) error { return nil }); !errors.Is(err, broken) {
				t.Errorf("%s, input: got %v", method, err)
			}
		}
		if err := j.Run(t.Context(), input(userColumns, 1), input(userColumns, 1), nil); err == nil {
			t.Errorf("%s: got no error for other columns", method)
		}
	}
}

// failing is rows with an error at their end.
type failing struct {
	*rows
	err error
}

func (f failing) Next() (*columnar.Batch, error) {
	b, err := f.rows.Next()
	if err == io.EOF {
		err = f.err
	}
	return b, err
}

func TestCompile(t *testing.T) {
	t.Parallel()
	on := []join.On{{Left: "user", Right: "id"}}
	float := column("x", columnar.Float64, true)
	for name, test := range map[string]struct {
		spec        join.Spec
		left, right []columnar.Column
		want        string
	}{
		"nothing":          {join.Spec{}, nil, nil, "on: there is no column to join by"},
		"kind":             {join.Spec{Kind: "outer", On: on}, nil, nil, `kind: "outer" is no kind of join; it is inner, left, right, full, semi, anti`},
		"method":           {join.Spec{Method: "loop", On: on}, nil, nil, `method: "loop" is no method; it is merge, hash, lookup`},
		"memory":           {join.Spec{MemoryBytes: -1, On: on}, nil, nil, "memory_bytes: -1 is negative"},
		"no such column":   {join.Spec{On: []join.On{{Left: "usr", Right: "id"}}}, nil, nil, `on[0].left: the left side has no column "usr"; it has user, page`},
		"right's default":  {join.Spec{On: []join.On{{Left: "user"}}}, nil, nil, `on[0].right: the right side has no column "user"; it has id, age`},
		"types":            {join.Spec{On: []join.On{{Left: "user", Right: "age"}}}, nil, nil, "on[0]: user is string, age is int64: they are never equal"},
		"float":            {join.Spec{On: []join.On{{Left: "x"}}}, []columnar.Column{float}, []columnar.Column{float}, "on[0]: a float64 is no key: what is equal is a matter of rounding"},
		"map":              {join.Spec{On: []join.On{{Left: "x"}}}, []columnar.Column{{Name: "x", Type: mapType}}, []columnar.Column{{Name: "x", Type: mapType}}, "on[0]: a map is no key: join by one of its values as a column of its own"},
		"json":             {join.Spec{On: []join.On{{Left: "x"}}}, []columnar.Column{{Name: "x", Type: columnar.JSON}}, []columnar.Column{{Name: "x", Type: columnar.JSON}}, "on[0]: json is no key: what is equal has many texts"},
		"twice":            {join.Spec{On: []join.On{on[0], on[0]}}, nil, nil, "on[1].left: user is named twice"},
		"part of a number": {join.Spec{On: []join.On{{Left: "age", RightPart: join.Part{Bytes: 1}}}}, userColumns, userColumns, "on[0].right_part: int64 has no parts, only string and bytes have"},
		"part":             {join.Spec{On: []join.On{{Left: "user", Right: "id", LeftPart: join.Part{Bytes: 1, Until: "|"}}}}, nil, nil, "on[0].left_part: it is either bytes or until"},
		"negative part":    {join.Spec{On: []join.On{{Left: "user", Right: "id", LeftPart: join.Part{Bytes: -1}}}}, nil, nil, "on[0].left_part.bytes: -1 is negative"},
		"from":             {join.Spec{On: on, Columns: []join.Column{{Name: "a", From: "user"}}}, nil, nil, `columns[0].from: "user" is not left.COLUMN, right.COLUMN or key.COLUMN`},
		"key":              {join.Spec{On: on, Columns: []join.Column{{Name: "a", From: "key.id"}}}, nil, nil, `columns[0].from: "id" is no column of the key`},
		"name":             {join.Spec{On: on, Columns: []join.Column{{From: "key.user"}}}, nil, nil, "columns[0].name: it is missing"},
		"same name":        {join.Spec{On: on, Columns: []join.Column{{Name: "a", From: "key.user"}, {Name: "A", From: "left.page"}}}, nil, nil, `columns[1].name: "A" is given twice (upper and lower case count as equal); name the columns`},
		"lookup right":     {join.Spec{Kind: join.Full, Method: join.Lookup, On: on}, nil, nil, "kind: a lookup does not read the whole right side, so it cannot tell which rows of it have no partner; a full join is done by merge or hash"},
		"lookup two":       {join.Spec{Method: join.Lookup, On: []join.On{on[0], {Left: "page", Right: "id"}}}, nil, nil, "on[1]: a lookup is by one column, the right side's row key"},
		"lookup part":      {join.Spec{Method: join.Lookup, On: []join.On{{Left: "user", Right: "id", RightPart: join.Part{Bytes: 1}}}}, nil, nil, "on[0].right_part: a lookup is by the whole row key of the right side; a beginning of it is joined by merge or hash"},
		"lookup number":    {join.Spec{Method: join.Lookup, On: []join.On{{Left: "age"}}}, userColumns, userColumns, "on[0].right: a lookup is by a string or bytes, not by int64"},
		"semi":             {join.Spec{Kind: join.Semi, On: on, Columns: []join.Column{{Name: "a", From: "right.age"}}}, nil, nil, "columns[0].from: a semi join has no columns of the right side"},
	} {
		left, right := test.left, test.right
		if left == nil {
			left, right = viewColumns, userColumns
		}
		_, err := join.Compile(&test.spec, left, right)
		if err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
}

// TestColumns: the default columns, their types, and where nulls can be.
func TestColumns(t *testing.T) {
	t.Parallel()
	left := []columnar.Column{column("k", columnar.String, false), column("l", columnar.Int64, false)}
	right := []columnar.Column{column("k", columnar.Bytes, true), column("r", columnar.Int64, false)}
	for kind, want := range map[string][]columnar.Column{
		join.Inner: {column("k", columnar.Bytes, false), column("l", columnar.Int64, false), column("r", columnar.Int64, false)},
		join.Left:  {column("k", columnar.Bytes, false), column("l", columnar.Int64, false), column("r", columnar.Int64, true)},
		join.Right: {column("k", columnar.Bytes, true), column("l", columnar.Int64, true), column("r", columnar.Int64, false)},
		join.Full:  {column("k", columnar.Bytes, true), column("l", columnar.Int64, true), column("r", columnar.Int64, true)},
		join.Anti:  {column("k", columnar.Bytes, false), column("l", columnar.Int64, false)},
	} {
		j, err := join.Compile(&join.Spec{Kind: kind, On: []join.On{{Left: "k"}}}, left, right)
		if err != nil {
			t.Fatal(err)
		}
		if d := gocmp.Diff(want, j.Columns()); d != "" {
			t.Errorf("%s: %s", kind, d)
		}
		var order []string
		if !want[0].Nullable {
			order = []string{"k"}
		}
		if d := gocmp.Diff(order, j.Order()); d != "" {
			t.Errorf("%s: order %s", kind, d)
		}
	}
}

// TestDecimalKeys joins by decimals of more digits than 64 bits hold, by merge in the
// order of numbers with a sign, and by hash.
func TestDecimalKeys(t *testing.T) {
	t.Parallel()
	columns := func(side string) []columnar.Column {
		return []columnar.Column{column("d", decimal38, true), column(side, columnar.Int64, false)}
	}
	most := strings.Repeat("9", 38)
	left := [][]string{{"-" + most, "1"}, {"-18446744073709551616", "2"}, {"-1", "3"}, {"0", "4"}, {"18446744073709551616", "5"}, {most, "6"}, {"-", "7"}}
	right := [][]string{{"-" + most, "1"}, {"-18446744073709551615", "2"}, {"-1", "3"}, {"0", "4"}, {"0", "5"}, {"18446744073709551617", "6"}, {most, "7"}}
	point := func(s string) string { return s[:len(s)-2] + "." + s[len(s)-2:] }
	want := [][]string{{point("-" + most), "1", "1"}, {"-0.01", "3", "3"}, {"0.00", "4", "4"}, {"0.00", "4", "5"}, {point(most), "6", "7"}}
	spec := func(method string) *join.Spec {
		return &join.Spec{Method: method, On: []join.On{{Left: "d"}}, Columns: []join.Column{{Name: "d", From: "key.d"}, {Name: "l", From: "left.l"}, {Name: "r", From: "right.r"}}}
	}
	for _, method := range []string{join.Merge, join.Hash} {
		l, r := input(columns("l"), 2, left...), input(columns("r"), 3, right...)
		got, err := run(compile(t, spec(method), l, r), l, r)
		if err != nil {
			t.Fatal(err)
		}
		sortRows(got)
		sorted := slices.Clone(want)
		sortRows(sorted)
		if d := gocmp.Diff(sorted, got); d != "" {
			t.Errorf("%s: %s", method, d)
		}
	}
	l, r := input(columns("l"), 2, []string{"5", "1"}, []string{"-500", "2"}), input(columns("r"), 2, right...)
	_, err := run(compile(t, spec(join.Merge), l, r), l, r)
	if !errors.Is(err, join.ErrNotSorted) || !strings.Contains(err.Error(), "has -5.00 after 0.05;") {
		t.Errorf("Got %v, want both keys", err)
	}
	narrow, _ := columnar.Decimal(18, 2)
	if _, err := join.Compile(spec(join.Merge), columns("l"), []columnar.Column{column("d", narrow, true), column("r", columnar.Int64, false)}); err == nil || !strings.Contains(err.Error(), "d is decimal(38,2), d is decimal(18,2): they are never equal") {
		t.Errorf("Got %v for decimals of two types", err)
	}
}
