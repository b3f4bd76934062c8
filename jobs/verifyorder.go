package jobs

import (
	"bytes"
	"fmt"
	"slices"

	"sluice/jobs/columnar"
)

// orderCheckers follow the rows of a run over its files, those of a format and a
// partition one after the other.
type orderCheckers struct {
	manifest *Manifest
	all      map[fileSet]*orderChecker
}

// of returns the checker of a file; nil = there is nothing to check that a keyChecker,
// and the key ranges of the files, do not.
func (c *orderCheckers) of(f *File) *orderChecker {
	m := c.manifest
	key := m.keyColumn()
	if len(m.SortedBy) == 0 || m.keyed() && len(m.SortedBy) == 1 && key >= 0 && m.Columns[key].Name == m.SortedBy[0] {
		return nil
	}
	o := c.all[f.set()]
	if o == nil {
		o = &orderChecker{order: m.order()}
		for _, by := range o.order {
			n := slices.IndexFunc(m.Columns, func(c Column) bool { return c.Name == by.Column })
			o.columns = append(o.columns, n)
			o.strict = o.strict || n == key && m.Rows == string(columnar.PerRow)
		}
		c.all[f.set()] = o
	}
	return o
}

// orderChecker follows the rows of one set of files.
type orderChecker struct {
	order     []columnar.Order
	columns   []int
	strict    bool // the row key is among them: no two rows are equal
	key, last []byte
	seen      bool
	place     string // of the row before
}

// check looks at the rows of a batch, behind those of r.
func (c *orderChecker) check(b *columnar.Batch, r *FileReport) error {
	if c == nil {
		return nil
	}
	for i := range b.Rows() {
		c.key = c.key[:0]
		for k, by := range c.order {
			c.key = by.AppendTo(c.key, b.Vector(c.columns[k]), i)
		}
		if d := bytes.Compare(c.key, c.last); c.seen && (d < 0 || d == 0 && c.strict) {
			return fmt.Errorf("row %d is not behind %s: not sorted by %s", r.Rows+int64(i)+1, c.place, sortedText(c.order))
		}
		c.last, c.seen = append(c.last[:0], c.key...), true
		c.place = "the one before it"
	}
	c.place = "the last row of " + r.Path
	return nil
}

// compareOrder compares what a file says of its order with what the manifest says.
func (c *fileCheck) compareOrder(rd columnar.FileReader) {
	order := c.manifest.order()
	if got, want := rd.Metadata()[metaSorted], sortedText(order); got != want {
		c.bad("it says that it is sorted by %q, the manifest by %q", got, want)
	}
	if p, ok := rd.(*partitionReader); ok {
		rd = p.FileReader
	}
	f, ok := rd.(interface{ Order() []columnar.Order })
	if !ok {
		return // the format has no other place for it
	}
	// A file without rows has no row group that would say something.
	if got := f.Order(); (c.want.Rows > 0 || len(got) > 0) && !slices.Equal(got, order) {
		c.bad("its sorting columns are %q, the manifest says %q", sortedText(got), sortedText(order))
	}
}
