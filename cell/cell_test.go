package cell

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckRow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		length int
		want   error
	}{{0, ErrRowEmpty}, {1, nil}, {MaxRowLength, nil}, {MaxRowLength + 1, ErrRowTooLong}} {
		if got := CheckRow(make([]byte, c.length)); !errors.Is(got, c.want) {
			t.Errorf("CheckRow of %d bytes = %v; want %v", c.length, got, c.want)
		}
	}
	if !strings.Contains(ErrRowTooLong.Error(), "32767") {
		t.Errorf("%v does not say how long a row may be", ErrRowTooLong)
	}
}

func TestRangeContains(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		start, stop, row string
		want             bool
	}{
		{"", "", "", true},
		{"", "", "\xff\xff", true},
		{"b", "", "a", false},
		{"b", "", "b", true},
		{"b", "d", "c\xff", true},
		{"b", "d", "d", false},
		{"", "d", "d\x00", false},
		{"b", "b", "b", false},
	} {
		r := Range{Start: []byte(c.start), Stop: []byte(c.stop)}
		if got := r.Contains([]byte(c.row)); got != c.want {
			t.Errorf("[%q, %q).Contains(%q) = %v", c.start, c.stop, c.row, got)
		}
	}
	for ts, want := range map[Timestamp]bool{4: false, 5: true, 9: true, 10: false} {
		if got := (TimeRange{Min: 5, Max: 10}).Contains(ts); got != want {
			t.Errorf("[5, 10).Contains(%d) = %v", ts, got)
		}
	}
}

func TestMutationBuilders(t *testing.T) {
	t.Parallel()
	q, v := []byte("q"), []byte("v")
	var m Mutation
	m.Put("f", q, 5, v)
	m.Increment("f", q, -3)
	m.Append("f", q, v)
	m.Delete("f", q, Latest)
	m.DeleteColumn("f", q, 6)
	m.DeleteFamilyVersion("f", 7)
	m.DeleteRow(8)
	want := []Op{
		{Type: OpPut, Family: "f", Qualifier: q, Time: 5, Value: v},
		{Type: OpIncrement, Family: "f", Qualifier: q, Time: Latest, Delta: -3},
		{Type: OpAppend, Family: "f", Qualifier: q, Time: Latest, Value: v},
		{Type: OpDelete, Family: "f", Qualifier: q, Time: math.MaxInt64},
		{Type: OpDeleteColumn, Family: "f", Qualifier: q, Time: 6},
		{Type: OpDeleteFamilyVersion, Family: "f", Time: 7},
		{Type: OpDeleteRow, Time: 8},
	}
	if diff := cmp.Diff(want, m.Ops); diff != "" {
		t.Errorf("Ops (-want +got)\n%s", diff)
	}
}

// TestDeleteFamilyDropsEarlierMarkers is HBase's Delete.addFamily (case
// delete-026), and its bounds in a mutation of several kinds of operation.
func TestDeleteFamilyDropsEarlierMarkers(t *testing.T) {
	t.Parallel()
	q := []byte("q")
	var m Mutation
	m.Delete("f", q, 1)
	m.Put("f", q, 5, nil)
	m.Delete("f", q, 2)
	m.DeleteColumn("g", q, 3)
	m.DeleteRow(4)
	m.DeleteFamily("f", 5)
	m.DeleteFamilyVersion("f", 6)
	m.DeleteFamily("f", 7)
	m.DeleteColumn("f", q, 8)
	var got []string
	for _, o := range m.Ops {
		got = append(got, fmt.Sprintf("%s %s %d", o.Type, o.Family, o.Time))
	}
	want := []string{"Delete f 1", "Put f 5", "DeleteColumn g 3", "DeleteRow  4", "DeleteFamily f 7", "DeleteColumn f 8"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Ops (-want +got)\n%s", diff)
	}
}

func TestIdempotent(t *testing.T) {
	t.Parallel()
	q := []byte("q")
	for name, c := range map[string]struct {
		build func(m *Mutation)
		want  bool
	}{
		"empty":                {func(*Mutation) {}, true},
		"puts with times":      {func(m *Mutation) { m.Put("f", q, 1, q); m.Put("f", q, 2, q) }, true},
		"put by the clock":     {func(m *Mutation) { m.Put("f", q, 1, q); m.Put("f", q, Latest, q) }, false},
		"deletes with times":   {func(m *Mutation) { m.Delete("f", q, 1); m.DeleteRow(2) }, true},
		"delete of the newest": {func(m *Mutation) { m.Delete("f", q, Latest) }, false},
		"increment":            {func(m *Mutation) { m.Increment("f", q, 0) }, false},
		"append":               {func(m *Mutation) { m.Put("f", q, 1, q); m.Append("f", q, nil) }, false},
	} {
		var m Mutation
		c.build(&m)
		if got := m.Idempotent(); got != c.want {
			t.Errorf("%s: Idempotent() = %v", name, got)
		}
	}
	// An increment at an explicit event time adds again all the same.
	m := Mutation{Ops: []Op{{Type: OpIncrement, Family: "f", Qualifier: bytes.Clone(q), Time: 5, Delta: 1}}}
	if m.Idempotent() {
		t.Error("an increment with an explicit time is not idempotent")
	}
}

// TestRowClone: a clone has everything of the row, shares nothing with it, and none of
// its texts can grow into the next.
func TestRowClone(t *testing.T) {
	row := func() *Row {
		return &Row{Key: []byte("row"), More: true, Cells: []Cell{
			{Family: "f", Qualifier: []byte("q"), Time: 1, Kind: KindPut, Value: []byte("value"), TTL: 7},
			{Family: "g", Qualifier: []byte{}, Time: 2, Kind: KindDeleteFamily},
		}}
	}
	r := row()
	c := r.Clone()
	_ = append(c.Key, 'x')
	_ = append(c.Cells[0].Qualifier, 'x')
	for _, b := range [][]byte{r.Key, r.Cells[0].Qualifier, r.Cells[0].Value} {
		for i := range b {
			b[i] = '-'
		}
	}
	r.Cells[1].Time = 9
	if diff := cmp.Diff(row(), c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
