package kafka

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchedPartition is one partition of a fetch response.
type fetchedPartition struct {
	topic     string   // Fetch v12
	topicID   [16]byte // Fetch v13
	partition int32
	code      code
	records   []byte // of the pool
	tooLarge  int    // bytes of records beyond the limit, which were dropped
	refused   int    // bytes of records that there was no memory for, which were dropped
	beyond    int64  // the offset after the first record batch of what was dropped; -1 = unknown
	high      int64
	stable    int64
	logStart  int64
	aborted   []abortedTxn
	preferred int32 // the replica to fetch from instead; -1 = none
	diverges  bool  // the log of the leader ends elsewhere: it was truncated
	divergeAt int64 // end of what both have
}

// fetchResponse is a fetch response, read from the wire by its own reader: each
// partition's record batches go from the socket straight into a buffer of the
// pool that their records are later decoded in.
type fetchResponse struct {
	throttle   time.Duration // asked for, before the next request
	code       code
	session    int32 // 0 = none
	partitions []fetchedPartition
}

// release gives back what was read. The grants for it are the flight's.
func (f *fetchResponse) release(mem *fetchMemory) {
	for i := range f.partitions {
		mem.raw.Put(f.partitions[i].records)
		f.partitions[i].records = nil
	}
}

// lender has memory for what comes for a partition.
type lender interface {
	// room returns an empty slice for n bytes, nil where they are not wanted.
	room(p *fetchedPartition, n int) []byte
}

// wireLimits bound what is kept of a fetch response that the memory does not count, whatever
// a broker says.
type wireLimits struct {
	bytes      int // of records of one partition; more are dropped
	partitions int // as many as were asked for
	aborted    int // transactions, of all partitions together
}

// minMarker is the smallest record batch that ends a transaction, in bytes: a header, and a
// record whose key has 4 bytes and its value 6.
const minMarker = batchHeaderLen + minRecordLen + 10

// openAborted is how many transactions may be open at the end of what is fetched, of all
// partitions, and be aborted later: each has a producer of its own.
const openAborted = 1 << 17

// limits are those of an answer to a request for partitions. Each aborted transaction has its
// marker in what is fetched, or is open at its end.
func (o *FetchOptions) limits(partitions int) wireLimits {
	return wireLimits{bytes: o.MaxPartitionBytes + o.MaxBatchBytes, partitions: partitions, aborted: o.MaxBytes/minMarker + openAborted}
}

// readFetchResponse reads the body of a Fetch response of version 12 or 13. More records of
// one partition than the limits allow, and what there is no memory for, are dropped.
// After an error the records of the answer are still in it.
func readFetchResponse(r io.Reader, size int, version int16, mem lender, most wireLimits) (*fetchResponse, error) {
	w := wire{r: r, left: size, most: most}
	var f fetchResponse
	w.tags() // of the header
	f.throttle = time.Duration(w.int32()) * time.Millisecond
	f.code = code(w.int16())
	f.session = w.int32()
	for range w.arrayLen() {
		var topic string
		var id [16]byte
		if version > namedFetch {
			w.read(id[:])
		} else {
			topic = w.string()
		}
		for range w.arrayLen() {
			p := fetchedPartition{topic: topic, topicID: id}
			if len(f.partitions) == most.partitions {
				w.fail("more than the %d partitions that were asked for", most.partitions)
				break
			}
			w.partition(&p, mem)
			f.partitions = append(f.partitions, p)
			if w.err != nil {
				break
			}
		}
		w.tags()
		if w.err != nil {
			break
		}
	}
	w.tags()
	if w.err == nil && w.left != 0 {
		w.fail("%d bytes too many", w.left)
	}
	if w.err != nil {
		return &f, fmt.Errorf("read fetch response: %w", w.err)
	}
	return &f, nil
}

func (w *wire) partition(p *fetchedPartition, mem lender) {
	p.partition = w.int32()
	p.code = code(w.int16())
	p.high = w.int64()
	p.stable = w.int64()
	p.logStart = w.int64()
	n := w.arrayLen()
	if w.most.aborted -= n; w.most.aborted < 0 {
		w.fail("%d aborted transactions, more than there can be", n)
		return
	}
	for range n {
		p.aborted = append(p.aborted, abortedTxn{producer: w.int64(), first: w.int64()})
		w.tags()
		if w.err != nil {
			return
		}
	}
	p.preferred = w.int32()
	w.records(p, mem)
	w.eachTag(func(tag uint64, body *wire) {
		if tag == 0 { // DivergingEpoch: epoch int32, end offset int64
			body.int32()
			p.diverges, p.divergeAt = true, body.int64()
			if p.divergeAt < 0 {
				p.diverges = false // the default: nothing diverges
			}
		}
	})
}

// wire reads a response as it arrives and never more than its size. The first
// error stays.
type wire struct {
	r       io.Reader
	left    int
	most    wireLimits
	err     error
	scratch [16]byte
}

func (w *wire) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("%w: "+format, append([]any{errProtocol}, args...)...)
	}
}

func (w *wire) read(b []byte) bool {
	if w.err != nil {
		return false
	}
	if len(b) > w.left {
		w.fail("it ends early")
		return false
	}
	w.left -= len(b)
	_, w.err = io.ReadFull(w.r, b)
	return w.err == nil
}

func (w *wire) int16() int16 {
	if !w.read(w.scratch[:2]) {
		return 0
	}
	return int16(binary.BigEndian.Uint16(w.scratch[:]))
}

func (w *wire) int32() int32 {
	if !w.read(w.scratch[:4]) {
		return 0
	}
	return int32(binary.BigEndian.Uint32(w.scratch[:]))
}

func (w *wire) int64() int64 {
	if !w.read(w.scratch[:8]) {
		return 0
	}
	return int64(binary.BigEndian.Uint64(w.scratch[:]))
}

func (w *wire) uvarint() uint64 {
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		if !w.read(w.scratch[:1]) {
			return 0
		}
		v |= uint64(w.scratch[0]&0x7f) << shift
		if w.scratch[0] < 0x80 {
			return v
		}
	}
	w.fail("a length of more than 5 bytes")
	return 0
}

// arrayLen is the length of a compact array, 0 for null. Each element takes a
// byte at least.
func (w *wire) arrayLen() int {
	n := w.uvarint()
	if n == 0 {
		return 0
	}
	if n-1 > uint64(w.left) {
		w.fail("an array of %d in %d bytes", n-1, w.left)
		return 0
	}
	return int(n - 1)
}

func (w *wire) string() string {
	n := w.arrayLen()
	if n > maxTopicName {
		w.fail("a topic name of %d bytes", n)
		return ""
	}
	b := make([]byte, n)
	w.read(b)
	return string(b)
}

// records reads the record batches of p into memory that there is for them.
func (w *wire) records(p *fetchedPartition, mem lender) {
	n := w.arrayLen()
	if n == 0 || w.err != nil {
		return
	}
	w.left -= n
	if n > w.most.bytes {
		p.tooLarge = n
	} else if b := mem.room(p, n); b != nil {
		p.records = b[:n]
		_, w.err = io.ReadFull(w.r, p.records)
		return
	}
	var head [batchHeaderLen]byte
	first := head[:min(len(head), n)]
	if _, w.err = io.ReadFull(w.r, first); w.err != nil {
		return
	}
	h, _ := parseBatchHeader(first) // it is cut off, if nothing else
	p.beyond = h.beyond()
	_, w.err = io.CopyN(io.Discard, w.r, int64(n-len(first)))
}

// tags skips tagged fields.
func (w *wire) tags() { w.eachTag(func(uint64, *wire) {}) }

// eachTag calls f with every tagged field and skips what f leaves of it.
func (w *wire) eachTag(f func(tag uint64, body *wire)) {
	for range w.uvarint() {
		tag, size := w.uvarint(), w.uvarint()
		if w.err == nil && size > uint64(w.left) {
			w.fail("a tagged field of %d bytes in %d", size, w.left)
		}
		if w.err != nil {
			return
		}
		body := wire{r: w.r, left: int(size)}
		f(tag, &body)
		for body.err == nil && body.left > 0 {
			body.read(body.scratch[:min(len(body.scratch), body.left)])
		}
		w.left -= int(size)
		w.err = body.err
	}
}

// newFetchRequest is an empty request.
func newFetchRequest(version int16, o *FetchOptions) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = version
	req.ReplicaID = -1
	req.MaxWaitMillis = int32(o.MaxWait.Milliseconds())
	req.MinBytes = int32(o.MinBytes)
	req.MaxBytes = int32(o.MaxBytes)
	req.IsolationLevel = readCommitted
	req.Rack = o.Rack
	return req
}
