package kafka

import (
	"bytes"
	"fmt"
)

// maxTags bounds the tagged fields of one element of metadata, which has none in the
// versions that are asked for (KIP-482): each takes a place in a map, and 2 bytes of the
// answer.
const maxTags = 4

// checkMetadata walks through a Metadata response of version 10, 11 or 12 and returns an
// error, which wraps errProtocol, where it has not all that it claims. kmsg believes the
// length of an array as long as there is a byte for each element, of which a topic takes
// 26 and four times that when decoded: 32 MiB of lies would take 3 GB.
func checkMetadata(body []byte, version int16) error {
	w := wire{r: bytes.NewReader(body), left: len(body)}
	w.skip(4)                // throttle time
	for range w.arrayLen() { // brokers
		w.skip(4)            // node
		w.skip(w.arrayLen()) // host
		w.skip(4)            // port
		w.skip(w.arrayLen()) // rack
		w.fewTags()
		if w.err != nil {
			break
		}
	}
	w.skip(w.arrayLen())     // cluster
	w.skip(4)                // controller
	for range w.arrayLen() { // topics
		w.skip(2)                // error
		w.skip(w.arrayLen())     // name
		w.skip(16 + 1)           // id, whether it is internal
		for range w.arrayLen() { // partitions
			w.skip(2 + 4 + 4 + 4) // error, partition, leader, epoch
			for range 3 {         // replicas: all, in sync, off line
				w.skip(4 * w.arrayLen())
			}
			w.fewTags()
			if w.err != nil {
				break
			}
		}
		w.skip(4) // operations
		w.fewTags()
		if w.err != nil {
			break
		}
	}
	if version <= 10 {
		w.skip(4) // operations on the cluster
	}
	w.fewTags()
	if w.err != nil {
		return fmt.Errorf("read metadata: %w", w.err)
	}
	return nil
}

// skip passes over n bytes.
func (w *wire) skip(n int) {
	if w.err == nil && n > w.left {
		w.fail("%d bytes in %d", n, w.left)
	}
	for n > 0 && w.err == nil {
		m := min(n, len(w.scratch))
		w.read(w.scratch[:m])
		n -= m
	}
}

// fewTags skips the tagged fields of an element.
func (w *wire) fewTags() {
	n := w.uvarint()
	if n > maxTags {
		w.fail("%d tagged fields", n)
	}
	for range n {
		if w.err != nil {
			return
		}
		w.uvarint()
		size := w.uvarint()
		if size > uint64(w.left) {
			w.fail("a tagged field of %d bytes in %d", size, w.left)
			return
		}
		w.skip(int(size))
	}
}
