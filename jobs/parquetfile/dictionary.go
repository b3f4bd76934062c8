package parquetfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/parquet-go/parquet-go/encoding"
)

// errPageTooLarge: Parquet counts the bytes of a page in 32 bits with a sign.
var errPageTooLarge = errors.New("a page of more than 2 GiB")

// dictionary is the distinct texts of a column chunk, numbered as they came, or the
// distinct decimals, which are texts of equal length.
type dictionary struct {
	width   int // of decimals; 0 = texts
	data    []byte
	offsets []uint32 // n+1 into data
	page    uint32   // the current one; pages are numbered from 1

	min, max int32 // of the current page; -1 = it is empty

	// slots are the numbers by text, in a table with open addressing; there are
	// twice as many as texts, or more, and a power of two.
	slots []slot
	seed  maphash.Seed
	mix   [2]uint64 // random, so that nobody chooses texts that share a slot

	// recent are texts of more than 16 bytes that came lately, by their last bytes: they
	// need no hash then. Who chooses texts that share a place gains the hash.
	recent [64]recentText
}

// recentText is a text of the current page.
type recentText struct {
	tail uint64 // its last bytes, as a little-endian number
	at   uint32 // where in data it begins
	n    uint32 // its length; 0 = none
	text int32  // its number
	page uint32
}

// word is a text of up to 16 bytes, as two little-endian numbers, and how many there are.
// Of a longer one lo is a hash.
type word struct {
	lo, hi uint64
	n      uint32
}

const shortText = 16

// shortWord returns the word of a text of up to 16 bytes.
func shortWord(b []byte) word {
	var all [shortText]byte
	copy(all[:], b)
	return word{binary.LittleEndian.Uint64(all[:]), binary.LittleEndian.Uint64(all[8:]), uint32(len(b))}
}

// place returns where in a table of mask+1 slots the word belongs.
func (d *dictionary) place(w word, mask uint64) uint64 {
	hi, lo := bits.Mul64(w.lo^d.mix[0], w.hi^d.mix[1])
	return (hi ^ lo) & mask
}

// slot is one place of the table.
type slot struct {
	word
	text int32  // its number and 1; 0 = none
	page uint32 // the last that has it
}

// newDictionary returns a dictionary of decimals of so many bytes, or with 0 of texts.
func newDictionary(width int) *dictionary {
	d := &dictionary{width: width, seed: maphash.MakeSeed(), mix: [2]uint64{rand.Uint64(), rand.Uint64()}, slots: make([]slot, 256)}
	d.reset()
	return d
}

// reset forgets the texts.
func (d *dictionary) reset() {
	d.data, d.offsets = d.data[:0], append(d.offsets[:0], 0)
	clear(d.slots)
	clear(d.recent[:])
	d.page = 0
	d.nextPage()
}

// nextPage begins a page.
func (d *dictionary) nextPage() {
	d.page++
	d.min, d.max = -1, -1
}

// len returns the number of texts.
func (d *dictionary) len() int { return len(d.offsets) - 1 }

// text returns a text by its number, valid until reset.
func (d *dictionary) text(i int32) []byte {
	a, b := d.offsets[i], d.offsets[i+1]
	return d.data[a:b:b]
}

// values returns the texts as parquet-go's encodings take them.
func (d *dictionary) values() encoding.Values {
	if d.width > 0 {
		return encoding.FixedLenByteArrayValues(d.data, d.width)
	}
	return encoding.ByteArrayValues(d.data, d.offsets)
}

// compare compares two texts, or two decimals.
func (d *dictionary) compare(a, b []byte) int {
	if d.width > 0 {
		return compareDecimals(a, b)
	}
	return bytes.Compare(a, b)
}

// wordBits are those of a word's numbers that a text of so many bytes has.
var wordBits = func() (masks [shortText + 1][2]uint64) {
	for n := range masks {
		masks[n] = [2]uint64{1<<(8*min(n, 8)) - 1, 1<<(8*max(n-8, 0)) - 1}
	}
	return masks
}()

// appendIndexes appends the numbers of the texts of data that end and begin at offsets, as
// index returns them. Texts that have come in a page before, which most have, are found
// without a call or a branch that depends on their lengths.
func (d *dictionary) appendIndexes(dst []int32, data []byte, offsets []int32) ([]int32, error) {
	if len(offsets) < 2 {
		return dst, nil
	}
	dst = slices.Grow(dst, len(offsets)-1)
	slots, start := d.slots, int(offsets[0])
	for _, end := range offsets[1:] {
		end := int(end)
		if n := uint(end - start); n <= shortText && start+shortText <= len(data) {
			b, m := data[start:start+shortText], &wordBits[n]
			w := word{binary.LittleEndian.Uint64(b) & m[0], binary.LittleEndian.Uint64(b[8:]) & m[1], uint32(n)}
			at := d.place(w, uint64(len(slots)-1))
			if s := &slots[at&uint64(len(slots)-1)]; s.lo == w.lo && s.hi == w.hi && s.n == w.n && s.page == d.page {
				dst = append(dst, s.text-1)
				start = end
				continue
			}
		}
		i, err := d.index(data[start:end])
		if err != nil {
			return dst, err
		}
		dst = append(dst, i)
		slots, start = d.slots, end
	}
	return dst, nil
}

// index returns the number of a text of the current page, which becomes one of the
// dictionary's.
func (d *dictionary) index(b []byte) (int32, error) {
	if len(b) <= shortText {
		return d.find(shortWord(b), b)
	}
	tail := binary.LittleEndian.Uint64(b[len(b)-8:])
	r := &d.recent[(tail^uint64(len(b)))*0x9E3779B97F4A7C15>>58]
	if r.tail == tail && int(r.n) == len(b) && r.page == d.page && bytes.Equal(b, d.data[r.at:r.at+r.n]) {
		return r.text, nil
	}
	i, err := d.find(word{lo: maphash.Bytes(d.seed, b), n: uint32(len(b))}, b)
	if err == nil {
		*r = recentText{tail, d.offsets[i], uint32(len(b)), i, d.page}
	}
	return i, err
}

// find is index of a text with this word.
func (d *dictionary) find(w word, b []byte) (int32, error) {
	mask := uint64(len(d.slots) - 1)
	for at := d.place(w, mask); ; at = (at + 1) & mask {
		s := &d.slots[at]
		if s.text == 0 {
			return d.insert(s, w, b)
		}
		if i := s.text - 1; s.word == w && (w.n <= shortText || bytes.Equal(b, d.text(i))) {
			if s.page != d.page {
				s.page = d.page
				d.first(i)
			}
			return i, nil
		}
	}
}

// insert adds a text that is not there, at its slot.
func (d *dictionary) insert(s *slot, w word, b []byte) (int32, error) {
	if len(b) > math.MaxInt32-len(d.data) {
		return 0, errPageTooLarge
	}
	i := int32(d.len())
	d.data = append(d.data, b...)
	d.offsets = append(d.offsets, uint32(len(d.data)))
	d.first(i)
	*s = slot{w, i + 1, d.page}
	if 2*d.len() > len(d.slots) {
		d.grow()
	}
	return i, nil
}

// grow doubles the table.
func (d *dictionary) grow() {
	old := d.slots
	d.slots = make([]slot, 2*len(old))
	mask := uint64(len(d.slots) - 1)
	for _, s := range old {
		if s.text == 0 {
			continue
		}
		at := d.place(s.word, mask)
		for d.slots[at].text != 0 {
			at = (at + 1) & mask
		}
		d.slots[at] = s
	}
}

// first takes note of a text that the current page did not have yet.
func (d *dictionary) first(i int32) {
	if d.min < 0 {
		d.min, d.max = i, i
		return
	}
	switch b := d.text(i); {
	case d.compare(b, d.text(d.min)) < 0:
		d.min = i
	case d.compare(b, d.text(d.max)) > 0:
		d.max = i
	}
}
