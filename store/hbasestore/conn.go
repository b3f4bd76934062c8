package hbasestore

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"sluice/store/hbasestore/internal/hbase"
)

// conn is one connection to a gateway. It does one call at a time.
type conn struct {
	gateway *gateway
	wire    *wire
	client  *hbase.THBaseServiceClient
	used    time.Time // when it was put back into the pool
}

func newConn(g *gateway, c net.Conn, framed bool) *conn {
	w := newWire(c, framed)
	p := newProtocol(w)
	return &conn{gateway: g, wire: w, client: hbase.NewTHBaseServiceClient(thrift.NewTStandardClient(p, p))}
}

// call makes one call, bounded by timeout and ctx, whichever ends first. sent says
// that some of the request may have reached the gateway. After broken the
// connection must be dropped: what comes next on it may belong to this call.
func (c *conn) call(ctx context.Context, timeout time.Duration, f func(context.Context, *hbase.THBaseServiceClient) error) (sent, broken bool, err error) {
	c.wire.begin()
	if err := c.wire.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return false, true, err
	}
	stop := context.AfterFunc(ctx, func() { c.wire.Close() })
	err = f(ctx, c.client)
	broken = !stop() || err != nil && !answered(err)
	return c.wire.sent, broken, err
}

// answered reports whether err is the gateway's answer to this call, rather than
// the loss of one.
func answered(err error) bool {
	var io *hbase.TIOError
	var illegal *hbase.TIllegalArgument
	if errors.As(err, &io) || errors.As(err, &illegal) {
		return true
	}
	var application thrift.TApplicationException
	if !errors.As(err, &application) {
		return false
	}
	switch application.TypeId() {
	case thrift.WRONG_METHOD_NAME, thrift.BAD_SEQUENCE_ID, thrift.INVALID_MESSAGE_TYPE_EXCEPTION:
		return false // the answer to another call
	}
	return true
}
