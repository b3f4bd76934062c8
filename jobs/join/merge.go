package join

import (
	"bytes"
	"fmt"
)

// merge joins two sides that are sorted by the key.
type merge struct {
	j           *Join
	left, right *side
	out         *emitter
	group       held   // the right side's rows of one key
	key         []byte // that key
}

func (m *merge) run() error {
	m.group = held{columns: m.j.right, limit: m.j.spec.MemoryBytes}
	if err := m.left.next(); err != nil {
		return err
	}
	if err := m.right.next(); err != nil {
		return err
	}
	for !m.left.done || !m.right.done {
		var err error
		switch c := m.compare(); {
		case c < 0:
			err = m.alone(m.left)
		case c > 0:
			err = m.alone(m.right)
		default:
			err = m.pair()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// compare says whose row is next: negative the left side's, positive the right's, 0
// that they are partners. A null key is nobody's partner.
func (m *merge) compare() int {
	switch {
	case m.right.done || (!m.left.done && m.left.null):
		return -1
	case m.left.done || m.right.null:
		return 1
	}
	return bytes.Compare(m.left.key, m.right.key)
}

// alone deals with a row without a partner and moves on.
func (m *merge) alone(s *side) error {
	r := ref{s.batch, s.row}
	keepLeft, keepRight := m.j.keeps()
	var err error
	switch {
	case s == m.left && (keepLeft || m.j.spec.Kind == Anti):
		err = m.out.emit(r, ref{})
	case s == m.right && keepRight:
		err = m.out.emit(ref{}, r)
	}
	if err != nil {
		return err
	}
	return s.next()
}

// pair pairs all rows of both sides that have the key of the current ones. Between
// them there may be rows with a null in the key.
func (m *merge) pair() error {
	m.key = append(m.key[:0], m.left.key...)
	m.group.reset()
	full := func() string {
		return fmt.Sprintf("the right side's rows with key %s take", describe(m.j.keys, m.key))
	}
	err := m.same(m.right, func(r ref) error {
		if m.j.leftOnly() {
			return nil
		}
		return m.group.add(r, full)
	})
	if err != nil {
		return err
	}
	return m.same(m.left, func(l ref) error {
		if m.j.spec.Kind == Semi {
			return m.out.emit(l, ref{})
		}
		for i := range m.group.rows {
			if err := m.out.emit(l, m.group.row(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// same calls do with the rows of s that have the current key.
func (m *merge) same(s *side, do func(ref) error) error {
	for !s.done {
		var err error
		switch {
		case s.null:
			err = m.alone(s)
		case bytes.Equal(s.key, m.key):
			if err = do(ref{s.batch, s.row}); err == nil {
				err = s.next()
			}
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
