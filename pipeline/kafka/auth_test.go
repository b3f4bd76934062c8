package kafka

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// authority issues certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	})
	return a
}

func (a *authority) sign(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return signed, key
}

// issue returns a certificate for 127.0.0.1 that ends at notAfter.
func (a *authority) issue(notAfter time.Time) tls.Certificate {
	c, key := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kafka"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: notAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// startSecure starts a broker on loopback and returns its address.
func startSecure(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, string) {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(1, "t"), kfake.GroupMinSessionTimeout(time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster, cluster.ListenAddrs()[0]
}

// useAll uses every kind of connection: the client's and a group's.
func useAll(t *testing.T, c *Client) {
	t.Helper()
	produce(t, c, "t", numbered(0, 10)...)
	if got := readTo(t, startFetcher(t, c, nil).Add("t", 0, 0), 10); len(got) != 10 {
		t.Errorf("Got %d records", len(got))
	}
	joinWith(t, c, &GroupOptions{ID: "g", Topics: []string{"t"}}).await(t, owns(1))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	year := time.Now().Add(time.Hour)
	serve := func(cert tls.Certificate) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	mutual := serve(ca.issue(year))
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, ca.pool()
	mutual12 := mutual.Clone()
	mutual12.MaxVersion = tls.VersionTLS12
	trusting := func(certs ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: ca.pool(), Certificates: certs, MinVersion: tls.VersionTLS12}
	}
	named := trusting()
	named.ServerName = "kafka.example.com"
	for name, tc := range map[string]struct {
		server, client *tls.Config
		want           []string // nil = it works
	}{
		"trusted":                   {serve(ca.issue(year)), trusting(), nil},
		"mutual":                    {mutual, trusting(ca.issue(year)), nil},
		"mutual, TLS 1.2":           {mutual12, trusting(ca.issue(year)), nil},
		"unknown CA":                {serve(other.issue(year)), trusting(), []string{"unknown authority", "check the CA file"}},
		"expired":                   {serve(ca.issue(time.Now().Add(-time.Hour))), trusting(), []string{"expired", "check the clocks"}},
		"other name":                {serve(ca.issue(year)), named, []string{"kafka.example.com", "check the broker's address and the server name"}},
		"no client certificate":     {mutual, trusting(), []string{"certificate required", "whether the broker asks for one"}},
		"no client certificate, 12": {mutual12, trusting(), []string{"handshake failure", "whether the broker asks for one"}},
		"foreign client":            {mutual, trusting(other.issue(year)), []string{"this client's certificate"}},
		"expired client":            {mutual, trusting(ca.issue(time.Now().Add(-time.Hour))), []string{"this client's certificate"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, addr := startSecure(t, kfake.TLS(tc.server))
			c := newTestClient(t, &Options{Brokers: []string{addr}, TLS: tc.client})
			if tc.want == nil {
				useAll(t, c)
				return
			}
			_, err := c.Topic(testContext(t), "t")
			if !errors.Is(err, ErrTLS) || strings.Count(err.Error(), addr) != 1 {
				t.Errorf("Got %v, want ErrTLS naming %s once", err, addr)
			}
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Got %v, want %q in it", err, want)
				}
			}
		})
	}
}

// A broker that speaks TLS, and a client that does not, and the reverse.
func TestTLSOnOneSide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		_, encrypted := startBroker(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{ca.issue(time.Now().Add(time.Hour))}, MinVersion: tls.VersionTLS12}))
		_, plain := startBroker(t)
		plain.TLS = &tls.Config{RootCAs: ca.pool(), MinVersion: tls.VersionTLS12}
		for _, o := range []*Options{encrypted, plain} {
			o.DialTimeout, o.RequestTimeout = 200*time.Millisecond, 500*time.Millisecond
			_, err := newTestClient(t, o).Topic(testContext(t), "t")
			if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "TLS") {
				t.Errorf("Got %v, want ErrUnreachable and a hint to TLS", err)
			}
		}
	})
}

// Kafka's listener without TLS takes the client's first bytes for the size of a request,
// and hangs up: the hint is the one that fits, with SASL, too.
func TestNoTLSHangsUp(t *testing.T) {
	t.Parallel()
	for _, sasl := range []SASL{{}, {"PLAIN", "u", secret}} {
		synctest.Test(t, func(t *testing.T) {
			o := &Options{Brokers: []string{"b:9092"}, TLS: &tls.Config{MinVersion: tls.VersionTLS12}, SASL: sasl, DialTimeout: 200 * time.Millisecond, RequestTimeout: 500 * time.Millisecond}
			o.Dial = func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					_, _ = theirs.Read(make([]byte, 4096))
					_ = theirs.Close()
				}()
				return ours, nil
			}
			_, err := newTestClient(t, o).Topic(testContext(t), "t")
			if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "a listener without TLS ends a connection so") {
				t.Errorf("Got %v, want ErrUnreachable and a hint to a listener without TLS", err)
			}
		})
	}
}

const secret = "hunter2-Öl"

// logs keeps what a logger prints.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// With each mechanism, with and without TLS: the right password works, a wrong one
// is one error that names broker, mechanism and user, and no password is printed.
func TestSASLMechanisms(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		for _, encrypted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", mechanism, encrypted), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { testSASL(t, mechanism, encrypted) })
			})
		}
	}
}

// Brokers take passwords as they are written: they do not fold characters that can be
// written in two ways (RFC 4013), of which some are on keyboards.
func TestSASLPasswordsAreNotFolded(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		for _, password := range []string{"m²½ µ", "\u00a0\u00ad", "ﬁ", "\U0001FAE0", "a,=b"} {
			synctest.Test(t, func(t *testing.T) {
				_, o := startBroker(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "u", password))
				o.SASL = SASL{mechanism, "u", password}
				if _, err := newTestClient(t, o).Topic(testContext(t), "t"); err != nil {
					t.Errorf("%s with the password %+q: %v", mechanism, password, err)
				}
			})
		}
	}
}

func testSASL(t *testing.T, mechanism string, encrypted bool) {
	opts := []kfake.Opt{kfake.EnableSASL(), kfake.Superuser(mechanism, "u", secret)}
	var config *tls.Config
	if encrypted {
		ca := newAuthority(t)
		opts = append(opts, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{ca.issue(time.Now().Add(time.Hour))}, MinVersion: tls.VersionTLS12}))
		config = &tls.Config{RootCAs: ca.pool(), MinVersion: tls.VersionTLS12}
	}
	cluster, o := startBroker(t, opts...)
	addr := o.Brokers[0]
	out := new(logs)
	options := func(password string) *Options {
		return &Options{
			Brokers: o.Brokers, Dial: o.Dial, TLS: config, SASL: SASL{mechanism, "u", password}, RequestTimeout: time.Second,
			Logger: slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}
	}
	useAll(t, newTestClient(t, options(secret)))

	// kfake closes the connection, as Kafka before 1.0 did.
	_, err := newTestClient(t, options("wrong "+secret)).Topic(testContext(t), "t")
	checkRefusal(t, err, ErrUnreachable, addr, mechanism)
	// Kafka says why.
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
	bad := newTestClient(t, options("wrong "+secret))
	_, err = bad.Topic(testContext(t), "t")
	checkRefusal(t, err, ErrAuth, addr, mechanism)
	f := bad.NewFetcher(nil)
	f.Add("t", 0, 0)
	checkRefusal(t, f.Run(testContext(t)), ErrAuth, addr, mechanism)
	if strings.Contains(out.String(), secret) {
		t.Errorf("the password is in the log:\n%s", out)
	}
}

func checkRefusal(t *testing.T, err, class error, addr, mechanism string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("Got %v, want %v", err, class)
		return
	}
	for _, want := range []string{addr, mechanism, `"u"`, "check"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Got %v, want %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the password is in %v", err)
	}
}

// A group's connections are refused, too, when the password changes.
func TestSASLGroupRefused(t *testing.T) {
	t.Parallel()
	cluster, addr := startSecure(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", secret))
	c := newTestClient(t, &Options{Brokers: []string{addr}, SASL: SASL{"PLAIN", "u", secret}})
	ctx := testContext(t)
	var m *member
	for {
		if _, err := c.Topic(ctx, "t"); err != nil {
			t.Fatal(err)
		}
		fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
		// The client looks the topic up first, on a connection that it has, unless
		// that is not put back yet.
		g, err := c.JoinGroup(ctx, &GroupOptions{ID: "g", Topics: []string{"t"}})
		if err == nil {
			m = follow(t, g)
			break
		}
		checkRefusal(t, err, ErrAuth, addr, "PLAIN")
		fault.Remove()
	}
	select {
	case err := <-m.failed:
		checkRefusal(t, err, ErrAuth, addr, "PLAIN")
	case <-testContext(t).Done():
		t.Error("the group goes on trying")
	}
}

// What the brokers' ACLs refuse says what they must allow.
func TestDenied(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	ctx := testContext(t)
	check := func(what string, err error, code, needs string) {
		t.Helper()
		if !errors.Is(err, ErrAuth) || !strings.Contains(err.Error(), code+"; the brokers' ACLs must allow this user "+needs) {
			t.Errorf("%s: Got %v, want %s and that it needs %s", what, err, code, needs)
		}
	}
	fault := func(key kmsg.Key, err *kerr.Error) (remove func()) {
		return cluster.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: err, Count: -1, TopLevel: key == kmsg.JoinGroup}).Remove
	}
	remove := fault(kmsg.Metadata, kerr.TopicAuthorizationFailed)
	_, err := c.Topic(ctx, "t")
	check("metadata", err, "TOPIC_AUTHORIZATION_FAILED", "DESCRIBE on the topic")
	remove()
	remove = fault(kmsg.Produce, kerr.TopicAuthorizationFailed)
	check("produce", c.NewProducer(nil).Produce(ctx, "t", Message{Value: []byte("v")}), "TOPIC_AUTHORIZATION_FAILED", "WRITE on the topic")
	remove()
	remove = fault(kmsg.Fetch, kerr.TopicAuthorizationFailed)
	_, err = startFetcher(t, c, nil).Add("t", 0, 0).Next(ctx)
	check("fetch", err, "TOPIC_AUTHORIZATION_FAILED", "READ on the topic")
	remove()
	remove = fault(kmsg.JoinGroup, kerr.GroupAuthorizationFailed)
	defer remove()
	g, err := c.JoinGroup(ctx, &GroupOptions{ID: "g", Topics: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	_, err = g.Next(ctx)
	check("group", err, "GROUP_AUTHORIZATION_FAILED", "READ on the group")
}

// A session timeout that the broker does not allow, be it too short or too long.
func TestSessionTimeoutRefused(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, TopLevel: true, Err: kerr.InvalidSessionTimeout, Count: -1})
	g, err := c.JoinGroup(testContext(t), &GroupOptions{ID: "g", Topics: []string{"t"}, SessionTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	_, err = g.Next(testContext(t))
	for _, want := range []string{"1h0m0s", "group.min.session.timeout.ms", "group.max.session.timeout.ms"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Got %v, want %q in it", err, want)
		}
	}
}

// A listener that has no SASL, as Kafka's says so, and one that has not this mechanism: it is
// not the credentials.
func TestSASLHandshakeRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code *kerr.Error
		want string
		opts []kfake.Opt
	}{
		{kerr.IllegalSaslState, "its listener has no SASL", nil},
		{kerr.UnsupportedSaslMechanism, "UNSUPPORTED_SASL_MECHANISM", []kfake.Opt{kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", secret)}},
	} {
		cluster, addr := startSecure(t, c.opts...)
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLHandshake}, TopLevel: true, Err: c.code, Count: -1})
		client := newTestClient(t, &Options{Brokers: []string{addr}, SASL: SASL{"SCRAM-SHA-512", "u", secret}})
		_, err := client.Topic(testContext(t), "t")
		checkRefusal(t, err, ErrAuth, addr, "SCRAM-SHA-512")
		if err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "credentials")) {
			t.Errorf("%v: Got %v", c.code, err)
		}
	}
}

func TestPasswordIsNotPrinted(t *testing.T) {
	t.Parallel()
	o := &Options{Brokers: []string{"h:1"}, SASL: SASL{"PLAIN", "u", secret}}
	out := new(logs)
	for _, h := range []slog.Handler{slog.NewTextHandler(out, nil), slog.NewJSONHandler(out, nil)} {
		slog.New(h).Info("x", "sasl", o.SASL, "pointer", &o.SASL)
	}
	asJSON, err := json.Marshal(o.SASL)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		fmt.Sprint(o.SASL), fmt.Sprintf("%v %+v %#v %s %q", o.SASL, o.SASL, o.SASL, o.SASL, o.SASL),
		fmt.Sprintf("%v %+v %#v", *o, *o, *o), fmt.Sprintf("%+v", &o.SASL), string(asJSON), out.String(),
	} {
		if strings.Contains(text, secret) {
			t.Errorf("the password is in %s", text)
		}
	}
	if !strings.Contains(fmt.Sprint(o.SASL), `SASL PLAIN as "u"`) {
		t.Errorf("Got %v", o.SASL)
	}
}

// verbs are all of fmt but %p, which is for pointers, and %T.
var verbs = []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%t", "%f", "%c", "%U", "%b", "%o", "%e", "%g", "%10v", "%-10s"}

// Whatever holds the password does not print it, by no verb and no handler.
func TestNothingPrintsThePassword(t *testing.T) {
	t.Parallel()
	o := Options{Brokers: []string{"h:1"}, SASL: SASL{"SCRAM-SHA-256", "u", secret}, TLS: &tls.Config{MinVersion: tls.VersionTLS12}}
	plain := o
	plain.SASL.Mechanism = "PLAIN"
	scrammed, plainly := newTestClient(t, &o), newTestClient(t, &plain)
	held := struct{ Client *Client }{plainly}
	forms := []string{secret, fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret), fmt.Sprintf("% x", secret), fmt.Sprintf("%d", []byte(secret))}
	check := func(how, text string) {
		for _, form := range forms {
			if strings.Contains(text, form) {
				t.Errorf("%s: the password is in %s", how, text)
			}
		}
	}
	for i, v := range []any{
		o, &o,
		[]Options{o},
		map[string]Options{"a": o},
		o.SASL, &o.SASL,
		[]SASL{o.SASL},
		plain, scrammed, plainly, held, &held,
		[]*Client{plainly},
		plainly.NewFetcher(nil), plainly.NewProducer(nil),
	} {
		for _, verb := range verbs {
			check(fmt.Sprintf("%d, %T by %s", i, v, verb), fmt.Sprintf(verb, v))
		}
		out := new(logs)
		for _, h := range []slog.Handler{slog.NewTextHandler(out, nil), slog.NewJSONHandler(out, nil)} {
			l := slog.New(h).With("with", v)
			l.Info("x", "value", v, slog.Group("group", "value", v))
			l.Error("x", "err", fmt.Errorf("open %+v", v))
		}
		check(fmt.Sprintf("%d, %T by slog", i, v), out.String())
	}
	if got, want := fmt.Sprintf("%#v", o.SASL), `kafka.SASL{SASL SCRAM-SHA-256 as "u"}`; got != want {
		t.Errorf("Got %s, want %s", got, want)
	}
}

// plainWarning begins the line that warns of a password which is sent as it is.
const plainWarning = `level=WARN msg="SASL PLAIN without TLS`

// The password of SASL PLAIN is there to read without TLS: that is said once a client, and
// not by its clones, which have it too.
func TestPlainWithoutTLSIsWarnedOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mechanism string
		tls       *tls.Config
		want      int
	}{
		{"PLAIN", nil, 1},
		{"PLAIN", &tls.Config{MinVersion: tls.VersionTLS12}, 0},
		{"SCRAM-SHA-256", nil, 0},
		{"", nil, 0},
	} {
		t.Run(fmt.Sprintf("%s, TLS %v", c.mechanism, c.tls != nil), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var opts []kfake.Opt
				if c.mechanism != "" && c.tls == nil {
					opts = []kfake.Opt{kfake.EnableSASL(), kfake.Superuser(c.mechanism, "u", secret)}
				}
				_, o := startBroker(t, opts...)
				out := new(logs)
				client := newTestClient(t, &Options{
					Brokers: o.Brokers, Dial: o.Dial, TLS: c.tls, SASL: SASL{c.mechanism, "u", secret}, RequestTimeout: time.Second,
					Logger: slog.New(slog.NewTextHandler(out, nil)),
				})
				clone, err := client.Clone()
				if err != nil {
					t.Fatal(err)
				}
				defer clone.Close()
				for _, client := range []*Client{client, clone, client, clone} {
					if _, err := client.Topic(testContext(t), "t"); err != nil && c.tls == nil {
						t.Fatal(err)
					}
					client.transport.CloseIdleConnections()
				}
				if got := strings.Count(out.String(), plainWarning); got != c.want {
					t.Errorf("Got %d warnings, want %d:\n%s", got, c.want, out)
				}
				if strings.Contains(out.String(), secret) {
					t.Errorf("the password is in the log:\n%s", out)
				}
			})
		})
	}
}

// A connection trusts the CAs, and has the password, of when it is made.
func TestCredentialsOfNow(t *testing.T) {
	t.Parallel()
	ca, old := newAuthority(t), newAuthority(t)
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		_, addr := startSecure(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "u", secret),
			kfake.TLS(&tls.Config{Certificates: []tls.Certificate{ca.issue(time.Now().Add(time.Hour))}, MinVersion: tls.VersionTLS12}))
		var roots atomic.Pointer[x509.CertPool]
		var password atomic.Value
		roots.Store(old.pool())
		password.Store("another")
		c := newTestClient(t, &Options{
			Brokers: []string{addr}, TLS: &tls.Config{RootCAs: ca.pool(), MinVersion: tls.VersionTLS12}, RootCAs: roots.Load,
			SASL: SASL{mechanism, "u", secret}, PasswordNow: func() string { return password.Load().(string) }, RequestTimeout: 500 * time.Millisecond,
		})
		ask := func() error { // again where a busy machine took all of the time for it
			for ctx := testContext(t); ; {
				_, err := c.Topic(ctx, "t")
				late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) // of the request, or the connection
				if !late || ctx.Err() != nil {
					return err
				}
			}
		}
		if err := ask(); !errors.Is(err, ErrTLS) {
			t.Errorf("%s: Got %v with the old CA, want ErrTLS", mechanism, err)
		}
		roots.Store(ca.pool())
		if err := ask(); err == nil || !strings.Contains(err.Error(), "hangs up on the credentials") { // as kfake does
			t.Errorf("%s: Got %v with another password, want that it is refused", mechanism, err)
		}
		password.Store(secret)
		if err := ask(); err != nil {
			t.Errorf("%s: Got %v", mechanism, err)
		}
	}
}
