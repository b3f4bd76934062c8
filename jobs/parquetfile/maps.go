package parquetfile

import (
	"errors"
	"io"

	"github.com/parquet-go/parquet-go"

	"sluice/jobs/columnar"
)

// errMaps is a file whose levels of repetition or definition make no maps.
var errMaps = errors.New("damaged: the levels of keys and values make no maps")

// mapCursor is a position in the two leaves of a column of maps in a row group.
type mapCursor struct {
	keys, values leafCursor
	entry        int // the level of definition from which on there is an entry
	nullable     bool
}

// newMapCursor returns a position before the first row.
func newMapCursor(keys, values parquet.Pages, nullable bool) *mapCursor {
	c := &mapCursor{keys: leafCursor{pages: keys}, values: leafCursor{pages: values}, entry: 1, nullable: nullable}
	if nullable {
		c.entry++
	}
	return c
}

// fill appends the next n rows to v, or, until it takes that much memory, at least one;
// their values by add; nil is appendValue.
func (c *mapCursor) fill(v *columnar.Vector, add appendForeign, n, memory int) error {
	if add == nil {
		add = appendValue
	}
	for ; n > 0 && (v.Len() == 0 || v.Memory() < memory); n-- {
		entries, null, err := c.keys.row(c, v.Keys(), appendValue)
		if err != nil {
			return err
		}
		valued, nullValue, err := c.values.row(c, v.Values(), add)
		switch {
		case err != nil:
			return err
		case entries != valued || null != nullValue:
			return errMaps
		case null:
			v.AppendNull()
		default:
			if err := v.AppendEntries(); err != nil {
				return err
			}
		}
	}
	return nil
}

// close releases the pages being read.
func (c *mapCursor) close() error {
	return errors.Join(c.keys.close(), c.values.close())
}

// leafCursor is a position in a leaf of maps, in the middle of a page or not: nothing
// says that a row ends with a page of data pages version 1.
type leafCursor struct {
	pages  parquet.Pages
	page   parquet.Page // whose values buffer has; nil = there was none yet
	values parquet.ValueReader
	buffer []parquet.Value // read and not taken
	room   []parquet.Value
}

// row appends the values of the next row to v, and returns how many they are, or that
// there is a null in place of them.
func (l *leafCursor) row(c *mapCursor, v *columnar.Vector, add appendForeign) (entries int, null bool, err error) {
	for first := true; ; first = false {
		x, err := l.peek()
		switch {
		case err == io.EOF && !first:
			return entries, null, nil
		case err == io.EOF:
			return 0, false, io.ErrUnexpectedEOF
		case err != nil:
			return 0, false, err
		case first != (x.RepetitionLevel() == 0):
			if first {
				return 0, false, errMaps
			}
			return entries, null, nil
		case x.DefinitionLevel() < c.entry:
			if !first {
				return 0, false, errMaps
			}
			// What follows is of the next row, as entries is 0.
			null = c.nullable && x.DefinitionLevel() == 0
			l.buffer = l.buffer[1:]
			if y, err := l.peek(); err == nil && y.RepetitionLevel() != 0 {
				return 0, false, errMaps
			} else if err != nil && err != io.EOF {
				return 0, false, err
			}
			return 0, null, nil
		case x.IsNull():
			v.AppendNull()
		default:
			if err := add(v, x); err != nil {
				return 0, false, err
			}
		}
		l.buffer = l.buffer[1:]
		entries++
	}
}

// peek returns the next value, which is the first of buffer, or io.EOF.
func (l *leafCursor) peek() (parquet.Value, error) {
	for len(l.buffer) == 0 {
		if l.values == nil {
			page, err := l.pages.ReadPage()
			if err != nil {
				return parquet.Value{}, err
			}
			if l.page != nil {
				parquet.Release(l.page)
			}
			l.page, l.values = page, page.Values()
			if l.room == nil {
				l.room = make([]parquet.Value, 1024)
			}
		}
		n, err := l.values.ReadValues(l.room)
		l.buffer = l.room[:n]
		if err == io.EOF {
			l.values = nil
		} else if err != nil {
			return parquet.Value{}, err
		}
	}
	return l.buffer[0], nil
}

func (l *leafCursor) close() error {
	if l.page != nil {
		parquet.Release(l.page)
		l.page = nil
	}
	return l.pages.Close()
}
