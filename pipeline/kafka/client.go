package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Options says which cluster to talk to and how long to wait for it.
type Options struct {
	// Brokers are the addresses to start from, "host:port". At least one.
	Brokers []string
	// ClientID is what the brokers' logs and quotas call this client. Default
	// "sluice".
	ClientID string
	// TLS encrypts the connections. nil = plain TCP.
	TLS *tls.Config
	// RootCAs are asked at each connection for what replaces those of TLS, which must be
	// set; nil = nothing does.
	RootCAs func() *x509.CertPool
	// SASL authenticates them.
	SASL SASL
	// PasswordNow is asked at each authentication for what replaces the password of SASL, as
	// it may change; nil = nothing does.
	PasswordNow func() string
	// DialTimeout bounds the making of a connection: TCP, TLS, SASL and the
	// first exchange. It is two fifths of RequestTimeout at most: kafka-go makes two
	// before it tells why the first has failed. Default 3 s.
	DialTimeout time.Duration
	// RequestTimeout bounds a call of this package that asks the cluster
	// something, retries included. Default 10 s.
	RequestTimeout time.Duration
	// MaxDecompressed bounds the memory of one record batch, in bytes:
	// decompressed, with what its records and headers take once decoded. A
	// larger one is reported as corrupt. Default 256 MiB.
	MaxDecompressed int
	// Dial replaces the TCP dialer, for tests on an in-memory network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger gets changes of state: a broker lost, a leader moved, a
	// rebalance. nil discards them.
	Logger *slog.Logger

	// watch stands between each connection and who uses it, where a test looks at what
	// becomes of them.
	watch func(c *trackedConn) net.Conn
}

// Validate reports what is missing or contradictory.
func (o *Options) Validate() error {
	if len(o.Brokers) == 0 {
		return errors.New("kafka: no brokers: name at least one address, host:port")
	}
	for _, b := range o.Brokers {
		if strings.Contains(b, "@") { // not quoted: it may be a password
			return errors.New("kafka: the address of a broker has no user and password in it: write host:port, and SASL apart")
		}
		if _, _, err := net.SplitHostPort(b); err != nil {
			return fmt.Errorf("kafka: broker address %q: want host:port: %w", b, err)
		}
	}
	switch o.SASL.Mechanism {
	case "", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
	default:
		return fmt.Errorf("kafka: unknown SASL mechanism %q: want PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", o.SASL.Mechanism)
	}
	if o.SASL.Mechanism != "" && o.SASL.User == "" {
		return fmt.Errorf("kafka: SASL mechanism %s without a user", o.SASL.Mechanism)
	}
	if o.DialTimeout < 0 || o.RequestTimeout < 0 || o.MaxDecompressed < 0 {
		return errors.New("kafka: negative timeout or size")
	}
	return nil
}

func (o *Options) withDefaults() Options {
	d := *o
	d.Brokers = slices.Clone(o.Brokers)
	if d.ClientID == "" {
		d.ClientID = "sluice"
	}
	if d.DialTimeout == 0 {
		d.DialTimeout = 3 * time.Second
	}
	if d.RequestTimeout == 0 {
		d.RequestTimeout = 10 * time.Second
	}
	d.DialTimeout = min(d.DialTimeout, d.RequestTimeout/5*2)
	if d.MaxDecompressed == 0 {
		d.MaxDecompressed = 256 << 20
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d
}

// Client talks to one Kafka cluster. It is safe for concurrent use; groups,
// fetchers and producers made from it share its connections. Close ends all of
// them. It prints without its password.
type Client struct {
	o         Options // without the password
	sasl      func() sasl.Mechanism
	transport *kafkago.Transport
	seeds     *seeds
	conns     *connSet
	cancel    context.CancelFunc
	codecs    *codecs
	metrics   counters
	asking    asking
	telling   gathering[string, struct{}, told] // by topic
	listing   gathering[listed, kmsg.ListOffsetsRequestTopicPartition, map[int32]listedOffset]

	mu       sync.Mutex         // guards below
	versions map[int32]versions // by node
	closed   bool
}

// NewClient returns a client of the cluster that o names. It makes no
// connection; the first call that needs one does.
func NewClient(o *Options) (*Client, error) {
	if o == nil {
		o = &Options{}
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	mechanism, err := o.SASL.mechanism(o.PasswordNow)
	if err != nil {
		return nil, fmt.Errorf("kafka: SASL mechanism %s: %w", o.SASL.Mechanism, err)
	}
	d := o.withDefaults()
	// What prints the client, or what holds it, finds no password: fmt looks into
	// every field, and calls no String of those that are not exported.
	d.SASL.Password = ""
	c, err := newClient(&d, mechanism)
	if err == nil && d.SASL.Mechanism == "PLAIN" && d.TLS == nil {
		d.Logger.Warn("SASL PLAIN without TLS sends the password as it is: turn TLS on, or use SCRAM", "brokers", d.Brokers)
	}
	return c, err
}

// Clone returns another client of the same cluster, with the same options, and with
// connections and metrics of its own. It is to be closed, too.
func (c *Client) Clone() (*Client, error) { return newClient(&c.o, c.sasl) }

func newClient(o *Options, mechanism func() sasl.Mechanism) (*Client, error) {
	c := &Client{o: *o, sasl: mechanism, seeds: newSeeds(o.Brokers), versions: make(map[int32]versions)}
	var err error
	if c.codecs, err = newCodecs(c.o.MaxDecompressed); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	c.conns = newConnSet(&c.o, c.sasl)
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.transport = &kafkago.Transport{
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if network == seedNetwork {
				return c.seeds.dial(ctx, c.conns.dial)
			}
			return c.conns.dial(ctx, network, address)
		},
		DialTimeout: c.o.DialTimeout,
		IdleTimeout: 5 * time.Minute,
		// The transport needs to know the brokers only, and soon after one
		// moved; who leads what is asked by this package.
		MetadataTTL:    3 * time.Second,
		MetadataTopics: []string{},
		ClientID:       c.o.ClientID,
		Context:        ctx,
	}
	return c, nil
}

// Close ends every connection of the client; calls in progress fail. Groups,
// fetchers and producers made from it are to be closed before.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.transport.CloseIdleConnections()
	c.conns.closeAll()
	c.codecs.close()
	return nil
}

// Metrics returns a copy of the client's counters.
func (c *Client) Metrics() Metrics { return c.metrics.snapshot() }

// request sends one request to a broker, or to any where node is anyNode, once.
func (c *Client) request(ctx context.Context, node int32, req kmsg.Request) (kmsg.Response, error) {
	resp, _, err := c.answer(ctx, node, req)
	return resp, err
}

// answer is request, and has host:port of the broker that has answered.
func (c *Client) answer(ctx context.Context, node int32, req kmsg.Request) (resp kmsg.Response, peer string, err error) {
	end, err := c.asking.begin(ctx, node, req)
	if err != nil {
		return nil, "", err
	}
	defer end()
	msg, err := c.exchange(ctx, &exchange{node: node, clientID: c.o.ClientID, req: req})
	if err != nil {
		return nil, "", err
	}
	x := msg.(*exchange)
	return x.resp, x.peer, nil
}

// attempt tries f until it succeeds, fails for good, or RequestTimeout has
// passed; the waits between tries double from 20 ms to 1 s.
func (c *Client) attempt(ctx context.Context, f func(ctx context.Context) error) error {
	tctx, cancel := context.WithTimeout(ctx, c.o.RequestTimeout)
	defer cancel()
	var last error
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := f(tctx)
		if err == nil {
			return nil
		}
		if lasting(err) {
			return err
		}
		// What an attempt says after the deadline is only that it was cut off.
		if last == nil || !cutOff(tctx) {
			last = err
		}
		c.metrics.retries.Add(1)
		if sleep(tctx, wait) == nil {
			continue
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w (last: %v)", ctx.Err(), last)
		}
		if e := code(0); errors.As(last, &e) || errors.Is(last, errProtocol) {
			return fmt.Errorf("gave up after %v: %w", c.o.RequestTimeout, last)
		}
		return unreachable(&c.o, last)
	}
}

// cutOff reports whether ctx has ended or its deadline has come, which a connection may
// notice a moment before the context does.
func cutOff(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// sleep waits for d, or returns ctx's error when that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lasting reports whether err is one with which waiting does not help. An answer that
// cannot be read is none: the next one comes over another connection.
func lasting(err error) bool { return !retryable(err) && !errors.Is(err, errProtocol) }

// retryable decides whether the same request may succeed later.
func retryable(err error) bool {
	if c := code(0); errors.As(err, &c) {
		return c.temporary()
	}
	for _, final := range []error{ErrAuth, ErrTooOld, ErrTooNew, ErrTopicNotFound, ErrTopicChanged, ErrTLS, ErrClosed, errProtocol} {
		if errors.Is(err, final) {
			return false
		}
	}
	return true // the rest is the network's
}

// unreachable names the brokers, the last error and what to look at.
func unreachable(o *Options, last error) error {
	var op *net.OpError
	silent := errors.Is(last, context.DeadlineExceeded)
	if errors.As(last, &op) {
		silent = op.Op == "read" && op.Timeout() // a dial that takes too long was not accepted
	}
	hint := "check the addresses, that the broker runs, and that no firewall drops the connection"
	switch {
	case errors.Is(last, errAdvertised): // which says what to check
		return fmt.Errorf("%w within %v: %s: %w", ErrUnreachable, o.RequestTimeout, strings.Join(o.Brokers, ", "), last)
	case errors.Is(last, errNotKafka):
		hint = "another server answers there: check the address and the port, and the TLS setting"
	case silent:
		hint = "the address accepts connections but does not answer: check that it is a Kafka listener, and its TLS setting"
	case errors.Is(last, errHandshake):
		hint = "a listener without TLS ends a connection so: check the port and the TLS setting"
	case (errors.Is(last, io.EOF) || errors.Is(last, io.ErrUnexpectedEOF)) && o.SASL.Mechanism != "":
		hint = "a broker closes the connection so where it does not accept the credentials, or expects TLS: check user, password, SASL mechanism and TLS"
	case errors.Is(last, io.EOF), errors.Is(last, io.ErrUnexpectedEOF):
		hint = "a broker closes the connection so where it expects TLS or SASL: check both settings"
	}
	return fmt.Errorf("%w within %v: %s: %w; %s", ErrUnreachable, o.RequestTimeout, strings.Join(o.Brokers, ", "), last, hint)
}
