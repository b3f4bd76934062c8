package decode

// Elements reads the elements of the arrays that a Decoder has found, for rules
// that make something of each. Like a Decoder it belongs to one goroutine, and the
// bytes that it hands out are slices of the array where they can be.
type Elements struct {
	d     jsonDecoder
	whole int // index of the element itself in doc
}

// NewElements returns a reader that picks f out of elements which are objects or
// arrays.
func NewElements(f *Fields) *Elements {
	root := *f.root
	root.field = f.Len()
	e := &Elements{whole: f.Len()}
	e.d.format, e.d.root = formatJSON, &root
	e.d.doc.values = make([]Value, f.Len()+1)
	return e
}

// Reset lets go of what was handed out: its memory is used again, unless it is large.
func (e *Elements) Reset() {
	e.d.scratch, e.d.b, e.d.made = kept(e.d.scratch), nil, 0
	e.d.doc.clear()
}

// Made returns how many bytes of texts were made since Reset, of escapes: as often as Each
// was called for an array that has some.
func (e *Elements) Made() int { return e.d.made }

// Unmade says that nobody uses what was made since Made returned n.
func (e *Elements) Unmade(n int) { e.d.made = n }

// Each calls emit for every element of array, the Bytes of a Value that is an
// Array, in order: the element, and its fields by the index in the Fields given to
// NewElements. Both are valid until emit returns, their bytes until Reset. It stops
// at emit's error and returns it unchanged; an *Error says where array is not the
// text of one.
func (e *Elements) Each(array []byte, emit func(element Value, fields *Document) error) error {
	d := &e.d
	d.b, d.from, d.err = array, 0, nil
	i := d.space(0)
	if i >= len(array) || array[i] != '[' {
		d.unexpected(i, "an array")
		return d.err
	}
	if i = d.space(i + 1); i < len(array) && array[i] == ']' {
		return e.end(i + 1)
	}
	for {
		d.doc.clear()
		if i = d.value(i, d.root, 1); i < 0 {
			return d.err
		}
		// emit may read arrays inside of this one, but never through e.
		if err := emit(d.doc.values[e.whole], &d.doc); err != nil {
			return err
		}
		i = d.space(i)
		switch {
		case i < len(array) && array[i] == ',':
			i = d.space(i + 1)
		case i < len(array) && array[i] == ']':
			return e.end(i + 1)
		default:
			d.unexpected(i, "a comma or ]")
			return d.err
		}
	}
}

// end fails where something follows the array.
func (e *Elements) end(i int) error {
	if i = e.d.space(i); i < len(e.d.b) {
		e.d.unexpected(i, "the end of the array")
		return e.d.err
	}
	return nil
}
