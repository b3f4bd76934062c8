package cell

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Key tags: the first byte of every stored key. They sort in this order, so
// that files of system rows, counters and data never overlap (design D8).
const (
	TagSystem  byte = 1 // catalog, offsets: one key a column, overwritten in place
	TagCounter byte = 2 // COUNTER families: one key a column, overwritten in place
	TagData    byte = 3 // everything else: a key a version
	TagChange  byte = 4 // rows of which a changed cell was removed: a key a change
)

// Key is the decoded form of a stored key. docs/format/key.md has the layout and
// test vectors. Time (never negative) and Kind belong to TagData keys only,
// Sequence to those and to TagChange keys, which have no Qualifier. Row and
// Qualifier are any bytes: which rows a table takes is CheckRow's business.
type Key struct {
	Tag       byte
	Table     uint32
	Family    uint8
	Row       []byte
	Qualifier []byte
	Time      Timestamp
	Kind      Kind
	Sequence  uint64
}

// ErrCorruptKey is wrapped by the errors of DecodeKey.
var ErrCorruptKey = errors.New("cell: corrupt key")

const (
	keyPrefixLen  = 1 + 4 + 1
	sequenceLen   = 8
	versionSuffix = 8 + 1 + sequenceLen
)

// AppendFamilyPrefix appends tag, table and family: the 6 bytes that all keys of
// one column family share.
func AppendFamilyPrefix(dst []byte, tag byte, table uint32, family uint8) []byte {
	dst = append(dst, tag)
	dst = binary.BigEndian.AppendUint32(dst, table)
	return append(dst, family)
}

// AppendEscaped appends b so that it keeps its order and can be followed by
// more: 00 becomes 00 FF. It does not append the terminator; a prefix of rows is
// bounded by it alone.
func AppendEscaped(dst, b []byte) []byte {
	for {
		i := bytes.IndexByte(b, 0)
		if i < 0 {
			return append(dst, b...)
		}
		dst = append(dst, b[:i]...)
		dst = append(dst, 0x00, 0xFF)
		b = b[i+1:]
	}
}

// AppendUnescaped appends the bytes of which AppendEscaped has made b, which must be
// well formed: that of a key that SplitKey has split is.
func AppendUnescaped(dst, b []byte) []byte {
	const few = 32
	for {
		zero := bytes.IndexByte(b, 0)
		if zero < 0 {
			return append(dst, b...)
		}
		dst = append(dst, b[:zero+1]...)
		b = b[min(zero+2, len(b)):] // without FF
		if len(b) <= few {
			break
		}
	}
	// Where one zero is, others are: of numbers. Byte by byte is faster than to look
	// for each.
	n := len(dst)
	dst = append(dst, b...) // long enough
	for i := 0; i < len(b); i++ {
		dst[n] = b[i]
		n++
		if b[i] == 0 {
			i++ // FF
		}
	}
	return dst[:n]
}

// AppendPart appends b escaped and its terminator 00 01.
func AppendPart(dst, b []byte) []byte {
	return append(AppendEscaped(dst, b), 0x00, 0x01)
}

// AppendRowPrefix appends what all keys of one row and family share: prefix, row
// and terminator. It is the prefix that SplitKey finds.
func AppendRowPrefix(dst []byte, tag byte, table uint32, family uint8, row []byte) []byte {
	return AppendPart(AppendFamilyPrefix(dst, tag, table, family), row)
}

// AppendVersion appends the suffix of a TagData key: ~timestamp, ~kind and
// ~sequence, 17 bytes, so that newer sorts first. t must not be negative: it would
// sort as the newest, and the decoder refuses it.
func AppendVersion(dst []byte, t Timestamp, k Kind, sequence uint64) []byte {
	dst = binary.BigEndian.AppendUint64(dst, ^uint64(t))
	dst = append(dst, ^byte(k))
	return binary.BigEndian.AppendUint64(dst, ^sequence)
}

// AddSequence adds n to the sequence of a TagData key, in place.
func AddSequence(key []byte, n uint64) {
	at := key[len(key)-8:]
	binary.BigEndian.PutUint64(at, binary.BigEndian.Uint64(at)-n)
}

// AppendChange appends the key of a change, by the operation of this sequence, to
// the row whose keys begin with prefix, as SplitKey finds it.
func AppendChange(dst, prefix []byte, sequence uint64) []byte {
	dst = append(append(dst, TagChange), prefix[1:]...)
	return binary.BigEndian.AppendUint64(dst, ^sequence)
}

// AppendKey appends the code of k.
func AppendKey(dst []byte, k *Key) []byte {
	dst = AppendRowPrefix(dst, k.Tag, k.Table, k.Family, k.Row)
	if k.Tag == TagChange {
		return binary.BigEndian.AppendUint64(dst, ^k.Sequence)
	}
	dst = AppendPart(dst, k.Qualifier)
	if k.Tag == TagData {
		dst = AppendVersion(dst, k.Time, k.Kind, k.Sequence)
	}
	return dst
}

// SplitKey returns the length of key's prefix that ends with its row's
// terminator, or len(key) where key has none (a bound, not a stored key). No such
// prefix is a prefix of another, so that keys order by prefix first, whatever
// bytes they are (what Pebble asks of a Split function).
func SplitKey(key []byte) int {
	if len(key) < keyPrefixLen {
		return len(key)
	}
	n := partEnd(key[keyPrefixLen:])
	if n < 0 {
		return len(key)
	}
	return keyPrefixLen + n
}

// partEnd returns the length of the part at the head of b, terminator included,
// or -1.
func partEnd(b []byte) int {
	for i := 0; ; {
		j := bytes.IndexByte(b[i:], 0)
		if j < 0 || i+j+1 >= len(b) {
			return -1
		}
		i += j + 2
		if b[i-1] == 0x01 {
			return i
		}
	}
}

// DecodePart reads the part at the head of b, terminator included, and returns
// its bytes and the rest. The bytes are a slice of b where nothing was escaped;
// otherwise they are appended to scratch, whose new value is returned. Only what
// AppendPart writes is accepted; the error wraps ErrCorruptKey.
func DecodePart(b, scratch []byte) (part, rest, newScratch []byte, err error) {
	n := bytes.IndexByte(b, 0)
	if n >= 0 && n+1 < len(b) && b[n+1] == 0x01 {
		return b[:n:n], b[n+2:], scratch, nil
	}
	start := len(scratch)
	for {
		n := bytes.IndexByte(b, 0)
		if n < 0 || n+1 >= len(b) {
			return nil, nil, scratch, fmt.Errorf("%w: part without terminator", ErrCorruptKey)
		}
		scratch = append(scratch, b[:n]...)
		c := b[n+1]
		b = b[n+2:]
		switch c {
		case 0x01:
			return scratch[start:len(scratch):len(scratch)], b, scratch, nil
		case 0xFF:
			scratch = append(scratch, 0)
		default:
			return nil, nil, scratch, fmt.Errorf("%w: escape 00 %02X", ErrCorruptKey, c)
		}
	}
}

// DecodeKey decodes key into k. Row and Qualifier point into key where they can,
// into scratch otherwise, beyond its length; the grown scratch is returned. Pass
// scratch[:0] to reuse its memory, which ends the life of the slices decoded into
// it before. Only what AppendKey writes is accepted; the error wraps
// ErrCorruptKey and leaves k undefined.
func DecodeKey(k *Key, key, scratch []byte) ([]byte, error) {
	if len(key) < keyPrefixLen {
		return scratch, fmt.Errorf("%w: %d bytes", ErrCorruptKey, len(key))
	}
	k.Tag, k.Table, k.Family = key[0], binary.BigEndian.Uint32(key[1:]), key[5]
	if k.Tag < TagSystem || k.Tag > TagChange {
		return scratch, fmt.Errorf("%w: tag %d", ErrCorruptKey, k.Tag)
	}
	var err error
	rest := key[keyPrefixLen:]
	if k.Row, rest, scratch, err = DecodePart(rest, scratch); err != nil {
		return scratch, err
	}
	if k.Tag == TagChange {
		if len(rest) != sequenceLen {
			return scratch, fmt.Errorf("%w: %d bytes after the row, want %d", ErrCorruptKey, len(rest), sequenceLen)
		}
		k.Qualifier, k.Time, k.Kind, k.Sequence = rest[:0:0], 0, KindPut, ^binary.BigEndian.Uint64(rest)
		return scratch, nil
	}
	if k.Qualifier, rest, scratch, err = DecodePart(rest, scratch); err != nil {
		return scratch, err
	}
	if k.Tag != TagData {
		k.Time, k.Kind, k.Sequence = 0, KindPut, 0
		if len(rest) != 0 {
			return scratch, fmt.Errorf("%w: %d bytes after the qualifier", ErrCorruptKey, len(rest))
		}
		return scratch, nil
	}
	if len(rest) != versionSuffix {
		return scratch, fmt.Errorf("%w: %d bytes of version, want %d", ErrCorruptKey, len(rest), versionSuffix)
	}
	k.Time, k.Kind, k.Sequence = DecodeVersion(rest)
	switch k.Kind {
	case KindPacked, KindPut, KindDelete, KindDeleteFamilyVersion, KindDeleteColumn, KindDeleteFamily:
	default:
		return scratch, fmt.Errorf("%w: kind %d", ErrCorruptKey, k.Kind)
	}
	if k.Time < 0 {
		return scratch, fmt.Errorf("%w: negative timestamp", ErrCorruptKey)
	}
	return scratch, nil
}

// DecodeVersion reads the 17 bytes that AppendVersion wrote, unchecked. It panics
// on fewer.
func DecodeVersion(b []byte) (t Timestamp, k Kind, sequence uint64) {
	_ = b[versionSuffix-1]
	return Timestamp(^binary.BigEndian.Uint64(b)), Kind(^b[8]), ^binary.BigEndian.Uint64(b[9:])
}

// PrefixEnd returns the smallest key that is greater than every key with this
// prefix, in new memory, or nil where there is none (prefix is empty or all FF).
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xFF {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}
