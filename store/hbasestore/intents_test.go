package hbasestore

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// redrives is the source of the journal of what was redriven of views.
var redrives = store.Source{Pipeline: views.Pipeline + redriveSuffix, Topic: views.Topic, TopicID: views.TopicID}

// abandoned is a store as a process of some version has left it: cells, in the bytes of
// docs/format/hbase.md.
type abandoned struct {
	*Store
	t *testing.T
}

// leave makes table c, with a rebuild's family, and gives views number 1, its rebuild 2 and
// others 3.
func leave(t *testing.T) abandoned {
	t.Helper()
	s := dial(t, nil, newGateway(t, nil, false))
	n, again := store.NewFamily("n"), store.NewFamily("n~views~1")
	n.Counter, again.Counter = true, true
	if err := s.CreateTable(t.Context(), &store.TableDescriptor{Name: "c", Families: []store.FamilyDescriptor{store.NewFamily("f"), n, again}}, nil); err != nil {
		t.Fatal(err)
	}
	l := abandoned{s, t}
	rebuild, switches := views, store.Source{Pipeline: views.Pipeline + switcherSuffix}
	rebuild.Pipeline = "views~1"
	for name, src := range map[string]*store.Source{"00000001": &views, "00000002": &rebuild, "00000003": &redrives, "00000004": &switches} {
		l.put(sourcesTable, appendSource(nil, src), "s:source", 1, name)
	}
	l.put(sourcesTable, []byte(numbersRow), "s:numbers", 1, "0000000000000004")
	return l
}

// put puts a cell: its value in hexadecimal digits and, in quotes, text.
func (l abandoned) put(table string, row []byte, column string, at int64, value string) {
	l.t.Helper()
	var b []byte
	for _, word := range strings.Fields(value) {
		if text, ok := strings.CutPrefix(word, `"`); ok {
			b = append(b, strings.ReplaceAll(strings.TrimSuffix(text, `"`), "_", " ")...)
			continue
		}
		digits, err := hex.DecodeString(word)
		if err != nil {
			l.t.Fatal(err)
		}
		b = append(b, digits...)
	}
	family, qualifier, _ := strings.Cut(column, ":")
	put := &hbase.TPut{Row: row, ColumnValues: []*hbase.TColumnValue{{Family: []byte(family), Qualifier: []byte(qualifier), Value: notNil(b), Timestamp: &at}}}
	if err := errors.Join(l.write(l.t.Context(), []*mutation{{table: table, row: row, writes: []*hbase.TMutation{{Put: put}}}})...); err != nil {
		l.t.Fatal(err)
	}
}

// count puts the cell that the first partition of a number has of a column of row a.
func (l abandoned) count(family, column, number string, at int64, n string) {
	l.put("c", []byte("a"), family+":"+column+"\x00\x01"+string(mustHex(l.t, number))+"\x00\x00\x00\x00", at, n+" 00000000000003e8")
}

func mustHex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestStoredIntents (I2): what a process of any version has begun and not ended is ended by
// this one, whatever it was.
func TestStoredIntents(t *testing.T) {
	t.Parallel()
	partition := store.AppendSourceRow(nil, &views, 0)
	x := [2]string{"a", "x"}
	t.Run("batch", func(t *testing.T) {
		t.Parallel()
		l := leave(t)
		l.put(store.OffsetsTable, partition, "p:state", 1, `01 00000001 0000000000000001 ffffffffffffffff 0000000000000002 "v1"`)
		l.count("n", "x", "00000001", 1, "0000000000000001") // of the first record, and nothing of the second
		var unfinished *UnfinishedError
		if err := l.Apply(t.Context(), increments(0, store.Absent, "v2", x, x)); !errors.As(err, &unfinished) || unfinished.Until != 2 {
			t.Errorf("Got %v of another mapping", err)
		}
		if err := l.Apply(t.Context(), increments(0, store.Absent, "v1", x, x)); err != nil {
			t.Fatal(err)
		}
		wantSums(t, l.Store, "a x = 2 @ 1001")
	})
	t.Run("redrive", func(t *testing.T) {
		t.Parallel()
		l := leave(t)
		journal := store.AppendSourceRow(nil, &redrives, 0)
		l.put(journalsTable, journal, "j:state", 3, `01 00000003 0000000000000003 0000000000000009`)
		l.put(journalsTable, journal, "j:entry", 3, `
			00000001 "c" 00000001 "a" 00000001 04 00000001 "f" 00000001 "q" 00000001 "v" 0000000000000005 0000000000000000 0000000000000000
			00000001 "c" 00000001 "a" 00000001 01 00000001 "n" 00000001 "x" 00000000 00000000000003e9 0000000000000002 0000000000000000`)
		l.count("n", "x", "00000003", 1, "0000000000000005") // of an entry before
		for range 2 {
			if err := l.ApplyJournaled(t.Context(), &redrives, 0, &store.Batch{}); err != nil {
				t.Fatal(err)
			}
			wantSums(t, l.Store, "a x = 7 @ 1001")
		}
		if _, err := l.Settled(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("redrive into what was dropped", func(t *testing.T) {
		t.Parallel()
		l := leave(t)
		journal := store.AppendSourceRow(nil, &redrives, 0)
		l.put(journalsTable, journal, "j:state", 3, `01 00000003 0000000000000003 0000000000000009`)
		l.put(journalsTable, journal, "j:entry", 3, `
			00000004 "gone" 00000001 "a" 00000001 04 00000001 "f" 00000001 "q" 00000001 "v" 0000000000000005 0000000000000000 0000000000000000
			00000004 "gone" 00000001 "a" 00000001 01 00000001 "n" 00000001 "x" 00000000 00000000000003e9 0000000000000002 0000000000000000
			00000001 "c" 00000001 "a" 00000002
				04 00000004 "gone" 00000001 "q" 00000001 "v" 0000000000000005 0000000000000000 0000000000000000
				04 00000001 "f" 00000001 "q" 00000001 "v" 0000000000000005 0000000000000000 0000000000000000
			00000001 "c" 00000001 "b" 00000001 04 00000004 "gone" 00000001 "q" 00000001 "v" 0000000000000005 0000000000000000 0000000000000000
			00000001 "c" 00000001 "a" 00000002
				01 00000004 "gone" 00000001 "x" 00000000 00000000000003e9 0000000000000002 0000000000000000
				01 00000001 "n" 00000001 "x" 00000000 00000000000003e9 0000000000000002 0000000000000000`)
		if err := l.ApplyJournaled(t.Context(), &redrives, 0, &store.Batch{}); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"a f:q", "a x = 2 @ 1001"}, sums(t, l.Store, &store.Scan{})); d != "" {
			t.Errorf("what was carried out (-want +got):\n%s", d)
		}
	})
	for name, owner := range map[string]string{"switch": `03 00000004 0000000000000005 0000000000000007 "0000000000000009_gone"`, "switch without owner": `01 00000004 0000000000000005 0000000000000007`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := leave(t)
			switches := store.AppendSourceRow(nil, &store.Source{Pipeline: "views~switch"}, 0)
			l.put(journalsTable, switches, "j:state", 5, owner)
			l.put(journalsTable, switches, "j:entry", 5, `
				00000007 "views~1" 00000007 "views~1" 00000001 04 00000000 00000000 00000000 0000000000000004 0000000000000000 0000000000000000
				00000001 "c" 00000000 00000001 04 00000001 "n" 00000009 "n~views~1" 00000000 0000000000000000 0000000000000000 0000000000000000`)
			l.put(store.OffsetsTable, partition, "p:state", 3, `02 00000001 0000000000000003 0000000000000002 0000000000000002 00000002 "v1"`)
			l.count("n", "x", "00000001", 2, "0000000000000005")
			l.count("n~views~1", "x", "00000002", 2, "0000000000000002")
			if err := l.Apply(t.Context(), increments(0, 2, "v1", x)); !errors.Is(err, store.ErrTransient) {
				t.Errorf("Got %v of a batch amid the switch", err)
			}
			if done, err := holding(t, l.Store, "views").ResumeSwitch(t.Context()); !done || err != nil {
				t.Fatal(done, err)
			}
			wantSums(t, l.Store, "a x = 2 @ 1000")
			if err := l.Apply(t.Context(), increments(0, 2, "v1", x)); err != nil {
				t.Fatal(err)
			}
			wantSums(t, l.Store, "a x = 3 @ 1002")
		})
	}
	const floorOfX = `00000001 "c" 00000001 "n" 00000000 00000000 00000001 "x" 00000001 "y"`
	t.Run("removal", func(t *testing.T) {
		t.Parallel()
		l := leave(t)
		l.dropped("n~views~1")
		l.put(store.OffsetsTable, partition, "p:state", 6, `03 00000001 0000000000000006 0000000000000002 0000000000000002 00000000 00000024 0000000000000002 `+floorOfX+` "v1"`)
		l.count("n", "x", "00000001", 2, "0000000000000005")
		l.count("n", "y", "00000001", 2, "0000000000000005")
		if err := l.Apply(t.Context(), increments(0, 2, "v1", x)); err != nil {
			t.Fatal(err)
		}
		l.mustRemove(t, columns("none", "nonf"), 0)
		wantSums(t, l.Store, "a x = 1 @ 1002", "a y = 5 @ 1000")
	})
	t.Run("removal that is wanted", func(t *testing.T) {
		t.Parallel()
		l := leave(t)
		l.dropped("n~views~1")
		l.put(store.OffsetsTable, partition, "p:state", 6, `03 00000001 0000000000000006 0000000000000002 0000000000000003 00000000 00000024 ffffffffffffffff `+floorOfX+` "v1"`)
		l.count("n", "x", "00000001", 2, "0000000000000005")
		if err := l.Apply(t.Context(), increments(0, 2, "v1", x)); err != nil {
			t.Fatal(err)
		}
		if err := l.Apply(t.Context(), increments(0, 3, "v1", x)); err != nil {
			t.Fatal(err)
		}
		l.mustRemove(t, columns("none", "nonf"), 0)
		wantSums(t, l.Store, "a x = 1 @ 1003")
	})
}

func (l abandoned) dropped(family string) {
	l.t.Helper()
	if err := l.dropFamily(l.t.Context(), "c", family); err != nil {
		l.t.Fatal(err)
	}
}
