package store

import (
	"bytes"
	"fmt"
	"slices"

	"sluice/cell"
)

// Selection is a validated scan of one table: what each family must deliver, and
// what happens to cells after an engine has resolved their versions (filter,
// requested versions, per-family limits, row limit, batch). Engines make one from
// every Scan; NewScanner applies its second half. A Selection belongs to one scan
// and one goroutine. It keeps nothing of the Scan but its Filter, which is
// immutable.
type Selection struct {
	families []SelectedFamily
	rows     cell.Range
	empty    bool
	reversed bool
	raw      bool

	filter          FilterState // nil = none
	hints           hinter      // of filter; nil = it must be shown every row
	whole           bool        // what is read of a row that the filter has not skipped is returned
	limit           int
	batch           int
	maxBytes        int
	limitPerFamily  int
	offsetPerFamily int
	pageRows        int
	place           *place // nil = nobody asks for cursors
	packed          bool   // rows may be given as they are stored
	stopped         bool
}

// SelectedFamily is what one family delivers to a scan.
type SelectedFamily struct {
	Family     *FamilyDescriptor
	Index      int      // in TableDescriptor.Families
	Qualifiers [][]byte // sorted, unique; nil = all
	// Ranges are the qualifiers that the filter can pass, where Qualifiers is
	// nil: sorted, disjoint; nil = all. An engine offers no others, so that it
	// can seek from range to range.
	Ranges []cell.Range
	// Oldest is the smallest timestamp that the filter can pass. An engine need
	// not offer older cells, but must not offer more versions in their place.
	Oldest cell.Timestamp
	Time   *cell.TimeRange
	// Versions is how many versions of a column the engine offers: with a
	// filter, but for one of ranges of rows, all that the family keeps (not with
	// NEW_VERSION_BEHAVIOR), else
	// the fewer of those and the requested; in a raw scan the requested.
	Versions int
	// Requested is how many of them the scan returns, once filtered.
	Requested int
}

// NewSelection checks s against the schema of its table. Its error wraps
// ErrInvalidArgument, ErrFamilyNotFound, ErrIncompatibleFilter (a filter that
// judges whole rows, with Scan.Batch) or ErrRefused (a qualifier in a raw scan).
func NewSelection(s *Scan, t *TableDescriptor) (*Selection, error) {
	sel := &Selection{
		reversed: s.Reversed, raw: s.Raw,
		limit: s.Limit, batch: s.Batch, maxBytes: s.MaxResultBytes,
		limitPerFamily: s.LimitPerFamily, offsetPerFamily: s.OffsetPerFamily, pageRows: s.PageRows,
	}
	if err := checkScan(s, t); err != nil {
		return nil, fmt.Errorf("scan %s: %w", t.Name, err)
	}
	if err := sel.selectFamilies(s, t); err != nil {
		return nil, fmt.Errorf("scan %s: %w", t.Name, err)
	}
	if s.NeedCursor || s.Cursor != "" || s.PageRows > 0 {
		var err error
		if sel.place, err = newPlace(s); err != nil {
			return nil, fmt.Errorf("scan %s: %w", t.Name, err)
		}
	}
	sel.selectRows(s)
	if s.Filter != nil {
		f, err := s.Filter.Start(s)
		if err != nil {
			return nil, fmt.Errorf("scan %s: %w", t.Name, err)
		}
		switch {
		case s.Batch > 0 && f.WholeRow():
			return nil, fmt.Errorf("scan %s: %w: it judges whole rows, the scan cuts them into batches of %d cells", t.Name, ErrIncompatibleFilter, s.Batch)
		case s.MaxResultBytes > 0 && f.WholeRow():
			return nil, fmt.Errorf("scan %s: %w: it judges whole rows, the scan cuts them into results of %d bytes", t.Name, ErrIncompatibleFilter, s.MaxResultBytes)
		}
		sel.filter = f
		if sel.place != nil {
			if err := sel.place.restore(f); err != nil {
				return nil, fmt.Errorf("scan %s: %w", t.Name, err)
			}
			sel.place.keep(f)
		}
		if scopeOf(f) >= scopeRow {
			sel.hints = f.(hinter)
			sel.applyHints()
		}
		if _, ranges := f.(*rowRangesFilter); ranges && !sel.raw {
			for i := range sel.families { // it lets every version of its rows pass
				sel.families[i].Versions = sel.families[i].Requested
			}
			sel.whole = sel.limitPerFamily == 0 && sel.offsetPerFamily == 0
		}
	}
	sel.packed = len(sel.families) == 1 && sel.families[0].Qualifiers == nil && !s.Raw && (s.Filter == nil || sel.whole) && sel.place == nil &&
		!sel.empty && s.Batch == 0 && s.MaxResultBytes == 0 && s.LimitPerFamily == 0 && s.OffsetPerFamily == 0
	return sel, nil
}

// applyHints leaves out of the families what the filter cannot pass.
func (sel *Selection) applyHints() {
	if sel.raw {
		return // a family's markers lie in the empty qualifier
	}
	sel.families = slices.DeleteFunc(sel.families, func(sf SelectedFamily) bool {
		h := sel.hints.columns(sf.Family.Name)
		return h.qualifiers != nil && len(h.qualifiers) == 0
	})
	for i := range sel.families {
		sf := &sel.families[i]
		h := sel.hints.columns(sf.Family.Name)
		sf.Oldest = h.oldest
		if h.qualifiers == nil {
			continue
		}
		if sf.Qualifiers == nil {
			sf.Ranges = h.qualifiers
			continue
		}
		sf.Qualifiers = slices.DeleteFunc(sf.Qualifiers, func(q []byte) bool {
			_, in := findRange(h.qualifiers, q)
			return !in
		})
	}
	sel.empty = sel.empty || len(sel.families) == 0
}

// Wants reports whether the scan reads the column.
func (sf *SelectedFamily) Wants(qualifier []byte) bool {
	if sf.Qualifiers != nil {
		_, found := slices.BinarySearchFunc(sf.Qualifiers, qualifier, bytes.Compare)
		return found
	}
	if sf.Ranges != nil {
		_, in := findRange(sf.Ranges, qualifier)
		return in
	}
	return true
}

func checkScan(s *Scan, t *TableDescriptor) error {
	for _, v := range [...]struct {
		name string
		n    int
	}{{"versions", s.Versions}, {"limit", s.Limit}, {"batch", s.Batch}, {"max result bytes", s.MaxResultBytes}, {"page rows", s.PageRows}, {"limit per family", s.LimitPerFamily}, {"offset per family", s.OffsetPerFamily}} {
		if v.n < 0 {
			return fmt.Errorf("%w: %s is %d", ErrInvalidArgument, v.name, v.n)
		}
	}
	for _, v := range [...]struct {
		name string
		row  []byte
	}{{"start", s.Start}, {"stop", s.Stop}, {"prefix", s.Prefix}} {
		if len(v.row) > cell.MaxRowLength {
			return fmt.Errorf("%w: %s row of %d bytes, at most %d", ErrInvalidArgument, v.name, len(v.row), cell.MaxRowLength)
		}
	}
	if err := checkTimeRange(s.Time); err != nil {
		return err
	}
	for name, r := range s.FamilyTime {
		if t.Family(name) == nil {
			return fmt.Errorf("%w: %s, named by a time range", ErrFamilyNotFound, name)
		}
		if err := checkTimeRange(&r); err != nil {
			return err
		}
	}
	return nil
}

// checkTimeRange applies the rule of HBase's TimeRange.
func checkTimeRange(r *cell.TimeRange) error {
	if r != nil && (r.Min < 0 || r.Max < r.Min) {
		return fmt.Errorf("%w: time range [%d, %d)", ErrInvalidArgument, r.Min, r.Max)
	}
	return nil
}

func (sel *Selection) selectFamilies(s *Scan, t *TableDescriptor) error {
	requested := max(s.Versions, 1)
	add := func(i int) *SelectedFamily {
		f := &t.Families[i]
		sf := SelectedFamily{Family: f, Index: i, Time: s.Time}
		if own, ok := s.FamilyTime[f.Name]; ok {
			r := own
			sf.Time = &r
		} else if s.Time != nil {
			r := *s.Time
			sf.Time = &r
		}
		if s.Raw {
			sf.Versions, sf.Requested = requested, requested
		} else {
			sf.Requested = min(requested, f.Versions)
			sf.Versions = sf.Requested
			// HBase's NewVersionBehaviorTracker does not offer more.
			if s.Filter != nil && !f.NewVersionBehavior {
				sf.Versions = f.Versions
			}
		}
		sel.families = append(sel.families, sf)
		return &sel.families[len(sel.families)-1]
	}
	if len(s.Columns) == 0 {
		sel.families = make([]SelectedFamily, 0, len(t.Families))
		for i := range t.Families {
			add(i)
		}
		return nil
	}
	for i := range s.Columns {
		c := &s.Columns[i]
		if c.All {
			// As in HBase, the family that is named last decides: it widens
			// columns named before, and columns named after narrow it.
			sf, err := sel.family(c.Family, t, add)
			if err != nil {
				return err
			}
			sf.Qualifiers = nil
			continue
		}
		if s.Raw {
			return fmt.Errorf("%w: a raw scan cannot name a column (%s:%q)", ErrRefused, c.Family, c.Qualifier)
		}
		sf, err := sel.family(c.Family, t, add)
		if err != nil {
			return err
		}
		q := c.Qualifier
		if q == nil {
			q = []byte{}
		}
		at, found := slices.BinarySearchFunc(sf.Qualifiers, q, bytes.Compare)
		if !found {
			sf.Qualifiers = slices.Insert(sf.Qualifiers, at, bytes.Clone(q))
		}
	}
	slices.SortFunc(sel.families, func(a, b SelectedFamily) int { return a.Index - b.Index })
	return nil
}

// family returns the selected family with this name, added where it is new.
func (sel *Selection) family(name string, t *TableDescriptor, add func(int) *SelectedFamily) (*SelectedFamily, error) {
	for i := range sel.families {
		if sel.families[i].Family.Name == name {
			return &sel.families[i], nil
		}
	}
	for i := range t.Families {
		if t.Families[i].Name == name {
			return add(i), nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrFamilyNotFound, name)
}

// after returns the smallest row key greater than row.
func after(row []byte) []byte { return append(append(make([]byte, 0, len(row)+1), row...), 0) }

func (sel *Selection) selectRows(s *Scan) {
	low, lowExclusive, high, highInclusive := s.Start, s.StartExclusive, s.Stop, s.StopInclusive
	if s.Reversed {
		low, lowExclusive, high, highInclusive = s.Stop, !s.StopInclusive, s.Start, !s.StartExclusive
	}
	r := &sel.rows
	if len(low) > 0 {
		if lowExclusive {
			r.Start = after(low)
		} else {
			r.Start = bytes.Clone(low)
		}
	}
	bounded := len(high) > 0
	if bounded {
		if highInclusive {
			r.Stop = after(high)
		} else {
			r.Stop = bytes.Clone(high)
		}
	}
	if len(s.Prefix) > 0 {
		if bytes.Compare(s.Prefix, r.Start) > 0 {
			r.Start = bytes.Clone(s.Prefix)
		}
		if end := cell.PrefixEnd(s.Prefix); end != nil && (!bounded || bytes.Compare(end, r.Stop) < 0) {
			r.Stop, bounded = end, true
		}
	}
	if p := sel.place; p != nil {
		p.rest(r, s.Reversed)
		bounded = bounded || len(r.Stop) > 0
		sel.stopped = p.ended
	}
	sel.empty = sel.stopped || bounded && bytes.Compare(r.Stop, r.Start) <= 0
}

// SeekRow returns, of a row that the source's skip function has just dropped, where
// rows that the filter can pass go on: at or after the key or, reversed, before it.
// nil is not known: the source goes on to the next row. The key is valid until the
// next call of the skip function.
func (sel *Selection) SeekRow(row []byte) []byte {
	if sel.hints == nil {
		return nil
	}
	return sel.hints.seekRow(row)
}

// Families returns the families that the scan reads, sorted by name. The slice
// and what it points to must not be changed.
func (sel *Selection) Families() []SelectedFamily { return sel.families }

// Rows returns the rows of the scan as [Start, Stop) in ascending order, whatever
// its direction; inclusive flags and prefix are folded in. Where Empty is true
// the range means nothing.
func (sel *Selection) Rows() cell.Range { return sel.rows }

// Empty reports that no row can lie in the scan's range, or that the filter can pass
// no cell.
func (sel *Selection) Empty() bool { return sel.empty }

// Reversed reports that rows come in descending order.
func (sel *Selection) Reversed() bool { return sel.reversed }

// Raw reports that delete markers and what they mask are returned.
func (sel *Selection) Raw() bool { return sel.raw }

// batchBytes is where the rows of a scan with a Batch are cut on the way to it,
// so that a wide one is not in memory as a whole.
const batchBytes = 1 << 20

// Pieces says where a RowSource may cut a row: before bytes of cells are much
// exceeded, after a multiple of cells of them. bytes 0 = nowhere.
func (sel *Selection) Pieces() (bytes, cells int) {
	switch whole := sel.filter != nil || sel.limitPerFamily > 0 || sel.offsetPerFamily > 0; {
	case sel.maxBytes > 0:
		return sel.maxBytes, 1
	case sel.batch > 0 && !whole:
		return batchBytes, sel.batch
	}
	return 0, 1
}

// Stopped reports that the scan needs no further row: its filter has ended it or
// its context is done. A RowSource asks it whenever its skip function has
// returned true, and ends where it holds.
func (sel *Selection) Stopped() bool { return sel.stopped }
