package config_test

import (
	"errors"
	"fmt"
	"testing"

	"sluice/cell"
	"sluice/config"
	"sluice/store"
	"sluice/store/memstore"
)

// Tables are made from the template that fits best, as it says; other names are
// nobody's.
func TestTableCreator(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("f.yaml", []byte(`
tables:
  plain:
    families: {f: {}}
  ev_*:
    families: {e: {VERSIONS: 2}, n: {COUNTER: true}}
    split: {keys: [g, p]}
  ev_raw_*:
    families: {r: {}}
  ns:d_*:
    families: {f: {}}
`), env())
	if err != nil {
		t.Fatal(err)
	}
	s, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	create := c.TableCreator(s, nil)
	for range 2 { // again: somebody was faster
		for _, name := range []string{"ev_20260101", "ev_raw_1", "ns:d_1"} {
			if err := create(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, want := range map[string]struct {
		family  string
		regions int
	}{"ev_20260101": {"e", 3}, "ev_raw_1": {"r", 1}, "ns:d_1": {"f", 1}} {
		d, err := s.Table(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.Regions(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if d.Name != name || d.Family(want.family) == nil || m.Len() != want.regions {
			t.Errorf("%s is %v with %d regions", name, d, m.Len())
		}
	}
	for _, name := range []string{"other", "plain", "ev", "ev_a b", "ev_/"} {
		if err := create(t.Context(), name); !errors.Is(err, store.ErrTableNotFound) {
			t.Errorf("create %q: %v", name, err)
		}
	}
	if got := len(c.TableSpecs()); got != 1 {
		t.Errorf("%d tables are made at the start, want 1", got)
	}
	without, err := config.Parse("f.yaml", []byte("tables: {plain: {families: {f: {}}}}\n"), env())
	if err != nil {
		t.Fatal(err)
	}
	if without.TableCreator(s, nil) != nil {
		t.Error("a file without templates has a creator")
	}
	m := &cell.Mutation{Table: "ev_20260101", Row: []byte("r")}
	m.Increment("n", []byte("q"), 1)
	if _, err := s.MutateRow(t.Context(), nil, m); err != nil {
		t.Error(err)
	}
}

// A table of the default namespace is one by both of its names, whichever the file's tables
// and whichever its rules and jobs have.
func TestDefaultNamespace(t *testing.T) {
	t.Parallel()
	for _, names := range [][3]string{{"t", "default:t", "default:t"}, {"default:t", "t", "t"}, {"t_*", "default:t_1", "default:t_1"}, {"default:t_*", "t_1", "t_1"}} {
		text := fmt.Sprintf(`
tables:
  %q:
    families: {f: {}}
pipelines:
  p: {topics: [a], group: g, decode: {format: json}, map: [{table: %q, row: user, put: {f: {q: user}}}]}
jobs:
  j: {table: %q, out: ./x, columns: [{name: a, from: "f:a", type: string}]}
`, names[0], names[1], names[2])
		if _, err := config.Parse("f.yaml", []byte(text), env()); err != nil {
			t.Errorf("%q: %v", names, err)
		}
	}
}

// The template that fits best is the same by both names of the default namespace.
func TestDefaultNamespaceTemplates(t *testing.T) {
	t.Parallel()
	text := `
tables:
  default:t_*: {families: {g: {}}}
  t_day_*: {families: {f: {}}}
pipelines:
  p: {topics: [a], group: g, decode: {format: json}, map: [{table: t_day_1, row: user, put: {f: {q: user}}}, {table: t_1, row: user, put: {g: {q: user}}}]}
`
	for range 10 { // the order of a map
		if _, err := config.Parse("f.yaml", []byte(text), env()); err != nil {
			t.Fatal(err)
		}
	}
}

// A template has no tables of other namespaces, whose names may begin as it does.
func TestTemplatesAndNamespaces(t *testing.T) {
	t.Parallel()
	text := `
tables:
  day_*: {families: {f: {}}}
  day_4:day_*: {families: {g: {}}}
`
	cfg, err := config.Parse("f.yaml", []byte(text), env())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"day_4": "f", "default:day_4": "f", "day_4:day_1": "g", "day_4:x": "", "day_5:day_1": ""} {
		got := ""
		if d := cfg.TableTemplate(name); d != nil {
			got = d.Families[0].Name
		}
		if got != want {
			t.Errorf("%s: Got family %q, want %q", name, got, want)
		}
	}
}
