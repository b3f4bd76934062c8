package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// silent dials brokers that take every request and never answer.
func silent(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, theirs) }() // until ours is closed
	return ours, nil
}

// refused dials addresses where nothing listens.
func refused(_ context.Context, network, addr string) (net.Conn, error) {
	return nil, fmt.Errorf("dial %s %s: %w", network, addr, os.NewSyscallError("connect", syscall.ECONNREFUSED))
}

// dropped dials addresses before which a firewall drops what comes.
func dropped(ctx context.Context, network, addr string) (net.Conn, error) {
	<-ctx.Done()
	a, err := net.ResolveTCPAddr(network, addr)
	if err != nil {
		return nil, err
	}
	return nil, &net.OpError{Op: "dial", Net: network, Addr: a, Err: timedOut{}}
}

// timedOut is like the error of package net where a dial takes longer than its context has.
type timedOut struct{}

func (timedOut) Error() string        { return "i/o timeout" }
func (timedOut) Timeout() bool        { return true }
func (timedOut) Temporary() bool      { return true }
func (timedOut) Is(target error) bool { return target == context.DeadlineExceeded }

func TestUnreachable(t *testing.T) {
	t.Parallel()
	const addr = "127.0.0.1:9"
	for name, tc := range map[string]struct {
		dial func(ctx context.Context, network, addr string) (net.Conn, error)
		text []string
	}{
		"silent":  {silent, []string{"does not answer"}},
		"refused": {refused, []string{"connection refused", "check the addresses"}},
		"dropped": {dropped, []string{"i/o timeout", "no firewall drops"}},
	} {
		for call, f := range map[string]func(ctx context.Context, c *Client) error{
			"Topic": func(ctx context.Context, c *Client) error { _, err := c.Topic(ctx, "t"); return err },
			"ListOffsets": func(ctx context.Context, c *Client) error {
				_, err := c.ListOffsets(ctx, "t", []int32{0})
				return err
			},
			"CreateTopic": func(ctx context.Context, c *Client) error { return c.CreateTopic(ctx, "t", 1) },
			"JoinGroup": func(ctx context.Context, c *Client) error {
				_, err := c.JoinGroup(ctx, &GroupOptions{ID: "g", Topics: []string{"t"}})
				return err
			},
			"Produce": func(ctx context.Context, c *Client) error { return c.NewProducer(nil).Produce(ctx, "t", Message{}) },
		} {
			t.Run(name+"/"+call, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := newTestClient(t, &Options{Brokers: []string{addr}, Dial: tc.dial, DialTimeout: 200 * time.Millisecond, RequestTimeout: 500 * time.Millisecond})
					start := time.Now()
					err := f(t.Context(), c)
					if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), addr) {
						t.Fatalf("Got %v, want ErrUnreachable naming %s", err, addr)
					}
					if took := time.Since(start); took > 500*time.Millisecond {
						t.Errorf("Got an answer after %v", took)
					}
					for _, want := range tc.text {
						if !strings.Contains(err.Error(), want) {
							t.Errorf("Got %q, want %q in it", err, want)
						}
					}
				})
			})
		}
	}
}

// Where a connection may take as long as the whole call, that none was made is still told
// from one that gives no answer.
func TestUnreachableWithALongDial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newTestClient(t, &Options{Brokers: []string{"127.0.0.1:9"}, Dial: dropped, DialTimeout: 10 * time.Second, RequestTimeout: 10 * time.Second})
		if _, err := c.Topic(t.Context(), "t"); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "no firewall drops") {
			t.Errorf("Got %v", err)
		}
	})
}

// A caller's own deadline is the caller's error, not the cluster's.
func TestCallerDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newTestClient(t, &Options{Brokers: []string{"127.0.0.1:9"}, Dial: silent})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := c.Topic(ctx, "t"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnreachable) {
			t.Errorf("Got %v, want the caller's deadline", err)
		}
	})
}

// elsewhere is a listener whose broker advertises an address where it is not.
type elsewhere struct{ net.Listener }

func (elsewhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 9092} }

// Who cannot reach a broker where the cluster says that it is learns which address worked,
// which did not, and what says so.
func TestAdvertised(t *testing.T) {
	t.Parallel()
	for name, dial := range map[string]func(ctx context.Context, network, addr string) (net.Conn, error){"refused": refused, "dropped": dropped} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inside := new(kfake.VirtualNetwork)
				_, o := startBroker(t, kfake.ListenFn(func(network, addr string) (net.Listener, error) {
					l, err := inside.Listen(network, addr)
					return elsewhere{l}, err
				}))
				reachable := o.Brokers[0]
				o.Brokers = []string{"127.0.0.1:9", reachable}
				o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					switch addr {
					case reachable:
						return inside.DialContext(ctx, network, addr)
					case "127.0.0.1:9":
						return refused(ctx, network, addr)
					}
					return dial(ctx, network, addr)
				}
				var log strings.Builder
				o.Logger = slog.New(slog.NewTextHandler(&log, nil))
				c := newTestClient(t, o)
				_, err := c.ListOffsets(t.Context(), "t", []int32{0})
				want := func(what, got string) {
					t.Helper()
					for _, text := range []string{"broker 10.0.0.9:9092", "which " + reachable + " names", "advertised.listeners"} {
						if !strings.Contains(got, text) {
							t.Errorf("%s: Got %q, want %q in it", what, got, text)
						}
					}
				}
				if !errors.Is(err, ErrUnreachable) {
					t.Fatalf("Got %v, want %v", err, ErrUnreachable)
				}
				want("offsets", err.Error())
				err = c.NewProducer(nil).Produce(t.Context(), "t", Message{})
				want("produce", fmt.Sprint(err))
				g, err := c.JoinGroup(t.Context(), &GroupOptions{ID: "g", Topics: []string{"t"}})
				if err != nil {
					t.Fatal(err)
				}
				defer g.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				log.Reset()
				if _, err := g.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("Got %v from a group without a coordinator", err)
				}
				want("group", log.String())
			})
		})
	}
}

// A broker that was reached and is down advertises what it should.
func TestAdvertisedBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nw := new(kfake.VirtualNetwork)
		_, o := startBroker(t, kfake.ListenFn(func(network, addr string) (net.Listener, error) {
			l, err := nw.Listen(network, addr)
			return elsewhere{l}, err
		}))
		reachable := o.Brokers[0]
		var down atomic.Bool
		o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr != reachable && down.Load() {
				return refused(ctx, network, addr)
			}
			return nw.DialContext(ctx, network, reachable)
		}
		c := newTestClient(t, o)
		if _, err := c.ListOffsets(t.Context(), "t", []int32{0}); err != nil {
			t.Fatal(err)
		}
		down.Store(true)
		time.Sleep(6 * time.Minute) // the connection was idle for too long
		_, err := c.ListOffsets(t.Context(), "t", []int32{0})
		if !errors.Is(err, ErrUnreachable) || strings.Contains(err.Error(), "advertised") {
			t.Errorf("Got %v", err)
		}
	})
}

// One seed that is down does not matter.
func TestOneSeedDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, o := startBroker(t)
		up, dial := o.Brokers[0], o.Dial
		o.Brokers, o.DialTimeout = []string{"127.0.0.1:9", up, "127.0.0.1:10"}, 100*time.Millisecond
		o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			switch addr {
			case up:
				return dial(ctx, network, addr)
			case "127.0.0.1:9":
				return refused(ctx, network, addr)
			}
			return silent(ctx, network, addr)
		}
		if _, err := newTestClient(t, o).Topic(testContext(t), "t"); err != nil {
			t.Error(err)
		}
	})
}

// As long as one seed answers, the others cost their time and no more, whether their hosts
// are off or they are frozen.
func TestOneSeedUp(t *testing.T) {
	t.Parallel()
	off := func(ctx context.Context, network, addr string) (net.Conn, error) {
		<-ctx.Done()
		return nil, fmt.Errorf("dial %s %s: %w", network, addr, ctx.Err())
	}
	for name, down := range map[string]func(ctx context.Context, network, addr string) (net.Conn, error){"off": off, "frozen": silent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, o := startBroker(t)
				up, dial := o.Brokers[0], o.Dial
				o.Brokers = []string{"127.0.0.1:9", up, "127.0.0.1:10"}
				o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if addr == up {
						return dial(ctx, network, addr)
					}
					return down(ctx, network, addr)
				}
				for range 20 {
					if _, err := newTestClient(t, o).Topic(testContext(t), "t"); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// The brokers that the cluster names take the place of the one to start from once that is
// gone: for fetches whose leader moves, and for groups that rebalance.
func TestOnlySeedGone(t *testing.T) {
	t.Parallel()
	cluster, sound := startCluster(t, kfake.SeedTopics(2, "t"))
	node := cluster.LeaderFor("t", 0)
	seed := cluster.ListenAddrs()[node]
	var mu sync.Mutex
	gone, open := false, []net.Conn{} // to the seed
	c := newTestClient(t, &Options{Brokers: []string{seed}, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if addr != seed {
			return sound.o.Dial(ctx, network, addr)
		}
		if gone {
			return refused(ctx, network, addr)
		}
		conn, err := sound.o.Dial(ctx, network, addr)
		open = append(open, conn)
		return conn, err
	}})
	produce(t, sound, "t", numbered(0, 10)...)
	r := startFetcher(t, c, nil).Add("t", 0, 0)
	readTo(t, r, 10)
	m := join(t, c, "s", "t")
	m.await(t, owns(2))

	if err := cluster.RemoveNode(node); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	gone = true
	for _, conn := range open {
		_ = conn.Close()
	}
	mu.Unlock()
	produce(t, sound, "t", numbered(10, 20)...)
	if got := readTo(t, r, 20); !slices.Equal(got, values(10, 20)) {
		t.Errorf("Got %v", got)
	}
	join(t, sound, "s", "t").await(t, owns(1))
	m.await(t, owns(1))
}

func TestTopic(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(3, "pageviews"), kfake.SeedTopics(1, "access-log"), kfake.AllowAutoTopicCreation(), kfake.ClusterID("cid"))
	ctx := testContext(t)
	got, err := c.Topic(ctx, "pageviews")
	if err != nil {
		t.Fatal(err)
	}
	want := &TopicInfo{Name: "pageviews", ID: cluster.TopicInfo("pageviews").TopicID, ClusterID: "cid", Partitions: []int32{0, 1, 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("topic (-want +got):\n%s", diff)
	}
	all, err := c.Topics(ctx)
	if err != nil || len(all) != 2 || all["access-log"] == nil {
		t.Errorf("Got %v and %v, want both topics", all, err)
	}
	for name, hint := range map[string]string{"pageview": "did you mean pageviews?", "acces_log": "access-log", "zzz": "create it first"} {
		_, err := c.Topic(ctx, name)
		if !errors.Is(err, ErrTopicNotFound) || !strings.Contains(err.Error(), name+" (") || !strings.Contains(err.Error(), hint) {
			t.Errorf("Got %v, want ErrTopicNotFound for %s with %q", err, name, hint)
		}
		if cluster.TopicInfo(name) != nil {
			t.Errorf("%s was created", name)
		}
	}
}

func TestCreateTopic(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t)
	ctx := testContext(t)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.NotController})
	for range 2 {
		if err := c.CreateTopic(ctx, "new", 2); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.Topic(ctx, "new"); err != nil || len(got.Partitions) != 2 {
		t.Errorf("Got %v, %v", got, err)
	}
	if err := c.CreateTopic(ctx, "none", 0); err == nil {
		t.Error("Got no error for no partitions")
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "denied", Err: kerr.TopicAuthorizationFailed})
	if err := c.CreateTopic(ctx, "denied", 1); !errors.Is(err, ErrAuth) || !strings.Contains(err.Error(), "denied") {
		t.Errorf("Got %v for a refused topic", err)
	}
}

func TestListOffsets(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(3, "t"))
	ctx := testContext(t)
	base := time.UnixMilli(1_700_000_000_000)
	var msgs []Message
	for i := range 10 {
		msgs = append(msgs, Message{Value: []byte("v"), Partition: 0, Time: base.Add(time.Duration(i) * time.Second)})
	}
	p := c.NewProducer(&ProducerOptions{BatchBytes: 1}) // a record a batch
	if err := p.Produce(ctx, "t", msgs...); err != nil {
		t.Fatal(err)
	}
	if err := cluster.DeleteRecords("t", 0, 4); err != nil {
		t.Fatal(err)
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.NotLeaderForPartition, Count: 2})
	got, err := c.ListOffsets(ctx, "t", []int32{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int32]Offsets{0: {4, 10}, 1: {0, 0}, 2: {0, 0}}, got); diff != "" {
		t.Errorf("offsets (-want +got):\n%s", diff)
	}
	for _, tc := range []struct {
		at   time.Duration
		want int64
	}{{-time.Hour, 4}, {6500 * time.Millisecond, 7}, {9 * time.Second, 9}, {time.Hour, 10}} {
		at, err := c.OffsetsAt(ctx, "t", []int32{0, 1}, base.Add(tc.at))
		if diff := cmp.Diff(map[int32]int64{0: tc.want, 1: 0}, at); err != nil || diff != "" {
			t.Errorf("at %v: %v (-want +got):\n%s", tc.at, err, diff)
		}
	}
	if _, err := c.ListOffsets(ctx, "t", []int32{7}); !errors.Is(err, ErrTopicNotFound) {
		t.Errorf("Got %v for a partition that is not there", err)
	}
	if _, err := c.ListOffsets(ctx, "no", []int32{0}); !errors.Is(err, ErrTopicNotFound) {
		t.Errorf("Got %v for a topic that is not there", err)
	}
}

// A partition without a leader, or one that its leader does not answer for, is named in the
// error, and what the others hold is known beside it.
func TestListOffsetsOfSome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, c := startCluster(t, kfake.SeedTopics(3, "t"))
		for p := range int32(3) {
			if err := cluster.MoveTopicPartition("t", p, 0); err != nil {
				t.Fatal(err)
			}
		}
		produce(t, c, "t", numbered(0, 4)...) // all to partition 0
		info, err := c.Topic(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		want := map[int32]Offsets{0: {0, 4}, 2: {0, 0}}
		check := func(reason *kerr.Error) {
			t.Helper()
			got, err := c.ListOffsets(t.Context(), "t", []int32{0, 1, 2})
			if err == nil || !strings.Contains(err.Error(), "partition 1: "+reason.Message) {
				t.Errorf("Got %v, want partition 1 and %s", err, reason.Message)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("offsets (-want +got):\n%s", diff)
			}
		}
		faults := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "t", Partitions: []int32{1}, Err: kerr.OffsetNotAvailable, Count: -1})
		check(kerr.OffsetNotAvailable)
		faults.Remove()
		cluster.ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			resp := kreq.ResponseKind().(*kmsg.MetadataResponse)
			resp.ClusterID = &info.ClusterID
			for n := range int32(3) {
				b := kmsg.NewMetadataResponseBroker()
				b.NodeID, b.Host, b.Port = n, "127.0.0.1", n+1
				resp.Brokers = append(resp.Brokers, b)
			}
			rt := kmsg.NewMetadataResponseTopic()
			rt.Topic, rt.TopicID = &info.Name, info.ID
			for p := range int32(3) {
				rp := kmsg.NewMetadataResponseTopicPartition()
				rp.Partition, rp.LeaderEpoch = p, -1
				if p == 1 {
					rp.Leader, rp.ErrorCode = -1, kerr.LeaderNotAvailable.Code
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
			return resp, nil, true
		})
		check(kerr.LeaderNotAvailable)
	})
}

// A record that comes between the questions of OffsetsAt is not passed over: a pipeline
// that begins there would never see it.
func TestOffsetsAtWhileRecordsCome(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	at := time.UnixMilli(1_700_000_000_000)
	produce(t, c, "t", Message{Value: []byte("old"), Time: at.Add(-time.Hour)})
	asked := 0
	cluster.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if asked++; asked == 2 {
			cluster.SleepControl(func() { produce(t, c, "t", Message{Value: []byte("new"), Time: at.Add(time.Second)}) })
		}
		return nil, nil, false
	})
	got, err := c.OffsetsAt(testContext(t), "t", []int32{0}, at)
	if diff := cmp.Diff(map[int32]int64{0: 1}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestOldBroker(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(1, "t"), kfake.MaxVersions(kversion.V2_6_0()))
	_, err := c.Topic(testContext(t), "t")
	for _, part := range []string{"a broker (pipe)", "Metadata up to version 9", "use Kafka 2.8"} {
		if !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), part) {
			t.Errorf("Got %v, want ErrTooOld with %q", err, part)
		}
	}
	f := c.NewFetcher(nil)
	f.Add("t", 0, 0)
	if err := f.Run(testContext(t)); !errors.Is(err, ErrTooOld) {
		t.Errorf("Got %v from Run, want ErrTooOld", err)
	}
}

// Kafka 2.8 knows no fetch by topic id.
func TestFetchByName(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(1, "t"), kfake.MaxVersions(kversion.V2_8_0()))
	produce(t, c, "t", numbered(0, 10)...)
	r := startFetcher(t, c, nil).Add("t", 0, 0)
	if got := readTo(t, r, 10); !slices.Equal(got, values(0, 10)) {
		t.Errorf("Got %v", got)
	}
	if got := c.versions[anyNode].fetch; got != 12 {
		t.Errorf("Got fetch version %d, want 12", got)
	}
}

func TestSASL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, o := startBroker(t, kfake.EnableSASL(),
			kfake.Superuser("PLAIN", "u", "p"), kfake.Superuser("SCRAM-SHA-256", "u", "p"), kfake.Superuser("SCRAM-SHA-512", "u", "p"))
		with := func(change func(*Options)) *Client {
			o := *o
			change(&o)
			return newTestClient(t, &o)
		}
		for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
			good := with(func(o *Options) { o.SASL = SASL{mechanism, "u", "p"} })
			if _, err := good.Topic(testContext(t), "t"); err != nil {
				t.Errorf("%s: %v", mechanism, err)
			}
			m := joinWith(t, good, &GroupOptions{ID: mechanism, Topics: []string{"t"}})
			m.await(t, owns(1))
			bad := with(func(o *Options) { o.SASL, o.RequestTimeout = SASL{mechanism, "u", "wrong-secret"}, time.Second })
			_, err := bad.Topic(testContext(t), "t")
			if err == nil || strings.Contains(err.Error(), "wrong-secret") || !strings.Contains(err.Error(), "credentials") {
				t.Errorf("%s: Got %v with a wrong password", mechanism, err)
			}
		}
		none := with(func(o *Options) { o.RequestTimeout = 300 * time.Millisecond })
		if _, err := none.Topic(testContext(t), "t"); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "SASL") {
			t.Errorf("Got %v without credentials, want a hint to SASL", err)
		}
		encrypted := with(func(o *Options) {
			o.TLS, o.RequestTimeout, o.DialTimeout = &tls.Config{MinVersion: tls.VersionTLS12}, 300*time.Millisecond, 100*time.Millisecond
		})
		if _, err := encrypted.Topic(testContext(t), "t"); !errors.Is(err, ErrUnreachable) {
			t.Errorf("Got %v with TLS to a plain port, want ErrUnreachable", err)
		}
	})
}

func TestOptionsValidate(t *testing.T) {
	t.Parallel()
	for text, o := range map[string]*Options{
		"no brokers":             nil,
		`"nohost"`:               {Brokers: []string{"nohost"}},
		"has no user":            {Brokers: []string{"h:1", "hunter2@h:1"}},
		"no user and password":   {Brokers: []string{"me:hunter2@h:1"}},
		"unknown SASL mechanism": {Brokers: []string{"h:1"}, SASL: SASL{Mechanism: "KERBEROS"}},
		"without a user":         {Brokers: []string{"h:1"}, SASL: SASL{Mechanism: "PLAIN"}},
		"negative":               {Brokers: []string{"h:1"}, DialTimeout: -1},
	} {
		if _, err := NewClient(o); err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Got %v, want %q", err, text)
		}
	}
}

func TestClientClosed(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(1, "t"))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Topic(testContext(t), "t"); !errors.Is(err, ErrClosed) {
		t.Errorf("Got %v, want ErrClosed", err)
	}
}

// Producers that write one record without a key each, as of a command that is run again and
// again, do not all write it to the same partition.
func TestProducersSpread(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(4, "t"))
	for i := range 60 {
		produce(t, c, "t", Message{Value: fmt.Append(nil, i), Partition: AnyPartition})
	}
	offs, err := c.ListOffsets(testContext(t), "t", []int32{0, 1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	for p, o := range offs {
		if o.End == 0 || o.End > 45 {
			t.Errorf("Got %d of 60 records in partition %d", o.End, p)
		}
	}
}

func TestProducePartitions(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(4, "t"))
	var msgs []Message
	for i := range 400 {
		msgs = append(msgs, Message{Value: fmt.Append(nil, i), Partition: AnyPartition})
	}
	msgs = append(msgs, Message{Key: []byte("foobar"), Value: []byte("keyed"), Partition: AnyPartition})
	produce(t, c, "t", msgs...)
	offs, err := c.ListOffsets(testContext(t), "t", []int32{0, 1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	f := startFetcher(t, c, nil)
	keyed := int32((murmur2([]byte("foobar")) & 0x7fffffff) % 4)
	for p, o := range offs {
		want := int64(100)
		if p == keyed {
			want++
		}
		if o.End != want {
			t.Errorf("Got %d records in partition %d, want %d", o.End, p, want)
		}
		got := readTo(t, f.Add("t", p, 0), o.End)
		if slices.Contains(got, "keyed") != (p == keyed) {
			t.Errorf("Got the key in partition %d, want %d", p, keyed)
		}
	}
	if err := c.NewProducer(nil).Produce(testContext(t), "t", Message{Partition: 9}); !errors.Is(err, ErrTopicNotFound) {
		t.Errorf("Got %v for partition 9", err)
	}
	if got := c.Metrics().Produced; got != 401 {
		t.Errorf("Got %d produced, want 401", got)
	}
}

// Vectors of Kafka's UtilsTest.testMurmur2.
func TestMurmur2(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
	} {
		if got := int32(murmur2([]byte(s))); got != want {
			t.Errorf("%s: Got %d, want %d", s, got, want)
		}
	}
}

func TestProduceErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, c := startCluster(t, kfake.SeedTopics(1, "t"), kfake.AllowAutoTopicCreation(), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "2000"}))
		ctx := testContext(t)
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 2},
			kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas})
		// Batches larger than the broker takes are halved.
		p := c.NewProducer(&ProducerOptions{Compression: None})
		if err := p.Produce(ctx, "t", numbered(0, 1000)...); err != nil {
			t.Fatal(err)
		}
		if got := readTo(t, startFetcher(t, c, nil).Add("t", 0, 0), 1000); !slices.Equal(got, values(0, 1000)) {
			t.Errorf("Got %d records", len(got))
		}
		err := p.Produce(ctx, "t", Message{Value: make([]byte, 5000)})
		if !errors.Is(err, codeMessageTooLarge) || !strings.Contains(err.Error(), "produce to t") {
			t.Errorf("Got %v for a message that is too large", err)
		}
		if err := p.Produce(ctx, "nope", Message{}); !errors.Is(err, ErrTopicNotFound) || cluster.TopicInfo("nope") != nil {
			t.Errorf("Got %v for a missing topic", err)
		}
		if err := p.Produce(ctx, "t"); err != nil {
			t.Errorf("Got %v for nothing", err)
		}
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
		short := c.NewProducer(&ProducerOptions{DeliveryTimeout: 100 * time.Millisecond})
		if err := short.Produce(ctx, "t", Message{}); !errors.Is(err, codeNotEnoughReplicas) {
			t.Errorf("Got %v, want the broker's reason after the delivery timeout", err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := p.Produce(ctx, "t", Message{}); !errors.Is(err, ErrClosed) {
			t.Errorf("Got %v, want ErrClosed", err)
		}
		if err := c.NewProducer(&ProducerOptions{Compression: "rar"}).Produce(ctx, "t", Message{}); err == nil || !strings.Contains(err.Error(), `"rar"`) {
			t.Errorf("Got %v for an unknown codec", err)
		}
	})
}

func TestCommittedOffsets(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(2, "a"))
	produce(t, c, "a", numbered(0, 10)...)
	ctx := testContext(t)
	got, err := c.CommittedOffsets(ctx, "g", "a", []int32{0, 1})
	if err != nil || len(got) != 0 {
		t.Errorf("Got %v, %v before a commit", got, err)
	}
	if err := join(t, c, "s", "a").await(t, owns(2)).Commit(ctx, map[string]map[int32]int64{"a": {0: 7}}); err != nil {
		t.Fatal(err)
	}
	got, err = c.CommittedOffsets(ctx, "g", "a", []int32{0, 1})
	if diff := cmp.Diff(map[int32]int64{0: 7}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// Offsets that are being committed within a transaction are waited for, as a consumer that
// reads committed records waits (KIP-447): the older ones are of records that it has processed.
func TestCommittedOffsetsOfTransactions(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(1, "a"))
	ctx := testContext(t)
	x := newTxn(t, c, "x")
	x.commitOffset(ctx, "g", "a", 3)
	x.end(ctx, true)
	x.commitOffset(ctx, "g", "a", 7)
	before := c.Metrics().Retries
	answered, ended := make(chan struct{}), make(chan struct{})
	go func() { // the transaction ends when its end is waited for
		defer close(ended)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for c.Metrics().Retries == before {
			select {
			case <-tick.C:
			case <-answered:
				return
			}
		}
		x.end(ctx, true)
	}()
	got, err := c.CommittedOffsets(ctx, "g", "a", []int32{0})
	close(answered)
	<-ended
	if diff := cmp.Diff(map[int32]int64{0: 7}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// commitOffset commits an offset of partition 0 within the transaction.
func (x *txn) commitOffset(ctx context.Context, group, topic string, offset int64) {
	x.t.Helper()
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.Version, add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = 3, x.id, x.pid, x.epoch, group
	x.check(x.ask(ctx, add).(*kmsg.AddOffsetsToTxnResponse).ErrorCode)
	node, err := x.c.coordinator(ctx, group)
	if err != nil {
		x.t.Fatal(err)
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = 3, x.id, x.pid, x.epoch, group
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Offset = offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := x.c.request(ctx, node, req)
	if err != nil {
		x.t.Fatal(err)
	}
	x.check(resp.(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}

// What is said of a broker is why it refused, not that the last attempt was cut off: a
// connection has its deadline from the context, and may notice it first.
func TestAttemptKeepsTheReason(t *testing.T) {
	t.Parallel()
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			_, o := startBroker(t)
			o.RequestTimeout = time.Second
			c := newTestClient(t, o)
			tries := 0
			err := c.attempt(t.Context(), func(ctx context.Context) error {
				if tries++; tries < 3 {
					return io.EOF
				}
				deadline, _ := ctx.Deadline()
				time.Sleep(time.Until(deadline))
				return &net.OpError{Op: "write", Net: "pipe", Err: os.ErrDeadlineExceeded}
			})
			if !errors.Is(err, ErrUnreachable) || !errors.Is(err, io.EOF) {
				t.Errorf("Got %v, want the reason", err)
			}
		})
	}
}
