//go:build integration

package integration

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/pipeline/kafka"
	"sluice/store"
)

// TestHBaseReadOnly: what HBase says of every kind of write to a table that was made READONLY in
// its shell, of which the store does not know yet, is that the table is read-only.
func TestHBaseReadOnly(t *testing.T) {
	h := startHBase(t)
	s := openHBase(t, h.address, nil)
	defer s.Close()
	emptyHBase(t, s)
	n := store.NewFamily("n")
	n.Counter = true
	d := &store.TableDescriptor{Name: "readonly", Families: []store.FamilyDescriptor{store.NewFamily("f"), n}}
	if err := s.CreateTable(t.Context(), d, [][]byte{[]byte("m")}); err != nil {
		t.Fatal(err)
	}
	of := func(row string, build func(m *cell.Mutation)) *cell.Mutation {
		m := &cell.Mutation{Table: "readonly", Row: []byte(row)}
		build(m)
		return m
	}
	put := func(m *cell.Mutation) { m.Put("f", []byte("q"), 1, []byte("v")) }
	remove := func(m *cell.Mutation) { m.DeleteColumn("f", []byte("q"), 1) }
	one := func(m *cell.Mutation) error {
		_, err := s.MutateRow(t.Context(), nil, m)
		return err
	}
	several := func(build func(m *cell.Mutation)) error {
		_, errs := s.MutateRows(t.Context(), []*cell.Mutation{of("a", build), of("b", build), of("z", build)})
		return errors.Join(errs...)
	}
	next := int64(store.Absent)
	writes := map[string]func() error{
		"put":    func() error { return one(of("a", put)) },
		"delete": func() error { return one(of("a", remove)) },
		"both": func() error {
			return one(of("a", func(m *cell.Mutation) { remove(m); m.Put("f", []byte("r"), 1, nil) }))
		},
		"increment": func() error { return one(of("a", func(m *cell.Mutation) { m.Increment("f", []byte("n"), 1) })) },
		"append":    func() error { return one(of("a", func(m *cell.Mutation) { m.Append("f", []byte("a"), []byte("v")) })) },
		"puts":      func() error { return several(put) },
		"deletes":   func() error { return several(remove) },
		"check": func() error {
			_, err := s.MutateRow(t.Context(), &store.Cond{Family: "f", Qualifier: []byte("no"), Op: store.Equal}, of("a", put))
			return err
		},
		"counters": func() error {
			b := &store.Batch{}
			from := max(next, 0)
			for i, row := range []string{"a", "b", "z"} {
				b.Counters = append(b.Counters, store.CounterDelta{Table: "readonly", Family: "n", Row: []byte(row), Qualifier: []byte("c"), Delta: 1, Time: 1, Offset: from + int64(i)})
			}
			b.Advance(store.Source{Pipeline: "p", Topic: "t"}, 0, next, store.Progress{Next: from + 3, Applied: from + 3, LastOffset: from + 2, LeaderEpoch: -1, MappingVersion: "v"})
			err := s.Apply(t.Context(), b)
			if err == nil {
				next = from + 3
			}
			return err
		},
	}
	all := func(want error) {
		t.Helper()
		for name, write := range writes {
			began := time.Now()
			if err := write(); !errors.Is(err, want) {
				t.Errorf("%s: Got %v, want %v", name, err, want)
			} else if t.Logf("%s: %v after %v", name, err, time.Since(began)); time.Since(began) > 10*time.Second {
				t.Errorf("%s: Got an answer after %v", name, time.Since(began))
			}
		}
	}
	all(nil)
	other := openHBase(t, h.address, nil)
	defer other.Close()
	readOnly := func(yes bool) {
		t.Helper()
		d := d.Clone()
		d.ReadOnly = yes
		if err := other.AlterTable(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	for name, write := range writes { // each with the schema of before
		readOnly(false)
		if err := write(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		readOnly(true)
		if err := write(); !errors.Is(err, store.ErrTableReadOnly) {
			t.Errorf("%s: Got %v, want that the table is read-only", name, err)
		}
	}
	all(store.ErrTableReadOnly)
	h.shell(t, "alter 'readonly', READONLY => 'false'")
	all(nil)
}

// TestHBaseReadOnlyPauses (I2): a daemon that writes to two tables waits while one of them is
// READONLY, is killed meanwhile, and has counted everything once in the end.
func TestHBaseReadOnlyPauses(t *testing.T) {
	address := hbaseAddress(t)
	s := openHBase(t, address, nil)
	defer s.Close()
	ctx := t.Context()
	name := fmt.Sprintf("readonly-%d", time.Now().UnixNano())
	broker, client := startViews(t, 2)
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `
serve: {listen: "127.0.0.1:0"}
store: {engine: hbase, hbase: {gateways: [%[1]q], retry_timeout: 20s}}
kafka: {brokers: [%[2]q]}
tables:
  %[3]s-events: {families: {e: {}}}
  %[3]s: {families: {n: {COUNTER: true}}}
pipelines:
  %[3]s:
    topics: [views]
    group: readonly
    decode: {format: json}
    flush: {records: 50}
    map:
      - table: %[3]s-events
        row: u16(partition) + u64(offset)
        put: {e: {page: page}}
      - table: %[3]s
        row: page
        increment: [{family: n, qualifier: '"views"'}]
`, address, broker.Addrs()[0], name), 0o644); err != nil {
		t.Fatal(err)
	}
	env := os.Environ()
	producer := client.NewProducer(nil)
	defer producer.Close()
	sent, want := int64(0), map[string]int64{}
	produce := func() {
		t.Helper()
		for p := range int32(2) {
			var messages []kafka.Message
			for i := range 300 {
				page := fmt.Sprintf("/%d", i%7)
				want[page]++
				messages = append(messages, kafka.Message{Partition: p, Value: fmt.Appendf(nil, `{"page":%q}`, page)})
			}
			if err := producer.Produce(ctx, "views", messages...); err != nil {
				t.Fatal(err)
			}
			sent += int64(len(messages))
		}
	}
	readOnly := func(table string, yes bool) {
		t.Helper()
		d, err := s.Table(ctx, table)
		if err != nil {
			t.Fatal(err)
		}
		d = d.Clone()
		d.ReadOnly = yes
		if err := s.AlterTable(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	paused := func(d *Daemon, table string) {
		t.Helper()
		want := "table " + table + ": store: refused: the table is read-only"
		look := time.NewTicker(100 * time.Millisecond)
		defer look.Stop()
		for deadline := time.Now().Add(time.Minute); !strings.Contains(d.Log(), want); <-look.C {
			if time.Now().After(deadline) {
				t.Fatalf("Got %s, want %s", d.Log(), want)
			}
		}
	}
	d := StartDaemon(t, file, env)
	produce()
	WaitCaughtUp(t, d, file, env, sent, time.Minute)
	for _, table := range []string{name + "-events", name} {
		produce() // what is amid its way is part of it
		readOnly(table, true)
		produce()
		paused(d, table)
		d.Kill()
		d = StartDaemon(t, file, env)
		paused(d, table)
		readOnly(table, false)
		WaitCaughtUp(t, d, file, env, sent, time.Minute)
	}
	if err := d.Stop(30 * time.Second); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	got, rows := map[string]int64{}, int64(0)
	sc := s.Scan(ctx, &store.Scan{Table: name})
	defer sc.Close()
	for sc.Next() {
		got[string(sc.Row().Key)] = int64(binary.BigEndian.Uint64(sc.Row().Cells[0].Value))
	}
	events := s.Scan(ctx, &store.Scan{Table: name + "-events"})
	defer events.Close()
	for events.Next() {
		rows++
	}
	if err := errors.Join(sc.Err(), events.Err()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" || rows != sent {
		t.Errorf("Got %d rows of %d records, counts (-log +store):\n%s", rows, sent, d)
	}
	if out, err := Run(t, env, nil, "ingest", "offsets", "verify", "-c", file, "--deep"); err != nil {
		t.Errorf("offsets verify: %v\n%s", err, out)
	}
	if out, err := Run(t, env, nil, "ingest", "dlq", "ls", "-c", file); err != nil || strings.Contains(out, "read_only_table") {
		t.Errorf("dlq ls: %v\n%s", err, out)
	}
	for _, table := range []string{name, name + "-events"} {
		if err := dropTable(t, s, table); err != nil {
			t.Error(err)
		}
	}
}
