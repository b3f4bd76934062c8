//go:build unix

package hbasestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/cell"
	"sluice/internal/roomy"
	"sluice/store"
	"sluice/store/hbasestore/bare"
	"sluice/store/memstore"
)

// gatewayProcess, where it is set, makes the test binary a gateway over memory.
const gatewayProcess = "SLUICE_GATEWAY_PROCESS"

// TestMain is a gateway for BenchmarkClient: in a process of its own, so that the CPU of
// this one is the client's.
func TestMain(m *testing.M) {
	if os.Getenv(gatewayProcess) == "" {
		roomy.Use()
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		var mem *memstore.Store
		if mem, err = memstore.New(nil); err == nil {
			g := makeGateway(l, mem, false)
			fmt.Println(g.address())
			_, _ = io.Copy(io.Discard, os.Stdin) // until whoever has started it is gone
			g.stop()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startGatewayProcess returns the address of a gateway in another process.
func startGatewayProcess(b *testing.B) string {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), gatewayProcess+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			b.Error(err)
		}
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(address)
}

// clientCPU is what this process has taken.
func clientCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkClient makes the same calls through the store and by a bare loop over the
// generated code. cpu-µs/op is the CPU of this process alone; the gateway has its own.
// The two are to be compared where they ran one right after the other.
func BenchmarkClient(b *testing.B) {
	address := startGatewayProcess(b)
	ctx := context.Background()
	s, err := Open(ctx, &Options{Addresses: []string{address}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	plain, err := bare.Dial(address, false, time.Minute)
	if err != nil {
		b.Fatal(err)
	}
	defer plain.Close()
	f := store.NewFamily("f")
	if err := s.CreateTable(ctx, &store.TableDescriptor{Name: "b", Families: []store.FamilyDescriptor{f}}, nil); err != nil {
		b.Fatal(err)
	}
	table, err := store.OpenTable(ctx, s, "b")
	if err != nil {
		b.Fatal(err)
	}
	name := []byte("b")
	batch := func() []cell.Mutation {
		all := make([]cell.Mutation, 500)
		for i := range all {
			all[i] = cell.Mutation{Table: "b", Row: fmt.Appendf(nil, "r%06d", i)}
			for c := range 6 {
				all[i].Put("f", fmt.Append(nil, c), 5, []byte("a value of 20 bytes."))
			}
		}
		return all
	}
	fill := func(ms []cell.Mutation) *store.Batch {
		rows := &store.Batch{}
		for i := range ms {
			rows.Add(int64(i), ms[i])
		}
		return rows
	}
	ms := batch()
	rows, pointers := fill(ms), make([]*cell.Mutation, len(ms))
	for i := range ms {
		pointers[i] = &ms[i]
	}
	if err := s.Apply(ctx, rows); err != nil {
		b.Fatal(err)
	}
	// A row of its own for each call in a row, as the gateway's memory keeps versions.
	turn, old, column := 0, ms[0].Ops[0].Value, ms[0].Ops[0].Qualifier
	next := func() []byte {
		turn++
		return ms[turn%len(ms)].Row
	}
	for _, op := range []struct {
		name         string
		store, plain func() error
	}{
		{
			"batch of 500",
			func() error { return s.Apply(ctx, rows) },
			func() error { return plain.Put(ctx, name, pointers) },
		},
		{
			"get",
			func() error {
				row, err := table.Get(ctx, []byte("r000123"), nil)
				if err == nil && len(row.Cells) != 6 {
					err = fmt.Errorf("%d cells", len(row.Cells))
				}
				return err
			},
			func() error {
				n, err := plain.Get(ctx, name, []byte("r000123"))
				if err == nil && n != 6 {
					err = fmt.Errorf("%d cells", n)
				}
				return err
			},
		},
		{
			"scan of 500",
			func() error {
				sc := s.Scan(ctx, &store.Scan{Table: "b"})
				n := 0
				for sc.Next() {
					n++
				}
				if n < 500 {
					return fmt.Errorf("%d rows: %w", n, sc.Err())
				}
				return sc.Close()
			},
			func() error {
				n, _, err := plain.Scan(ctx, name, 1000)
				if err == nil && n < 500 {
					err = fmt.Errorf("%d rows", n)
				}
				return err
			},
		},
		{
			"increment",
			func() error { _, err := table.Increment(ctx, next(), "f", []byte("n"), 1); return err },
			func() error { _, err := plain.Increment(ctx, name, next(), []byte("f"), []byte("n")); return err },
		},
		{
			"check-and-put",
			func() error {
				m := table.NewMutation(next())
				m.Put("f", column, cell.Latest, old)
				ok, err := table.CheckAndPut(ctx, m.Row, &store.Cond{Family: "f", Qualifier: column, Op: store.Equal, Value: old}, m)
				if err == nil && !ok {
					err = errors.New("not applied")
				}
				return err
			},
			func() error {
				ok, err := plain.CheckAndPut(ctx, name, next(), []byte("f"), column, old, old)
				if err == nil && !ok {
					err = errors.New("not applied")
				}
				return err
			},
		},
	} {
		for _, side := range []struct {
			name string
			call func() error
		}{{"store", op.store}, {"bare", op.plain}} {
			b.Run(op.name+"/"+side.name, func(b *testing.B) {
				b.ReportAllocs()
				cpu := clientCPU(b)
				for b.Loop() {
					if err := side.call(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(clientCPU(b)-cpu)/float64(time.Microsecond)/float64(b.N), "cpu-µs/op")
			})
			// Versions of one cell would make the gateway slower, and time is not
			// what is measured.
			if err := errors.Join(s.DisableTable(ctx, "b"), s.TruncateTable(ctx, "b", true)); err != nil {
				b.Fatal(err)
			}
			if err := s.Apply(ctx, rows); err != nil {
				b.Fatal(err)
			}
		}
	}
}
