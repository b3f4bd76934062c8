package hbasestore

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"sluice/store/hbasestore/internal/hbase"
)

// maxMessageBytes bounds one answer of the gateway: a row of a scan of whole rows
// may be large, and the outbox takes cells of up to 1 GiB.
const maxMessageBytes = 1<<31 - 1

// bufferBytes is how much is read and, about, written at once.
const bufferBytes = 64 << 10

// conn is one connection to a gateway. It does one call at a time.
type conn struct {
	gateway *gateway
	wire    *wire
	client  *hbase.THBaseServiceClient
	used    time.Time // when it was put back into the pool
}

func newConn(g *gateway, c net.Conn, framed bool) *conn {
	conf := &thrift.TConfiguration{
		MaxMessageSize: maxMessageBytes, MaxFrameSize: maxMessageBytes,
		TBinaryStrictRead: thrift.BoolPtr(true), TBinaryStrictWrite: thrift.BoolPtr(true),
	}
	w := &wire{conn: c, in: bufio.NewReaderSize(c, bufferBytes)}
	var t thrift.TTransport = w
	if framed {
		t = thrift.NewTFramedTransportConf(w, conf)
	}
	p := thrift.NewTBinaryProtocolConf(t, conf)
	return &conn{gateway: g, wire: w, client: hbase.NewTHBaseServiceClientProtocol(t, p, p)}
}

// call makes one call, bounded by timeout and ctx, whichever ends first. sent says
// that some of the request may have reached the gateway. After broken the
// connection must be dropped: what comes next on it may belong to this call.
func (c *conn) call(ctx context.Context, timeout time.Duration, f func(context.Context, *hbase.THBaseServiceClient) error) (sent, broken bool, err error) {
	c.wire.sent.Store(false)
	if err := c.wire.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return false, true, err
	}
	stop := context.AfterFunc(ctx, func() { c.wire.conn.Close() })
	err = f(ctx, c.client)
	broken = !stop() || err != nil && !answered(err)
	return c.wire.sent.Load(), broken, err
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

// wire is a thrift.TTransport over a socket that somebody else has opened and sets
// deadlines on.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte      // to be sent
	sent atomic.Bool // since the call began
}

var _ thrift.TTransport = (*wire)(nil)

func (w *wire) Open() error                 { return nil }
func (w *wire) IsOpen() bool                { return true }
func (w *wire) Close() error                { return w.conn.Close() }
func (w *wire) Read(b []byte) (int, error)  { return w.in.Read(b) }
func (w *wire) ReadByte() (byte, error)     { return w.in.ReadByte() }
func (w *wire) Flush(context.Context) error { return w.flush() }
func (w *wire) RemainingBytes() uint64      { return thrift.UnknownRemainingBytes }

func (w *wire) Write(b []byte) (int, error) {
	w.out = append(w.out, b...)
	return len(b), w.written()
}

func (w *wire) WriteByte(b byte) error {
	w.out = append(w.out, b)
	return w.written()
}

func (w *wire) WriteString(s string) (int, error) {
	w.out = append(w.out, s...)
	return len(s), w.written()
}

// written sends what is full.
func (w *wire) written() error {
	if len(w.out) < bufferBytes {
		return nil
	}
	return w.flush()
}

func (w *wire) flush() error {
	if len(w.out) == 0 {
		return nil
	}
	w.sent.Store(true)
	_, err := w.conn.Write(w.out)
	if w.out = w.out[:0]; cap(w.out) > 2*bufferBytes {
		w.out = nil // of one large value
	}
	return err
}
