package hbasestore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

const (
	// failedFor is how long a gateway that broke a connection, or did not make one, is
	// left alone while there is another: at first, and twice as long each time until a
	// call has succeeded. One that greets and answers nothing else would take each
	// caller's timeout every ten seconds.
	failedFor    = 10 * time.Second
	failedForMax = 5 * time.Minute
	// maxStrikes is how many answers in a row that HBase cannot be reached, or is busy,
	// make a gateway one that fails: with no call in between that it has answered well.
	maxStrikes = 5
)

// pool hands out connections, one caller at a time each, and bounds their number.
type pool struct {
	o     *Options
	slots chan struct{} // one value for each connection that is in use

	mu       sync.Mutex // guards what follows, and the fields of gateways
	gateways []*gateway
	next     int // index of the gateway that is dialled next
	idle     int // connections
	closed   bool
	reached  bool // a gateway, once

	life  context.Context // until close
	end   context.CancelFunc
	ahead sync.WaitGroup // connections that are being made that nobody waits for; Add under mu, while not closed
}

// gateway is one address.
type gateway struct {
	address string
	idle    []*conn   // the one used last is last
	open    int       // connections, those that are in use too
	dialled bool      // a connection is being made that nobody waits for
	until   time.Time // it is left alone; zero = it works
	fails   int       // since a call has succeeded
	strikes int       // transient answers since a call has succeeded
}

func (g *gateway) inUse() int { return g.open - len(g.idle) }

func newPool(o *Options) *pool {
	p := &pool{o: o, slots: make(chan struct{}, o.Connections)}
	p.life, p.end = context.WithCancel(context.Background())
	for _, a := range o.Addresses {
		p.gateways = append(p.gateways, &gateway{address: a})
	}
	return p
}

// get returns a connection to want, or to any gateway where want is nil: another than
// avoid where there is one that works. put gives it back.
func (p *pool) get(ctx context.Context, want, avoid *gateway) (*conn, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, cause(ctx)
	}
	c, err := p.connect(ctx, want, avoid)
	if err != nil {
		<-p.slots
	}
	return c, err
}

func (p *pool) connect(ctx context.Context, want, avoid *gateway) (*conn, error) {
	wrong := 0 // certificates
	for tried := 0; ; tried++ {
		c, g, err := p.choose(want, avoid)
		if c != nil || err != nil {
			return c, err
		}
		if c, err = p.dial(ctx, g); err == nil {
			p.opened(g)
			return c, nil
		}
		if cause := ended(ctx); cause != nil {
			return nil, cause
		}
		p.failed(g, err)
		if errors.Is(err, errCertificate) {
			wrong++
		}
		if want != nil || tried+1 == len(p.gateways) {
			switch {
			case errors.Is(err, store.ErrUnsupported):
				return nil, fmt.Errorf("gateway %s: %w", g.address, err)
			case wrong == tried+1 && p.never():
				// Waiting mends no certificate. One that went bad later may be replaced.
				return nil, fmt.Errorf("%w: gateway %s: %w", store.ErrRefused, g.address, err)
			}
			return nil, fmt.Errorf("%w: gateway %s: %w", store.ErrTransient, g.address, err)
		}
	}
}

// ended returns why ctx is over, nil where it is not. A dialler takes the deadline of its
// context for that of the socket, and may see it a moment before the context has ended,
// which is waited for.
func ended(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		<-ctx.Done()
	}
	return cause(ctx)
}

// choose returns an idle connection, or the gateway to dial.
func (p *pool) choose(want, avoid *gateway) (*conn, *gateway, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, store.ErrClosed
	}
	p.expire(time.Now())
	now := time.Now()
	works := func(g *gateway) bool { return g != avoid && !g.until.After(now) }
	all := want != nil || !slices.ContainsFunc(p.gateways, works)
	gateways := p.gateways
	if want != nil {
		gateways = []*gateway{want}
	}
	var newest *conn
	for _, g := range gateways {
		if !all && !works(g) {
			continue
		}
		n := len(g.idle)
		if n == 0 {
			continue
		}
		// Of the gateway of which the fewest are in use, the one that was used last.
		if c := g.idle[n-1]; newest == nil || g.inUse() < newest.gateway.inUse() || g.inUse() == newest.gateway.inUse() && c.used.After(newest.used) {
			newest = c
		}
	}
	if newest != nil {
		g := newest.gateway
		g.idle = g.idle[:len(g.idle)-1]
		p.idle--
		if want == nil {
			p.spread(g, works)
		}
		return newest, nil, nil
	}
	if p.idle > 0 && p.idle+len(p.slots) > p.o.Connections {
		p.dropOldest() // of another gateway than the one that is wanted
	}
	if want != nil {
		return nil, want, nil
	}
	// The next in turn that works, else the one that has been left alone longest.
	var best *gateway
	for i := range p.gateways {
		g := p.gateways[(p.next+i)%len(p.gateways)]
		if works(g) {
			p.next += i + 1
			return nil, g, nil
		}
		if best == nil || g.until.Before(best.until) {
			best = g
		}
	}
	return nil, best, nil
}

// spread begins to make a connection to a gateway that works and has fewer than from has,
// by more than one: one that is back would get none while there are idle ones. Nobody
// waits for it, as the gateway may hang still. The caller holds mu.
func (p *pool) spread(from *gateway, works func(*gateway) bool) {
	for _, g := range p.gateways {
		if g.dialled || !works(g) || g.open+1 >= from.open {
			continue
		}
		select {
		case p.slots <- struct{}{}:
		default:
			return // all connections are in use
		}
		if p.idle > 0 && p.idle+len(p.slots) > p.o.Connections {
			p.dropOldest()
		}
		g.dialled = true
		p.ahead.Go(func() { p.dialAhead(g) })
		return
	}
}

func (p *pool) dialAhead(g *gateway) {
	c, err := p.dial(p.life, g)
	p.mu.Lock()
	g.dialled = false
	if err == nil { // at once: spread would make another
		g.open++
		p.reached = true
	}
	p.mu.Unlock()
	switch {
	case err == nil:
		p.put(c, nil, nil)
		return
	case p.life.Err() == nil:
		p.failed(g, err)
	}
	<-p.slots
}

func (p *pool) opened(g *gateway) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.open++
	p.reached = true
}

// never reports whether no gateway was ever reached.
func (p *pool) never() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reached
}

// shut closes a connection. The caller holds mu.
func (p *pool) shut(c *conn) {
	c.wire.Close()
	c.gateway.open--
}

// expire closes connections that were idle for too long.
func (p *pool) expire(now time.Time) {
	for _, g := range p.gateways {
		n := 0
		for n < len(g.idle) && now.Sub(g.idle[n].used) > p.o.IdleTimeout {
			p.shut(g.idle[n])
			n++
		}
		g.idle = g.idle[n:]
		p.idle -= n
	}
}

func (p *pool) dropOldest() {
	var oldest *gateway
	for _, g := range p.gateways {
		if len(g.idle) > 0 && (oldest == nil || g.idle[0].used.Before(oldest.idle[0].used)) {
			oldest = g
		}
	}
	p.shut(oldest.idle[0])
	oldest.idle = oldest.idle[1:]
	p.idle--
}

// dial makes a connection and asks what is at its other end. The answer says that
// the gateway works: the socket of one that is frozen, or out of threads, is opened by
// its system.
func (p *pool) dial(ctx context.Context, g *gateway) (*conn, error) {
	begun := time.Now()
	made, cancel := context.WithTimeout(ctx, p.o.DialTimeout)
	defer cancel()
	var c net.Conn
	var err error
	switch {
	case p.o.TLS != nil:
		trusting := p.o.TLS
		if p.o.RootCAs != nil {
			trusting = trusting.Clone()
			trusting.RootCAs = p.o.RootCAs()
		}
		c, err = (&tls.Dialer{Config: trusting}).DialContext(made, "tcp", g.address)
		if e := certificateError(err); e != nil {
			err = e
		} else if wrong := (tls.RecordHeaderError{}); errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.As(err, &wrong) {
			err = fmt.Errorf("%w; does the gateway speak TLS?", err)
		}
	case p.o.dial != nil:
		c, err = p.o.dial(made, "tcp", g.address)
	default:
		c, err = (&net.Dialer{}).DialContext(made, "tcp", g.address)
	}
	if err != nil {
		return nil, err
	}
	fresh := newConn(g, c, p.o.Framed)
	var kind hbase.TThriftServerType
	_, broken, err := fresh.call(ctx, p.o.DialTimeout-time.Since(begun), func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		kind, err = c.GetThriftServerType(ctx)
		return err
	})
	switch refused := certificateError(err); {
	case refused != nil: // TLS 1.3 says so behind the handshake
		err = refused
	case broken:
		err = fmt.Errorf("%w; is it a Thrift2 gateway, and its transport (framed or not, TLS or not) as configured?", err)
	case err == nil && kind != hbase.TThriftServerType_TWO:
		err = fmt.Errorf("%w: it is a Thrift1 gateway; start one with \"hbase thrift2 start\"", store.ErrUnsupported)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return fresh, nil
}

// put gives a connection back. One that is broken is closed with all idle ones of
// its gateway: they are as old, and a gateway that was started anew, or hangs, has
// broken those, too. answer is what the gateway has answered, nil = success.
func (p *pool) put(c *conn, broken, answer error) {
	defer func() { <-p.slots }()
	if broken != nil {
		c.wire.Close() // not under mu: TLS says good-bye, to one that may hang
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch g := c.gateway; {
	case broken != nil:
		g.open--
		p.leave(g, broken)
		return
	case p.closed:
		p.shut(c)
		return
	case neutral(answer):
	case errors.Is(answer, store.ErrTransient) || errors.Is(answer, errInternal):
		if g.strikes++; g.strikes >= maxStrikes && len(p.gateways) > 1 {
			p.shut(c)
			p.leave(g, answer)
			return
		}
	default: // what HBase refuses, it has looked at
		g.fails, g.strikes = 0, 0
	}
	if !c.gateway.until.IsZero() && c.gateway.fails == 0 {
		c.gateway.until = time.Time{}
		p.o.Logger.Info("HBase gateway works again", "address", c.gateway.address)
	}
	c.used = time.Now()
	c.gateway.idle = append(c.gateway.idle, c)
	p.idle++
}

// neutral reports whether an answer says nothing about its gateway, good or bad: regions
// move, scanners expire, and tables are altered by others.
func neutral(answer error) bool {
	return errors.Is(answer, errNotServing) || errors.Is(answer, errScanner) || errors.Is(answer, errAltered)
}

// drop closes a connection whose caller has given up, which says nothing about the
// gateway.
func (p *pool) drop(c *conn) {
	c.wire.Close()
	p.mu.Lock()
	c.gateway.open--
	p.mu.Unlock()
	<-p.slots
}

// suspect closes a connection whose answer is late, which may be no fault of the gateway,
// with all idle ones: whoever is next dials, and so asks whether it works.
func (p *pool) suspect(c *conn) {
	defer p.drop(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(c.gateway)
}

func (p *pool) failed(g *gateway, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(g, err)
}

// leave leaves a gateway alone for a while. The caller holds mu.
func (p *pool) leave(g *gateway, err error) {
	now := time.Now()
	if g.until.IsZero() {
		p.o.Logger.Warn("HBase gateway fails", "address", g.address, "err", err)
	}
	if !g.until.After(now) { // else it is another caller's news of the same failure
		g.until = now.Add(min(failedFor<<min(g.fails, 10), failedForMax))
		g.fails++
	}
	g.strikes = 0
	p.forget(g)
}

// forget closes a gateway's idle connections. The caller holds mu.
func (p *pool) forget(g *gateway) {
	for _, c := range g.idle {
		p.shut(c)
	}
	p.idle -= len(g.idle)
	g.idle = nil
}

// close closes what is idle, and ends what is being made.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.end()
	for _, g := range p.gateways {
		p.forget(g)
	}
	p.mu.Unlock()
	p.ahead.Wait()
}
