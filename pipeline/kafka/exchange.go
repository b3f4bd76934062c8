package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// anyNode asks for any broker.
const anyNode int32 = -1

// Bounds of the answer to everything but a fetch, in bytes. What is decoded may take a
// hundred times as much, as a broker may claim an element a byte; metadata, whose bound is
// the largest, some times as much (checkMetadata). The metadata of 100,000 partitions are
// some 10 MB; other answers grow with what was asked for, a partition of the
// request with up to some hundred bytes of names, offsets and what others have committed.
const (
	maxMetadata = 32 << 20
	minResponse = 1 << 20 // of the smallest request
	maxRatio    = 1 << 10 // of more bytes of an answer to one of the request
)

// maxResponse bounds the answer to a request of n bytes.
func maxResponse(req kmsg.Request, n int) int {
	if req.Key() == int16(kmsg.Metadata) {
		return maxMetadata
	}
	return min(minResponse+n*maxRatio, maxMetadata)
}

// errProtocol: a broker's answer cannot be what was asked for.
var errProtocol = errors.New("kafka: malformed response")

// exchange is one request and its response over a connection of kafka-go's
// transport, coded here (protocol.RawExchanger), because kafka-go's own
// messages stop at Metadata v8 and lose the end of record batches.
//
// The transport may answer for a cancelled context while the connection's
// goroutine still runs the exchange; so an exchange is used once and shares no
// buffer with another.
type exchange struct {
	node     int32
	clientID string
	req      kmsg.Request
	// read reads the body of the response, of size bytes; nil decodes it into
	// resp.
	read func(r io.Reader, size int) error
	resp kmsg.Response
	peer string // host:port of who has answered
}

var (
	_ protocol.BrokerMessage = (*exchange)(nil)
	_ protocol.RawExchanger  = (*exchange)(nil)
)

// ApiKey is the request's; kafka-go looks up a version by it, which is not used.
func (x *exchange) ApiKey() protocol.ApiKey { return protocol.ApiKey(x.req.Key()) }

// Broker routes the request.
func (x *exchange) Broker(protocol.Cluster) (protocol.Broker, error) {
	return protocol.Broker{ID: x.node}, nil
}

// Required says that kafka-go shall not code the message.
func (x *exchange) Required(map[protocol.ApiKey]int16) bool { return true }

var correlation atomic.Int32 // numbers requests; only equality within one connection matters

// RawExchange writes the request and reads the response. After an error the
// transport closes the connection.
func (x *exchange) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	id := correlation.Add(1)
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID(x.clientID))
	raw := f.AppendRequest(nil, x.req, id)
	if _, err := rw.Write(raw); err != nil {
		return nil, err
	}
	if p, ok := x.req.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
		return nil, fmt.Errorf("%w: produce without acknowledgement", errProtocol)
	}
	var head [8]byte
	if _, err := io.ReadFull(rw, head[:]); err != nil {
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(head[:]))) - 4
	if size < 0 {
		return nil, fmt.Errorf("%w: size %d", errProtocol, size+4)
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != id {
		return nil, fmt.Errorf("%w: correlation id %d, want %d", errProtocol, got, id)
	}
	if x.read != nil {
		return x, x.read(rw, size)
	}
	if most := maxResponse(x.req, len(raw)); size > most {
		return nil, fmt.Errorf("%w: %s of %d bytes, more than %d", errProtocol, kmsg.NameForKey(x.req.Key()), size, most)
	}
	body, err := readGrowing(rw, nil, size)
	if err != nil {
		return nil, err
	}
	resp := x.req.ResponseKind()
	// ApiVersions alone has no tags in its response header, whatever its
	// version (KIP-511).
	if x.req.IsFlexible() && x.req.Key() != int16(kmsg.ApiVersions) {
		w := wire{r: bytes.NewReader(body), left: len(body)}
		if w.tags(); w.err != nil { // of the header; none are defined, and unknown ones mean nothing (KIP-482)
			return nil, fmt.Errorf("response header: %w", w.err)
		}
		body = body[len(body)-w.left:]
	}
	if x.req.Key() == int16(kmsg.Metadata) {
		if err := checkMetadata(body, x.req.GetVersion()); err != nil {
			return nil, err
		}
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errProtocol, kmsg.NameForKey(x.req.Key()), err)
	}
	x.resp = resp
	if c, ok := rw.(net.Conn); ok { // kafka-go's protocol.Conn
		x.peer = c.RemoteAddr().String()
	}
	return x, nil
}

// readGrowing appends size bytes of r to dst. It allocates as the bytes arrive,
// never what a length on the wire claims.
func readGrowing(r io.Reader, dst []byte, size int) ([]byte, error) {
	for step := 64 << 10; size > 0; step *= 2 {
		n := min(step, size)
		have := len(dst)
		if cap(dst)-have < n {
			grown := make([]byte, have, have+n+min(have, size-n))
			copy(grown, dst)
			dst = grown
		}
		dst = dst[:have+n]
		if _, err := io.ReadFull(r, dst[have:]); err != nil {
			return nil, err
		}
		size -= n
	}
	return dst, nil
}

// exchange runs x on a connection to its node.
func (c *Client) exchange(ctx context.Context, x *exchange) (protocol.Message, error) {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	msg, err := c.transport.RoundTrip(ctx, c.seeds, x)
	if err != nil {
		return nil, c.connError(err)
	}
	return msg, nil
}

// connError translates kafka-go's error codes, which it returns for brokers that it
// does not know yet.
func (c *Client) connError(err error) error {
	var k kafkago.Error
	if !errors.As(err, &k) {
		name := "connection"
		if e := code(0); errors.As(err, &e) { // of the making of the connection
			name = e.name()
		}
		c.metrics.countError(name)
		return err
	}
	e := code(k)
	c.metrics.countError(e.name())
	return fmt.Errorf("%w: %w", e, err)
}
