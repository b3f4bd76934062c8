//go:build integration

package integration

import (
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
