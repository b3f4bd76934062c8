//go:build integration

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

// TestHBaseRegionServerKilled (I2, I3): of two region servers one is killed amid ingest,
// an export and a scan of many pages, and in a soak then the other, where all regions are by
// then. They move; daemons, export and scan wait for that and go on. Each row is read once,
// and every counter is what an independent count of Kafka's log gives.
func TestHBaseRegionServerKilled(t *testing.T) {
	h := startOwnHBase(t, "--servers", "2")
	in := newHBaseIngestOn(t, h, embeddedKafka(t), 1)
	s := openHBase(t, h.address, nil)
	defer s.Close()

	file, exports := loadHBaseExports(t, fmt.Sprintf("{engine: hbase, hbase: {gateways: [%q]}}", h.address))
	fillVisits(t, exports, 2000)
	pebbleFile, pebble := loadHBaseExports(t, fmt.Sprintf("{dir: %q}", filepath.Join(t.TempDir(), "data")))
	fillVisits(t, pebble, 2000)
	if out, err := exec.Command(filepath.Join(Binaries(t), "export"), "run", "-c", pebbleFile, "-q", "rows").CombinedOutput(); err != nil {
		t.Fatalf("export: %v\n%s", err, out)
	}
	want := exportRows(t, pebble, "rows")
	// A page of HBase's, and one of ours, are 1,000 of these rows.
	const rows = 8000
	wide := &store.TableDescriptor{Name: "pages", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	if err := s.CreateTable(t.Context(), wide, [][]byte{[]byte("row-2000"), []byte("row-4000"), []byte("row-6000")}); err != nil {
		t.Fatal(err)
	}
	// Of the regions of what is read each server has some.
	for _, name := range []string{"rs1", "rs2"} {
		log, err := os.ReadFile(filepath.Join(h.dir, "log", name+".log"))
		if err != nil || !bytes.Contains(log, []byte("visits,")) || !bytes.Contains(log, []byte("pages,")) {
			t.Fatalf("%s serves no region of a table (%v)", name, err)
		}
	}
	for i := 0; i < rows; i += 500 {
		var b store.Batch
		for j := i; j < i+500; j++ {
			m := cell.Mutation{Table: "pages", Row: fmt.Appendf(nil, "row-%04d", j)}
			m.Put("f", []byte("q"), 1, bytes.Repeat([]byte{byte(j)}, 1000))
			b.Add(-1, m)
		}
		if err := s.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var producing sync.WaitGroup
	var perr error
	producing.Go(func() { perr = in.produce(ctx, SharedLog(t).Lines) })
	in.run()
	in.progressAll(s, 3)

	servers := []string{"rs1"}
	if soaking {
		servers = append(servers, "rs2")
	}
	for i, name := range servers {
		if i > 0 {
			h.start(t)
		}
		slow := startSlowExport(t, file, exports)
		sc := s.Scan(t.Context(), &store.Scan{Table: "pages"})
		n := 0
		var begun time.Time
		for ; sc.Next(); n++ {
			if key := fmt.Sprintf("row-%04d", n); string(sc.Row().Key) != key || len(sc.Row().Cells) != 1 || !bytes.Equal(sc.Row().Cells[0].Value, bytes.Repeat([]byte{byte(n)}, 1000)) {
				t.Fatalf("Got row %q with %d cells, want %s", sc.Row().Key, len(sc.Row().Cells), key)
			}
			if n == 100 {
				begun = time.Now()
				h.kill(t, name)
			}
		}
		scanned := time.Since(begun)
		if err := errors.Join(sc.Err(), sc.Close()); err != nil || n != rows {
			t.Errorf("scan while %s was killed: Got %d rows, %v, want %d", name, n, err, rows)
		}
		if scanned < time.Second {
			t.Errorf("the scan has ended %v after %s was killed: it had nothing there", scanned, name)
		}
		in.progressAll(s, 3)
		t.Logf("without %s the scan has ended after %v, and every partition has gone on after %v", name, scanned.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))
		if d := cmp.Diff(want, slow.wait()); d != "" {
			t.Errorf("exported while %s was killed (-embedded +HBase):\n%.2000s", name, d)
		}
	}
	stop()
	producing.Wait()
	if perr != nil {
		t.Fatal(perr)
	}
	log := in.log(3)
	t.Logf("%d records", len(log.Lines))
	WaitCaughtUp(t, in.daemons[0], in.config, in.env, int64(len(log.Lines)), 5*time.Minute)
	if err := in.daemons[0].Stop(time.Minute); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	if err := errors.Join(log.Check(t.Context(), s), log.CheckVisitors(t.Context(), s)); err != nil {
		t.Error(err)
	}
}
