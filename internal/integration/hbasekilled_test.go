//go:build integration

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore"
)

// newFaultLoad returns clients of a table of their own. No other test has it: what a gateway
// still tries for a client that has gone (HBase's client does, for minutes, also where the
// table was dropped and made anew meanwhile) is never counted in another test.
func newFaultLoad(t *testing.T, s *hbasestore.Store) *faultLoad {
	t.Helper()
	l := &faultLoad{s: s, table: fmt.Sprintf("faults-%d", time.Now().UnixNano())}
	d := &store.TableDescriptor{Name: l.table, Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	if err := s.CreateTable(t.Context(), d, [][]byte{[]byte("i"), []byte("p"), []byte("t")}); err != nil {
		t.Fatal(err)
	}
	return l
}

// mayFail reports whether a call may end with err while HBase is killed: it says that
// it may be tried again, or that nobody knows.
func mayFail(err error) bool {
	return errors.Is(err, store.ErrTransient) || errors.Is(err, store.ErrUnknownOutcome)
}

// faultLoad is clients that write and note what was acknowledged.
type faultLoad struct {
	s       *hbasestore.Store
	table   string
	puts    [2]atomic.Int64 // acknowledged, by client: all of its batches below
	turns   [2]turns
	counts  [2]counts
	appends [2]appends
	done    atomic.Int64 // acknowledgements of all kinds
	unknown atomic.Int64
}

// turns is a client that takes turns in a row of its own by check-and-put.
type turns struct {
	mu   sync.Mutex
	last string          // acknowledged, or found
	open map[string]bool // values of the turn behind last of which nobody knows
}

type counts struct{ acknowledged, unknown atomic.Int64 }

// appends is a client that appends a text of its own with each call, to a hundred a row.
type appends struct {
	acknowledged []bool // by text; false = nobody knows
}

func (l *faultLoad) get(ctx context.Context, row string) (value []byte, err error) {
	for ctx.Err() == nil {
		sc := l.s.Scan(ctx, &store.Scan{Table: l.table, Start: []byte(row), Stop: []byte(row), StopInclusive: true})
		value = nil
		for sc.Next() {
			value = bytes.Clone(sc.Row().Cells[0].Value)
		}
		if err = errors.Join(sc.Err(), sc.Close()); err == nil || !mayFail(err) {
			return value, err
		}
	}
	return nil, ctx.Err()
}

// put writes batches of rows whose values name them.
func (l *faultLoad) put(ctx context.Context, client int) error {
	for n := int64(0); ctx.Err() == nil; {
		b := &store.Batch{}
		for i := range 10 {
			m := cell.Mutation{Table: l.table, Row: fmt.Appendf(nil, "%c%d-%d-%d", 'a'+rune(n+int64(i))%26, client, n, i)}
			m.Put("f", []byte("q"), 1, m.Row)
			b.Add(n, m)
		}
		err := l.s.Apply(ctx, b)
		switch {
		case err == nil:
			n++
			l.puts[client].Store(n)
			l.done.Add(1)
		case ctx.Err() == nil && !mayFail(err): // else the same again
			return fmt.Errorf("batch %d of client %d: %w", n, client, err)
		}
	}
	return nil
}

// take takes turns. A condition that does not hold is an error, unless a turn of which
// nobody knew was taken after all.
func (l *faultLoad) take(ctx context.Context, client int) error {
	w := &l.turns[client]
	row := fmt.Sprintf("turns-%d", client)
	for n := 1; ctx.Err() == nil; n++ {
		value := fmt.Sprint(n)
		w.mu.Lock()
		last := w.last
		w.mu.Unlock()
		m := &cell.Mutation{Table: l.table, Row: []byte(row)}
		m.Put("f", []byte("q"), cell.Latest, []byte(value))
		res, err := l.s.MutateRow(ctx, &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal, Value: []byte(last)}, m)
		w.mu.Lock()
		switch {
		case err == nil && res.Applied:
			w.last, w.open = value, map[string]bool{}
			l.done.Add(1)
		case err != nil && !mayFail(err) && ctx.Err() == nil:
			w.mu.Unlock()
			return fmt.Errorf("turn %s of client %d: %w", value, client, err)
		case err != nil:
			w.open[value] = true
			l.unknown.Add(1)
		}
		w.mu.Unlock()
		if err == nil && res.Applied || ctx.Err() != nil {
			continue
		}
		found, err := l.get(ctx, row)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		w.mu.Lock()
		switch {
		case string(found) == last && !res.Applied: // not taken, or not yet
		case string(found) == value && err == nil:
			// The gateway asked again for the server that had taken it and was
			// killed, and was told that it no longer held (docs/guarantees.md).
			w.last, w.open = value, map[string]bool{}
		case w.open[string(found)]:
			w.last, w.open = string(found), map[string]bool{}
		default:
			w.mu.Unlock()
			return fmt.Errorf("WRONG: client %d found %q after %q, of which it knew nothing", client, found, last)
		}
		w.mu.Unlock()
	}
	return nil
}

func (l *faultLoad) increment(ctx context.Context, client int) error {
	for ctx.Err() == nil {
		m := &cell.Mutation{Table: l.table, Row: fmt.Appendf(nil, "count-%d", client)}
		m.Increment("f", []byte("q"), 1)
		_, err := l.s.MutateRow(ctx, nil, m)
		switch {
		case err == nil:
			l.counts[client].acknowledged.Add(1)
			l.done.Add(1)
		case errors.Is(err, store.ErrUnknownOutcome) || ctx.Err() != nil:
			l.counts[client].unknown.Add(1)
			l.unknown.Add(1)
		case !mayFail(err):
			return fmt.Errorf("increment of client %d: %w", client, err)
		}
	}
	return nil
}

func (l *faultLoad) append(ctx context.Context, client int) error {
	a := &l.appends[client]
	for n := 0; ctx.Err() == nil; {
		m := &cell.Mutation{Table: l.table, Row: fmt.Appendf(nil, "texts-%d-%d", client, n/100)}
		m.Append("f", []byte("q"), fmt.Appendf(nil, "%d;", n))
		_, err := l.s.MutateRow(ctx, nil, m)
		switch {
		case err == nil:
			l.done.Add(1)
		case errors.Is(err, store.ErrUnknownOutcome) || ctx.Err() != nil:
			l.unknown.Add(1)
		case mayFail(err): // it was not made
			continue
		default:
			return fmt.Errorf("append of client %d: %w", client, err)
		}
		a.acknowledged = append(a.acknowledged, err == nil)
		n++
	}
	return nil
}

// verify reads everything back.
func (l *faultLoad) verify(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	has := map[string]string{}
	sc := l.s.Scan(ctx, &store.Scan{Table: l.table})
	for sc.Next() {
		has[string(sc.Row().Key)] = string(sc.Row().Cells[0].Value)
	}
	if err := errors.Join(sc.Err(), sc.Close()); err != nil {
		t.Fatal(err)
	}
	lost := 0
	for client := range l.puts {
		for n := range l.puts[client].Load() {
			for i := range 10 {
				if row := fmt.Sprintf("%c%d-%d-%d", 'a'+rune(n+int64(i))%26, client, n, i); has[row] != row {
					lost++
				}
			}
		}
		w := &l.turns[client]
		if got := has[fmt.Sprintf("turns-%d", client)]; got != w.last && !w.open[got] {
			t.Errorf("client %d took turn %q last, HBase has %q", client, w.last, got)
		}
		c := &l.counts[client]
		got := int64(0)
		for _, b := range []byte(has[fmt.Sprintf("count-%d", client)]) {
			got = got<<8 | int64(b)
		}
		if got < c.acknowledged.Load() || got > c.acknowledged.Load()+c.unknown.Load() {
			t.Errorf("client %d: HBase counts %d, %d were acknowledged and of %d nobody knows", client, got, c.acknowledged.Load(), c.unknown.Load())
		}
		a := l.appends[client].acknowledged
		times := map[string]int{}
		for i := 0; i < len(a); i += 100 {
			for text := range strings.SplitSeq(has[fmt.Sprintf("texts-%d-%d", client, i/100)], ";") {
				times[text]++
			}
		}
		for n, acknowledged := range a {
			if got := times[fmt.Sprint(n)]; got > 1 || acknowledged && got == 0 {
				t.Errorf("client %d: HBase has text %d %d times (acknowledged: %t)", client, n, got, acknowledged)
			}
		}
	}
	if lost > 0 {
		t.Errorf("%d acknowledged rows are lost", lost)
	}
	t.Logf("%d acknowledgements, of %d calls nobody knew", l.done.Load(), l.unknown.Load())
}

// progress waits until something more was acknowledged.
func (l *faultLoad) progress(t *testing.T, ended <-chan error) {
	t.Helper()
	before := l.done.Load()
	deadline := time.NewTimer(10 * time.Minute)
	defer deadline.Stop()
	for tick := time.NewTicker(20 * time.Millisecond); l.done.Load() < before+20; {
		select {
		case <-tick.C:
		case err := <-ended:
			t.Fatalf("a client ended: %v", err)
		case <-deadline.C:
			t.Fatal("nothing was acknowledged for 10 minutes")
		}
	}
}

// I3: whatever of HBase is killed, nothing acknowledged is lost, no condition lies, no
// increment or append is made twice.
func TestHBaseKilled(t *testing.T) {
	k := startHBase(t)
	s, err := hbasestore.Open(t.Context(), &hbasestore.Options{Addresses: []string{k.address}, CallTimeout: 20 * time.Second, RetryTimeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := newFaultLoad(t, s)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	ended := make(chan error, 8)
	for client := range 2 {
		l.turns[client].open = map[string]bool{}
		for _, run := range []func(context.Context, int) error{l.put, l.take, l.increment, l.append} {
			clients.Go(func() { ended <- run(ctx, client) })
		}
	}
	kills := 2
	if soaking {
		kills = 3
	}
	if n, err := strconv.Atoi(os.Getenv("SLUICE_KILLS")); err == nil {
		kills = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range kills {
		for _, name := range []string{"thrift", "server"} {
			l.progress(t, ended)
			<-time.After(time.Duration(rng.Int64N(int64(time.Second))))
			k.kill(t, name)
			<-time.After(time.Duration(rng.Int64N(int64(time.Second)))) // some calls find nobody
			k.start(t)
		}
	}
	l.progress(t, ended)
	stop()
	clients.Wait()
	for range 8 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	l.verify(t)
}

// A gateway that is frozen keeps nobody from stopping; one that goes on again has lost
// nothing.
func TestHBaseFrozen(t *testing.T) {
	k := startHBase(t)
	open := func() *hbasestore.Store {
		s, err := hbasestore.Open(t.Context(), &hbasestore.Options{Addresses: []string{k.address}, CallTimeout: 20 * time.Second, RetryTimeout: 10 * time.Minute, CloseTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	l := newFaultLoad(t, s)
	var clients sync.WaitGroup
	ended := make(chan error, 8)
	for client := range 2 {
		l.turns[client].open = map[string]bool{}
		for _, run := range []func(context.Context, int) error{l.put, l.take, l.increment, l.append} {
			clients.Go(func() { ended <- run(t.Context(), client) })
		}
	}
	l.progress(t, ended)
	k.signal(t, "thrift", syscall.SIGSTOP)
	thaw := sync.OnceFunc(func() { k.signal(t, "thrift", syscall.SIGCONT) })
	defer thaw()
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Close with CloseTimeout 1 s has not returned after a minute while the gateway is frozen")
	}
	clients.Wait()
	for range 8 {
		if err := <-ended; err != nil && !errors.Is(err, store.ErrClosed) {
			t.Error(err)
		}
	}
	if _, err := hbasestore.Open(t.Context(), &hbasestore.Options{Addresses: []string{k.address}, DialTimeout: time.Second}); !errors.Is(err, store.ErrTransient) {
		t.Errorf("open of a frozen gateway: Got %v, want ErrTransient", err)
	}
	thaw()
	l.s = open()
	defer l.s.Close()
	l.verify(t)
}
