package buffer

import (
	"bytes"
	"errors"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/store"
)

// rowOf returns the row that m writes, as a scanner would.
func rowOf(m *cell.Mutation) *cell.Row {
	r := &cell.Row{Key: m.Row}
	for i := range m.Ops {
		op := &m.Ops[i]
		r.Cells = append(r.Cells, cell.Cell{Family: op.Family, Qualifier: op.Qualifier, Time: op.Time, Kind: cell.KindPut, Value: op.Value})
	}
	sort.Slice(r.Cells, func(i, j int) bool { return bytes.Compare(r.Cells[i].Qualifier, r.Cells[j].Qualifier) < 0 })
	return r
}

func drawLetter(t *rapid.T) *DeadLetter {
	optional := rapid.OneOf(rapid.Just[[]byte](nil), rapid.SliceOfN(rapid.Byte(), 0, 20))
	d := &DeadLetter{
		Pipeline:       rapid.StringN(1, 10, -1).Draw(t, "pipeline"),
		Topic:          rapid.StringN(1, 10, -1).Draw(t, "topic"),
		TopicID:        [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")),
		Partition:      rapid.Int32Min(0).Draw(t, "partition"),
		Offset:         rapid.Int64Min(0).Draw(t, "offset"),
		Time:           rapid.Int64().Draw(t, "time"),
		Key:            optional.Draw(t, "key"),
		Value:          optional.Draw(t, "value"),
		Stage:          "map",
		Class:          "c",
		Reason:         rapid.String().Draw(t, "reason"),
		MappingVersion: "v",
	}
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		d.Headers = append(d.Headers, Header{Key: rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "hk"), Value: optional.Draw(t, "hv")})
	}
	return d
}

func TestDeadLetterRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawLetter(t)
		m, err := d.Mutation()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeDeadLetter(rowOf(&m))
		if err != nil {
			t.Fatal(err)
		}
		want := *d
		want.Reason = cut(d.Reason, MaxReasonBytes)
		// An empty header key is a key; null and empty values differ.
		if diff := cmp.Diff(&want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("Got another letter (-want +got):\n%s", diff)
		}
		if (got.Key == nil) != (d.Key == nil) || (got.Value == nil) != (d.Value == nil) {
			t.Fatalf("Got key %v and value %v, want null where they were null: %v, %v", got.Key, got.Value, d.Key, d.Value)
		}
		for i := range d.Headers {
			if (got.Headers[i].Value == nil) != (d.Headers[i].Value == nil) {
				t.Fatalf("Got header value %v, want %v", got.Headers[i].Value, d.Headers[i].Value)
			}
		}
		relayed := d.RelayedMutation(5)
		if !bytes.Equal(relayed.Row, m.Row) {
			t.Fatalf("Got the mark in row %q, want %q", relayed.Row, m.Row)
		}
		m.Ops = append(m.Ops, relayed.Ops...)
		if got, err = DecodeDeadLetter(rowOf(&m)); err != nil || !got.Relayed {
			t.Fatalf("Got relayed %v, %v", got.Relayed, err)
		}
	})
}

func TestOutboxRowsOfAPartitionAreInOffsetOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := drawLetter(t)
		b := *a
		b.Offset = rapid.Int64Min(0).Draw(t, "other")
		if got := bytes.Compare(a.AppendRow(nil), b.AppendRow(nil)); (got < 0) != (a.Offset < b.Offset) || (got == 0) != (a.Offset == b.Offset) {
			t.Fatalf("Got order %d of offsets %d and %d", got, a.Offset, b.Offset)
		}
		if !bytes.HasPrefix(a.AppendRow(nil), AppendOutboxPrefix(nil, a.Pipeline)) {
			t.Fatal("Got a row without its pipeline's prefix")
		}
	})
}

// The vector of docs/format/outbox.md.
func TestOutboxRowVector(t *testing.T) {
	t.Parallel()
	d := &DeadLetter{Pipeline: "pv", Topic: "page", TopicID: [16]byte{0xAA, 15: 0xBB}, Partition: 3, Offset: 258}
	want := "pv\x00\x01page\x00\x01\xAA" + strings.Repeat("\x00", 14) + "\xBB\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x01\x02"
	if got := string(d.AppendRow(nil)); got != want {
		t.Errorf("Got %q, want %q", got, want)
	}
}

func TestReasonIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	if got := cut("aé", 2); got != "a" {
		t.Errorf("Got %q, want a", got)
	}
	if got := cut("aé", 3); got != "aé" {
		t.Errorf("Got %q, want aé", got)
	}
}

func FuzzDecodeDeadLetter(f *testing.F) {
	m, err := (&DeadLetter{Pipeline: "p", Topic: "t", Headers: []Header{{[]byte("k"), nil}}}).Mutation()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m.Row, []byte(`[{"key":"k","value":null}]`), []byte("1"))
	f.Add(m.Row, []byte(`[{"key_base64":"/w=="}]`), []byte("-1"))
	f.Add([]byte("p\x00\x01t\x00\x01short"), []byte("x"), []byte("y"))
	f.Fuzz(func(t *testing.T, key, headers, when []byte) {
		row := &cell.Row{Key: key, Cells: []cell.Cell{
			{Family: store.OutboxFamily, Qualifier: []byte("headers"), Value: headers},
			{Family: store.OutboxFamily, Qualifier: []byte("time"), Value: when},
		}}
		d, err := DecodeDeadLetter(row)
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("Got %v, want it to wrap ErrCorrupt", err)
			}
			return
		}
		m, err := d.Mutation()
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeDeadLetter(rowOf(&m))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("Got another letter the second time (-want +got):\n%s", diff)
		}
	})
}

func TestSizeOfLetter(t *testing.T) {
	t.Parallel()
	d := &DeadLetter{
		Pipeline: "p", Topic: "t", Key: make([]byte, 100), Value: make([]byte, 1000), Stage: "map", Class: "c",
		Headers: []Header{{Key: []byte(`"value":`), Value: []byte(`"value":`)}, {Key: []byte{0xff}}, {}},
	}
	m, err := d.Mutation()
	if err != nil {
		t.Fatal(err)
	}
	row := rowOf(&m)
	z := SizeOfLetter(row)
	if z.Headers != 3 || z.Bytes < 1100 || z.Bytes > 1400 || z.Relayed {
		t.Errorf("Got %+v, want 3 headers and some 1,200 bytes", z)
	}
	row.Cells = append(row.Cells, cell.Cell{Qualifier: []byte(RelayedQualifier)})
	if z = SizeOfLetter(row); !z.Relayed {
		t.Error("Got a letter that is not relayed")
	}
}
