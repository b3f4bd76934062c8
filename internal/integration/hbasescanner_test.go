//go:build integration

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore"
)

// TestHBaseScannerForgotten: a scan goes on behind its last row, or the last cell of a row
// that is read in parts, where its caller was busy for so long that a real gateway has
// forgotten the scanner: after a minute by default, after two seconds here.
func TestHBaseScannerForgotten(t *testing.T) {
	const forgets = 2 * time.Second
	h := startHBase(t)
	g := h.gateway(t, []string{fmt.Sprintf("hbase.client.scanner.timeout.period=%d", forgets.Milliseconds())})
	setup := openHBase(t, h.address, nil)
	defer setup.Close()
	emptyHBase(t, setup)
	if err := setup.CreateTable(t.Context(), &store.TableDescriptor{Name: "idle", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, [][]byte{[]byte("row-200")}); err != nil {
		t.Fatal(err)
	}
	const rows, wide = 400, 3000
	var b store.Batch
	for i := range rows {
		m := cell.Mutation{Table: "idle", Row: fmt.Appendf(nil, "row-%03d", i)}
		columns := 2
		if i == rows/4 {
			columns = wide
		}
		for c := range columns {
			m.Put("f", fmt.Appendf(nil, "%04d", c), 1, fmt.Appendf(nil, "a value of some length, number %d", i+c))
		}
		b.Add(-1, m)
	}
	if err := setup.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	p := newThriftProxy(t, g.address, nil)
	s, err := hbasestore.Open(t.Context(), &hbasestore.Options{Addresses: []string{p.address}, PageBytes: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// read reads a scan and is busy after the so many-th result, 0 = never.
	read := func(r store.Reader, scan *store.Scan, busy int) (all []string, err error) {
		sc := r.Scan(t.Context(), scan)
		for n := 1; sc.Next(); n++ {
			for _, c := range sc.Row().Cells {
				all = append(all, fmt.Sprintf("%s %s=%s", sc.Row().Key, c.Qualifier, c.Value))
			}
			if n == busy {
				<-time.After(forgets + 2*time.Second)
			}
		}
		return all, errors.Join(sc.Err(), sc.Close())
	}
	scans := map[string]*store.Scan{
		"forward":  {Table: "idle"},
		"reversed": {Table: "idle", Reversed: true},
		"in parts": {Table: "idle", Batch: 10, Start: []byte("row-090"), Stop: []byte("row-110")},
		"filtered": {Table: "idle", Columns: []store.Column{{Family: "f", Qualifier: []byte("0001")}}},
	}
	opened := p.count("openScanner")
	var all sync.WaitGroup
	for name, scan := range scans {
		want, err := read(setup, scan, 0)
		if err != nil || len(want) < rows {
			t.Fatalf("%s: Got %d cells, %v", name, len(want), err)
		}
		all.Go(func() {
			got, err := read(s, scan, 25)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v; %d cells, want %d (-want +got):\n%.2000s", name, err, len(got), len(want), cmp.Diff(want, got))
			}
		})
	}
	all.Wait()
	// Two regions, of which one was opened anew; the scan in parts is in one.
	if n, want := p.count("openScanner")-opened, 3*len(scans)-1; n < want {
		t.Errorf("Got %d scanners, want %d: none was opened anew", n, want)
	}
}

// TestHBasePieces: rows of every number of cells around what is fetched of one at once come
// whole, each once, in both directions, over regions and from gateways that cut pages small.
// HBase says of a piece that ends with its row's last cell that more may follow, where what
// follows in the row is an older version or deleted.
func TestHBasePieces(t *testing.T) {
	h := startHBase(t)
	setup := openHBase(t, h.address, nil)
	defer setup.Close()
	emptyHBase(t, setup)
	if err := setup.CreateTable(t.Context(), &store.TableDescriptor{Name: "pieces", Families: []store.FamilyDescriptor{store.NewFamily("f"), store.NewFamily("g")}}, [][]byte{[]byte("0070"), []byte("0513")}); err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for n := range 140 {
		sizes = append(sizes, n+1)
	}
	for _, n := range []int{192, 256, 511, 512, 513, 576, 999, 1000, 1001, 1024, 2000, 2001} {
		sizes = append(sizes, n, n) // two, one behind the other
	}
	var want []string // row and number of cells
	var b store.Batch
	for i, n := range sizes {
		m, family := cell.Mutation{Table: "pieces", Row: fmt.Appendf(nil, "%04d-%d", n, i)}, []string{"f", "g"}[i%3/2]
		for c := range n {
			m.Put(family, fmt.Appendf(nil, "%04d", c), 2, fmt.Appendf(nil, "%d of %d", c, n))
		}
		switch i % 4 {
		case 1:
			m.Put(family, fmt.Appendf(nil, "%04d", n-1), 1, []byte("older"))
		case 2:
			gone := cell.Mutation{Table: "pieces", Row: m.Row}
			gone.Put("g", []byte("9999"), 2, []byte("deleted"))
			b.Add(-1, gone)
			m.DeleteColumn("g", []byte("9999"), 2)
		}
		b.Add(-1, m)
		want = append(want, fmt.Sprintf("%s: %d", m.Row, n))
	}
	if err := setup.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	for _, pageBytes := range []int{0, 2 << 10} {
		s, err := hbasestore.Open(t.Context(), &hbasestore.Options{Addresses: []string{h.address}, PageBytes: pageBytes})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, scan := range []store.Scan{{}, {Batch: 1}, {Batch: 8}, {Batch: 10}, {Batch: 64}, {MaxResultBytes: 300}, {MaxResultBytes: 20_000}} {
			for _, reversed := range []bool{false, true} {
				scan.Table, scan.Reversed = "pieces", reversed
				name := fmt.Sprintf("pages of %d, batch %d, %d bytes, reversed %v", pageBytes, scan.Batch, scan.MaxResultBytes, reversed)
				var got []string
				row, cells, more := []byte(nil), 0, false
				end := func() {
					if row != nil {
						got = append(got, fmt.Sprintf("%s: %d", row, cells))
					}
				}
				sc := s.Scan(t.Context(), &scan)
				for sc.Next() {
					r := sc.Row()
					if !more || !bytes.Equal(row, r.Key) {
						end()
						row, cells = bytes.Clone(r.Key), 0
					}
					for _, c := range r.Cells {
						if want := fmt.Sprintf("%04d", cells); string(c.Qualifier) != want {
							t.Fatalf("%s: row %s: Got cell %s, want %s", name, r.Key, c.Qualifier, want)
						}
						cells++
					}
					more = r.More
				}
				end()
				if err := errors.Join(sc.Err(), sc.Close()); err != nil {
					t.Fatal(name, err)
				}
				if reversed {
					slices.Reverse(got)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: (-want +got):\n%s", name, cmp.Diff(want, got))
				}
			}
		}
	}
}
