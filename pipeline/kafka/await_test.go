package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// askTopic is what Await is given in these tests.
func askTopic(c *Client, topic string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Topic(ctx, topic)
		return err
	}
}

// A broker that comes after five minutes is waited for, with a warning at once and every
// half minute.
func TestAwaitBroker(t *testing.T) {
	t.Parallel()
	for name, absent := range map[string]func(ctx context.Context, network, addr string) (net.Conn, error){"refused": refused, "silent": silent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, o := startBroker(t)
				var up atomic.Bool
				dial := o.Dial
				o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if up.Load() {
						return dial(ctx, network, addr)
					}
					return absent(ctx, network, addr)
				}
				out := new(logs)
				o.Logger = slog.New(slog.NewTextHandler(out, nil))
				c := newTestClient(t, o)
				const after = 5 * time.Minute
				time.AfterFunc(after, func() { up.Store(true) })
				begun := time.Now()
				var told []error
				if err := c.Await(t.Context(), askTopic(c, "t"), func(err error) { told = append(told, err) }); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took < after || took > after+time.Minute {
					t.Errorf("Got an answer after %v, of a broker that is there after %v", took, after)
				}
				if n := strings.Count(out.String(), "waiting for one"); n < 8 || n > 11 {
					t.Errorf("Got %d warnings in %v, want one each %v:\n%s", n, after, awaitReminder, out)
				}
				if last := len(told) - 1; last < 8 || !errors.Is(told[0], ErrUnreachable) || told[last] != nil {
					t.Errorf("Got told %v, want ErrUnreachable at each try and nil at last", told)
				}
			})
		})
	}
}

// A wait that is given up ends at once, and brokers that do not take this client are not
// waited for.
func TestAwaitEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		want error
		text string
		opts []kfake.Opt
		set  func(t *testing.T, cluster *kfake.Cluster, o *Options)
	}{
		"no such topic": {want: ErrTopicNotFound, text: "did you mean t", set: func(*testing.T, *kfake.Cluster, *Options) {}},
		"wrong password": {
			want: ErrAuth, text: "check the credentials", opts: []kfake.Opt{kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", secret)},
			set: func(_ *testing.T, cluster *kfake.Cluster, o *Options) {
				cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
				o.SASL = SASL{"PLAIN", "u", "wrong"}
			},
		},
		"wrong password, and the broker hangs up": { // as kfake does
			want: ErrUnreachable, text: "check user, password", opts: []kfake.Opt{kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", secret)},
			set: func(_ *testing.T, _ *kfake.Cluster, o *Options) { o.SASL = SASL{"PLAIN", "u", "wrong"} },
		},
		"no TLS": {want: ErrUnreachable, text: "TLS", set: func(_ *testing.T, _ *kfake.Cluster, o *Options) {
			o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
			o.Dial = func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() { // another server
					_, _ = theirs.Read(make([]byte, 4096))
					_, _ = theirs.Write(bytes.Repeat([]byte("HTTP/1.1 400 Bad Request\r\n"), 10))
					_ = theirs.Close()
				}()
				return ours, nil
			}
		}},
		"no Kafka": {want: ErrUnreachable, text: "HTTP/1.1 400", set: func(_ *testing.T, _ *kfake.Cluster, o *Options) {
			o.Dial = saying("HTTP/1.1 400 Bad Request\r\nServer: nginx\r\nConnection: close\r\n\r\n<html></html>")
		}},
		"no Kafka that takes its time": {want: ErrUnreachable, text: `"HTTP"`, set: func(_ *testing.T, _ *kfake.Cluster, o *Options) {
			o.Dial = saying("H", "TTP", "/1.1 400 Bad Request\r\n\r\n")
		}},
		"no Kafka, and credentials": {want: ErrUnreachable, text: "another server answers there", set: func(_ *testing.T, _ *kfake.Cluster, o *Options) {
			o.SASL = SASL{"SCRAM-SHA-256", "u", secret}
			o.Dial = saying("HTTP/1.1 400 Bad Request\r\n\r\n")
		}},
		"no Kafka at any address": {want: ErrUnreachable, text: "another server answers there", set: func(_ *testing.T, _ *kfake.Cluster, o *Options) {
			o.Brokers = []string{"127.0.0.1:80", "127.0.0.1:81", "127.0.0.1:82"}
			o.Dial = saying("HTTP/1.1 400 Bad Request\r\n\r\n")
		}},
		"more versions than bytes": {want: ErrUnreachable, text: "no broker", set: func(_ *testing.T, _ *kfake.Cluster, o *Options) {
			o.Dial = saying("\x00\x00\x00\x14\x00\x00\x00\x01\x00\x00\x30\x30\x20\x42", "\x00\x12\x00\x00\x00\x03")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cluster, o := startBroker(t, tc.opts...)
				tc.set(t, cluster, o)
				topic := "t"
				if tc.want == ErrTopicNotFound {
					topic = "tt"
				}
				checkAwaitEnds(t, o, topic, tc.want, tc.text)
			})
		})
	}
	t.Run("a CA that is not trusted", func(t *testing.T) {
		t.Parallel()
		served := newAuthority(t).issue(time.Now().Add(time.Hour))
		_, addr := startSecure(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{served}, MinVersion: tls.VersionTLS12}))
		c := newTestClient(t, &Options{Brokers: []string{addr}, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: newAuthority(t).pool()}})
		if err := c.Await(testContext(t), askTopic(c, "t"), nil); !errors.Is(err, ErrTLS) || !strings.Contains(err.Error(), "CA") {
			t.Errorf("Got %v, want %v", err, ErrTLS)
		}
	})
	t.Run("given up", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newTestClient(t, &Options{Brokers: []string{"127.0.0.1:9"}, Dial: silent})
			ctx, cancel := context.WithCancel(t.Context())
			const after = time.Hour + 3*time.Second // not at the end of a try
			time.AfterFunc(after, cancel)
			begun := time.Now()
			if err := c.Await(ctx, askTopic(c, "t"), nil); !errors.Is(err, context.Canceled) {
				t.Errorf("Got %v, want %v", err, context.Canceled)
			}
			if took := time.Since(begun); took != after {
				t.Errorf("Got it after %v, want %v", took, after)
			}
		})
	})
}

// One of several addresses is of another server, or is turned away otherwise, and the broker at
// the other one is restarted: that is waited for.
func TestAwaitBesideWhatIsNoBroker(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func(ctx context.Context, network, addr string) (net.Conn, error){
		"another server": saying("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"refused":        refused,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, o := startBroker(t)
				dial, good := o.Dial, o.Brokers[0]
				var up atomic.Bool
				o.Brokers = []string{good, "127.0.0.1:80"}
				o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					switch {
					case addr != good:
						return other(ctx, network, addr)
					case !up.Load():
						return refused(ctx, network, addr)
					}
					return dial(ctx, network, addr)
				}
				c := newTestClient(t, o)
				time.AfterFunc(time.Minute, func() { up.Store(true) })
				if err := c.Await(t.Context(), askTopic(c, "t"), nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// saying dials servers that say the parts, whatever they are asked, and end the
// connection.
func saying(parts ...string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = theirs.Read(make([]byte, 4096))
			for _, part := range parts {
				_, _ = io.WriteString(theirs, part) // until ours is closed
			}
			_ = theirs.Close()
		}()
		return ours, nil
	}
}

// checkAwaitEnds checks that Await with o ends by itself, with want.
func checkAwaitEnds(t *testing.T, o *Options, topic string, want error, text string) {
	t.Helper()
	c := newTestClient(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	begun := time.Now()
	err := c.Await(ctx, askTopic(c, topic), nil)
	if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
		t.Errorf("Got %v, want %v with %q", err, want, text)
	}
	if took := time.Since(begun); took > c.o.RequestTimeout {
		t.Errorf("Got it after %v", took)
	}
}
