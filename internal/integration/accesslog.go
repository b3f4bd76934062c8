// Package integration holds what the tests of whole processes share: an access
// log with an independent count of it, the binaries under test, and the check of
// a data directory against the count.
//
// The tests that need nothing but loopback are beside it and run with every go
// test; those that need a real Kafka, a real HBase or Python are behind the build tag
// "integration" and say what they skip. Servers are started by the programs in
// SLUICE_REAL, a folder beside the checkout where it is not set, and stopped: Kafka by
// with-servers, around the whole run, unless SLUICE_KAFKA names one; HBase by the tests,
// one for all, that of SLUICE_HBASE or SLUICE_HBASE_DIR where there is one. Nothing
// here is used by the product.
package integration

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sluice/store"
)

// Log is an access log in the combined format, with a count of it that shares no
// code with the decoder.
type Log struct {
	Lines [][]byte // without line ends
	// Counts are the well-formed requests per family, path and bucket of time.
	Counts map[string]map[Bucket]int
	Bad    int // lines that are not in the format
}

// Bucket is one counter of a family.
type Bucket struct{ Path, Time string }

// buckets are the layouts of the families' qualifiers, in UTC.
var buckets = map[string]string{"minute": "200601021504", "hour": "2006010215", "day": "20060102"}

// combined is the format as a regular expression: slow and plain, which is what
// an independent count should be.
var combined = regexp.MustCompile(`^(\S+) (\S+) (.+?) \[([^\]]+)\] "((?:[^"\\]|\\.)*)" (\d{3}) (\d+|-) "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"$`)

// ReadLog reads the log file named by name.
func ReadLog(name string) (*Log, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	l := &Log{Lines: bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))}
	l.count()
	return l, nil
}

// SharedLog reads the real log of 10,000 lines that lies beside the checkout in
// the team's own place, or makes one of the same size where it is absent.
func SharedLog(t testing.TB) *Log {
	t.Helper()
	name := filepath.Join(ModuleRoot(t), "..", "shared", "data", "apache_combined_10k.log")
	if l, err := ReadLog(name); err == nil {
		return l
	}
	t.Logf("%s is absent: using a generated log of 10,000 lines", name)
	return GeneratedLog(1, 10_000)
}

// GeneratedLog makes n lines, one of them malformed.
func GeneratedLog(seed uint64, n int) *Log {
	rng := rand.New(rand.NewPCG(seed, 1))
	l := &Log{}
	for i := range n {
		line := fmt.Sprintf(`10.%d.%d.%d - - [%02d/May/2015:%02d:%02d:%02d +0000] "GET /p/%d?q=%d HTTP/1.1" %d %d "-" "agent/%d"`,
			rng.IntN(4), rng.IntN(8), rng.IntN(16), 17+i*4/n, rng.IntN(24), rng.IntN(60), rng.IntN(60),
			int(rng.ExpFloat64()*40), rng.IntN(3), 200, rng.IntN(1e6), rng.IntN(9))
		if i == n/2 {
			line = line[:len(line)-1] // an unclosed quote
		}
		l.Lines = append(l.Lines, []byte(line))
	}
	l.count()
	return l
}

func (l *Log) count() {
	l.Counts = map[string]map[Bucket]int{}
	for family := range buckets {
		l.Counts[family] = map[Bucket]int{}
	}
	for _, line := range l.Lines {
		m := combined.FindSubmatch(line)
		if m == nil {
			l.Bad++
			continue
		}
		request := strings.Split(string(m[5]), " ")
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", string(m[4]))
		if len(request) != 3 || err != nil {
			l.Bad++
			continue
		}
		for family, layout := range buckets {
			l.Counts[family][Bucket{request[1], at.UTC().Format(layout)}]++
		}
	}
}

// ModuleRoot returns the directory of go.mod.
func ModuleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("no go.mod above the working directory")
	return ""
}

// Check compares a store with the log that was ingested into it by
// examples/access-log.yaml: rows, counters, dead letters and the audit equation.
func (l *Log) Check(ctx context.Context, r store.Reader) error {
	good := len(l.Lines) - l.Bad
	rows, err := countRows(ctx, r, "access_log")
	if err != nil {
		return err
	}
	if rows != good {
		return fmt.Errorf("access_log has %d rows, the log %d requests", rows, good)
	}
	for family := range buckets {
		if err := l.checkCounters(ctx, r, family); err != nil {
			return err
		}
	}
	dead, err := countRows(ctx, r, store.OutboxTable)
	if err != nil {
		return err
	}
	if dead != l.Bad {
		return fmt.Errorf("the outbox has %d rows, the log %d malformed lines", dead, l.Bad)
	}
	all, err := store.AllProgress(ctx, r)
	if err != nil {
		return err
	}
	var inRange, applied, deadLetters int64
	for i := range all {
		p := &all[i].Progress
		if !p.Balanced() {
			return fmt.Errorf("partition %d: the audit equation does not hold: %+v", all[i].Partition, *p)
		}
		inRange += p.Next - p.First
		applied += p.Applied
		deadLetters += p.Dead
	}
	if inRange != int64(len(l.Lines)) || applied != int64(good) || deadLetters != int64(l.Bad) {
		return fmt.Errorf("audit: %d records in range, %d applied, %d dead; the log has %d lines, %d good", inRange, applied, deadLetters, len(l.Lines), good)
	}
	return nil
}

func (l *Log) checkCounters(ctx context.Context, r store.Reader, family string) error {
	sc := r.Scan(ctx, &store.Scan{Table: "path_counts", Columns: []store.Column{{Family: family, All: true}}})
	defer sc.Close()
	got := map[Bucket]int{}
	for sc.Next() {
		for _, c := range sc.Row().Cells {
			if len(c.Value) != 8 {
				return fmt.Errorf("counter %s of %q has %d bytes", family, sc.Row().Key, len(c.Value))
			}
			got[Bucket{string(sc.Row().Key), string(c.Qualifier)}] = int(int64(binary.BigEndian.Uint64(c.Value)))
		}
	}
	if err := sc.Err(); err != nil {
		return err
	}
	want := l.Counts[family]
	for b, n := range want {
		if got[b] != n {
			return fmt.Errorf("counter %s:%s of %q is %d, the log has it %d times", family, b.Time, b.Path, got[b], n)
		}
	}
	for b, n := range got {
		if want[b] == 0 {
			return fmt.Errorf("counter %s:%s of %q is %d, the log has no such request", family, b.Time, b.Path, n)
		}
	}
	return nil
}

func countRows(ctx context.Context, r store.Reader, table string) (int, error) {
	sc := r.Scan(ctx, &store.Scan{Table: table})
	defer sc.Close()
	n := 0
	for sc.Next() {
		n++
	}
	return n, sc.Err()
}
