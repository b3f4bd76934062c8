//go:build integration

package integration

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/counters"
	"sluice/pipeline/kafka"
	"sluice/store"
)

// rebuilding is counts on a real HBase that are counted again.
type rebuilding struct {
	Views map[string]int64
	Users map[string]string // sketches
}

// TestHBaseRebuild (I2): counts on a real HBase that somebody has changed are counted
// again and switched to by the binary, in the middle of a stream, and in a soak it is
// killed at random moments: they are those of the log, before and afterwards.
func TestHBaseRebuild(t *testing.T) {
	address := hbaseAddress(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 5))
	s := openHBase(t, address, nil)
	defer s.Close()
	emptyHBase(t, s)
	ctx := t.Context()
	const partitions = 3
	broker, client := startViews(t, partitions)
	// The store's own tables outlive the test: a pipeline of its own.
	name := fmt.Sprintf("rebuild-%d", seed)
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `
serve: {listen: "127.0.0.1:0"}
store: {engine: hbase, hbase: {gateways: [%q], retry_timeout: 20s}}
kafka: {brokers: [%q]}
tables:
  rebuilt: {families: {n: {COUNTER: true}, u: {DISTINCT: true}}}
pipelines:
  %s:
    topics: [views]
    group: rebuild
    decode: {format: json}
    flush: {records: 50}
    map:
      - table: rebuilt
        row: page
        increment: [{family: n, qualifier: '"views"'}]
        append: {u: {users: user}}
`, address, broker.Addrs()[0], name), 0o644); err != nil {
		t.Fatal(err)
	}
	env := os.Environ()
	rebuild := func(kills int, over bool) {
		t.Helper()
		for killed := 0; ; killed++ {
			command := []string{"replay", "rebuild", "-c", file, name, "--switch"}
			if over {
				command = append(command, "--take-over")
			} else if killed > 0 {
				if killed == kills {
					// One that was killed is named still, unless it was before it had begun.
					out, err := Run(t, env, nil, "ingest", command...)
					if t.Logf("without --take-over: %v\n%s", err, out); err == nil {
						return
					} else if !strings.Contains(err.Error(), "--take-over") {
						t.Fatal("the refusal names no --take-over")
					}
				}
				command = append(command, "--take-over")
			}
			cmd := exec.Command(filepath.Join(Binaries(t), "ingest"), command...)
			var out bytes.Buffer
			cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- cmd.Wait() }()
			kill := make(<-chan time.Time)
			if killed < kills {
				kill = time.NewTimer(time.Duration(rng.Int64N(int64(time.Duration(killed+1) * time.Second)))).C // the moment of a kill is what is random
			}
			select {
			case err := <-done:
				t.Logf("after %d kills: %v\n%s", killed, err, &out)
				if err != nil {
					t.Fatal(err)
				}
				return
			case <-kill:
				if err := cmd.Process.Kill(); err != nil {
					t.Log(err) // it has ended
				}
				<-done
			}
		}
	}
	want, users := rebuilding{map[string]int64{}, map[string]string{}}, map[string]*counters.Sketch{}
	check := func(when string) bool {
		t.Helper()
		got := rebuilding{map[string]int64{}, map[string]string{}}
		sc := s.Scan(ctx, &store.Scan{Table: "rebuilt"})
		defer sc.Close()
		for sc.Next() {
			for _, c := range sc.Row().Cells {
				if c.Family == "n" {
					got.Views[string(sc.Row().Key)] = int64(binary.BigEndian.Uint64(c.Value))
				} else {
					got.Users[string(sc.Row().Key)] = string(c.Value)
				}
			}
		}
		if err := sc.Err(); err != nil {
			t.Fatal(err)
		}
		d := cmp.Diff(want, got)
		if d != "" && when != "" {
			t.Errorf("%s (-log +store):\n%s", when, d)
		}
		return d == ""
	}
	takenOver := func() {
		t.Helper()
		hold, err := s.HoldRebuilds(ctx, name, &store.RebuildHolder{Name: "a command on a dead machine, process 7,"})
		if err != nil {
			t.Fatal(err)
		}
		for _, flags := range [][]string{{"--switch"}, {"--discard"}, nil} {
			out, err := Run(t, env, nil, "ingest", append([]string{"replay", "rebuild", "-c", file, name}, flags...)...)
			if err == nil || !strings.Contains(err.Error(), "a command on a dead machine, process 7, holds its rebuilds") || !strings.Contains(err.Error(), "ingest replay rebuild --take-over") {
				t.Errorf("%q: Got %v\n%s, want a refusal that names who holds it, and --take-over", flags, err, out)
			}
		}
		rebuild(0, true)
		if _, _, err := hold.Rebuilds(ctx); !errors.Is(err, store.ErrHeld) {
			t.Errorf("Got %v of who was taken over from, want ErrHeld", err)
		}
	}
	producer := client.NewProducer(nil)
	defer producer.Close()
	sent := int64(0)
	for round := range 3 {
		d := StartDaemon(t, file, env)
		const records = 1500
		for p := range int32(partitions) {
			var messages []kafka.Message
			for range records / partitions {
				page, user := fmt.Sprintf("/%d", rng.IntN(200)), fmt.Sprintf("user-%d", rng.IntN(500))
				want.Views[page]++
				if users[page] == nil {
					users[page] = new(counters.Sketch)
				}
				users[page].Add([]byte(user))
				messages = append(messages, kafka.Message{Partition: p, Value: fmt.Appendf(nil, `{"page":%q,"user":%q}`, page, user)})
			}
			if err := producer.Produce(ctx, "views", messages...); err != nil {
				t.Fatal(err)
			}
		}
		for page, u := range users {
			want.Users[page] = string(u.Append(nil))
		}
		sent += records
		WaitCaughtUp(t, d, file, env, sent, 3*time.Minute)
		if err := d.Stop(30 * time.Second); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}
		check(fmt.Sprintf("round %d, ingested", round))
		for _, page := range []string{"/1", "/none"} {
			n, u := cell.Mutation{Table: "rebuilt", Row: []byte(page)}, cell.Mutation{Table: "rebuilt", Row: []byte(page)}
			n.Increment("n", []byte("views"), 1000)
			u.Append("u", []byte("users"), []byte("nobody"))
			for _, m := range []*cell.Mutation{&n, &u} {
				if _, err := s.MutateRow(ctx, nil, m); err != nil {
					t.Fatal(err)
				}
			}
		}
		if check("") {
			t.Error("the damage does not show")
		}
		kills := 0
		if soaking { // elsewhere the gateway of store/hbasestore's tests cuts it off at every call
			kills = 4 * round
		}
		if round == 0 {
			takenOver()
		} else {
			rebuild(kills, false)
		}
		check(fmt.Sprintf("round %d, rebuilt", round))
	}
	if out, err := Run(t, env, nil, "ingest", "offsets", "verify", "-c", file); err != nil {
		t.Errorf("the audit: %v\n%s", err, out)
	}
}
