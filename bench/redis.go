package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/cell"
	"sluice/counters"
	"sluice/store"
	"sluice/store/pebblestore"
)

const (
	// redisSeconds is what Redis took for the same increments, a key of
	// sample.Extra; absent where there is no redis-server.
	redisSeconds = "redis seconds"
	// redisClients and redisPipeline are what redis-benchmark calls -c and -P: its
	// own default of clients, and enough commands at once that neither side waits
	// for the other.
	redisClients  = 50
	redisPipeline = 100

	redisWhat = "Redis INCR of the same counters: 50 clients, 100 in a pipeline, appendfsync always"
	noRedis   = "Redis was not measured: there is no redis-server in the PATH."
)

// runCounters increments counters as a pipeline does: summed up a batch, the offset
// in the same commit, an fsync a commit. Where a redis-server is installed it then
// gets the same increments one by one. Keys are drawn by Zipf's law from a million.
func runCounters(ctx context.Context, s *spec) (got sample, err error) {
	keys := drawKeys(s)
	db, err := pebblestore.Open(s.Dir, nil)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, db.Close(), os.RemoveAll(s.Dir)) }()
	family := store.NewFamily("n")
	family.Counter = true
	if err := db.CreateTable(ctx, &store.TableDescriptor{Name: "counters", Families: []store.FamilyDescriptor{family}}, nil); err != nil {
		return sample{}, err
	}
	m, got, err := measured(s, func() error { return countAll(ctx, db, s, keys) })
	if err != nil {
		return sample{}, err
	}
	if err := m.settle(&got, s.Rest); err != nil {
		return sample{}, err
	}
	sum := int64(0)
	err = each(db.Scan(ctx, &store.Scan{Table: "counters"}), func(row *cell.Row) error {
		sum += int64(binary.BigEndian.Uint64(row.Cells[0].Value))
		return nil
	})
	if err == nil && sum != int64(len(keys)) {
		err = fmt.Errorf("WRONG: the counters add up to %d after %d increments", sum, len(keys))
	}
	if err != nil {
		return sample{}, err
	}
	server, err := exec.LookPath("redis-server")
	if err != nil {
		return got, nil // the report says so
	}
	if got.Extra[redisSeconds], err = countInRedis(ctx, server, s.Dir+"-redis", keys); err != nil {
		return sample{}, fmt.Errorf("redis: %w", err)
	}
	return got, nil
}

// drawKeys returns the counter of each increment.
func drawKeys(s *spec) [][]byte {
	const most = 1_000_000
	names := make([][]byte, min(s.Events, most))
	for i := range names {
		names[i] = fmt.Appendf(nil, "counter:%07d", uint32(i)*2654435761%most) // what is frequent is not neighbours
	}
	// The exponent that is next to YCSB's 0.99 and allowed.
	zipf := rand.NewZipf(rand.New(rand.NewPCG(s.Seed, 1)), 1.01, 1, uint64(len(names)-1))
	keys := make([][]byte, s.Events)
	for i := range keys {
		keys[i] = names[zipf.Uint64()]
	}
	return keys
}

// countAll applies the increments in batches, those of a partition one after the
// other with the offset that follows from the last.
func countAll(ctx context.Context, db store.Engine, s *spec, keys [][]byte) error {
	g, ctx := errgroup.WithContext(ctx)
	for p := range s.Partitions {
		part := keys[len(keys)*p/s.Partitions : len(keys)*(p+1)/s.Partitions]
		g.Go(func() error {
			sums := counters.NewCoalescer()
			var b store.Batch
			from := store.Absent
			for next := 0; next < len(part); {
				begin := next
				for ; next < min(begin+s.Batch, len(part)); next++ {
					sums.Add("counters", "n", part[next], nil, 1, cell.Timestamp(s.Start), int64(next))
				}
				for d := range sums.Deltas {
					b.Counters = append(b.Counters, store.CounterDelta(d))
				}
				b.Advance(store.Source{Pipeline: "bench", Topic: topic}, int32(p), from, store.Progress{Next: int64(next), Applied: int64(next)})
				if err := db.Apply(ctx, &b); err != nil {
					return err
				}
				from = int64(next)
				b.Reset()
				sums.Reset()
			}
			return nil
		})
	}
	return g.Wait()
}

// countInRedis starts a server with its files in dir, increments the keys there and
// returns how long that took.
func countInRedis(ctx context.Context, server, dir string, keys [][]byte) (seconds float64, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	sockets, err := os.MkdirTemp("", "redis-") // a socket's path has at most 107 bytes
	if err != nil {
		return 0, err
	}
	socket := filepath.Join(sockets, "s")
	ctx, stop := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, server, "--port", "0", "--unixsocket", socket, "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--loglevel", "warning")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		stop()
		return 0, errors.Join(err, os.RemoveAll(dir), os.RemoveAll(sockets))
	}
	defer func() {
		stop()
		_ = cmd.Wait() // it was killed
		err = errors.Join(err, os.RemoveAll(dir), os.RemoveAll(sockets))
	}()
	if err := awaitSocket(ctx, socket); err != nil {
		return 0, err
	}
	seconds, err = timed(func() error {
		_, err := askRedis(ctx, socket, "INCR", keys)
		return err
	})
	if err != nil {
		return 0, err
	}
	distinct := map[string]struct{}{}
	var once [][]byte
	for _, k := range keys {
		if _, ok := distinct[string(k)]; !ok {
			distinct[string(k)] = struct{}{}
			once = append(once, k)
		}
	}
	sum, err := askRedis(ctx, socket, "GET", once)
	if err == nil && sum != int64(len(keys)) {
		err = fmt.Errorf("WRONG: its counters add up to %d after %d increments", sum, len(keys))
	}
	return seconds, err
}

// awaitSocket waits until somebody listens there.
func awaitSocket(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", socket)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server does not listen: %w", err)
		case <-tick.C:
		}
	}
}

// askRedis sends a command with each key, from redisClients connections with
// redisPipeline commands at once, and returns the sum of the numbers that come back.
func askRedis(ctx context.Context, socket, command string, keys [][]byte) (sum int64, err error) {
	g, ctx := errgroup.WithContext(ctx)
	sums := make([]int64, redisClients)
	for client := range redisClients {
		part := keys[len(keys)*client/redisClients : len(keys)*(client+1)/redisClients]
		g.Go(func() error {
			var d net.Dialer
			c, err := d.DialContext(ctx, "unix", socket)
			if err != nil {
				return err
			}
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			r := bufio.NewReader(c)
			var request []byte
			for len(part) > 0 {
				n := min(redisPipeline, len(part))
				request = request[:0]
				for _, k := range part[:n] {
					request = fmt.Appendf(request, "*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(command), command, len(k), k)
				}
				if _, err := c.Write(request); err != nil {
					return err
				}
				for range n {
					v, err := redisNumber(r)
					if err != nil {
						return err
					}
					sums[client] += v
				}
				part = part[n:]
			}
			return nil
		})
	}
	err = g.Wait()
	for _, s := range sums {
		sum += s
	}
	return sum, err
}

// redisNumber reads a reply of RESP 2: an integer, or a bulk string that spells one.
func redisNumber(r *bufio.Reader) (int64, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	line = bytes.TrimSuffix(line, []byte("\r\n"))
	switch {
	case len(line) > 1 && line[0] == ':':
		return strconv.ParseInt(string(line[1:]), 10, 64)
	case len(line) > 1 && line[0] == '$':
		if line, err = r.ReadSlice('\n'); err != nil {
			return 0, err
		}
		return strconv.ParseInt(string(bytes.TrimSuffix(line, []byte("\r\n"))), 10, 64)
	}
	return 0, fmt.Errorf("reply %q is no number", line)
}

// redisMeasured reports whether every round has Redis beside the counters.
func (r *report) redisMeasured() bool {
	for i := range r.Samples[countersStage] {
		if r.Samples[countersStage][i].Extra[redisSeconds] == 0 {
			return false
		}
	}
	return len(r.Samples[countersStage]) > 0
}

// redisRow is Redis's line among the stages.
func (r *report) redisRow() []string {
	s := r.over(countersStage, func(s *sample) float64 { return float64(r.Events) / s.Extra[redisSeconds] / 1000 })
	return []string{redisWhat, number(s.median), number(s.min) + ".." + number(s.max), "", "", ""}
}

// redisRatio adds the ratio of the two.
func (r *report) redisRatio(add func(name, goal string, s spread)) {
	add("counters, exactly once and fsynced / Redis INCR", "≥ 2.00", r.over(countersStage, func(s *sample) float64 { return s.Extra[redisSeconds] / s.Seconds }))
}
