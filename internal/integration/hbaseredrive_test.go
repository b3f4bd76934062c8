//go:build integration

package integration

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline"
	"sluice/pipeline/buffer"
	"sluice/store"
	"sluice/store/hbasestore"
)

// redriven is what has become of the letters of a pipeline.
type redriven struct {
	States  map[string]int // letters by what was done to them; "" = dead
	Applied int64          // as it is counted beside them
	Counted map[string]int64
}

// TestHBaseRedrive (I2): dead letters on a real HBase are redriven by processes that are
// killed at random moments, and one that finishes: each letter is counted once, and
// everything says so.
func TestHBaseRedrive(t *testing.T) {
	address := hbaseAddress(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	s := openHBase(t, address, nil)
	defer s.Close()
	emptyHBase(t, s)
	ctx := t.Context()
	const table, partitions, letters = "redriven", 3, 1000
	n := store.NewFamily("n")
	n.Counter = true
	if err := s.CreateTable(ctx, &store.TableDescriptor{Name: table, Families: []store.FamilyDescriptor{store.NewFamily("f"), n}}, [][]byte{[]byte("/3"), []byte("/6")}); err != nil {
		t.Fatal(err)
	}
	// The store's own tables outlive the test: a pipeline of its own.
	src := store.Source{Pipeline: fmt.Sprintf("redrive-%d", seed), Topic: "pageviews", ClusterID: "c", TopicID: [16]byte{7}}
	want := redriven{States: map[string]int{buffer.Applied: partitions * letters}, Applied: partitions * letters, Counted: map[string]int64{}}
	for p := range int32(partitions) {
		var b store.Batch
		for o := range int64(letters) {
			page := fmt.Sprintf("/%d", rng.IntN(10))
			want.Counted[page]++
			d := buffer.DeadLetter{
				Pipeline: src.Pipeline, Topic: src.Topic, TopicID: src.TopicID, Partition: p, Offset: o, Time: 1000 + o,
				Value: fmt.Appendf(nil, "{%q: %q}", "page", page), Stage: "map", Class: "missing",
			}
			m, err := d.Mutation()
			if err != nil {
				t.Fatal(err)
			}
			b.Add(o, m)
		}
		b.Advance(src, p, store.Absent, store.Progress{Next: letters, Dead: letters, LastOffset: letters - 1, LeaderEpoch: -1, MappingVersion: "before"})
		if err := s.Apply(ctx, &b); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
store: {engine: hbase, hbase: {gateways: [%q], retry_timeout: 20s}}
kafka: {brokers: ["127.0.0.1:1"]} # which nobody asks
tables: {%s: {families: {f: {}, n: {COUNTER: true}}}}
pipelines:
  %s:
    topics: [%s]
    group: redrive
    decode: {format: json}
    map:
      - table: %[2]s
        row: page
        put: {f: {last: page}}
        increment: [{family: n, qualifier: '"views"'}]
`, address, table, src.Pipeline, src.Topic), 0o644); err != nil {
		t.Fatal(err)
	}
	start := func() (cmd *exec.Cmd, out *lockedBuffer, done chan error) {
		t.Helper()
		cmd, out, done = exec.Command(filepath.Join(Binaries(t), "ingest"), "dlq", "redrive", "-c", config), &lockedBuffer{}, make(chan error, 1)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { done <- cmd.Wait() }()
		return cmd, out, done
	}
	killed := 0
	for killed < 6 {
		before := appliedLetters(t, s, src.Pipeline)
		if before == partitions*letters {
			break
		}
		cmd, out, done := start()
		// It is killed some time after the first of its batches, or as it begins.
		if killed%3 > 0 {
			awaitRedriven(t, s, src.Pipeline, before, out, done)
		}
		select {
		case <-time.After(time.Duration(rng.Int64N(int64(100 * time.Millisecond)))):
		case err := <-done: // it was faster
			if done <- err; err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		_ = cmd.Process.Kill() // gone already is as good
		<-done
		killed++
		t.Logf("killed after %d letters", appliedLetters(t, s, src.Pipeline))
	}
	if killed < 2 { // a machine that is fast enough is killed less often
		t.Errorf("all was done after %d kills", killed)
	}
	_, out, done := start()
	if err := <-done; err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := readRedriven(ctx, s, src.Pipeline, table)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// appliedLetters returns how many letters of a pipeline are counted as redriven.
func appliedLetters(t *testing.T, s *hbasestore.Store, pipelineName string) (n int64) {
	t.Helper()
	all, err := pipeline.AllRedriven(t.Context(), s, pipelineName)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		n += r.Applied
	}
	return n
}

// awaitRedriven waits until more letters than before are redriven, or the process has
// ended.
func awaitRedriven(t *testing.T, s *hbasestore.Store, pipelineName string, before int64, out *lockedBuffer, done chan error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(10 * time.Minute); appliedLetters(t, s, pipelineName) == before; {
		select {
		case <-tick.C:
		case err := <-done:
			if done <- err; err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			return
		case <-deadline:
			t.Fatalf("no letter was redriven for 10 minutes\n%s", out)
		}
	}
}

// readRedriven reads the letters of a pipeline, and the counters of their pages.
func readRedriven(ctx context.Context, s *hbasestore.Store, pipelineName, table string) (redriven, error) {
	r := redriven{States: map[string]int{}, Counted: map[string]int64{}}
	for d, err := range pipeline.ScanLetters(ctx, s, &pipeline.LetterFilter{Pipeline: pipelineName}) {
		if err != nil {
			return r, err
		}
		r.States[d.RedrivenAs]++
	}
	all, err := pipeline.AllRedriven(ctx, s, pipelineName)
	if err != nil {
		return r, err
	}
	for _, n := range all {
		r.Applied += n.Applied
	}
	sc := s.Scan(ctx, &store.Scan{Table: table, Columns: []store.Column{{Family: "n", All: true}}})
	for sc.Next() {
		for _, c := range sc.Row().Cells {
			r.Counted[string(sc.Row().Key)] += int64(binary.BigEndian.Uint64(c.Value))
		}
	}
	return r, errors.Join(sc.Err(), sc.Close())
}
