package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"time"
)

// awaitReminder is how often Await says again that it waits: often enough that whoever
// looks at the log of a process that does nothing sees why.
const awaitReminder = 30 * time.Second

// Await runs f, which asks the cluster something, again and again for as long as no
// broker answers it, and returns f's other error, nil, or ctx's, wrapped. It warns of
// the first try and then every half minute, and tells waiting, where that is not nil, the error of
// each try and nil when the waiting is over. The pause between two tries is f's own: a call
// of this package that meets no broker takes RequestTimeout.
//
// Where a broker, or what stands for it, does answer, but not as one that takes this
// client, Await does not wait: it returns an error that wraps ErrAuth or ErrTLS, or
// ErrUnreachable where there is no broker at any of the addresses of Options.Brokers, or one
// that speaks no TLS or hangs up at the credentials, which are not to be sent for ever.
func (c *Client) Await(ctx context.Context, f func(ctx context.Context) error, waiting func(err error)) error {
	if waiting == nil {
		waiting = func(error) {}
	}
	begun := time.Now()
	var warned time.Time // zero = not yet
	for {
		c.conns.forgetOthers()
		err := f(ctx)
		switch {
		case errors.Is(err, ErrUnreachable) && !c.turnedAway(err) && ctx.Err() == nil:
		case warned.IsZero():
			return err
		default:
			waiting(nil)
			if err == nil {
				c.o.Logger.Info("a broker answers", "waited", time.Since(begun).Round(time.Millisecond))
			}
			return err
		}
		waiting(err)
		if now := time.Now(); warned.IsZero() || now.Sub(warned) >= awaitReminder {
			c.o.Logger.Warn("no broker answers, waiting for one", "brokers", c.o.Brokers, "waited", now.Sub(begun).Round(time.Millisecond), "err", err)
			warned = now
		}
	}
}

// errHungUp: the broker has closed the connection on the credentials.
var errHungUp = errors.New("the broker hangs up on the credentials")

// turnedAway reports whether err, which wraps ErrUnreachable, is of a broker that is
// there and will not take this client however long it waits, or of another server where
// there is nothing else.
func (c *Client) turnedAway(err error) bool {
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return plain || errors.Is(err, errHungUp) || errors.Is(err, errNotKafka) && c.conns.onlyOthers()
}
