package hbasestore

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/apache/thrift/lib/go/thrift"
)

// maxElements bounds a list of an answer, for which the generated code makes room
// before it has read any of it. So many cells have more than 1.4 GB.
const maxElements = 1 << 26

const (
	// firstSlab and maxSlab bound what is allocated for several fields at once: at
	// least a cell's, and not so much that one value that somebody keeps keeps many
	// others in memory.
	firstSlab = 64
	maxSlab   = 16 << 10
	// slabField is the largest field that shares its memory.
	slabField = maxSlab / 8
	// sureField is up to what a field's memory is made at once, whatever then arrives
	// of it.
	sureField = 1 << 20
)

// protocol is thrift.TBinaryProtocol with what calls consist of, which is fields, lists,
// integers and bytes, done in the buffers of its wire. Thrift's own takes each through
// two interfaces, and allocates each field alone: most of the CPU of a call.
//
// It belongs to one goroutine. What ReadBinary returns is the caller's; it may share
// memory with other fields of the message, but no byte of it.
type protocol struct {
	*thrift.TBinaryProtocol // what is rare
	w                       *wire
	slab                    []byte // for the next fields of the message
}

var _ thrift.TProtocol = (*protocol)(nil)

func newProtocol(w *wire) *protocol {
	return &protocol{w: w, TBinaryProtocol: thrift.NewTBinaryProtocolConf(w, &thrift.TConfiguration{
		MaxMessageSize: maxMessageBytes, MaxFrameSize: maxMessageBytes,
		TBinaryStrictRead: thrift.BoolPtr(true), TBinaryStrictWrite: thrift.BoolPtr(true),
	})}
}

// WriteMessageBegin implements thrift.TProtocol, as all that follow do.
func (p *protocol) WriteMessageBegin(ctx context.Context, name string, kind thrift.TMessageType, seq int32) error {
	p.w.beginFrame()
	return p.TBinaryProtocol.WriteMessageBegin(ctx, name, kind, seq)
}

func (p *protocol) WriteStructBegin(context.Context, string) error { return nil }
func (p *protocol) WriteStructEnd(context.Context) error           { return nil }
func (p *protocol) WriteFieldEnd(context.Context) error            { return nil }
func (p *protocol) WriteListEnd(context.Context) error             { return nil }

func (p *protocol) WriteFieldBegin(_ context.Context, _ string, t thrift.TType, id int16) error {
	p.w.out = append(p.w.out, byte(t), byte(id>>8), byte(id))
	return nil
}

func (p *protocol) WriteFieldStop(context.Context) error {
	p.w.out = append(p.w.out, thrift.STOP)
	return p.w.written()
}

func (p *protocol) WriteListBegin(_ context.Context, t thrift.TType, n int) error {
	p.w.out = binary.BigEndian.AppendUint32(append(p.w.out, byte(t)), uint32(n))
	return nil
}

func (p *protocol) WriteI32(_ context.Context, v int32) error {
	p.w.out = binary.BigEndian.AppendUint32(p.w.out, uint32(v))
	return nil
}

func (p *protocol) WriteI64(_ context.Context, v int64) error {
	p.w.out = binary.BigEndian.AppendUint64(p.w.out, uint64(v))
	return nil
}

func (p *protocol) WriteBinary(_ context.Context, b []byte) error {
	if len(b) > maxMessageBytes {
		return fmt.Errorf("hbasestore: a field of %d bytes", len(b))
	}
	p.w.out = binary.BigEndian.AppendUint32(p.w.out, uint32(len(b)))
	_, err := p.w.Write(b)
	return err
}

func (p *protocol) ReadMessageBegin(ctx context.Context) (name string, kind thrift.TMessageType, seq int32, err error) {
	p.slab = nil
	if err := p.w.nextFrame(); err != nil {
		return "", 0, 0, err
	}
	return p.TBinaryProtocol.ReadMessageBegin(ctx)
}

func (p *protocol) ReadMessageEnd(context.Context) error {
	p.slab = nil
	return p.w.endFrame()
}

func (p *protocol) ReadStructBegin(context.Context) (string, error) { return "", nil }
func (p *protocol) ReadStructEnd(context.Context) error             { return nil }
func (p *protocol) ReadFieldEnd(context.Context) error              { return nil }
func (p *protocol) ReadListEnd(context.Context) error               { return nil }

func (p *protocol) ReadFieldBegin(context.Context) (name string, t thrift.TType, id int16, err error) {
	b, err := p.w.next(1)
	if err != nil {
		return "", 0, 0, err
	}
	if t = thrift.TType(b[0]); t == thrift.STOP {
		return "", t, 0, nil
	}
	if b, err = p.w.next(2); err != nil {
		return "", t, 0, err
	}
	return "", t, int16(binary.BigEndian.Uint16(b)), nil
}

func (p *protocol) ReadListBegin(context.Context) (thrift.TType, int, error) {
	b, err := p.w.next(5)
	if err != nil {
		return 0, 0, err
	}
	n := binary.BigEndian.Uint32(b[1:])
	if n > maxElements || p.w.framed && int(n) > p.w.frame {
		return 0, 0, fmt.Errorf("hbasestore: the gateway's answer has a list of %d elements", int32(n))
	}
	return thrift.TType(b[0]), int(n), nil
}

func (p *protocol) ReadI32(context.Context) (int32, error) {
	b, err := p.w.next(4)
	if err != nil {
		return 0, err
	}
	return int32(binary.BigEndian.Uint32(b)), nil
}

func (p *protocol) ReadI64(context.Context) (int64, error) {
	b, err := p.w.next(8)
	if err != nil {
		return 0, err
	}
	return int64(binary.BigEndian.Uint64(b)), nil
}

func (p *protocol) ReadBinary(ctx context.Context) ([]byte, error) {
	size, err := p.ReadI32(ctx)
	if err != nil {
		return nil, err
	}
	if size < 0 {
		return nil, fmt.Errorf("hbasestore: the gateway's answer has a field of %d bytes", size)
	}
	n := int(size)
	switch {
	case n == 0:
		return []byte{}, nil // nil is a field that is not there
	case n > slabField:
		return p.readLarge(n)
	}
	b, err := p.w.next(n)
	if err != nil {
		return nil, err
	}
	if cap(p.slab)-len(p.slab) < n {
		// The fields that follow are in what has arrived behind it, half of it.
		p.slab = make([]byte, 0, max(n, min(max((p.w.end-p.w.at)/2, firstSlab), maxSlab)))
	}
	from := len(p.slab)
	p.slab = append(p.slab, b...)
	return p.slab[from:len(p.slab):len(p.slab)], nil
}

// readSame reads a text that may be s, which it returns then.
func (p *protocol) readSame(ctx context.Context, s string) (string, error) {
	size, err := p.ReadI32(ctx)
	if err != nil {
		return "", err
	}
	if size < 0 || size > slabField {
		return "", fmt.Errorf("hbasestore: the gateway's answer has a name of %d bytes", size)
	}
	b, err := p.w.next(int(size))
	if err != nil || string(b) == s {
		return s, err
	}
	return string(b), nil
}

// readLarge reads a field of n bytes into memory of its own, of which it makes no more
// than twice what has arrived, or sureField.
func (p *protocol) readLarge(n int) ([]byte, error) {
	b := make([]byte, min(n, sureField))
	for have := 0; ; {
		if err := p.w.readFull(b[have:]); err != nil || len(b) == n {
			return b, err
		}
		have = len(b)
		b = append(b, make([]byte, min(n-have, have))...)
	}
}
