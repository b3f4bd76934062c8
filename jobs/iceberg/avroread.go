package iceberg

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// avroInput reads what avroFile has written, whose records have one schema. Behind an error,
// err, which wraps ErrForeign, values are zero and there is no next record.
type avroInput struct {
	rest  []byte // blocks to come
	sync  []byte
	block []byte // of it what was not read
	left  int64  // records of it to come
	err   error
}

// maxAvroBlock bounds what a block may become that is read: avroBlock, and one record more.
const maxAvroBlock = 4 << 20

// openAvro begins to read a file of records of this schema.
func openAvro(data []byte, schema string) (*avroInput, error) {
	head, ok := bytes.CutPrefix(data, []byte("Obj\x01"))
	r := &avroInput{block: head}
	if !ok {
		r.fail("it is no object container file")
	}
	said := map[string]string{}
	for n := r.long(); n != 0 && r.err == nil; n = r.long() {
		if n < 0 {
			r.fail("its header is written in another way")
		}
		for range n {
			key := string(r.bytes())
			if said[key] = string(r.bytes()); r.err != nil {
				break
			}
		}
	}
	if r.err == nil && (said["avro.schema"] != schema || said["avro.codec"] != "deflate") {
		r.fail("it is of another schema or codec (%s)", said["avro.codec"])
	}
	r.sync = r.take(16)
	r.rest, r.block = r.block, nil
	return r, r.err
}

func (r *avroInput) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrForeign, fmt.Sprintf(format, args...))
	}
}

// next goes to the next record.
func (r *avroInput) next() bool {
	if r.left == 0 && len(r.block) > 0 {
		r.fail("a block has %d bytes more than its records", len(r.block))
	}
	for r.err == nil && r.left == 0 {
		if len(r.rest) == 0 {
			return false
		}
		r.unpack()
	}
	r.left--
	return r.err == nil
}

// unpack reads the next block.
func (r *avroInput) unpack() {
	r.block = r.rest
	n := r.long()
	packed := r.bytes()
	sync := r.take(16)
	r.rest = r.block
	if r.err != nil {
		return
	}
	if n <= 0 || !bytes.Equal(sync, r.sync) {
		r.fail("a block of %d records ends without the mark", n)
		return
	}
	block, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), maxAvroBlock+1))
	if err != nil || len(block) > maxAvroBlock || n > int64(len(block)) {
		r.fail("a block of %d records has %d bytes: %v", n, len(block), err)
		return
	}
	r.block, r.left = block, n
}

// long reads an int or a long.
func (r *avroInput) long() int64 {
	if r.err != nil {
		return 0
	}
	n, size := binary.Varint(r.block)
	if size <= 0 {
		r.fail("a number is cut off")
		return 0
	}
	r.block = r.block[size:]
	return n
}

// int reads an int or a long that counts something.
func (r *avroInput) int() int {
	n := r.long()
	if n < 0 || n > math.MaxInt {
		r.fail("a count is %d", n)
		return 0
	}
	return int(n)
}

// bytes reads bytes or a string, which share the file's memory.
func (r *avroInput) bytes() []byte { return r.take(r.long()) }

func (r *avroInput) take(n int64) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > int64(len(r.block)) {
		r.fail("%d bytes are %d", n, len(r.block))
		return nil
	}
	b := r.block[:n]
	r.block = r.block[n:]
	return b
}
