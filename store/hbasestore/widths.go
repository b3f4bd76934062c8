package hbasestore

import (
	"encoding/binary"
	"strings"
	"sync"

	"sluice/store/hbasestore/internal/hbase"
)

// widths remembers how large the rows of scans were, so that the next scan of the same
// columns can begin with more than one. The zero value remembers nothing.
type widths struct {
	mu      sync.Mutex     // guards what follows
	largest map[string]int // bytes, by shape
}

// maxShapes bounds what is remembered, a few 100 bytes each.
const maxShapes = 1000

// shape names the columns and versions of a scan. A filter and a range of times are
// not in it: what they let pass is no larger.
func shape(table string, t *hbase.TScan) string {
	var b strings.Builder
	part := func(p []byte) {
		b.Write(binary.AppendUvarint(nil, uint64(len(p))))
		b.Write(p)
	}
	part([]byte(table))
	b.Write(binary.AppendUvarint(nil, uint64(t.MaxVersions)))
	for _, c := range t.Columns {
		part(c.Family)
		if c.Qualifier != nil {
			b.WriteByte(1)
			part(c.Qualifier)
		} else {
			b.WriteByte(0)
		}
	}
	return b.String()
}

// note remembers that the largest row of a scan had so many bytes.
func (w *widths) note(shape string, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, known := w.largest[shape]
	if known && before >= bytes {
		return
	}
	if w.largest == nil || !known && len(w.largest) >= maxShapes {
		w.largest = map[string]int{}
	}
	w.largest[shape] = bytes
}

// rows is how many rows a scan may begin with, firstPageRows at most, where one has been
// before (ok).
func (w *widths) rows(shape string, pageBytes int) (n int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	largest, ok := w.largest[shape]
	return min(max(maxLargestPages*pageBytes/max(largest, 1), 1), firstPageRows), ok
}
