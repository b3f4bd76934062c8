package counters

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
)

func collect(c *Coalescer) []Delta {
	var all []Delta
	for d := range c.Deltas {
		all = append(all, d)
	}
	return all
}

func TestCoalescer(t *testing.T) {
	t.Parallel()
	c := NewCoalescer()
	if c.Len() != 0 || c.Bytes() != 0 || len(collect(c)) != 0 {
		t.Errorf("a new coalescer has %d counters, %d bytes", c.Len(), c.Bytes())
	}
	row, qualifier := []byte("row"), []byte("q")
	c.Add("t", "f", row, qualifier, 2, 10, 100)
	c.Add("t", "g", row, qualifier, 1, 10, 100)
	c.Add("u", "f", row, qualifier, 1, 10, 101)
	c.Add("t", "f", []byte("rowq"), nil, 1, 10, 102) // the same bytes, cut elsewhere
	copy(row, "xxx")                                 // Add has copied it
	row = []byte("row")
	c.Add("t", "f", row, qualifier, -5, 30, 103)
	c.Add("t", "f", row, qualifier, 0, 20, 90)
	c.Add("t", "g", row, qualifier, -1, 11, 104)
	want := []Delta{
		{Table: "t", Family: "f", Row: row, Qualifier: qualifier, Delta: -3, Time: 30, Offset: 100},
		{Table: "t", Family: "g", Row: row, Qualifier: qualifier, Delta: 0, Time: 11, Offset: 100},
		{Table: "u", Family: "f", Row: row, Qualifier: qualifier, Delta: 1, Time: 10, Offset: 101},
		{Table: "t", Family: "f", Row: []byte("rowq"), Qualifier: []byte{}, Delta: 1, Time: 10, Offset: 102},
	}
	got := collect(c)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Deltas (-want +got)\n%s", diff)
	}
	if c.Len() != 4 || c.Bytes() < 4*4+4*len("t") {
		t.Errorf("Len = %d, Bytes = %d", c.Len(), c.Bytes())
	}
	// What is handed out cannot be grown into its neighbour.
	_ = append(got[0].Row, "zzz"...)
	_ = append(got[0].Qualifier, "zzz"...)
	if diff := cmp.Diff(want, collect(c)); diff != "" {
		t.Errorf("Deltas after appending to one (-want +got)\n%s", diff)
	}
	n := 0
	for range c.Deltas {
		n++
		break
	}
	if n != 1 {
		t.Errorf("Deltas went on after false: %d", n)
	}
	c.Reset()
	if c.Len() != 0 || c.Bytes() != 0 || len(collect(c)) != 0 {
		t.Errorf("after Reset: %d counters, %d bytes", c.Len(), c.Bytes())
	}
	c.Add("t", "f", row, qualifier, 1, 5, 7)
	if diff := cmp.Diff([]Delta{{Table: "t", Family: "f", Row: row, Qualifier: qualifier, Delta: 1, Time: 5, Offset: 7}}, collect(c)); diff != "" {
		t.Errorf("after Reset (-want +got)\n%s", diff)
	}
}

// TestCountFrom keeps what is late apart, batch by batch.
func TestCountFrom(t *testing.T) {
	t.Parallel()
	c := NewCoalescer()
	for _, from := range []cell.Timestamp{100, 200} {
		c.CountFrom(func(table, family string) cell.Timestamp {
			if family == "forever" {
				return forever
			}
			return from
		})
		for i, at := range []cell.Timestamp{from, from - 1, from + 7, from - 50, from} {
			m := cell.Mutation{Table: "t", Row: []byte("r")}
			m.Ops = []cell.Op{{Type: cell.OpIncrement, Family: "f", Delta: 1, Time: at}, {Type: cell.OpIncrement, Family: "forever", Delta: 1, Time: at}}
			c.AddMutation(&m, int64(i))
		}
		got := collect(c)
		for i := range got {
			got[i].Table, got[i].Row, got[i].Qualifier = "", nil, nil
		}
		want := []Delta{{Family: "f", Delta: 3, Time: from + 7}, {Family: "forever", Delta: 5, Time: from + 7}, {Family: "f", Delta: 2, Time: from - 1, Offset: 1}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("from %d (-want +got)\n%s", from, diff)
		}
		c.Reset()
	}
}

// TestCoalescerModel compares with a map over several batches, through growth of
// the table and with families that come and go.
func TestCoalescerModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := NewCoalescer()
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for range rapid.IntRange(1, 3).Draw(t, "batches") {
			keys := rapid.SampledFrom([]int{3, 100, 1000}).Draw(t, "keys")
			tables := rapid.SampledFrom([]int{1, 3, maxFamilies + 6}).Draw(t, "tables")
			qualifiers := rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "qualifiers")
			repeat, last := rapid.IntRange(0, 9).Draw(t, "repeat"), 0
			var pending cell.Mutation
			var pendingOffset int64
			type key struct{ table, family, row, qualifier string }
			index := map[key]int{}
			var want []Delta
			for offset := range int64(rapid.SampledFrom([]int{0, 10, 300, 1200}).Draw(t, "increments")) {
				row := random.IntN(keys)
				if len(want) > 0 && repeat > random.IntN(10) {
					row = last // as one event's counters, often in the same columns
				}
				last = row
				d := Delta{
					Table:     fmt.Sprintf("t%d", random.IntN(tables)),
					Family:    fmt.Sprintf("f%d", random.IntN(2)),
					Row:       fmt.Appendf(nil, "%d", row),
					Qualifier: fmt.Appendf(nil, "%d", random.IntN(qualifiers)),
					Delta:     random.Int64() - 1<<62,
					Time:      cell.Timestamp(random.Int64N(1000)),
					Offset:    offset,
				}
				op := cell.Op{Type: cell.OpIncrement, Family: d.Family, Qualifier: d.Qualifier, Delta: d.Delta, Time: d.Time}
				switch m := &pending; {
				case random.IntN(4) == 0:
					c.AddMutation(m, pendingOffset)
					m.Ops = nil
					c.Add(d.Table, d.Family, d.Row, d.Qualifier, d.Delta, d.Time, offset)
				case m.Table == d.Table && string(m.Row) == string(d.Row):
					m.Ops = append(m.Ops, op)
					d.Offset = pendingOffset
				default:
					c.AddMutation(m, pendingOffset)
					put := cell.Op{Type: cell.OpPut, Family: d.Family, Qualifier: d.Qualifier}
					*m, pendingOffset = cell.Mutation{Table: d.Table, Row: d.Row, Ops: []cell.Op{put, op}}, offset
				}
				k := key{d.Table, d.Family, string(d.Row), string(d.Qualifier)}
				i, ok := index[k]
				if !ok {
					index[k] = len(want)
					want = append(want, d)
					continue
				}
				want[i].Delta += d.Delta
				want[i].Time = max(want[i].Time, d.Time)
			}
			c.AddMutation(&pending, pendingOffset)
			// cmp is slow on thousands of structs: it is asked only how they differ.
			equal := func(a, b Delta) bool {
				return a.Table == b.Table && a.Family == b.Family && bytes.Equal(a.Row, b.Row) && bytes.Equal(a.Qualifier, b.Qualifier) &&
					a.Delta == b.Delta && a.Time == b.Time && a.Offset == b.Offset
			}
			if got := collect(c); c.Len() != len(want) || !slices.EqualFunc(want, got, equal) {
				t.Fatalf("Len = %d, want %d; Deltas (-want +got)\n%s", c.Len(), len(want), cmp.Diff(want, got))
			}
			c.Reset()
			if len(c.families) > maxFamilies {
				t.Fatalf("%d families are kept", len(c.families))
			}
		}
	})
}

// TestCoalescerCollisions puts strings and counters that share a slot, and the half of
// the hash that a slot holds, into one table.
func TestCoalescerCollisions(t *testing.T) {
	t.Parallel()
	// Two with one high half need luck (2⁻³²); their slots are made to agree instead:
	// where the one to come looks first, there is the other one with its high half, so
	// that only the content tells them apart.
	c := NewCoalescer()
	c.Add("t", "f", []byte("a"), []byte("q"), 1, 1, 1)
	h := c.rows.hash(0, []byte("b"))
	clear(c.rows.slots)
	c.rows.slots[h&uint64(len(c.rows.slots)-1)] = h&^0xFFFFFFFF | 1
	c.Add("t", "f", []byte("b"), []byte("q"), 5, 1, 2)
	c.Add("t", "f", []byte("b"), []byte("q"), 5, 1, 3)
	// The same for one qualifier in two families.
	h = c.columns.hash(1, []byte("q"))
	clear(c.columns.slots)
	c.columns.slots[h&uint64(len(c.columns.slots)-1)] = h&^0xFFFFFFFF | 1
	c.Add("t", "g", []byte("b"), []byte("q"), 7, 1, 4)
	// And for two counters of one row.
	h = hashSum(1, 2)
	clear(c.slots)
	c.slots[h&uint64(len(c.slots)-1)] = h&^0xFFFFFFFF | 3 // b, g:q
	c.Add("t", "g", []byte("b"), []byte("r"), 9, 1, 5)
	c.Add("t", "g", []byte("b"), []byte("r"), 9, 1, 6)
	want := []Delta{
		{Table: "t", Family: "f", Row: []byte("a"), Qualifier: []byte("q"), Delta: 1, Time: 1, Offset: 1},
		{Table: "t", Family: "f", Row: []byte("b"), Qualifier: []byte("q"), Delta: 10, Time: 1, Offset: 2},
		{Table: "t", Family: "g", Row: []byte("b"), Qualifier: []byte("q"), Delta: 7, Time: 1, Offset: 4},
		{Table: "t", Family: "g", Row: []byte("b"), Qualifier: []byte("r"), Delta: 18, Time: 1, Offset: 5},
	}
	if diff := cmp.Diff(want, collect(c)); diff != "" {
		t.Errorf("Deltas (-want +got)\n%s", diff)
	}
}

// TestCoalescerReserve: what was reserved is enough for counters in rows and columns of
// their own, and Growth says what that allocates.
func TestCoalescerReserve(t *testing.T) {
	for _, n := range []int{1, 100, 5000} {
		c := NewCoalescer()
		var keys [][]byte
		size := 0
		for i := range n {
			keys = append(keys, fmt.Appendf(nil, "%d", i))
			size += 2 * len(keys[i])
		}
		held, growth := c.Held(), c.Growth(n, size)
		c.Reserve(n, size)
		if got := c.Held(); got > held+growth || growth > 0 && got == held || c.Growth(n, size) != 0 {
			t.Errorf("%d counters: %d bytes held of %d and a growth of %d", n, got, held, growth)
		}
		c.Add("t", "f", []byte("first"), []byte("first"), 1, 1, 1) // makes the family
		c.Reset()
		for _, key := range keys {
			c.Add("t", "f", key, key, 1, 1, 1)
		}
		if got := c.Held(); got > held+growth {
			t.Errorf("%d counters hold %d bytes, of %d reserved", n, got, held+growth)
		}
		if c.Bytes() > c.Held() || c.Len() != n {
			t.Errorf("%d counters of %d take %d bytes of %d", c.Len(), n, c.Bytes(), c.Held())
		}
	}
}

// keyset is rows and qualifiers as a page-view mapping makes them.
type keyset struct{ rows, qualifiers [][]byte }

func newKeyset(rows int) keyset {
	var k keyset
	for i := range rows {
		k.rows = append(k.rows, fmt.Appendf(nil, "/articles/%06d/index.html", i))
	}
	for i := range 4 {
		k.qualifiers = append(k.qualifiers, fmt.Appendf(nil, "20261121%04d", i))
	}
	return k
}

var families = []string{"minute", "hour", "day"}

func (k keyset) add(c *Coalescer, i int) {
	c.Add("pageview_counts", families[i%3], k.rows[i*7%len(k.rows)], k.qualifiers[i%3], 1, cell.Timestamp(i), int64(i))
}

// TestCoalescerAllocations: a batch like the one before it allocates nothing.
func TestCoalescerAllocations(t *testing.T) {
	c, k := NewCoalescer(), newKeyset(2000)
	batch := func() {
		c.Reset()
		for i := range 10_000 {
			k.add(c, i)
		}
	}
	batch()
	if n := testing.AllocsPerRun(3, batch); n != 0 {
		t.Errorf("a batch allocates %v times", n)
	}
}

func BenchmarkCoalescerHit(b *testing.B) {
	for _, rows := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			c, k := NewCoalescer(), newKeyset(rows)
			for i := range 3 * rows {
				k.add(c, i)
			}
			n := c.Len()
			i, f := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				c.Add("pageview_counts", families[f], k.rows[i], k.qualifiers[f], 1, cell.Timestamp(i), int64(i))
				if f++; f == 3 {
					f = 0
					if i++; i == rows {
						i = 0
					}
				}
			}
			if c.Len() != n {
				b.Fatalf("%d counters, want %d: not all were hits", c.Len(), n)
			}
		})
	}
}

func BenchmarkCoalescerBatch(b *testing.B) {
	const increments = 10_000
	c, k := NewCoalescer(), newKeyset(100_000)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(len(k.rows)-1))
	rows := make([][]byte, increments)
	for i := range rows {
		rows[i] = k.rows[zipf.Uint64()]
	}
	b.ReportAllocs()
	for b.Loop() {
		for i, row := range rows {
			c.Add("pageview_counts", families[i%3], row, k.qualifiers[i%3], 1, cell.Timestamp(i), int64(i))
		}
		c.Reset()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/increments, "ns/inc")
}

// BenchmarkCoalescerEvents counts events by minute, hour and day, as a batch has them:
// its minutes follow each other.
func BenchmarkCoalescerEvents(b *testing.B) {
	const events, minutes = 20_000, 10
	c, k := NewCoalescer(), newKeyset(10_000)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(len(k.rows)-1))
	rows := make([][]byte, events)
	for i := range rows {
		rows[i] = k.rows[zipf.Uint64()]
	}
	columns := make([][3][]byte, minutes)
	for i := range columns {
		columns[i] = [3][]byte{fmt.Appendf(nil, "20261121%04d", i), []byte("2026112100"), []byte("20261121")}
	}
	m := &cell.Mutation{Table: "pageview_counts"}
	b.ReportAllocs()
	counters := 0
	for b.Loop() {
		for i, row := range rows {
			m.Row, m.Ops = row, m.Ops[:0]
			for j, q := range columns[i*minutes/events] {
				m.Ops = append(m.Ops, cell.Op{Type: cell.OpIncrement, Family: families[j], Qualifier: q, Delta: 1, Time: cell.Timestamp(i)})
			}
			c.AddMutation(m, int64(i))
		}
		counters = c.Len()
		c.Reset()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events, "ns/event")
	b.ReportMetric(float64(counters)/events, "counters/event")
}

// BenchmarkCoalescerApart counts rows and qualifiers that are hardly ever there twice.
func BenchmarkCoalescerApart(b *testing.B) {
	const increments = 20_000
	c := NewCoalescer()
	keys := make([][]byte, increments)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "user-%08d", i*7919%increments)
	}
	for _, x := range []struct {
		name           string
		row, qualifier func(i int) []byte
	}{
		{"rows", func(i int) []byte { return keys[i] }, func(int) []byte { return keys[0] }},
		{"qualifiers", func(int) []byte { return keys[0] }, func(i int) []byte { return keys[i] }},
		{"both", func(i int) []byte { return keys[i] }, func(i int) []byte { return keys[increments-1-i] }},
	} {
		b.Run(x.name, func(b *testing.B) {
			for b.Loop() {
				for i := range increments {
					c.Add("t", "f", x.row(i), x.qualifier(i), 1, cell.Timestamp(i), int64(i))
				}
				c.Reset()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/increments, "ns/inc")
		})
	}
}
