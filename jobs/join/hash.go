package join

import (
	"errors"
	"fmt"

	"sluice/jobs/spill"
)

// hash joins two sides in any order: it holds the right side by its keys and reads
// the left. Where the right side does not fit memory, both are written to a file, in
// parts by a hash of their keys, and one part after the other is joined like that
// (the GRACE hash join: Kitsuregawa, Tanaka, Moto-oka 1983).
type hash struct {
	j           *Join
	left, right *side
	out         *emitter
	disk        *spill.Disk
	level       int                  // how often the sides were parted before
	told        func(joined float64) // as of RunTold
}

// maxLevel bounds how often a part is parted again. Only rows whose keys share
// eight hashes, or one key, stay together so long: 32⁸ parts hold any disk.
const maxLevel = 8

func (h *hash) run() error {
	t := newTable(h.j)
	switch err := t.hold(h.right, h.out); {
	case err == nil:
	case !errors.Is(err, ErrMemory) || len(t.chains) < 2 || h.level == maxLevel:
		return err
	case h.disk.Dir == "":
		return fmt.Errorf("%w; set spill_dir", err)
	default:
		return h.part(&t)
	}
	for {
		if err := h.left.next(); err != nil {
			return err
		}
		if h.left.done {
			return t.rest(h.out)
		}
		if err := t.probe(h.left, h.out); err != nil {
			return err
		}
	}
}

// part joins by parts. t has the first rows of the right side, and is emptied.
func (h *hash) part(t *table) (err error) {
	f, err := h.disk.Create()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	tell := func(joined float64) {
		if h.told != nil {
			h.told(joined)
		}
	}
	tell(0)
	right, err := h.partRight(f, t)
	if err != nil {
		return err
	}
	left, err := h.partLeft(f, right)
	if err != nil {
		return err
	}
	_, keepRight := h.j.keeps()
	size := func(i int) float64 { return float64(right.size(i) + left.size(i)) }
	done, all := 0.0, 0.0
	for i := range fanOut {
		all += size(i)
	}
	for i := range fanOut {
		if right.rows[i] > 0 && (left.rows[i] > 0 || keepRight) {
			sub := &hash{j: h.j, out: h.out, disk: h.disk, level: h.level + 1}
			sub.told = func(joined float64) { tell((done + joined*size(i)) / all) }
			sub.left = h.partSide(h.left, left, i)
			sub.right = h.partSide(h.right, right, i)
			if err := sub.run(); err != nil {
				return err
			}
		}
		if done += size(i); done < all {
			tell(done / all)
		}
	}
	tell(1)
	return nil
}

// partSide is s of one part.
func (h *hash) partSide(s *side, p *parts, i int) *side {
	in := p.input(i)
	return &side{ctx: s.ctx, name: s.name, in: in, keys: s.keys, right: s.right, part: in}
}

// partRight writes the right side: what t holds, and the rest.
func (h *hash) partRight(f *spill.File, t *table) (*parts, error) {
	p := newParts(f, t.rows.columns, h.level, h.j.spec.MemoryBytes)
	if h.j.leftOnly() {
		for key := range t.chains {
			if err := p.add([]byte(key), ref{}); err != nil {
				return nil, err
			}
		}
	} else {
		held := &side{keys: h.right.keys, right: true}
		for i := range t.rows.rows {
			r := t.rows.row(i)
			held.batch, held.row = r.batch, r.row
			held.key, _ = held.appendKey(held.key[:0]) // none is null
			if err := p.add(held.key, r); err != nil {
				return nil, err
			}
		}
	}
	*t = table{}
	_, keepRight := h.j.keeps()
	for {
		if err := h.right.next(); err != nil {
			return nil, err
		}
		r := ref{h.right.batch, h.right.row}
		var err error
		switch {
		case h.right.done:
			return p, p.flushAll()
		case !h.right.null:
			err = p.add(h.right.key, r)
		case keepRight:
			err = h.out.emit(ref{}, r)
		}
		if err != nil {
			return nil, err
		}
	}
}

// partLeft writes those rows of the left side that may have a partner.
func (h *hash) partLeft(f *spill.File, right *parts) (*parts, error) {
	p := newParts(f, h.j.left, h.level, h.j.spec.MemoryBytes)
	keepLeft, _ := h.j.keeps()
	for {
		if err := h.left.next(); err != nil {
			return nil, err
		}
		l := ref{h.left.batch, h.left.row}
		var err error
		switch {
		case h.left.done:
			return p, p.flushAll()
		case !h.left.null && right.rows[p.of(h.left.key)] > 0:
			err = p.add(h.left.key, l)
		case keepLeft || h.j.spec.Kind == Anti:
			err = h.out.emit(l, ref{})
		}
		if err != nil {
			return nil, err
		}
	}
}
