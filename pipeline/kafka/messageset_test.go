package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// brokersLog is a log of which the first 80 messages are of a format, 20 each without a
// codec, of gzip, snappy and lz4, and 20 more are a record batch of zstd. Kafka 2.8.2 has
// written it, whose topic had message.format.version 0.9.0 or 0.10.2, and then 2.8.
func brokersLog(t testing.TB, magic int8) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("messages.v%d.log", magic)))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// testMessage is a message of format 0 or 1 to be made.
type testMessage struct {
	offset     int64
	magic      int8
	attrs      byte
	time       int64
	key, value []byte
}

func (m *testMessage) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(m.offset))
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, byte(m.magic), m.attrs)
	if m.magic > 0 {
		b = binary.BigEndian.AppendUint64(b, uint64(m.time))
	}
	for _, f := range [][]byte{m.key, m.value} {
		if f == nil {
			b = binary.BigEndian.AppendUint32(b, 1<<32-1)
			continue
		}
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(f))), f...)
	}
	binary.BigEndian.PutUint32(b[batchLengthAt:], uint32(len(b)-batchPrefix))
	return sealMessage(b)
}

// sealMessage sets the CRC of a message.
func sealMessage(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[messageCRCAt:], crc32.ChecksumIEEE(raw[batchMagicAt:]))
	return raw
}

// messageSet is the message that holds others, gzipped.
func messageSet(t testing.TB, outer testMessage, inner ...testMessage) []byte {
	t.Helper()
	var set []byte
	for i := range inner {
		set = append(set, inner[i].encode()...)
	}
	e, err := newEncoder(Gzip)
	if err != nil {
		t.Fatal(err)
	}
	e.records = set
	body, _, err := e.compress()
	if err != nil {
		t.Fatal(err)
	}
	outer.attrs |= byte(codecGzip)
	outer.value = slices.Clone(body)
	return outer.encode()
}

// Logs that brokers of Kafka before 0.11 have begun are read from any offset on.
func TestDecodeMessagesOfABroker(t *testing.T) {
	t.Parallel()
	for magic := range int8(2) {
		for from := range int64(100) {
			raw := brokersLog(t, magic)
			if from > 0 { // the broker begins its answer with the batch that holds the offset
				for {
					h, err := parseBatchHeader(raw)
					if err != nil {
						t.Fatal(err)
					}
					if h.last >= from {
						break
					}
					raw = raw[h.size:]
				}
			}
			got, _, need, err := decodeAll(testCodecs(t, 1<<20), raw, from)
			if err != nil || need > 0 {
				t.Fatalf("format %d from %d: Got %v, and %d bytes needed", magic, from, err, need)
			}
			next := from
			for _, b := range got {
				if b.From != next || b.Next > 80 && b.LeaderEpoch != 0 {
					t.Errorf("format %d from %d: Got a batch of [%d, %d) with leader epoch %d", magic, from, b.From, b.Next, b.LeaderEpoch)
				}
				for _, r := range b.Records {
					if want := fmt.Sprintf(`{"seq":%d,"outcome":"commit"`, next); r.Offset != next || !bytes.HasPrefix(r.Value, []byte(want)) || !bytes.HasPrefix(r.Key, []byte("k")) {
						t.Fatalf("format %d from %d: Got %d %q %q, want %d", magic, from, r.Offset, r.Key, r.Value, next)
					}
					if timed := r.Timestamp > 1_795_982_000_000; timed != (magic == 1 || next >= 80) || !timed && r.Timestamp != noTimestamp {
						t.Fatalf("format %d from %d: Got time %d of record %d", magic, from, r.Timestamp, next)
					}
					next++
				}
			}
			if next != 100 {
				t.Errorf("format %d from %d: Got records up to %d", magic, from, next)
			}
		}
	}
}

func TestDecodeMessages(t *testing.T) {
	t.Parallel()
	text := func(s string) []byte { return []byte(s) }
	for _, tc := range []struct {
		name string
		raw  []byte
		from int64
		want string
	}{
		{"no key and no value", (&testMessage{offset: 7, magic: 1, time: 5}).encode(), 7, "7@5 nil nil; next 8"},
		{"an empty key", (&testMessage{offset: 7, key: []byte{}, value: text("v")}).encode(), 0, `7@-1 "" "v"; next 8`},
		{
			"what was compacted away",
			messageSet(
				t, testMessage{offset: 29, magic: 1, time: 9},
				testMessage{offset: 2, magic: 1, time: 3, value: text("a")}, testMessage{offset: 9, magic: 1, time: 4, value: text("b")},
			),
			20, `22@3 nil "a" 29@4 nil "b"; next 30`,
		},
		{
			"absolute offsets", messageSet(t, testMessage{offset: 29}, testMessage{offset: 22, value: text("a")}, testMessage{offset: 28, value: text("b")}),
			23, `28@-1 nil "b"; next 30`,
		},
		{
			"the time of the append",
			messageSet(t, testMessage{offset: 1, magic: 1, attrs: attrLogAppendTime, time: 9}, testMessage{magic: 1, time: 3}, testMessage{offset: 1, magic: 1, time: 4}),
			0, `0@9 nil nil 1@9 nil nil; next 2`,
		},
		{"bits that mean something in record batches", (&testMessage{magic: 1, attrs: attrControl | attrTransactional, value: text("v")}).encode(), 0, `0@0 nil "v"; next 1`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			batches, _, _, err := decodeAll(testCodecs(t, 1<<20), tc.raw, tc.from)
			if err != nil {
				t.Fatal(err)
			}
			quoted := func(b []byte) string {
				if b == nil {
					return "nil"
				}
				return fmt.Sprintf("%q", b)
			}
			var got []string
			for _, b := range batches {
				for _, r := range b.Records {
					got = append(got, fmt.Sprintf("%d@%d %s %s", r.Offset, r.Timestamp, quoted(r.Key), quoted(r.Value)))
				}
			}
			if text := fmt.Sprintf("%s; next %d", strings.Join(got, " "), batches[len(batches)-1].Next); text != tc.want {
				t.Errorf("Got %s, want %s", text, tc.want)
			}
		})
	}
}

// A message that cannot be read is named with all offsets that may be in it.
func TestUnreadableMessages(t *testing.T) {
	t.Parallel()
	plain := func(magic int8) *testMessage {
		return &testMessage{offset: 107, magic: magic, key: []byte("key"), value: []byte("value")}
	}
	change := func(raw []byte, f func([]byte)) []byte { f(raw); return raw }
	set := func(inner ...testMessage) []byte { return messageSet(t, testMessage{offset: 107, magic: 1}, inner...) }
	short := plain(1).encode()
	for _, tc := range []struct {
		name string
		raw  []byte
		text string
	}{
		{"flipped bit", change(plain(0).encode(), func(b []byte) { b[len(b)-1] ^= 1 }), "CRC-32 is"},
		{"flipped bit in a set", change(set(*plain(1)), func(b []byte) { b[len(b)-1] ^= 1 }), "CRC-32 is"},
		{"a key behind the end", change(plain(1).encode(), func(b []byte) { b[29] = 200; sealMessage(b) }), "cut off"},
		{"bytes behind the value", change(plain(0).encode(), func(b []byte) { b[21]--; sealMessage(b) }), "107"},
		{"zstd", (&testMessage{offset: 107, magic: 1, attrs: byte(codecZstd), value: []byte("v")}).encode(), "codec 4 in message format 1"},
		{"no set", (&testMessage{offset: 107, magic: 1, attrs: byte(codecGzip)}).encode(), "gzip"},
		{"an empty set", set(), "0 messages"},
		{"a set in a set", set(testMessage{offset: 3, magic: 1, attrs: byte(codecGzip)}), "a compressed set itself"},
		{"two formats", set(testMessage{offset: 3}), "of format 0, in one of format 1"},
		{"offsets that go back", set(testMessage{offset: 3, magic: 1}, testMessage{offset: 3, magic: 1}), "offset 3 of a set after 3"},
		{"an offset before the first", set(testMessage{offset: 200, magic: 1}), "up to offset 200"},
		{"absolute offsets behind", messageSet(t, testMessage{offset: 107}, testMessage{offset: 108}), "up to offset 108"},
		{"a set that is cut off", change(short, func(b []byte) {
			copy(b, set(testMessage{offset: 3, magic: 1}))
		}), "CRC-32 is"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			before := &testMessage{offset: 99, magic: 1, value: []byte("before")}
			behind := messageSet(t, testMessage{offset: 120, magic: 1}, testMessage{magic: 1}, testMessage{offset: 12, magic: 1})
			got, _, _, err := decodeAll(testCodecs(t, 1<<20), bytes.Join([][]byte{before.encode(), tc.raw, behind}, nil), 99)
			bad, ok := errors.AsType[*UnreadableError](err)
			if !ok || !strings.Contains(err.Error(), tc.text) || !slices.Equal(offsets(got), []int64{99}) {
				t.Fatalf("Got offsets %v and %v, want 99 and an error with %q", offsets(got), err, tc.text)
			}
			if bad.Offset != 100 || bad.Next != 108 {
				t.Errorf("Got [%d, %d) as what cannot be read, want [100, 108): %v", bad.Offset, bad.Next, err)
			}
		})
	}
}

// A set is bounded by its records, too.
func TestManyMessages(t *testing.T) {
	t.Parallel()
	inner := make([]testMessage, 20_000)
	for i := range inner {
		inner[i] = testMessage{offset: int64(i), magic: 1}
	}
	raw := messageSet(t, testMessage{offset: 20_006, magic: 1}, inner...)
	_, _, _, err := decodeAll(testCodecs(t, 1<<20), raw, 7)
	if bad, ok := errors.AsType[*UnreadableError](err); !ok || !errors.Is(err, ErrBatchTooLarge) || bad.Offset != 7 || bad.Next != 20_007 {
		t.Errorf("Got %v, want that [7, 20007) is too large", err)
	}
	got, _, _, err := decodeAll(testCodecs(t, 4<<20), raw, 7)
	if err != nil || len(got) != 1 || len(got[0].Records) != 20_000 || got[0].Records[0].Offset != 7 {
		t.Errorf("Got %v, want all messages from offset 7 on", err)
	}
}

// A batch that says that it ends before what was asked for is not passed over where its
// checksum is wrong: one of the broken bytes may say so.
func TestBrokenBatchBefore(t *testing.T) {
	t.Parallel()
	for _, at := range []int{batchMagicAt, 26} { // the last byte of lastOffsetDelta
		for _, is := range []byte{0, 1} {
			if is == 0 && at != batchMagicAt {
				continue // its two records would not fit
			}
			b, behind := testBatch{lastDelta: 99, producer: -1, records: []testRecord{{}, {delta: 1}}}, simple(100, 2) // compacted
			raw := b.encode(t)
			raw[at] = is
			_, _, _, err := decodeAll(testCodecs(t, 1<<20), raw, 50)
			if bad, ok := errors.AsType[*UnreadableError](err); !ok || bad.Offset != 50 || bad.Next != -1 {
				t.Errorf("byte %d is %d: Got %v, want that nothing from 50 on can be read", at, is, err)
			}
			_, _, _, err = decodeAll(testCodecs(t, 1<<20), append(raw, behind.encode(t)...), 50)
			if bad, ok := errors.AsType[*UnreadableError](err); !ok || bad.Offset != 50 || bad.Next != 100 {
				t.Errorf("byte %d is %d: Got %v, want that [50, 100) cannot be read", at, is, err)
			}
		}
	}
}

// What a broker cuts off is asked for again whole, however short a message is.
func TestScanMessages(t *testing.T) {
	t.Parallel()
	raw := (&testMessage{offset: 5, magic: 0}).encode()
	for n := range len(raw) {
		c := &chunk{buf: raw[:n:n], from: 5}
		if need, _, err := c.scan(); err != nil || n > 0 && need < len(raw) || c.next != 5 {
			t.Errorf("%d of %d bytes: Got need %d, next %d and %v", n, len(raw), need, c.next, err)
		}
	}
	c := &chunk{buf: raw, from: 5}
	if need, _, err := c.scan(); err != nil || need != 0 || c.next != 6 || c.epoch != -1 {
		t.Errorf("Got need %d, next %d, epoch %d and %v", need, c.next, c.epoch, err)
	}
	for magic := range int8(2) {
		bad := (&testMessage{magic: magic}).encode()
		bad[batchLengthAt+3]--
		c := &chunk{buf: bad}
		if _, _, err := c.scan(); err == nil || !strings.Contains(err.Error(), "message of length") {
			t.Errorf("format %d: Got %v of a message that is too short", magic, err)
		}
	}
}

// The checksum of an lz4 header is restored, as the bytes are read again where there is no
// memory for them at first.
func TestDecodeMessagesTwice(t *testing.T) {
	t.Parallel()
	m, cs := fetchMemoryOf(nil), testCodecs(t, 1<<20)
	raw := brokersLog(t, 0)
	for range 2 {
		c := testChunk(m, raw, 0)
		if _, _, err := c.scan(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.decode(testMemoryBatch(m), cs); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(c.buf, raw) {
			t.Error("Got other bytes after they were read")
		}
		raw = slices.Clone(c.buf)
	}
}
