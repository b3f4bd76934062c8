//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/config"
	"sluice/jobs"
	"sluice/store"
)

// hbaseResumed has a job that takes five seconds or so, of which no region is large, and
// an incremental one.
const hbaseResumed = `
store: {engine: hbase, hbase: {gateways: [ADDRESS]}}
tables:
  visits:
    families: {v: {VERSIONS: 3}, w: {}}
    split: {keys: [r2, r4, r6, r8]}
jobs:
  rows: {table: visits, columns: &columns [KEY, NUMBER, PAGE], formats: [parquet, arrow], out: OUT}
  slow: {table: visits, columns: *columns, formats: [parquet, arrow], out: OUT, rows_per_second: 400}
  changes: {table: visits, columns: [KEY, NUMBER, OP, PAGE], formats: [parquet, arrow], out: OUT, incremental: {full_every: 10}}
`

// TestHBaseExportResumed kills exports of a real HBase with -9 once they have finished a
// region, and has --resume end them; and has a job export what has changed. Manifests
// say what Kafka offsets they are complete to.
func TestHBaseExportResumed(t *testing.T) {
	address := hbaseAddress(t)
	s := openHBase(t, address, nil)
	emptyHBase(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out, file := filepath.Join(dir, "out"), filepath.Join(dir, "sluice.yaml")
	text := strings.NewReplacer("ADDRESS", fmt.Sprintf("%q", address), "OUT", out, "KEY", `{name: key, from: $row, type: string}`,
		"NUMBER", `{name: n, from: "v:n", type: int64}`, "OP", `{name: op, from: $op, type: string}`, "PAGE", `{name: page, from: "w:page", type: string}`).Replace(hbaseResumed)
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	fillVisits(t, c, 2000)
	e, err := config.OpenEngine(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	apply := func(b *store.Batch) {
		t.Helper()
		if err := e.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	var progress store.Batch
	// Other tests have left theirs.
	source := store.Source{Pipeline: "visits", Topic: fmt.Sprintf("visits-%d", time.Now().UnixNano()), ClusterID: "c"}
	progress.Advance(source, 3, store.Absent, store.Progress{Next: 4711, Applied: 4711, LastOffset: 4710})
	apply(&progress)

	export := func(args ...string) *exec.Cmd {
		return exec.Command(filepath.Join(Binaries(t), "export"), append([]string{args[0], "-c", file, "-q"}, args[1:]...)...)
	}
	must := func(args ...string) {
		t.Helper()
		if text, err := export(args...).CombinedOutput(); err != nil {
			t.Fatalf("export %s: %v\n%s", strings.Join(args, " "), err, text)
		}
	}
	verify := func(job string) *jobs.Manifest {
		t.Helper()
		r, err := jobs.Verify(t.Context(), filepath.Join(out, job))
		if err != nil || !r.OK() {
			t.Fatalf("%s: Got %v, %+v", job, err, r)
		}
		offset := jobs.Offset{Pipeline: "visits", Topic: source.Topic, ClusterID: "c", TopicID: strings.Repeat("0", 32), Partition: 3, Next: 4711}
		if !slices.Contains(r.Manifest.Offsets, offset) {
			t.Errorf("%s: Got offsets %+v, want %+v among them", job, r.Manifest.Offsets, offset)
		}
		return r.Manifest
	}
	must("run", "rows")
	verify("rows")
	want := exportRows(t, c, "rows")

	for kill := range 3 {
		cmd := export("run", "slow")
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		finished := 0 // files that are not to be written again
		tick := time.NewTicker(20 * time.Millisecond)
		for deadline := time.Now().Add(time.Minute); finished < 2*(kill+1) && time.Now().Before(deadline); <-tick.C {
			files, err := filepath.Glob(filepath.Join(out, "_tmp", "*", "files", "part-*"))
			if err != nil {
				t.Fatal(err)
			}
			finished = len(files)
		}
		tick.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if finished < 2*(kill+1) {
			t.Fatalf("%d files after a minute\n%s", finished, &said)
		}
		if _, _, err := jobs.ReadRun(t.Context(), filepath.Join(out, "slow")); err == nil {
			t.Fatalf("kill %d came too late: the run is published", kill)
		}
		must("run", "--resume", "slow")
		verify("slow")
		if d := cmp.Diff(want, exportRows(t, c, "slow")); d != "" {
			t.Fatalf("resumed after kill %d (-whole +resumed):\n%.2000s", kill, d)
		}
		if err := os.RemoveAll(filepath.Join(out, "slow")); err != nil {
			t.Fatal(err)
		}
	}

	must("run", "changes")
	if m := verify("changes"); m.Incremental == nil || m.Totals[0].Rows != int64(len(want)) {
		t.Fatalf("Got %+v and %d rows, want a full run of %d", m.Incremental, m.Totals[0].Rows, len(want))
	}
	var changed []string
	var b store.Batch
	for i := range 40 {
		key := fmt.Sprintf("r%d-%05d", i%10, 50*i)
		m := cell.Mutation{Table: "visits", Row: []byte(key)}
		m.Put("v", []byte("n"), cell.Latest, []byte("77"))
		b.Add(-1, m)
		changed = append(changed, key+" 77 upsert")
	}
	apply(&b)
	must("run", "changes")
	if m := verify("changes"); m.Incremental == nil || m.Incremental.Base == "" {
		t.Fatalf("Got %+v, want an increment", m.Incremental)
	}
	slices.Sort(changed)
	got := exportRows(t, c, "changes")
	for i, row := range got {
		got[i], _, _ = cutLast(row)
	}
	if d := cmp.Diff(changed, got); d != "" {
		t.Errorf("the increment (-want +got):\n%s", d)
	}
}

// cutLast cuts s at its last space.
func cutLast(s string) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, ' '); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}
