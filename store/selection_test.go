package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
)

// testTable has families a, b (VERSIONS 3) and n (NEW_VERSION_BEHAVIOR, 3).
func testTable(t *testing.T) *TableDescriptor {
	t.Helper()
	d := &TableDescriptor{Name: "t", Families: []FamilyDescriptor{NewFamily("n"), NewFamily("b"), NewFamily("a"), NewFamily("c")}}
	d.Families[0].Versions, d.Families[0].NewVersionBehavior = 3, true
	d.Families[1].Versions = 3
	d.Families[3].Counter = true
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSelectionRows(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		scan  Scan
		want  cell.Range
		empty bool
	}{
		{"all", Scan{}, cell.Range{}, false},
		{"bounds", Scan{Start: []byte("a"), Stop: []byte("c")}, cell.Range{Start: []byte("a"), Stop: []byte("c")}, false},
		{"flags", Scan{Start: []byte("a"), Stop: []byte("c"), StartExclusive: true, StopInclusive: true}, cell.Range{Start: []byte("a\x00"), Stop: []byte("c\x00")}, false},
		{"flags of open ends", Scan{StartExclusive: true, StopInclusive: true}, cell.Range{}, false},
		{"reversed", Scan{Start: []byte("c"), Stop: []byte("a"), Reversed: true}, cell.Range{Start: []byte("a\x00"), Stop: []byte("c\x00")}, false},
		{"reversed flags", Scan{Start: []byte("c"), Stop: []byte("a"), Reversed: true, StartExclusive: true, StopInclusive: true}, cell.Range{Start: []byte("a"), Stop: []byte("c")}, false},
		{"reversed from the end", Scan{Stop: []byte("a"), Reversed: true}, cell.Range{Start: []byte("a\x00")}, false},
		{"prefix", Scan{Prefix: []byte("ab")}, cell.Range{Start: []byte("ab"), Stop: []byte("ac")}, false},
		{"prefix of FF", Scan{Prefix: []byte("\xff\xff")}, cell.Range{Start: []byte("\xff\xff")}, false},
		{"prefix within bounds", Scan{Start: []byte("abc"), Stop: []byte("b"), Prefix: []byte("ab")}, cell.Range{Start: []byte("abc"), Stop: []byte("ac")}, false},
		{"prefix reversed", Scan{Start: []byte("abz"), Prefix: []byte("ab"), Reversed: true}, cell.Range{Start: []byte("ab"), Stop: []byte("abz\x00")}, false},
		{"same row", Scan{Start: []byte("a"), Stop: []byte("a")}, cell.Range{Start: []byte("a"), Stop: []byte("a")}, true},
		{"one row", Scan{Start: []byte("a"), Stop: []byte("a"), StopInclusive: true}, cell.Range{Start: []byte("a"), Stop: []byte("a\x00")}, false},
		{"backwards", Scan{Start: []byte("c"), Stop: []byte("a")}, cell.Range{Start: []byte("c"), Stop: []byte("a")}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			sel, err := NewSelection(&test.scan, testTable(t))
			if err != nil {
				t.Fatal(err)
			}
			if sel.Empty() != test.empty {
				t.Errorf("Empty() = %v, want %v", sel.Empty(), test.empty)
			}
			if d := cmp.Diff(test.want, sel.Rows()); d != "" {
				t.Errorf("Rows() (-want +got):\n%s", d)
			}
		})
	}
}

func TestSelectionFamilies(t *testing.T) {
	t.Parallel()
	any := &ValueFilter{Op: Equal, Comparator: Binary(nil)}
	general, own := &cell.TimeRange{Min: 1, Max: 5}, cell.TimeRange{Min: 2, Max: 3}
	type family struct {
		Name                string
		Qualifiers          []string
		Versions, Requested int
		Time                *cell.TimeRange
	}
	for _, test := range []struct {
		name string
		scan Scan
		want []family
	}{
		{"all", Scan{}, []family{{Name: "a", Versions: 1, Requested: 1}, {Name: "b", Versions: 1, Requested: 1}, {Name: "c", Versions: 1, Requested: 1}, {Name: "n", Versions: 1, Requested: 1}}},
		{"versions", Scan{Versions: AllVersions, Columns: []Column{{Family: "b", All: true}, {Family: "a", All: true}}}, []family{{Name: "a", Versions: 1, Requested: 1}, {Name: "b", Versions: 3, Requested: 3}}},
		{"filtered", Scan{Versions: 2, Filter: any, Columns: []Column{{Family: "n", All: true}, {Family: "b", All: true}}}, []family{{Name: "b", Versions: 3, Requested: 2}, {Name: "n", Versions: 2, Requested: 2}}},
		{"raw", Scan{Versions: 7, Raw: true, Columns: []Column{{Family: "a", All: true}}}, []family{{Name: "a", Versions: 7, Requested: 7}}},
		{"columns", Scan{Columns: []Column{{Family: "a", Qualifier: []byte("y")}, {Family: "a", Qualifier: []byte("x")}, {Family: "a", Qualifier: []byte("y")}, {Family: "a"}}}, []family{{Name: "a", Qualifiers: []string{"", "x", "y"}, Versions: 1, Requested: 1}}},
		{"widened", Scan{Columns: []Column{{Family: "a", Qualifier: []byte("x")}, {Family: "a", All: true}}}, []family{{Name: "a", Versions: 1, Requested: 1}}},
		{"narrowed", Scan{Columns: []Column{{Family: "a", All: true}, {Family: "a", Qualifier: []byte("x")}}}, []family{{Name: "a", Qualifiers: []string{"x"}, Versions: 1, Requested: 1}}},
		{"time", Scan{Time: general, FamilyTime: map[string]cell.TimeRange{"b": own}, Columns: []Column{{Family: "a", All: true}, {Family: "b", All: true}}}, []family{{Name: "a", Versions: 1, Requested: 1, Time: general}, {Name: "b", Versions: 1, Requested: 1, Time: &own}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			table := testTable(t)
			sel, err := NewSelection(&test.scan, table)
			if err != nil {
				t.Fatal(err)
			}
			var got []family
			for _, sf := range sel.Families() {
				f := family{Name: sf.Family.Name, Versions: sf.Versions, Requested: sf.Requested, Time: sf.Time}
				for _, q := range sf.Qualifiers {
					f.Qualifiers = append(f.Qualifiers, string(q))
				}
				got = append(got, f)
				if table.Families[sf.Index].Name != sf.Family.Name {
					t.Errorf("Index %d of family %s", sf.Index, sf.Family.Name)
				}
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("Families() (-want +got):\n%s", d)
			}
		})
	}
}

// A selection outlives the scan that it was made of.
func TestSelectionKeepsNothing(t *testing.T) {
	t.Parallel()
	start, stop, prefix, q := []byte("ra"), []byte("rz"), []byte("r"), []byte("q")
	tr := &cell.TimeRange{Min: 1, Max: 9}
	sel, err := NewSelection(&Scan{Start: start, Stop: stop, Prefix: prefix, Time: tr, Columns: []Column{{Family: "a", Qualifier: q}}}, testTable(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{start, stop, prefix, q} {
		clear(b)
	}
	tr.Max = 2
	if r := sel.Rows(); string(r.Start) != "ra" || string(r.Stop) != "rz" {
		t.Errorf("Rows() = %q", r)
	}
	if f := sel.Families()[0]; string(f.Qualifiers[0]) != "q" || f.Time.Max != 9 {
		t.Errorf("Families()[0] = %+v", f)
	}
}

func TestSelectionErrors(t *testing.T) {
	t.Parallel()
	long := []byte(strings.Repeat("r", cell.MaxRowLength+1))
	for _, test := range []struct {
		name string
		scan Scan
		want error
	}{
		{"versions", Scan{Versions: -1}, ErrInvalidArgument},
		{"limit", Scan{Limit: -1}, ErrInvalidArgument},
		{"batch", Scan{Batch: -1}, ErrInvalidArgument},
		{"limit per family", Scan{LimitPerFamily: -1}, ErrInvalidArgument},
		{"offset per family", Scan{OffsetPerFamily: -1}, ErrInvalidArgument},
		{"start", Scan{Start: long}, ErrInvalidArgument},
		{"stop", Scan{Stop: long}, ErrInvalidArgument},
		{"time backwards", Scan{Time: &cell.TimeRange{Min: 2, Max: 1}}, ErrInvalidArgument},
		{"time negative", Scan{Time: &cell.TimeRange{Min: -2, Max: 1}}, ErrInvalidArgument},
		{"family time", Scan{FamilyTime: map[string]cell.TimeRange{"a": {Min: 2, Max: 1}}}, ErrInvalidArgument},
		{"family time of none", Scan{FamilyTime: map[string]cell.TimeRange{"x": {}}}, ErrFamilyNotFound},
		{"family", Scan{Columns: []Column{{Family: "x", All: true}}}, ErrFamilyNotFound},
		{"column", Scan{Columns: []Column{{Family: "x"}}}, ErrFamilyNotFound},
		{"raw column", Scan{Raw: true, Columns: []Column{{Family: "a"}}}, ErrRefused},
		{"filter", Scan{Filter: &PageFilter{PageSize: -1}}, ErrInvalidArgument},
		{"filter and batch", Scan{Filter: &PageFilter{PageSize: 1}, Batch: 1}, ErrIncompatibleFilter},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := NewSelection(&test.scan, testTable(t)); !errors.Is(err, test.want) {
				t.Errorf("NewSelection: %v, want an error that wraps %v", err, test.want)
			}
		})
	}
}
