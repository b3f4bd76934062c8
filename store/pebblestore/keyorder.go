package pebblestore

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// keyOrder finds the order of many keys from their heads: by eight bytes at a time, a
// byte of them after the other (an LSD radix sort, which costs two fifths of comparing),
// and few keys that are equal there by comparing. Keys themselves are read where their
// heads are equal. It is kept for its memory and belongs to one goroutine at a time.
type keyOrder struct {
	heads []keyHead // of the keys of the last call of of
	items [2][]ordered
	// counts are of each byte of a word.
	counts [wordBytes][256]uint32
	// tail is how many bytes at the end of each key its head leaves out. The order of keys
	// without them must be the order of keys, but for those that have nothing else.
	tail int
}

const (
	// headWords are what is kept of each key,
	headWords = 3
	// wordBytes the bytes of each of them.
	wordBytes = 8
)

// keyHead is 24 bytes of a key as big-endian numbers, as if the key went on with zeros.
// To read it costs much less than the key, which lies somewhere in megabytes.
type keyHead [headWords]uint64

// ordered is a key that is being sorted.
type ordered struct {
	word uint64 // of its head
	at   uint32 // its index
}

// minRadix is how many keys are worth a radix sort, which clears and walks its
// counts for any number of them.
const minRadix = 500

// of returns the indexes of n keys in their order; equal keys stay in the order of
// their indexes. The result is valid until the next call.
func (o *keyOrder) of(n int, key func(i int) []byte) []ordered {
	items := o.all(n)
	shared := sharedPrefix(items, key)
	o.heads = slices.Grow(o.heads[:0], n)[:n]
	o.read(o.heads, items, shared, key)
	o.sort(items, o.heads, shared, key)
	return items
}

// sorted is of keys that share the first from bytes and have these heads, which are of
// the bytes behind them.
func (o *keyOrder) sorted(heads []keyHead, from int, key func(i int) []byte) []ordered {
	items := o.all(len(heads))
	o.sort(items, heads, from, key)
	return items
}

// all returns n items in the order of their indexes.
func (o *keyOrder) all(n int) []ordered {
	for i := range o.items {
		o.items[i] = slices.Grow(o.items[i][:0], n)[:n]
	}
	items := o.items[0]
	for i := range items {
		items[i].at = uint32(i)
	}
	return items
}

// read sets the heads of items to the bytes from from on.
func (o *keyOrder) read(heads []keyHead, items []ordered, from int, key func(i int) []byte) {
	for _, x := range items {
		k := key(int(x.at))
		heads[x.at].set(k[:len(k)-o.tail], from)
	}
}

// sort sorts items, which are in the order of their indexes, by their heads, which are of
// the bytes from from on, and by their keys, which are the same before.
func (o *keyOrder) sort(items []ordered, heads []keyHead, from int, key func(i int) []byte) {
	o.sortByWord(items, 0, heads, from, key)
}

// sortByWord is sort of items whose heads are the same before a word.
func (o *keyOrder) sortByWord(items []ordered, word int, heads []keyHead, from int, key func(i int) []byte) {
	compare := func(x, y ordered) int {
		if x.word != y.word {
			return sign(x.word < y.word)
		}
		if d := heads[x.at].compare(&heads[y.at]); d != 0 {
			return d
		}
		if d := bytes.Compare(key(int(x.at))[from:], key(int(y.at))[from:]); d != 0 {
			return d
		}
		return sign(x.at < y.at)
	}
	for i := range items {
		items[i].word = heads[items[i].at][word]
	}
	if len(items) < minRadix {
		slices.SortFunc(items, compare)
		return
	}
	o.radix(items)
	for i := 0; i < len(items); {
		j := i + 1
		for j < len(items) && items[j].word == items[i].word {
			j++
		}
		switch group := items[i:j]; {
		case len(group) < 2:
		case len(group) < minRadix:
			slices.SortFunc(group, compare)
		case word+1 < headWords:
			o.sortByWord(group, word+1, heads, from, key)
		default:
			shared := sharedPrefix(group, key)
			if shared < from+headWords*wordBytes { // equal keys, or such as end in zeros
				slices.SortFunc(group, compare)
				break
			}
			o.read(heads, group, shared, key)
			o.sort(group, heads, shared, key)
			o.read(heads, group, from, key)
		}
		i = j
	}
}

// radix sorts items by their words.
func (o *keyOrder) radix(items []ordered) {
	clear(o.counts[:])
	for i := range items {
		word := items[i].word
		for b := range o.counts {
			o.counts[b][byte(word>>(8*b))]++
		}
	}
	from, to := items, o.items[1][:len(items)]
	for b := range o.counts {
		counts, shift := &o.counts[b], 8*b
		if counts[byte(from[0].word>>shift)] == uint32(len(from)) {
			continue // all have the same
		}
		start := uint32(0)
		for v := range counts {
			counts[v], start = start, start+counts[v]
		}
		for i := range from {
			n := &counts[byte(from[i].word>>shift)]
			to[*n] = from[i]
			*n++
		}
		from, to = to, from
	}
	if &from[0] != &items[0] {
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

// set makes h the head of key from from on, which may be behind its end.
func (h *keyHead) set(key []byte, from int) {
	for i := range h {
		switch rest := len(key) - from; {
		case rest >= wordBytes:
			h[i] = binary.BigEndian.Uint64(key[from:])
		case rest <= 0:
			h[i] = 0
		case len(key) >= wordBytes: // the last bytes, without those before
			h[i] = binary.BigEndian.Uint64(key[len(key)-wordBytes:]) << (8 * (wordBytes - rest))
		default:
			var b [wordBytes]byte
			copy(b[:], key[from:])
			h[i] = binary.BigEndian.Uint64(b[:])
		}
		from += wordBytes
	}
}

// compare returns < 0, 0 or > 0 where h is before other, is the same or behind it.
func (h *keyHead) compare(other *keyHead) int {
	for i := range h {
		if h[i] != other[i] {
			return sign(h[i] < other[i])
		}
	}
	return 0
}
