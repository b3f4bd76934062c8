package iceberg

import (
	"bytes"
	"compress/flate"
	"crypto/rand"
	"encoding/binary"
	"maps"
	"slices"
)

// avroFile writes an object container file of Avro 1.11, which manifests and lists of them
// are (https://avro.apache.org/docs/1.11.1/specification/#object-container-files).
type avroFile struct {
	out   bytes.Buffer
	block avroValue
	count int64
	sync  [16]byte
}

// avroBlock is how many bytes, before compression, a block has about.
const avroBlock = 64 << 10

// newAvroFile begins a file of records of this schema, in JSON, with metadata besides.
func newAvroFile(schema string, metadata map[string]string) *avroFile {
	f := new(avroFile)
	_, _ = rand.Read(f.sync[:]) // never fails
	head := avroValue("Obj\x01")
	all := map[string]string{}
	maps.Copy(all, metadata)
	all["avro.schema"], all["avro.codec"] = schema, "deflate"
	head.long(int64(len(all)))
	for _, k := range slices.Sorted(maps.Keys(all)) {
		head.bytes([]byte(k))
		head.bytes([]byte(all[k]))
	}
	head.long(0)
	f.out.Write(head)
	f.out.Write(f.sync[:])
	return f
}

// added ends a record, which was appended to f.block.
func (f *avroFile) added() error {
	if f.count++; len(f.block) < avroBlock {
		return nil
	}
	return f.flush()
}

// flush ends a block.
func (f *avroFile) flush() error {
	if f.count == 0 {
		return nil
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.DefaultCompression)
	if err == nil {
		_, err = w.Write(f.block)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return err
	}
	var head avroValue
	head.long(f.count)
	head.long(int64(packed.Len()))
	f.out.Write(head)
	f.out.Write(packed.Bytes())
	f.out.Write(f.sync[:])
	f.block, f.count = f.block[:0], 0
	return nil
}

// close returns the file.
func (f *avroFile) close() ([]byte, error) {
	err := f.flush()
	return f.out.Bytes(), err
}

// avroValue is what values are appended to, as Avro's binary encoding has them.
type avroValue []byte

// long appends an int or a long.
func (v *avroValue) long(n int64) { *v = binary.AppendVarint(*v, n) }

// bytes appends bytes or a string.
func (v *avroValue) bytes(b []byte) {
	v.long(int64(len(b)))
	*v = append(*v, b...)
}

func (v *avroValue) boolean(b bool) {
	if b {
		*v = append(*v, 1)
	} else {
		*v = append(*v, 0)
	}
}

// some appends the branch of a union of null and another type that is not null.
func (v *avroValue) some() { v.long(1) }

// none appends null in such a union.
func (v *avroValue) none() { v.long(0) }

// optional appends a string, an int64 or a bool, or nil, in such a union.
func (v *avroValue) optional(value any) {
	if value == nil {
		v.none()
		return
	}
	v.some()
	switch value := value.(type) {
	case string:
		v.bytes([]byte(value))
	case int64:
		v.long(value)
	case bool:
		v.boolean(value)
	}
}
