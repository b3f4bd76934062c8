package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
	"sluice/store"
)

// The fault schedules about a process and its group: what reaches the store, the
// group, both or neither when the process stops.

// testGroup is the group of cluster.run's pipelines.
const testGroup = "sluice-p"

// wire is the network of one process. It can be held, as by SIGSTOP, and cut for
// good, as by SIGKILL.
type wire struct {
	network embedded.Network // nil = loopback

	mu     sync.Mutex
	held   chan struct{} // closed when it is let go; nil = it is not held
	cut    bool
	spoil  []byte // where this arrives its last byte is another one; empty = nothing is spoiled
	spoilt int    // times
	conns  []net.Conn
}

func (w *wire) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = make(chan struct{})
}

func (w *wire) letGo() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.held)
	w.held = nil
}

func (w *wire) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for _, c := range w.conns {
		c.Close()
	}
}

// heal lets a network that was cut make connections again.
func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.conns = false, nil
}

func (w *wire) wait() error {
	w.mu.Lock()
	held, cut := w.held, w.cut
	w.mu.Unlock()
	if held != nil {
		<-held
		w.mu.Lock()
		cut = w.cut // while it was held
		w.mu.Unlock()
	}
	if cut {
		return net.ErrClosed
	}
	return nil
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := w.wait(); err != nil {
		return nil, err
	}
	dial := new(net.Dialer).DialContext
	if w.network != nil {
		dial = w.network.DialContext
	}
	c, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		c.Close()
		return nil, net.ErrClosed
	}
	w.conns = append(w.conns, c)
	return &wireConn{Conn: c, w: w}, nil
}

// setSpoil says what is to be spoiled from now on, and returns what was before and how
// often.
func (w *wire) setSpoil(text string) (times int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spoil = []byte(text)
	return w.spoilt
}

// spoilIn spoils what arrived in p, after what came before it in tail, and returns the
// tail for what comes next.
func (w *wire) spoilIn(tail, p []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.spoil) == 0 {
		return nil
	}
	all := slices.Concat(tail, p)
	for i := 0; ; {
		k := bytes.Index(all[i:], w.spoil)
		if k < 0 {
			break
		}
		i += k + len(w.spoil)
		p[i-1-len(tail)] ^= 1 // not in tail, which is shorter than spoil
		w.spoilt++
	}
	return all[max(0, len(all)-len(w.spoil)+1):]
}

type wireConn struct {
	net.Conn
	w    *wire
	tail []byte // of what arrived last
}

func (c *wireConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.tail = c.w.spoilIn(c.tail, p[:n])
	if werr := c.w.wait(); werr != nil { // what had arrived is read when the process goes on
		return 0, werr
	}
	return n, err
}

func (c *wireConn) Write(p []byte) (int, error) {
	if err := c.w.wait(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// through gives a pipeline a client of its own over w, and a session timeout that a
// test can wait for.
func (c *cluster) through(w *wire) testOption {
	return func(o *Options) {
		client, err := kafka.NewClient(&kafka.Options{Brokers: c.broker.Addrs(), Dial: w.dial, Logger: testLogger(c.t)})
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { client.Close() })
		o.Client, o.SessionTimeout, o.Heartbeat = client, time.Second, 100*time.Millisecond
	}
}

// newSplit is newPebble with tables of four regions.
func newSplit(t testing.TB) store.Engine {
	t.Helper()
	e := newPebble(t)
	for table, rows := range map[string][]string{"events": {"u1", "u2", "u3"}, "counts": {"/p1", "/p3", "/p6"}} {
		for _, at := range rows {
			if err := e.(store.Admin).SplitRegion(t.Context(), table, []byte(at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return e
}

// shown returns what the group has of the topic's partitions.
func (c *cluster) shown() map[int32]int64 {
	c.t.Helper()
	offsets, err := c.client.CommittedOffsets(c.t.Context(), testGroup, "pages", []int32{0, 1, 2})
	if err != nil {
		c.t.Fatal(err)
	}
	return offsets
}

// process is the store of a process: after kill nothing of it arrives any more.
type process struct {
	store.Engine
	dead atomic.Bool
}

func (p *process) Apply(ctx context.Context, b *store.Batch) error {
	if p.dead.Load() {
		return errors.New("killed")
	}
	return p.Engine.Apply(ctx, b)
}

// testKilledInTheGroupCommit kills a process when all of its records are stored and
// it shows that to the group: before that arrives, or when it has and the reply has not.
func testKilledInTheGroupCommit(t *testing.T, arrives bool) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 3}), newSplit(t)
	cluster := c.broker.Cluster()
	asked := make(chan struct{}, 1)
	var calm atomic.Bool
	var last atomic.Pointer[wire] // of the process whose next whole commit is its last
	var total atomic.Int64
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if calm.Load() || arrives && shownBy(req) != total.Load() {
			return nil, nil, false
		}
		if arrives {
			if w := last.Swap(nil); w != nil {
				w.hold()
				asked <- struct{}{}
			}
			return nil, nil, false
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		return nil, errors.New("killed"), true
	})
	for range 3 {
		c.produce("pages", 500)
		ends := c.ends("pages")
		p, w := &process{Engine: e}, new(wire)
		if arrives {
			total.Store(c.total)
			last.Store(w)
		}
		m := c.run(p, often, killed, c.through(w))
		m.wait(ends)
		<-asked
		if arrives {
			waitFor(t, func() bool { return cmp.Equal(ends, c.shown()) })
		} else {
			<-asked // the one before was perhaps of a part of the log
		}
		p.dead.Store(true)
		w.kill()
		if arrives {
			w.letGo()
		}
		m.stop()
		if shown := c.shown(); !arrives && len(shown) > 0 {
			t.Errorf("Got %v shown to the group, whose commits do not arrive", shown)
		}
		c.check(e)
	}
	calm.Store(true)
	c.produce("pages", 100)
	m := c.run(e, often, c.through(new(wire)))
	m.wait(c.ends("pages"))
	waitFor(t, func() bool { return cmp.Equal(c.ends("pages"), c.shown()) })
	m.close()
	c.check(e)
}

// shownBy is the sum of the offsets of an OffsetCommit.
func shownBy(req kmsg.Request) (sum int64) {
	for _, topic := range req.(*kmsg.OffsetCommitRequest).Topics {
		for _, p := range topic.Partitions {
			sum += p.Offset
		}
	}
	return sum
}

func TestSchedule04KilledBeforeTheGroupCommit(t *testing.T) { testKilledInTheGroupCommit(t, false) }

func TestSchedule05KilledInTheGroupCommit(t *testing.T) { testKilledInTheGroupCommit(t, true) }

// frozen is the store of a process that is stopped with a batch on its way.
type frozen struct {
	store.Engine
	once         sync.Once
	asleep, wake chan struct{}
	late         chan error // what became of the batch
}

func (f *frozen) Apply(ctx context.Context, b *store.Batch) error {
	if len(b.Advances) == 0 || b.Advances[0].From <= 0 {
		return f.Engine.Apply(ctx, b)
	}
	mine := false
	f.once.Do(func() { mine = true })
	if mine {
		close(f.asleep)
	}
	<-f.wake
	err := f.Engine.Apply(context.WithoutCancel(ctx), b) // a packet on its way is not called back
	if mine {
		f.late <- err
	}
	return err
}

// A member is stopped with a batch in hand for longer than its session timeout. Its
// group gives it up, another member applies everything, and then the first goes on:
// its batch is refused, and it joins again.
func TestSchedule10StoppedPastTheSessionTimeout(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 3}), newSplit(t)
	w := new(wire)
	f := &frozen{Engine: e, asleep: make(chan struct{}), wake: make(chan struct{}), late: make(chan error, 1)}
	zombie := c.run(f, c.through(w), func(o *Options) { o.DrainTimeout = time.Hour })
	c.produce("pages", 300)
	waitFor(t, func() bool { // its first batch of a partition is let through
		for _, p := range allProgress(t, e) {
			if p.Progress.Next > 0 {
				return true
			}
		}
		return false
	})
	c.produce("pages", 300)
	<-f.asleep
	w.hold()
	was := zombie.Status()

	owner := c.run(e, c.through(new(wire)))
	c.produce("pages", 300)
	owner.wait(c.ends("pages"))
	got := owner.Status()
	owned := 0
	for _, p := range got.Partitions {
		if p.Owned {
			owned++
		}
	}
	if owned != 3 || got.Generation <= was.Generation {
		t.Errorf("Got %d partitions in generation %d, want all 3, after %d", owned, got.Generation, was.Generation)
	}
	c.check(e)

	close(f.wake)
	if err := <-f.late; !errors.Is(err, store.ErrStale) {
		t.Errorf("Got %v for the batch of the stopped member, want store.ErrStale", err)
	}
	w.letGo()
	waitFor(t, func() bool { return zombie.Status().Generation > got.Generation })
	c.produce("pages", 300)
	waitFor(t, func() bool { return readProgress(t, e) == c.total })
	zombie.close()
	owner.close()
	c.check(e)
}

// The group's coordinator moves to another broker, again and again: the member finds
// it, stays or joins again, and shows its offsets there.
func TestSchedule12CoordinatorMoves(t *testing.T) {
	t.Parallel()
	b, err := embedded.Start(&embedded.Options{Topics: map[string]int{"pages": 3}, Nodes: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	c := &cluster{t: t, broker: b, client: newClient(t, b.Addr()), pages: map[string]int64{}}
	c.out = c.client.NewProducer(nil)
	t.Cleanup(func() { c.out.Close() })
	e := newSplit(t)
	m := c.run(e, often, c.through(new(wire)))
	for range 4 {
		before := b.Cluster().CoordinatorFor(testGroup)
		waitFor(t, func() bool { b.Cluster().RehashCoordinators(); return b.Cluster().CoordinatorFor(testGroup) != before })
		c.produce("pages", 200)
		m.wait(c.ends("pages"))
		waitFor(t, func() bool { return cmp.Equal(c.ends("pages"), c.shown()) })
	}
	m.close()
	c.check(e)
}

// SIGTERM while the group does not answer: the process ends within its bounds, and
// the next one applies the rest.
func TestSchedule40StoppedWhileTheGroupIsSilent(t *testing.T) {
	t.Parallel()
	for _, key := range []kmsg.Key{kmsg.FindCoordinator, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.OffsetCommit, kmsg.OffsetFetch, kmsg.LeaveGroup} {
		t.Run(key.Name(), func(t *testing.T) {
			t.Parallel()
			c, e := newCluster(t, map[string]int{"pages": 3}), newSplit(t)
			c.produce("pages", 300)
			cluster := c.broker.Cluster()
			asked, answer := make(chan struct{}), make(chan struct{})
			var once sync.Once
			cluster.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
				once.Do(func() { close(asked) })
				cluster.SleepControl(func() { <-answer })
				return nil, nil, false
			})
			m := c.run(e, often, c.through(new(wire)))
			if key == kmsg.LeaveGroup {
				m.wait(c.ends("pages"))
			} else {
				<-asked
			}
			m.stop()
			select {
			case err := <-m.done:
				m.done <- nil
				if err != nil {
					t.Error(fmt.Errorf("run: %w", err))
				}
			case <-time.After(patience):
				t.Error("Got no end of a process that was asked to stop")
			}
			select {
			case <-asked:
			case <-time.After(patience):
				t.Errorf("Got no %s: the schedule shows nothing", key.Name())
			}
			close(answer)
			m = c.run(e)
			m.wait(c.ends("pages"))
			m.close()
			c.check(e)
		})
	}
}
