// Package embedded runs a Kafka broker inside the process: twmb/franz-go's
// kfake, on loopback, so that a demo, a test or a small installation needs no
// other server (design D14).
//
// The broker speaks the real protocol: producers, consumer groups,
// transactions, topic ids. It keeps its log in memory, or in a directory from
// which it comes back with the same topics, offsets, group commits, cluster id
// and port. It is for one machine: every partition has one copy, all state is
// owned by one goroutine, and the index of the whole log is in memory. Real
// clusters are reached by pipeline/kafka alone.
//
// A Broker is safe for concurrent use. The package starts the goroutines of the
// broker, which end with Close.
package embedded

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"sluice/internal/filelock"
)

// ErrDirInUse is the error of Start where another broker has the directory.
var ErrDirInUse = errors.New("embedded broker: directory is in use by another process")

// Options says what broker to start. The zero value is one node in memory on a
// free port, without topics.
type Options struct {
	// Dir keeps the log over restarts; it is created where absent. "" keeps
	// everything in memory.
	Dir string
	// Topics are created where they do not exist yet: name → partitions. A
	// topic that exists stays as it is.
	Topics map[string]int
	// Port to listen on; the nodes of several take the ports after it. 0 takes
	// the port that the broker of Dir had before, or any free one.
	Port int
	// Nodes of the cluster. Default 1. More than one is for tests of leader
	// moves; they share one process and one directory.
	Nodes int
	// SyncWrites fsyncs every record batch before it is acknowledged. Without
	// it the last batches may be lost when the machine (not only the process)
	// goes down.
	SyncWrites bool
	// Network is what the broker listens on in the place of loopback, for tests in a
	// bubble of testing/synctest; nil = loopback. Port must be named then, as this one
	// may have no free ones to give.
	Network Network
	// Logger gets warnings of the broker. nil discards them.
	Logger *slog.Logger
}

// Network makes connections: kfake.VirtualNetwork is one in memory.
type Network interface {
	Listen(network, address string) (net.Listener, error)
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// loopback is the system's network.
type loopback struct {
	net.ListenConfig
	net.Dialer
}

func (l *loopback) Listen(network, address string) (net.Listener, error) {
	return l.ListenConfig.Listen(context.Background(), network, address)
}

// Broker is a running embedded broker.
type Broker struct {
	network  Network
	cluster  *kfake.Cluster
	sessions *sessions
	addrs    []string
	lock     *os.File

	mu        sync.Mutex // guards below
	closed    bool
	listeners []*listener
}

// Start starts a broker and returns when it accepts connections. Its error
// wraps ErrDirInUse where another process has the directory, and names the port
// where that is taken.
func Start(o *Options) (*Broker, error) {
	if o == nil {
		o = &Options{}
	}
	for name, partitions := range o.Topics {
		if name == "" || partitions < 1 {
			return nil, fmt.Errorf("start embedded broker: topic %q with %d partitions", name, partitions)
		}
	}
	nodes := max(o.Nodes, 1)
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	b := &Broker{network: o.Network}
	if b.network == nil {
		b.network = &loopback{}
	}
	port := o.Port
	if o.Dir != "" {
		if err := os.MkdirAll(o.Dir, 0o755); err != nil {
			return nil, fmt.Errorf("start embedded broker: %w", err)
		}
		var err error
		if b.lock, err = lockDir(o.Dir); err != nil {
			return nil, fmt.Errorf("start embedded broker in %s: %w", o.Dir, err)
		}
		if port == 0 {
			if port, err = readPort(o.Dir); err != nil {
				return nil, errors.Join(err, b.unlock())
			}
		}
	}
	if err := b.start(o, nodes, port, logger); err != nil {
		return nil, errors.Join(err, b.unlock())
	}
	return b, nil
}

// start brings the cluster up on port, or on free ports where it is 0.
func (b *Broker) start(o *Options, nodes, port int, logger *slog.Logger) error {
	id, err := clusterID()
	if err != nil {
		return fmt.Errorf("start embedded broker: %w", err)
	}
	ports := make([]int, nodes)
	for i := range ports {
		if port != 0 {
			ports[i] = port + i
		}
	}
	opts := []kfake.Opt{
		kfake.Ports(ports...),
		kfake.ClusterID(id),
		kfake.ListenFn(b.listen),
		// A dead member must not cost a test or a demo the 6 s that Kafka insists on.
		kfake.GroupMinSessionTimeout(100 * time.Millisecond),
		kfake.WithLogger(logAdapter{logger}),
		kfake.DefaultNumPartitions(1),
		kfake.SeedTopics(1), // none: they are created below, on a restart as well
		kfake.MaxVersions(versions()),
	}
	if o.Dir != "" {
		opts = append(opts, kfake.DataDir(filepath.Join(o.Dir, "log")))
	}
	if o.SyncWrites {
		opts = append(opts, kfake.SyncWrites())
	}
	if b.cluster, err = kfake.NewCluster(opts...); err != nil {
		b.closeListeners()
		return fmt.Errorf("start embedded broker: %w", err)
	}
	b.sessions = watchSessions(b.cluster, b.network.DialContext)
	b.addrs = b.cluster.ListenAddrs()
	if o.Dir != "" {
		if err = writePort(o.Dir, b.addrs[0]); err != nil {
			b.stop()
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Topics)) {
		if b.cluster.TopicInfo(name) != nil {
			continue
		}
		if err = b.cluster.CreateTopic(name, int32(o.Topics[name]), nil); err != nil {
			b.stop()
			return fmt.Errorf("start embedded broker: create topic %s: %w", name, err)
		}
	}
	return nil
}

// versions returns what the broker says it speaks: what a released Kafka does, but for
// DescribeTopicPartitions. kfake answers that with a null where Kafka has an empty
// list, of which Java's admin client, and so Flink's source, dies; without it they ask
// for Metadata.
func versions() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.DescribeTopicPartitions), -1)
	return v
}

// Addr returns the address of the first node, "127.0.0.1:PORT".
func (b *Broker) Addr() string { return b.addrs[0] }

// Addrs returns the addresses of all nodes.
func (b *Broker) Addrs() []string { return slices.Clone(b.addrs) }

// Cluster returns the kfake cluster, for tests that inject faults or move
// leaders. Close it through the Broker only.
func (b *Broker) Cluster() *kfake.Cluster { return b.cluster }

// Close stops the broker, writes its state to the directory where it has one,
// and ends all connections. It may be called more than once.
func (b *Broker) Close() error {
	b.mu.Lock()
	done := b.closed
	b.closed = true
	b.mu.Unlock()
	if done {
		return nil
	}
	b.stop()
	return b.unlock()
}

// stop ends the cluster and then the connections, which kfake leaves open.
func (b *Broker) stop() {
	b.cluster.Close()
	b.closeListeners()
	b.sessions.close()
}

func (b *Broker) closeListeners() {
	b.mu.Lock()
	ls := b.listeners
	b.listeners = nil
	b.mu.Unlock()
	for _, l := range ls {
		l.closeAll()
	}
}

// lockDir takes the directory for this process until the file is closed. Without file
// locks the broker's port, which is kept in the directory, is what a second broker of it
// fails on.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "LOCK"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	switch err = filelock.Take(f); {
	case err == nil, errors.Is(err, errors.ErrUnsupported):
		return f, nil
	case errors.Is(err, filelock.ErrHeld):
		err = ErrDirInUse
	}
	return nil, errors.Join(err, f.Close())
}

func (b *Broker) unlock() error {
	if b.lock == nil {
		return nil
	}
	if err := b.lock.Close(); err != nil {
		return fmt.Errorf("close embedded broker: %w", err)
	}
	return nil
}

// listen is kfake's listener function: TCP, with every connection tracked.
func (b *Broker) listen(network, address string) (net.Listener, error) {
	ln, err := b.network.Listen(network, address)
	if err != nil {
		return nil, fmt.Errorf("%w (another broker may be running; name another port)", err)
	}
	l := &listener{Listener: ln, conns: map[net.Conn]struct{}{}}
	b.mu.Lock()
	b.listeners = append(b.listeners, l)
	b.mu.Unlock()
	return l, nil
}

// clusterID returns a random cluster id: a directory that is made anew is
// another cluster, so that stored offsets of the old one cannot be taken for
// its own. A broker that is loaded from a directory keeps the id stored there.
func clusterID() (string, error) {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return "", err
	}
	return "embedded-" + hex.EncodeToString(id[:]), nil
}

func portFile(dir string) string { return filepath.Join(dir, "port") }

// readPort returns the port that the broker of dir had, 0 if it never ran.
func readPort(dir string) (int, error) {
	text, err := os.ReadFile(portFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("start embedded broker: %w", err)
	}
	port, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 16)
	if err != nil {
		return 0, fmt.Errorf("start embedded broker: %s does not hold a port; remove it to take any free one: %w", portFile(dir), err)
	}
	return int(port), nil
}

func writePort(dir, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("start embedded broker: %w", err)
	}
	if err := os.WriteFile(portFile(dir), []byte(port+"\n"), 0o644); err != nil {
		return fmt.Errorf("start embedded broker: %w", err)
	}
	return nil
}

// listener tracks its connections, as kfake closes none of them when it stops.
type listener struct {
	net.Listener

	mu     sync.Mutex // guards below
	closed bool
	conns  map[net.Conn]struct{}
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	l.conns[c] = struct{}{}
	return &conn{Conn: c, l: l}, nil
}

func (l *listener) closeAll() {
	_ = l.Close() // kfake has closed it already
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for c := range l.conns {
		_ = c.Close() // the peer's loss is the point
	}
	l.conns = nil
}

type conn struct {
	net.Conn
	l *listener
}

// Close ends the connection and forgets it.
func (c *conn) Close() error {
	c.l.mu.Lock()
	delete(c.l.conns, c.Conn)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// logAdapter hands kfake's warnings and errors on.
type logAdapter struct{ logger *slog.Logger }

// Logf logs one line of the broker.
func (a logAdapter) Logf(level kfake.LogLevel, format string, args ...any) {
	switch level {
	case kfake.LogLevelError:
		a.logger.Error("embedded broker", "err", fmt.Sprintf(format, args...))
	case kfake.LogLevelWarn:
		a.logger.Warn("embedded broker", "err", fmt.Sprintf(format, args...))
	}
}
