package jobs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/join"
	"sluice/store"
	"sluice/store/memstore"
)

// counted is a Source that counts the rows that are read of one table.
type counted struct {
	instant.Source
	table string
	rows  map[string]int // by key
}

func (c *counted) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	sc := c.Source.Scan(ctx, s)
	if s.Table != c.table {
		return sc
	}
	return &countedScanner{sc, c.rows}
}

type countedScanner struct {
	store.Scanner
	rows map[string]int
}

func (s *countedScanner) Next() bool {
	if !s.Scanner.Next() {
		return false
	}
	s.rows[string(s.Row().Key)]++
	return true
}

// lookupSource is a table of views, whose column user is the row key of the table
// of users, of one in two users, of nobody, or absent, and which is sorted by
// something else.
func lookupSource(t *testing.T) store.Snapshot {
	t.Helper()
	s, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for table, at := range map[string][]byte{"views": []byte("0300"), "users": []byte("u040")} {
		schema := &store.TableDescriptor{Name: table, Families: []store.FamilyDescriptor{store.NewFamily("e")}}
		if err := s.CreateTable(t.Context(), schema, [][]byte{at}); err != nil {
			t.Fatal(err)
		}
	}
	write := func(m *cell.Mutation) {
		if _, err := s.MutateRow(t.Context(), nil, m); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 600 {
		m := &cell.Mutation{Table: "views", Row: fmt.Appendf(nil, "%04d", i)}
		m.Put("e", []byte("page"), 1, fmt.Appendf(nil, "/%d", i%5))
		switch {
		case i%50 == 7: // the key of no row
			m.Put("e", []byte("user"), 1, nil)
		case i%50 == 8:
			m.Put("e", []byte("user"), 1, make([]byte, cell.MaxRowLength+1))
		case i%10 != 9:
			m.Put("e", []byte("user"), 1, fmt.Appendf(nil, "u%03d", i*31%80))
		}
		write(m)
	}
	for i := range 200 {
		m := &cell.Mutation{Table: "users", Row: fmt.Appendf(nil, "u%03d", i)}
		m.Put("e", []byte("country"), 1, fmt.Appendf(nil, "c%d", i%3))
		if i%2 == 0 {
			m.Put("e", []byte("age"), 1, fmt.Append(nil, i))
		}
		write(m)
	}
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = snapshot.Close() })
	return snapshot
}

// TestLookupIsHash: a lookup gives what a hash join of the same jobs gives, in the
// same order, and reads no row that was not asked for.
func TestLookupIsHash(t *testing.T) {
	t.Parallel()
	source := lookupSource(t)
	perRow := []columnar.ColumnSpec{{Name: "name", From: "$row", Type: "bytes"}, {Name: "country", From: "e:country", Type: "string"}, {Name: "age", From: "e:age", Type: "int64"}}
	perCell := []columnar.ColumnSpec{{Name: "name", From: "$row", Type: "bytes"}, {Name: "column", From: "$qualifier", Type: "string"}}
	views := mustCompile(t, "views", &Spec{Table: "views", Columns: []columnar.ColumnSpec{
		{Name: "key", From: "$row", Type: "string"}, {Name: "user", From: "e:user", Type: "bytes"}, {Name: "page", From: "e:page", Type: "string"},
	}}, nil)
	for name, users := range map[string]*Spec{
		"all":    {Columns: perRow},
		"rows":   {Columns: perRow, StartRow: "u010", StopRow: "u060"},
		"filter": {Columns: perRow, Filter: "SingleColumnValueFilter('e', 'age', >=, 'binary:3', true, true) AND QualifierFilter(!=, 'binary:country')"},
		"cells":  {Columns: perCell, Rows: "cell"},
		"none":   {Columns: perRow, StartRow: "v"},
	} {
		users.Table = "users"
		job := mustCompile(t, "users", users, nil)
		for _, kind := range []string{join.Inner, join.Left, join.Semi, join.Anti} {
			var content [2][][]string
			for i, method := range []string{join.Hash, join.Lookup} {
				spec := &JoinSpec{
					Left: JoinSide{Job: "views"}, Right: JoinSide{Job: "users"},
					Spec: join.Spec{Kind: kind, Method: method, On: []join.On{{Left: "user", Right: "name"}}},
				}
				j, err := CompileJoin("j", spec, func(name string) *Job { return map[string]*Job{"views": views, "users": job}[name] })
				if err != nil {
					t.Fatal(err)
				}
				out := t.TempDir()
				counter := &counted{Source: source, table: "users", rows: map[string]int{}}
				m, err := RunJoin(t.Context(), &JoinOptions{Join: j, Source: counter, Out: out})
				if err != nil {
					t.Fatalf("%s, %s %s: %v", name, method, kind, err)
				}
				r, err := Verify(t.Context(), filepath.Join(out, "j"))
				if err != nil || !r.OK() || m.Join.Method != method {
					t.Errorf("%s, %s %s: Verify: %v, %v", name, method, kind, err, r.Err())
				}
				content[i] = readFormat(t, r.Dir, m, Parquet)
				for key := range counter.rows {
					if method == join.Lookup && key >= "u080" {
						t.Errorf("%s %s: read row %s, which nobody asked for", name, kind, key)
					}
				}
			}
			if d := cmp.Diff(content[0], content[1]); d != "" {
				t.Errorf("%s, %s: hash and lookup differ: %s", name, kind, d)
			}
			if wantRows := name != "none" || kind == join.Left || kind == join.Anti; wantRows != (len(content[1]) > 0) {
				t.Errorf("%s, %s: Got %d rows", name, kind, len(content[1]))
			}
		}
	}
}

// TestLookupRefused is what a lookup cannot be done with, and a row whose value its
// column cannot take.
func TestLookupRefused(t *testing.T) {
	t.Parallel()
	columns := []columnar.ColumnSpec{
		{Name: "key", From: "$row", Type: "string"},
		{Name: "maybe", From: "$row", Type: "string", OnError: columnar.OnErrorNull},
		{Name: "page", From: "e:page", Type: "string"},
		{Name: "back", From: "$row", Type: "string", Coding: "reverse"},
	}
	job := mustCompile(t, "views", &Spec{Table: "views", Columns: columns}, nil)
	for right, want := range map[string]string{
		"page":  "on[0].right: a lookup is by the row key, and page is not it as it is stored: name a column from $row without on_error: null and without a coding, or join by hash",
		"back":  "on[0].right: a lookup is by the row key, and back is not it as it is stored: name a column from $row without on_error: null and without a coding, or join by hash",
		"maybe": "on[0].right: a lookup is by the row key, and maybe is not it as it is stored: name a column from $row without on_error: null and without a coding, or join by hash",
	} {
		spec := &JoinSpec{Left: JoinSide{Job: "views"}, Right: JoinSide{Job: "views"}, Spec: join.Spec{
			Method: join.Lookup, On: []join.On{{Left: "page", Right: right}}, Columns: []join.Column{{Name: "a", From: "left.key"}},
		}}
		if _, err := CompileJoin("j", spec, func(string) *Job { return job }); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", right, err, want)
		}
	}
	spec := &JoinSpec{Left: JoinSide{Run: "a"}, Right: JoinSide{Run: "b"}, Spec: join.Spec{Method: join.Lookup, On: []join.On{{Left: "key"}}}}
	const want = "method: a lookup asks a table for rows; published runs are joined by merge or hash"
	if _, err := CompileJoin("j", spec, nil); err == nil || err.Error() != want {
		t.Errorf("Got %v, want %s", err, want)
	}
	broken := slices.Clone(columns[:1])
	broken = append(broken, columnar.ColumnSpec{Name: "country", From: "e:country", Type: "int64"})
	users := mustCompile(t, "users", &Spec{Table: "users", Columns: broken}, nil)
	views := mustCompile(t, "views", &Spec{Table: "views", Columns: []columnar.ColumnSpec{{Name: "user", From: "e:user", Type: "string"}}}, nil)
	spec = &JoinSpec{Left: JoinSide{Job: "views"}, Right: JoinSide{Job: "users"}, Spec: join.Spec{Method: join.Lookup, On: []join.On{{Left: "user", Right: "key"}}}}
	j, err := CompileJoin("j", spec, func(name string) *Job { return map[string]*Job{"views": views, "users": users}[name] })
	if err != nil {
		t.Fatal(err)
	}
	refused := (*columnar.ConvertError)(nil)
	if _, err := RunJoin(t.Context(), &JoinOptions{Join: j, Source: lookupSource(t), Out: t.TempDir()}); !errors.As(err, &refused) || refused.Table != "users" {
		t.Errorf("Got %v, want a ConvertError of table users", err)
	}
}
