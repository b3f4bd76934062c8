package pebblestore

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"sluice/cell"
	"sluice/store"
)

// fillVersions writes rows × 6 columns × 3 versions, two of which are garbage:
// packed, a put a row and version, or a key a cell.
func fillVersions(b *testing.B, db *DB, rows int, packed bool) {
	b.Helper()
	value := []byte("0123456789abcdef")
	var batch store.Batch
	flush := func() {
		if err := db.Apply(b.Context(), &batch); err != nil {
			b.Fatal(err)
		}
		batch.Reset()
	}
	for version := range 3 {
		for i := range rows {
			row := binary.BigEndian.AppendUint64(make([]byte, 0, 8), uint64(i)*0x9E3779B97F4A7C15)
			at := 1_700_000_000_000 + cell.Timestamp(version)
			m := cell.Mutation{Table: "t", Row: row}
			for c := range 6 {
				m.Put("f", fmt.Appendf(nil, "column%d", c), at, value)
				if !packed {
					batch.Add(int64(len(batch.Mutations)), m)
					m.Ops = nil
				}
			}
			if packed {
				batch.Add(int64(len(batch.Mutations)), m)
			}
			if len(batch.Mutations) > 10_000 {
				flush()
			}
		}
	}
	flush()
	if err := db.flushMemTables(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := db.pebble.Compact(b.Context(), []byte{0}, []byte{0xff}, false); err != nil {
		b.Fatal(err)
	}
	if err := db.exclusive(b.Context(), HoldSchema, func() error { db.markFlushed(); return nil }); err != nil {
		b.Fatal(err)
	}
}

// cpuTime is what the process has used of its cores.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRewrite rewrites versions of which two of three are garbage. It reports
// cells read by second and by second of a core, and what they take on disk before
// and after.
func BenchmarkRewrite(b *testing.B) {
	for _, layout := range []string{"cells", "packed"} {
		b.Run(layout, func(b *testing.B) {
			const rows = 100_000
			var took, cpu time.Duration
			var before, after uint64
			for b.Loop() {
				db, err := Open(b.TempDir(), &Options{RewriteInterval: -1, Sync: SyncNever})
				if err != nil {
					b.Fatal(err)
				}
				create(b, db, "t", store.NewFamily("f"))
				fillVersions(b, db, rows, layout == "packed")
				before = uint64(db.Metrics().TableBytes)
				begun, used := time.Now(), cpuTime(b)
				if err := db.MajorCompact(b.Context(), "t"); err != nil {
					b.Fatal(err)
				}
				took, cpu = took+time.Since(begun), cpu+cpuTime(b)-used
				after = uint64(db.Metrics().TableBytes)
				if err := db.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(rows*18*b.N)/took.Seconds()/1e6, "Mcells/s")
			b.ReportMetric(float64(rows*18*b.N)/cpu.Seconds()/1e6, "Mcells/core-s")
			b.ReportMetric(float64(before)/1e6, "MB-before")
			b.ReportMetric(float64(after)/1e6, "MB-after")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkCommitDuringRewrite commits small batches, as fast as one client can,
// while nothing else happens or while a table is rewritten over and over. It
// reports percentiles of a commit, and the longest that a rewrite has held them.
func BenchmarkCommitDuringRewrite(b *testing.B) {
	for _, rewriting := range []bool{false, true} {
		b.Run(fmt.Sprintf("rewriting=%v", rewriting), func(b *testing.B) {
			db := open(b, b.TempDir(), &Options{RewriteInterval: -1})
			f := store.NewFamily("f")
			create(b, db, "t", f)
			fillVersions(b, db, 100_000, true)
			stop, stopped := make(chan struct{}), make(chan error, 1)
			go func() {
				for v := 2; rewriting; v = 3 - v%3 + 1 {
					select {
					case <-stop:
						stopped <- nil
						return
					default:
					}
					// Garbage again: the rows' other versions.
					if err := db.MajorCompact(b.Context(), "t"); err != nil {
						stopped <- err
						return
					}
				}
				<-stop
				stopped <- nil
			}()
			rng := rand.New(rand.NewPCG(1, 2))
			var took []time.Duration
			at := cell.Timestamp(1_700_000_000_100)
			for b.Loop() {
				var batch store.Batch
				for range 100 {
					at++
					m := cell.Mutation{Table: "t", Row: binary.BigEndian.AppendUint64(nil, uint64(rng.IntN(100_000))*0x9E3779B97F4A7C15)}
					for c := range 6 {
						m.Put("f", fmt.Appendf(nil, "column%d", c), at, []byte("0123456789abcdef"))
					}
					batch.Add(int64(len(batch.Mutations)), m)
				}
				begun := time.Now()
				if err := db.Apply(b.Context(), &batch); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begun))
			}
			close(stop)
			if err := <-stopped; err != nil {
				b.Fatal(err)
			}
			slices.Sort(took)
			at99 := took[len(took)*99/100]
			m := db.Metrics()
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "p50-ms")
			b.ReportMetric(float64(at99.Microseconds())/1e3, "p99-ms")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1e3, "max-ms")
			b.ReportMetric(m.RewriteHoldMax*1e3, "hold-max-ms")
			b.ReportMetric(float64(m.Rewrites), "rewrites")
			b.ReportMetric(float64(m.RewriteRetries), "retries")
		})
	}
}
