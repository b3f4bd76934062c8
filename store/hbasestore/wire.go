package hbasestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/apache/thrift/lib/go/thrift"
)

// maxMessageBytes bounds one frame and one field of the gateway: a row of a scan of
// whole rows may be large, and the outbox takes cells of up to 1 GiB.
const maxMessageBytes = 1<<31 - 1

// bufferBytes is how much is read and, about, written at once.
const bufferBytes = 64 << 10

// wire is a thrift.TTransport, framed or not, over a socket that somebody else has
// opened and sets deadlines on. A frame has one message. After an error the socket is in
// the midst of one.
type wire struct {
	conn   net.Conn
	framed bool

	out     []byte // to be sent; with framed transport behind 4 bytes for its length
	sent    bool   // something was, since the call began
	in      []byte // bufferBytes, of which [at, end) was read from the socket and no further
	at, end int
	frame   int // bytes of the frame that were not read yet
}

var _ thrift.TRichTransport = (*wire)(nil)

func newWire(c net.Conn, framed bool) *wire {
	return &wire{conn: c, framed: framed, in: make([]byte, bufferBytes)}
}

func (w *wire) Open() error            { return nil }
func (w *wire) IsOpen() bool           { return true }
func (w *wire) Close() error           { return w.conn.Close() }
func (w *wire) RemainingBytes() uint64 { return thrift.UnknownRemainingBytes }

// begin begins a call.
func (w *wire) begin() { w.out, w.sent = w.out[:0], false }

// beginFrame leaves room for the length of a frame.
func (w *wire) beginFrame() {
	if w.framed {
		w.out = append(w.out, 0, 0, 0, 0)
	}
}

// Write implements io.Writer. What is large is sent from where it is.
func (w *wire) Write(b []byte) (int, error) {
	if len(b) < bufferBytes || w.framed {
		w.out = append(w.out, b...)
		return len(b), w.written()
	}
	if err := w.send(); err != nil {
		return 0, err
	}
	w.sent = true
	return w.conn.Write(b)
}

// WriteByte implements io.ByteWriter.
func (w *wire) WriteByte(b byte) error {
	w.out = append(w.out, b)
	return w.written()
}

// WriteString implements io.StringWriter.
func (w *wire) WriteString(s string) (int, error) {
	w.out = append(w.out, s...)
	return len(s), w.written()
}

// written sends what is enough for a call of the system. A frame is sent as a whole.
func (w *wire) written() error {
	if len(w.out) < bufferBytes || w.framed {
		return nil
	}
	return w.send()
}

func (w *wire) send() error {
	if len(w.out) == 0 {
		return nil
	}
	w.sent = true
	_, err := w.conn.Write(w.out)
	if w.out = w.out[:0]; cap(w.out) > 2*bufferBytes {
		w.out = nil // of one large value
	}
	return err
}

// Flush sends the message.
func (w *wire) Flush(context.Context) error {
	if w.framed {
		n := len(w.out) - 4
		if n > maxMessageBytes {
			return fmt.Errorf("hbasestore: a request of %d bytes, a frame has %d", n, maxMessageBytes)
		}
		binary.BigEndian.PutUint32(w.out, uint32(n))
	}
	return w.send()
}

// nextFrame reads how long the next frame is.
func (w *wire) nextFrame() error {
	if !w.framed {
		return nil
	}
	w.frame = 4
	b, err := w.next(4)
	if err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(b)
	if n > maxMessageBytes {
		return fmt.Errorf("hbasestore: the gateway's answer is a frame of %d bytes", n)
	}
	w.frame = int(n)
	return nil
}

// endFrame says that the message was read.
func (w *wire) endFrame() error {
	if w.framed && w.frame > 0 {
		return fmt.Errorf("hbasestore: the gateway's frame has %d bytes behind its message", w.frame)
	}
	return nil
}

// take takes n bytes of the frame.
func (w *wire) take(n int) error {
	if !w.framed {
		return nil
	}
	if w.frame -= n; w.frame < 0 {
		return errors.New("hbasestore: the gateway's frame ends before its message")
	}
	return nil
}

// next returns the next n bytes, of bufferBytes at most, valid until the next read.
func (w *wire) next(n int) ([]byte, error) {
	if w.end-w.at < n {
		if err := w.fill(n); err != nil {
			return nil, err
		}
	}
	if w.framed {
		if err := w.take(n); err != nil {
			return nil, err
		}
	}
	b := w.in[w.at : w.at+n]
	w.at += n
	return b, nil
}

// fill reads from the socket until n bytes are there.
func (w *wire) fill(n int) error {
	w.end = copy(w.in, w.in[w.at:w.end])
	w.at = 0
	for w.end < n {
		got, err := w.conn.Read(w.in[w.end:])
		if w.end += got; w.end >= n {
			return nil
		}
		if err == io.EOF && w.end > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Read implements io.Reader.
func (w *wire) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if w.at == w.end {
		if err := w.fill(1); err != nil {
			return 0, err
		}
	}
	n := min(len(b), w.end-w.at)
	if err := w.take(n); err != nil {
		return 0, err
	}
	w.at += copy(b, w.in[w.at:w.at+n])
	return n, nil
}

// ReadByte implements io.ByteReader.
func (w *wire) ReadByte() (byte, error) {
	b, err := w.next(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// readFull fills b.
func (w *wire) readFull(b []byte) error {
	if err := w.take(len(b)); err != nil {
		return err
	}
	n := copy(b, w.in[w.at:w.end])
	if w.at += n; n == len(b) {
		return nil
	}
	_, err := io.ReadFull(w.conn, b[n:])
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}
