package hbasestore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"sluice/jobs/tables"
	"sluice/store"
)

// straight is a move that nobody cuts off.
func straight(t *testing.T) func(int) context.Context {
	return func(int) context.Context { return t.Context() }
}

// TestMovingHouseTLS: a store moves to an HBase behind TLS and back, with its counts.
func TestMovingHouseTLS(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(nil) // it has a certificate for example.com
	defer web.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	hbase := dial(t, func(o *Options) { o.TLS = &tls.Config{RootCAs: roots, ServerName: "example.com"} }, newGatewayAt(t, l, nil, false))
	h := newHouse(t)
	before, after := openPebble(t), openPebble(t)
	h.tables(before)
	h.produce(60)
	h.ingest(before, 0)
	h.move("to HBase", before, hbase, straight(t))
	h.produce(60)
	h.ingest(hbase, 0)
	h.check("HBase", hbase)
	h.move("from HBase", hbase, after, straight(t))
	h.produce(20)
	h.ingest(after, 0)
	h.check("the embedded engine", after)
}

// TestMovingHouseFramed: a store moves out through a gateway with framed transport. Into
// one it does not, where tables are to be made that such a gateway garbles, which is
// said, and nothing is left of them; where they are there their rows are copied.
func TestMovingHouseFramed(t *testing.T) {
	t.Parallel()
	mem := mustMem(t)
	plain, framed := dial(t, nil, newGateway(t, mem, false)), dial(t, nil, newGateway(t, mem, true))
	h := newHouse(t)
	h.tables(plain)
	h.produce(60)
	h.ingest(framed, 0)
	after := openPebble(t)
	h.move("from HBase", framed, after, straight(t))
	h.produce(20)
	h.ingest(after, 0)
	h.check("the embedded engine", after)

	into := dial(t, nil, newGateway(t, nil, true))
	snapshot, err := after.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	o := &tables.CopyStoreOptions{Source: snapshot, From: after, To: into, Checkpoint: "c", Parallelism: 1}
	if _, err := tables.CopyStore(t.Context(), o); !errors.Is(err, store.ErrInvalidSchema) || !strings.Contains(err.Error(), "framed transport garbles") {
		t.Errorf("Got %v, want it refused", err)
	}
	if tables, err := into.Tables(t.Context()); err != nil || len(tables) != 0 {
		t.Errorf("Got tables %q, %v, want none", tables, err)
	}

	mem = mustMem(t)
	plain, framed = dial(t, nil, newGateway(t, mem, false)), dial(t, nil, newGateway(t, mem, true))
	h.tables(plain)
	c := &tables.CopyOptions{Source: snapshot, To: framed, Table: "raw", Into: "raw", Checkpoint: "c", Parallelism: 1}
	if _, err := tables.Copy(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	n := 0
	sc := framed.Scan(t.Context(), &store.Scan{Table: "raw"})
	for sc.Next() {
		if row := sc.Row(); h.rows[string(row.Key)] != string(row.Cells[0].Value) {
			t.Errorf("Got row %s with %q", row.Key, row.Cells[0].Value)
		}
		n++
	}
	if err := errors.Join(sc.Err(), sc.Close()); err != nil || n != len(h.rows) {
		t.Errorf("Got %d rows, %v, want %d", n, err, len(h.rows))
	}
}
