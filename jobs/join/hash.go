package join

// hash joins two sides in any order: it holds the right side by its keys and reads
// the left.
type hash struct {
	left, right *side
	out         *emitter
	table       table
}

func (h *hash) run() error {
	if err := h.table.hold(h.right); err != nil {
		return err
	}
	for {
		if err := h.left.next(); err != nil {
			return err
		}
		if h.left.done {
			return h.table.rest(h.out)
		}
		if err := h.table.probe(h.left, h.out); err != nil {
			return err
		}
	}
}
