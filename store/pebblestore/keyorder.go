package pebblestore

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// keyOrder finds the order of many keys: by the first eight bytes that not all share,
// a byte at a time (an LSD radix sort, which costs two fifths of comparing), and what
// is equal there by those that follow, many keys in the same way and few by comparing.
// It is kept for its memory and belongs to one goroutine at a time.
type keyOrder struct {
	items, spare []ordered
	counts       [8][256]uint32 // of each byte of a head
	shared       int            // bytes that the keys of the last call share
}

// headBytes are what ordered has of a key.
const headBytes = 16

// ordered is one key.
type ordered struct {
	head, next uint64 // the first sixteen bytes that not all share
	at         uint32 // its index
}

// minRadix is how many keys are worth a radix sort, which clears and walks its
// counts for any number of them.
const minRadix = 500

// of returns the indexes of n keys in their order; equal keys stay in the order of
// their indexes. The result is valid until the next call.
func (o *keyOrder) of(n int, key func(i int) []byte) []ordered {
	if cap(o.items) < n {
		o.items, o.spare = make([]ordered, n), make([]ordered, n)
	}
	items := o.items[:n]
	for i := range items {
		items[i].at = uint32(i)
	}
	shared := sharedPrefix(items, key)
	o.shared = shared
	o.sort(items, shared, key)
	return items
}

// sort sorts items, which are in the order of their indexes and share so many bytes.
func (o *keyOrder) sort(items []ordered, shared int, key func(i int) []byte) {
	for i := range items {
		x := &items[i]
		x.head, x.next = keyHead(key(int(x.at))[shared:])
	}
	compare := func(x, y ordered) int {
		switch {
		case x.head != y.head:
			return sign(x.head < y.head)
		case x.next != y.next:
			return sign(x.next < y.next)
		}
		if d := bytes.Compare(key(int(x.at))[shared:], key(int(y.at))[shared:]); d != 0 {
			return d
		}
		return sign(x.at < y.at)
	}
	if len(items) < minRadix {
		slices.SortFunc(items, compare)
		return
	}
	o.radix(items)
	for i := 0; i < len(items); {
		j := i + 1
		for j < len(items) && items[j].head == items[i].head {
			j++
		}
		switch group := items[i:j]; {
		case len(group) < 2:
		case len(group) < minRadix, len(group) == len(items): // equal keys, or such as end in zeros
			slices.SortFunc(group, compare)
		default:
			o.sort(group, sharedPrefix(group, key), key)
			for k := range group { // which were those of bytes further behind
				group[k].head, group[k].next = keyHead(key(int(group[k].at))[shared:])
			}
		}
		i = j
	}
}

// radix sorts items by head.
func (o *keyOrder) radix(items []ordered) {
	clear(o.counts[:])
	for i := range items {
		head := items[i].head
		for b := range o.counts {
			o.counts[b][byte(head>>(8*b))]++
		}
	}
	from, to := items, o.spare[:len(items)]
	for b := range o.counts {
		counts, shift := &o.counts[b], 8*b
		if counts[byte(from[0].head>>shift)] == uint32(len(from)) {
			continue // all have the same
		}
		start := uint32(0)
		for v := range counts {
			counts[v], start = start, start+counts[v]
		}
		for i := range from {
			n := &counts[byte(from[i].head>>shift)]
			to[*n] = from[i]
			*n++
		}
		from, to = to, from
	}
	if len(items) > 0 && &from[0] != &items[0] {
		copy(items, from)
	}
}

// sharedPrefix returns how many bytes the keys of items have in common at their
// beginning: the table and the family, and often much of the row. What comes behind
// tells keys apart sooner.
func sharedPrefix(items []ordered, key func(i int) []byte) int {
	if len(items) == 0 {
		return 0
	}
	shared := key(int(items[0].at))
	for i := range items[1:] {
		k := key(int(items[i+1].at))
		if bytes.HasPrefix(k, shared) {
			continue
		}
		at := 0
		for at < len(k) && k[at] == shared[at] {
			at++
		}
		shared = shared[:at]
	}
	return len(shared)
}

// keyHead returns the first sixteen bytes of a key, as if it went on with zeros.
func keyHead(key []byte) (head, next uint64) {
	if len(key) >= headBytes {
		return binary.BigEndian.Uint64(key), binary.BigEndian.Uint64(key[8:])
	}
	var b [headBytes]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])
}
