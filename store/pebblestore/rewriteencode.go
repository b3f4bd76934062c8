package pebblestore

import (
	"bytes"
	"slices"

	"sluice/cell"
)

// groupKey is what puts of one key-value have in common.
type groupKey struct {
	time   cell.Timestamp
	ttl    int64
	origin int // of its cells; folded = of several
}

const folded = -2

// group is the puts of one key-value that is to be written, in order of their
// qualifiers.
type group struct {
	puts []*entry
	size int
}

// encode makes r.out the key-values of cells, in key order. Puts that came from
// one key-value stay together; with fold all puts of one time and TTL do, up to
// the size of a packed value.
func (r *rowRewriter) encode(cells []entry, fold bool) {
	prefix := r.prefix()
	r.out = r.out[:0]
	r.outBuf.reset()
	groups := r.gather(cells, fold)
	for i := range cells {
		if e := &cells[i]; e.kind != cell.KindPut {
			r.out = append(r.out, r.origin[e.origin])
		}
	}
	for i := range groups {
		r.out = append(r.out, r.pack(prefix, groups[i].puts))
	}
	r.sortOut()
	if !r.outCollides() {
		return
	}
	// Cells of one commit were in several fragments, and are left as the newest of two of
	// them. Singly each has a key of its own.
	r.encodeSingly(cells, func(e *entry) bool { return e.kind != cell.KindPut })
	r.sortOut()
}

func (r *rowRewriter) sortOut() {
	slices.SortFunc(r.out, func(a, b storedKV) int { return bytes.Compare(a.key, b.key) })
}

// outCollides reports whether two key-values of out, in order, have one key.
func (r *rowRewriter) outCollides() bool {
	for i := 1; i < len(r.out); i++ {
		if bytes.Equal(r.out[i-1].key, r.out[i].key) {
			return true
		}
	}
	return false
}

// encodeSingly makes r.out the key-values of cells, a key each: that which it came from
// where stays says so.
func (r *rowRewriter) encodeSingly(cells []entry, stays func(e *entry) bool) {
	prefix := r.prefix()
	r.out = r.out[:0]
	for i := range cells {
		if e := &cells[i]; stays(e) {
			r.out = append(r.out, r.origin[e.origin])
		} else {
			r.out = append(r.out, single(prefix, e))
		}
	}
}

// single returns the key-value of a put by itself.
func single(prefix []byte, e *entry) storedKV {
	key := cell.AppendVersion(cell.AppendPart(bytes.Clone(prefix), e.qualifier), e.time, e.kind, e.sequence)
	return storedKV{key: key, value: cell.AppendValue(nil, e.ttl, e.value)}
}

// gather divides the puts of cells among groups.
func (r *rowRewriter) gather(cells []entry, fold bool) []group {
	if r.groupOf == nil {
		r.groupOf = map[groupKey]int{}
	}
	clear(r.groupOf)
	groups := r.groups[:0]
	var last groupKey
	at := -1
	find := func(k groupKey) *group {
		if at >= 0 && k == last {
			return &groups[at]
		}
		i, ok := r.groupOf[k]
		if !ok {
			i = len(groups)
			if i < cap(groups) {
				groups = groups[:i+1]
				groups[i].puts, groups[i].size = groups[i].puts[:0], 0
			} else {
				groups = append(groups, group{})
			}
			r.groupOf[k] = i
		}
		last, at = k, i
		return &groups[i]
	}
	for i := range cells {
		e := &cells[i]
		if e.kind != cell.KindPut {
			continue
		}
		k := groupKey{e.time, e.ttl, e.origin}
		if fold {
			k.origin = folded
			g := find(k)
			g.size += len(e.qualifier) + len(e.value)
			// A packed value holds a column once; an older write of the same
			// coordinates goes with the key-value that it came from.
			if n := len(g.puts); n == 0 || !bytes.Equal(g.puts[n-1].qualifier, e.qualifier) {
				g.puts = append(g.puts, e)
				continue
			}
			k.origin = e.origin
		}
		g := find(k)
		g.puts = append(g.puts, e)
	}
	if fold {
		groups = r.unfold(groups)
	}
	r.groups = groups
	return groups
}

// unfold gives the puts of groups that are too large for a packed value back to
// the key-values that they came from, beside older writes that are there still.
func (r *rowRewriter) unfold(groups []group) []group {
	n := len(groups)
	split := false
	for i := range n {
		if groups[i].size <= maxPackedBytes {
			continue
		}
		split = true
		for _, e := range groups[i].puts {
			k := groupKey{e.time, e.ttl, e.origin}
			at, ok := r.groupOf[k]
			if !ok {
				at = len(groups)
				r.groupOf[k] = at
				groups = append(groups, group{})
			}
			groups[at].puts = append(groups[at].puts, e)
		}
		groups[i].puts = groups[i].puts[:0]
	}
	if !split {
		return groups
	}
	for i := range groups {
		slices.SortFunc(groups[i].puts, func(a, b *entry) int { return bytes.Compare(a.qualifier, b.qualifier) })
	}
	return slices.DeleteFunc(groups, func(g group) bool { return len(g.puts) == 0 })
}

// pack returns the key-value of puts of one time and TTL, in order of their
// qualifiers. Its sequence is the highest of theirs, by which hardly two collide (see
// encode).
func (r *rowRewriter) pack(prefix []byte, puts []*entry) storedKV {
	first := puts[0]
	a := &r.outBuf
	if len(puts) == 1 {
		if o := r.origin[first.origin]; o.kind() == cell.KindPut {
			return o
		}
		return single(prefix, first)
	}
	highest, same, size := first.sequence, true, 1+8
	for _, e := range puts {
		highest, same = max(highest, e.sequence), same && e.sequence == first.sequence
		size += len(e.qualifier) + len(e.value) + 2*5 + 8
	}
	value := cell.AppendPackedHeader(a.room(size), first.ttl, !same)
	for _, e := range puts {
		value = cell.AppendPackedColumn(value, e.qualifier, e.value)
		if !same {
			value = cell.AppendPackedSequence(value, e.sequence)
		}
	}
	a.take(len(value))
	key := append(append(a.room(len(prefix)+2+versionBytes), prefix...), 0, 1)
	key = cell.AppendVersion(key, first.time, cell.KindPacked, highest)
	a.take(len(key))
	return storedKV{key: key, value: value}
}
