package hbasestore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/join"
	"sluice/jobs/parquetfile"
	"sluice/store"
)

// TestLookupJoin: the rows that a lookup asks for are got some hundred a call, in the
// left side's order, and none of those between them is read; where the gateway's gets
// do not say what the job asks for, a row a call.
func TestLookupJoin(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createCounted(t, s)
	ctx := t.Context()
	const views, users, distinct = 1500, 4000, 500
	if err := s.CreateTable(ctx, &store.TableDescriptor{Name: "views", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	for i := range views {
		m := cell.Mutation{Table: "views", Row: fmt.Appendf(nil, "%05d", i)}
		// Of some users there is no row, and of no user there can be the last.
		m.Put("f", []byte("user"), 5, fmt.Appendf(nil, "u%05d", i*7919%distinct*9))
		if i == views-1 {
			m.Ops[0].Value = make([]byte, cell.MaxRowLength)
		}
		b.Add(0, m)
	}
	for i := range users {
		m := cell.Mutation{Table: "c", Row: fmt.Appendf(nil, "u%05d", i)}
		m.Put("f", []byte("name"), 5, fmt.Append(nil, "name ", i))
		b.Add(0, m)
	}
	if err := s.Apply(ctx, &b); err != nil {
		t.Fatal(err)
	}
	source, err := instant.OpenUnfrozen(ctx, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	compile := func(name string, spec *jobs.Spec) *jobs.Job {
		t.Helper()
		j, err := jobs.Compile(name, spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	left := compile("views", &jobs.Spec{Table: "views", Columns: []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "user", From: "f:user", Type: "bytes"}}})
	perRow := []columnar.ColumnSpec{{Name: "user", From: "$row", Type: "bytes"}, {Name: "name", From: "f:name", Type: "string"}}
	for name, test := range map[string]struct {
		right *jobs.Spec
		each  bool // a call a row
	}{
		"rows":    {&jobs.Spec{Families: []string{"f"}, Columns: perRow}, false},
		"a range": {&jobs.Spec{Families: []string{"f"}, Columns: perRow, StartRow: "u01000"}, false},
		"cells":   {&jobs.Spec{Families: []string{"f"}, Rows: "cell", Columns: []columnar.ColumnSpec{{Name: "user", From: "$row", Type: "bytes"}, {Name: "name", From: "$value", Type: "string"}}}, true},
		"filter":  {&jobs.Spec{Families: []string{"f"}, Columns: perRow, Filter: "ValueFilter(!=, 'binary:name 9')"}, true},
		"counter": {&jobs.Spec{Columns: perRow}, true}, // its timestamps have no bound
	} {
		test.right.Table = "c"
		right := compile("users", test.right)
		var files [2]string
		for i, method := range []string{join.Hash, join.Lookup} {
			j, err := jobs.CompileJoin("j", &jobs.JoinSpec{
				Left: jobs.JoinSide{Job: "views"}, Right: jobs.JoinSide{Job: "users"},
				Spec: join.Spec{Kind: join.Left, Method: method, On: []join.On{{Left: "user"}}},
			}, func(name string) *jobs.Job { return map[string]*jobs.Job{"views": left, "users": right}[name] })
			if err != nil {
				t.Fatal(err)
			}
			out := t.TempDir()
			gets, scans := g.count("getMultiple"), g.count("openScanner")+g.count("getScannerResults")+g.count("get")
			m, err := jobs.RunJoin(ctx, &jobs.JoinOptions{Join: j, Source: source, Out: out})
			if err != nil {
				t.Fatalf("%s, %s: %v", name, method, err)
			}
			gets, scans = g.count("getMultiple")-gets, g.count("openScanner")+g.count("getScannerResults")+g.count("get")-scans
			switch {
			case method == join.Hash:
			case test.each && (gets != 0 || scans < distinct || scans > distinct+10):
				t.Errorf("%s: Got %d calls of gets and %d others, want one for each of %d rows", name, gets, scans, distinct)
			case !test.each && (gets == 0 || gets > 8 || scans > 10): // of the left side
				t.Errorf("%s: Got %d calls of gets and %d others for %d rows", name, gets, scans, distinct)
			}
			r, err := jobs.Verify(ctx, filepath.Join(out, "j"))
			if err != nil || !r.OK() || len(m.Files) != 1 || m.Totals[0].Rows != views {
				t.Fatalf("%s, %s: %v, %v, %+v", name, method, err, r.Err(), m.Totals)
			}
			files[i] = parquetText(t, filepath.Join(r.Dir, m.Files[0].Path))
		}
		if files[0] != files[1] {
			t.Errorf("%s: hash and lookup differ (-hash +lookup):\n%s", name, cmp.Diff(files[0], files[1]))
		}
	}
}

// parquetText returns the rows of a file of texts.
func parquetText(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := parquetfile.NewReader(strings.NewReader(string(data)), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for {
		b, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for row := range b.Rows() {
			for c := range r.Columns() {
				if v := b.Vector(c); v.IsNull(row) {
					text.WriteString("null ")
				} else {
					fmt.Fprintf(&text, "%.20q ", v.Bytes(row))
				}
			}
			text.WriteByte('\n')
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	return text.String()
}
