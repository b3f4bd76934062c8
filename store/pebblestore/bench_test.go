package pebblestore

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

// benchBatch fills b with n page views: a row of six columns each, and three
// counters each that repeat as a Zipf distribution has them.
func benchBatch(b *store.Batch, rng *rand.Rand, zipf *rand.Zipf, first int64, n int) {
	b.Reset()
	names := [...][]byte{[]byte("agent"), []byte("bytes"), []byte("client"), []byte("method"), []byte("path"), []byte("status")}
	value := []byte("0123456789abcdef0123456789abcdef")
	seen := map[string]int{}
	for i := range n {
		row := binary.BigEndian.AppendUint64(make([]byte, 0, 16), rng.Uint64())
		row = binary.BigEndian.AppendUint64(row, uint64(first)+uint64(i))
		m := cell.Mutation{Table: "t", Row: row, Ops: make([]cell.Op, 0, len(names))}
		for _, q := range names {
			m.Put("f", q, 1_700_000_000_000+cell.Timestamp(i), value)
		}
		b.Add(first+int64(i), m)
		for c := range 3 {
			key := fmt.Sprintf("page-%d/%d", zipf.Uint64(), c)
			if at, ok := seen[key]; ok {
				b.Counters[at].Delta++
				continue
			}
			seen[key] = len(b.Counters)
			b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: []byte(key), Qualifier: []byte("views"), Delta: 1, Time: 1_700_000_000_000, Offset: first + int64(i)})
		}
	}
}

// BenchmarkApply is the ingest path: batches of 10,000 events with their counters and
// offset, one fsynced commit each, and of 60,000 that become tables, as a backfill
// sends them. It reports events.
func BenchmarkApply(b *testing.B) {
	b.Run("live", func(b *testing.B) { benchmarkApply(b, 10_000, false) })
	b.Run("bulk", func(b *testing.B) { benchmarkApply(b, 60_000, true) })
}

func benchmarkApply(b *testing.B, events int, bulk bool) {
	db := open(b, b.TempDir(), nil)
	create(b, db, "t", store.NewFamily("f"), counterFamily("n"))
	const variants = 4
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.1, 1, 1_000_000)
	batches := make([]store.Batch, variants)
	for i := range batches {
		benchBatch(&batches[i], rng, zipf, int64(i*events), events)
		batches[i].Bulk = bulk
	}
	next, from := int64(0), store.Absent
	b.ReportAllocs()
	b.ResetTimer()
	done := 0
	for b.Loop() {
		batch := &batches[next%variants]
		// Other rows each time: a replayed row would be sorted already.
		for i := range batch.Mutations {
			row := batch.Mutations[i].Row
			binary.BigEndian.PutUint64(row, rng.Uint64())
		}
		batch.Advances = batch.Advances[:0]
		batch.Advance(store.Source{Pipeline: "p", Topic: "x"}, 0, from, store.Progress{Next: next + 1})
		if err := db.Apply(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
		next++
		from = next
		done += events
	}
	b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done), "ns/event")
}

// BenchmarkRowKeys commits rows, 10,000 at a time, whose keys come in order, or have a hash
// before them. It reports what flushes and compactions have written for each: with -benchtime
// 1000x, of ten million rows.
func BenchmarkRowKeys(b *testing.B) {
	for _, name := range []string{"in order", "hashed"} {
		b.Run(name, func(b *testing.B) {
			db := open(b, b.TempDir(), nil)
			create(b, db, "t", store.NewFamily("f"), counterFamily("n"))
			rng := rand.New(rand.NewPCG(1, 2))
			var batch store.Batch
			benchBatch(&batch, rng, rand.NewZipf(rng, 1.1, 1, 1_000_000), 0, 10_000)
			batch.Counters = nil
			next := uint64(0)
			for b.Loop() {
				for i := range batch.Mutations {
					row := batch.Mutations[i].Row
					binary.BigEndian.PutUint64(row, 0)
					if name == "hashed" {
						binary.BigEndian.PutUint64(row, rng.Uint64())
					}
					binary.BigEndian.PutUint64(row[8:], next)
					next++
				}
				if err := db.Apply(b.Context(), &batch); err != nil {
					b.Fatal(err)
				}
			}
			m := db.pebble.Metrics()
			var flushed, compacted uint64
			for i := range m.Levels {
				flushed += m.Levels[i].TableBytesFlushed
				compacted += m.Levels[i].TableBytesCompacted
			}
			b.ReportMetric(float64(flushed)/float64(next), "flushed-B/row")
			b.ReportMetric(float64(compacted)/float64(next), "compacted-B/row")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(next), "ns/row")
		})
	}
}

// scanTable makes a table of 50,000 rows with six columns, packed or a key a cell,
// compacted.
func scanTable(b *testing.B, packed bool) *DB {
	db := open(b, b.TempDir(), nil)
	create(b, db, "t", store.NewFamily("f"), counterFamily("n"))
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.1, 1, 1_000_000)
	const events = 50_000
	var batch store.Batch
	benchBatch(&batch, rng, zipf, 0, events)
	if !packed {
		var single store.Batch
		for i := range batch.Mutations {
			m := &batch.Mutations[i]
			for j := range m.Ops {
				single.Add(int64(i), cell.Mutation{Table: m.Table, Row: m.Row, Ops: m.Ops[j : j+1]})
			}
		}
		batch = single
	}
	if err := db.Apply(b.Context(), &batch); err != nil {
		b.Fatal(err)
	}
	if err := db.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	return db
}

// BenchmarkScan reads rows of six columns. What it is measured against is Pebble's
// own iterator over the same key-values, with nothing decoded.
func BenchmarkScan(b *testing.B) {
	for _, packed := range []bool{true, false} {
		b.Run(fmt.Sprintf("packed=%v", packed), func(b *testing.B) {
			db := scanTable(b, packed)
			b.ReportAllocs()
			cells := 0
			for b.Loop() {
				sc := db.Scan(b.Context(), &store.Scan{Table: "t", Columns: []store.Column{{Family: "f", All: true}}})
				for sc.Next() {
					cells += len(sc.Row().Cells)
				}
				if err := sc.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(cells), "ns/cell")
		})
		b.Run(fmt.Sprintf("packed=%v/raw", packed), func(b *testing.B) {
			db := scanTable(b, packed)
			b.ReportAllocs()
			keys, size := 0, 0
			for b.Loop() {
				low := cell.AppendFamilyPrefix(nil, cell.TagData, firstTableID, 1)
				it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: cell.PrefixEnd(low)})
				if err != nil {
					b.Fatal(err)
				}
				for ok := it.First(); ok; ok = it.Next() {
					keys++
					size += len(it.Key()) + len(it.Value())
				}
				if err := it.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(keys), "ns/key")
		})
	}
}

// BenchmarkGet reads one row of 50,000, present or absent.
func BenchmarkGet(b *testing.B) {
	db := open(b, b.TempDir(), nil)
	create(b, db, "t", store.NewFamily("f"), counterFamily("n"))
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.1, 1, 1_000_000)
	const events = 50_000
	var batch store.Batch
	benchBatch(&batch, rng, zipf, 0, events)
	if err := db.Apply(b.Context(), &batch); err != nil {
		b.Fatal(err)
	}
	if err := db.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, present := range []bool{true, false} {
		b.Run(fmt.Sprintf("present=%v", present), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				row := batch.Mutations[(i*7919)%events].Row
				if !present {
					row = append(row[:15:15], 0xEE, 0xEE)
				}
				sc := db.Scan(b.Context(), &store.Scan{Table: "t", Start: row, Stop: row, StopInclusive: true})
				if sc.Next() != present {
					b.Fatal(sc.Err())
				}
				sc.Close()
				i++
			}
		})
	}
}

// BenchmarkPuts writes rows of six columns with one commit each, and through a
// store.BufferedMutator with HBase's defaults, by one caller and by sixteen. Every
// commit is synced.
func BenchmarkPuts(b *testing.B) {
	names := [...][]byte{[]byte("agent"), []byte("bytes"), []byte("client"), []byte("method"), []byte("path"), []byte("status")}
	value := []byte("0123456789abcdef0123456789abcdef")
	row := func(n int64) *cell.Mutation {
		m := &cell.Mutation{Table: "t", Row: binary.BigEndian.AppendUint64(nil, uint64(n)*0x9e3779b97f4a7c15), Ops: make([]cell.Op, 0, len(names))}
		for _, q := range names {
			m.Put("f", q, cell.Latest, value)
		}
		return m
	}
	for _, callers := range []int{1, 16} {
		for _, buffered := range []bool{false, true} {
			b.Run(fmt.Sprintf("callers=%d/buffered=%v", callers, buffered), func(b *testing.B) {
				db := open(b, b.TempDir(), nil)
				create(b, db, "t", store.NewFamily("f"))
				table, err := store.OpenTable(b.Context(), db, "t")
				if err != nil {
					b.Fatal(err)
				}
				mutator, err := table.BufferedMutator(nil)
				if err != nil {
					b.Fatal(err)
				}
				var n atomic.Int64
				b.SetParallelism(callers / runtime.GOMAXPROCS(0))
				b.ReportAllocs()
				each := func(next func() bool) {
					for next() {
						m := row(n.Add(1))
						var err error
						if buffered {
							err = mutator.Mutate(b.Context(), m)
						} else {
							_, err = db.MutateRow(b.Context(), nil, m)
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				}
				if callers == 1 {
					each(b.Loop)
				} else {
					b.RunParallel(func(pb *testing.PB) { each(pb.Next) })
				}
				if err := mutator.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(n.Load())/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

// rowsPerCommit is how many row mutations BenchmarkIncrement and
// BenchmarkCheckAndPut send at once where a commit is shared, as 16 callers of the
// API do by themselves.
const rowsPerCommit = 1000

// BenchmarkIncrement adds to 10,000 counters of a COUNTER family, whose values the
// commit loop keeps, and of an ordinary one, where each addition is a read and a
// new version: alone in a synced commit, and 1,000 in one. It reports increments.
func BenchmarkIncrement(b *testing.B) {
	for _, family := range []string{"counter", "ordinary"} {
		for _, many := range []int{1, rowsPerCommit} {
			b.Run(fmt.Sprintf("%s/commit=%d", family, many), func(b *testing.B) {
				db := open(b, b.TempDir(), nil)
				create(b, db, "t", counterFamily("counter"), store.NewFamily("ordinary"))
				ms, done := make([]*cell.Mutation, many), 0
				b.ReportAllocs()
				for b.Loop() {
					for i := range ms {
						// Not in the order of the keys.
						ms[i] = &cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "row-%04d", done*7919%10_000)}
						ms[i].Increment(family, []byte("n"), 1)
						done++
					}
					_, errs := db.MutateRows(b.Context(), ms)
					for _, err := range errs {
						if err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "increments/s")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done), "ns/increment")
			})
		}
	}
}

// BenchmarkCheckAndPut puts a cell into one of 10,000 rows if another cell of it is
// what it should be, which it is or never is: alone in a synced commit, and 1,000
// in one. What never holds writes nothing. It reports checks.
func BenchmarkCheckAndPut(b *testing.B) {
	for _, holds := range []bool{true, false} {
		for _, many := range []int{1, rowsPerCommit} {
			b.Run(fmt.Sprintf("holds=%v/commit=%d", holds, many), func(b *testing.B) {
				db := open(b, b.TempDir(), nil)
				create(b, db, "t", store.NewFamily("f"))
				const rows = 10_000
				var batch store.Batch
				for i := range rows {
					m := cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "row-%04d", i)}
					m.Put("f", []byte("state"), 1, []byte("new"))
					batch.Add(int64(i), m)
				}
				if err := db.Apply(b.Context(), &batch); err != nil {
					b.Fatal(err)
				}
				cond := &store.Cond{Family: "f", Qualifier: []byte("state"), Op: store.Equal, Value: []byte("new")}
				if !holds {
					cond.Value = []byte("old")
				}
				done := 0
				b.ReportAllocs()
				for b.Loop() {
					batch.Reset()
					for range many {
						m := cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "row-%04d", done*7919%rows)}
						m.Put("f", []byte("owner"), cell.Latest, []byte("somebody"))
						batch.Record(int64(done), nil, cond, m)
						done++
					}
					var err error
					if many == 1 {
						r := &batch.Records[0]
						_, err = db.MutateRow(b.Context(), cond, &r.Mutations[0])
					} else {
						err = db.Apply(b.Context(), &batch)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "checks/s")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done), "ns/check")
			})
		}
	}
}

// BenchmarkCheckpoint makes checkpoints beside commits of 1,000 events, whose latency
// it reports with the longest time that the loop stood still: of a store whose cells are
// in files, and of one that has them in its log, which a checkpoint copies.
func BenchmarkCheckpoint(b *testing.B) {
	b.Run("files", func(b *testing.B) { benchmarkCheckpoint(b, true) })
	b.Run("log", func(b *testing.B) { benchmarkCheckpoint(b, false) })
}

func benchmarkCheckpoint(b *testing.B, flush bool) {
	dir := b.TempDir()
	db := open(b, filepath.Join(dir, "db"), nil)
	create(b, db, "t", store.NewFamily("f"), counterFamily("n"))
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.1, 1, 1_000_000)
	var batch store.Batch
	offset := int64(0)
	write := func(events int) {
		benchBatch(&batch, rng, zipf, offset, events)
		offset += int64(events)
		if err := db.Apply(b.Context(), &batch); err != nil {
			b.Error(err)
		}
	}
	for range 18 { // some 55 MiB: a memtable is nearly full
		write(10_000)
	}
	if flush {
		if err := db.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	stop, stopped := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var took []time.Duration
		for {
			select {
			case <-stop:
				stopped <- took
				return
			default:
				begun := time.Now()
				write(1_000)
				took = append(took, time.Since(begun))
			}
		}
	}()
	n := 0
	for b.Loop() {
		n++
		cp := filepath.Join(dir, fmt.Sprint(n))
		if _, err := db.Checkpoint(b.Context(), cp); err != nil {
			b.Fatal(err)
		}
		if err := os.RemoveAll(cp); err != nil {
			b.Fatal(err)
		}
	}
	close(stop)
	took := <-stopped
	slices.Sort(took)
	m := db.Metrics()
	b.ReportMetric(1e3*m.CheckpointHoldSeconds/float64(m.Checkpoints), "hold-ms")
	b.ReportMetric(1e3*m.CheckpointHoldMax, "hold-max-ms")
	if len(took) > 0 {
		b.ReportMetric(1e3*took[len(took)/2].Seconds(), "commit-p50-ms")
		b.ReportMetric(1e3*took[len(took)-1].Seconds(), "commit-max-ms")
	}
}
