package store_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/store"
)

// A record that nothing else takes must fit the outbox, or it would stop its
// partition for good (invariant I9).
func TestOutboxTakesTheLargestRecord(t *testing.T) {
	t.Parallel()
	const largest = 256 << 20 // bytes that a record batch unfolds to at most
	for _, d := range store.SystemTables() {
		if d.Name != store.OutboxTable {
			continue
		}
		m := cell.Mutation{Table: d.Name, Row: []byte("r")}
		m.Put(store.OutboxFamily, []byte("headers"), 1, make([]byte, largest/3*4)) // base64
		if err := store.ValidateMutation(d, &m, 1); err != nil {
			t.Error(err)
		}
		return
	}
	t.Error("Got no outbox among the system tables")
}

// FuzzDecodeProgress: what is read of the offsets is what was written, whatever bytes are
// there, also through the API's JSON; other errors than those of damage and of a newer
// program are none.
func FuzzDecodeProgress(f *testing.F) {
	source := store.Source{Pipeline: "p\x00", Topic: "t", ClusterID: "c", TopicID: [16]byte{1, 2}}
	row := store.AppendSourceRow(nil, &source, 7)
	p := store.Progress{First: 1, Next: 9, LastOffset: 8, MappingFrom: 1, MappingVersion: "m"}
	for _, edit := range []func(){
		func() {},
		func() { p.Dropped = 1 },
		func() { p.Unmet, p.MappingFrom = 2, 3 },
		func() { p.Aborted, p.Gaps = 1, p.Gaps.With(2, 3).With(5, 6) },
		func() { p.Skip(12, store.SkippedOther); p.Skip(14, store.SkippedCorrupt) },
	} {
		edit()
		f.Add(store.AppendProgress(nil, &p), row)
	}
	f.Fuzz(func(t *testing.T, value, row []byte) {
		known := func(err error) bool { return errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrUnsupported) }
		if s, n, err := store.DecodeSourceRow(row); err == nil {
			if got := store.AppendSourceRow(nil, &s, n); string(got) != string(row) {
				t.Errorf("row %x is read as %x", row, got)
			}
		} else if !known(err) {
			t.Errorf("row: Got %v", err)
		}
		p, err := store.DecodeProgress(value)
		if err != nil {
			if !known(err) {
				t.Errorf("Got %v", err)
			}
			return
		}
		if got, err := store.DecodeProgress(store.AppendProgress(nil, &p)); err != nil || got != p {
			t.Errorf("%x is read as %+v, which is read as %+v, %v", value, p, got, err)
		}
		if strings.Contains(p.Skips.String(), "SkipReason(") { // a newer program's, which has no name here
			return
		}
		b, err := json.Marshal(struct {
			G store.Gaps
			S store.Skips
		}{p.Gaps, p.Skips})
		if err != nil {
			t.Fatal(err)
		}
		var back struct {
			G store.Gaps
			S store.Skips
		}
		if err := json.Unmarshal(b, &back); err != nil || back.G != p.Gaps || back.S != p.Skips {
			t.Errorf("%s is read as %+v, %v", b, back, err)
		}
	})
}
