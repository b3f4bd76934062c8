package parquetfile

import (
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"sluice/jobs/columnar"
)

// The footer says how many rows a file and its row groups have, how many values a column
// chunk has, and often how many of them are null; the headers of pages say it again. Of
// files of others all of it is compared, and with what is there: a reader that believes
// the smaller number loses rows.

// chunkCounts is what the headers of a column chunk's pages say.
type chunkCounts struct {
	values int64 // nulls included
	nulls  int64 // of those, where counted
	// counted says that every page says how many nulls it has: version 2 does.
	counted bool
	pages   int
}

// add adds a page.
func (c *chunkCounts) add(h *format.PageHeader) {
	switch {
	case h.Type == format.DataPage && h.DataPageHeader.Valid:
		c.values += int64(h.DataPageHeader.V.NumValues)
		c.counted = false
		c.pages++
	case h.Type == format.DataPageV2 && h.DataPageHeaderV2.Valid:
		c.values += int64(h.DataPageHeaderV2.V.NumValues)
		c.nulls += int64(h.DataPageHeaderV2.V.NumNulls)
		c.counted = c.counted || c.pages == 0
		c.pages++
	}
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("damaged: "+format, args...)
}

// checkRows compares the rows of a file with those of its row groups.
func (r *Reader) checkRows() error {
	sum := int64(0)
	m := r.file.Metadata()
	for i := range m.RowGroups {
		if m.RowGroups[i].NumRows < 0 {
			return damaged("row group %d has %d rows", i, m.RowGroups[i].NumRows)
		}
		sum += m.RowGroups[i].NumRows
	}
	if sum != m.NumRows {
		return damaged("the file has %d rows, and its row groups %d", m.NumRows, sum)
	}
	return nil
}

// statedNulls returns of each row group and column chunk of a footer the null count that
// its statistics say, where they do: format.Statistics has 0 for none. The numbers of the
// fields are those of parquet.thrift.
func statedNulls(footer []byte) ([][]thrift.Null[int64], error) {
	type statistics struct {
		NullCount thrift.Null[int64] `thrift:"3,optional"`
	}
	type metadata struct {
		Statistics statistics `thrift:"12,optional"`
	}
	type chunk struct {
		MetaData metadata `thrift:"3,optional"`
	}
	type rowGroup struct {
		Columns []chunk `thrift:"1,required"`
	}
	var file struct {
		RowGroups []rowGroup `thrift:"4,required"`
	}
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), footer, &file); err != nil {
		return nil, fmt.Errorf("decode the footer's statistics: %w", err)
	}
	all := make([][]thrift.Null[int64], len(file.RowGroups))
	for i, g := range file.RowGroups {
		for _, c := range g.Columns {
			all[i] = append(all[i], c.MetaData.Statistics.NullCount)
		}
	}
	return all, nil
}

// chunksOf returns how many column chunks a column of type t has: a map one of keys and one
// of values.
func chunksOf(t columnar.Type) int {
	if _, isMap := t.Map(); isMap {
		return 2
	}
	return 1
}

// checkChunks checks the chunks of a row group that the reader is about to read.
func (r *Reader) checkChunks(group int) error {
	g := &r.file.Metadata().RowGroups[group]
	r.said = r.said[:0]
	for i, c := range r.columns {
		wrong := func(err error) error { return fmt.Errorf("row group %d, column %s: %w", group, c.Name, err) }
		_, isMap := c.Type.Map()
		for at := r.chunks[i]; at < r.chunks[i]+chunksOf(c.Type); at++ {
			if at >= len(g.Columns) {
				return wrong(claim("it has %d column chunks", len(g.Columns)))
			}
			m := &g.Columns[at].MetaData
			var said chunkCounts
			var err error
			if !noPages(g, m) {
				said, err = checkChunk(r.from, r.size, m)
			}
			switch {
			case err != nil:
				return wrong(err)
			case !isMap && said.values != g.NumRows:
				return wrong(damaged("the row group has %d rows, and its pages have %d", g.NumRows, said.values))
			case !isMap && !c.Nullable && said.nulls > 0:
				return wrong(damaged("its pages have %d nulls, and it takes none", said.nulls))
			case said.values != m.NumValues:
				return wrong(damaged("it has %d values, and its pages have %d", m.NumValues, said.values))
			}
			if at == r.chunks[i] {
				r.said = append(r.said, columnCounts{chunkCounts: said, statistics: r.nulls[group][at]})
			}
		}
	}
	return nil
}

// noPages reports whether a column chunk of a row group without rows has no pages, as Arrow's
// C++ writes them for tables without rows: then they begin nowhere, behind the dictionary's
// if there is one.
func noPages(g *format.RowGroup, m *format.ColumnMetaData) bool {
	return g.NumRows == 0 && m.NumValues == 0 && m.DataPageOffset == 0
}

// columnCounts is what is said of a column in a row group, and what was found.
type columnCounts struct {
	chunkCounts
	statistics thrift.Null[int64] // the null count of the chunk's statistics
	found      int64              // nulls
}

// checkNulls adds the nulls of a batch, and compares them where it is the row group's
// last one. Of maps it sees that nothing is left.
func (r *Reader) checkNulls(group int) error {
	for i := range r.said {
		c := &r.said[i]
		wrong := func(err error) error {
			return fmt.Errorf("row group %d, column %s: %w", group, r.columns[i].Name, err)
		}
		c.found += int64(r.batch.Vector(i).Nulls())
		m := r.maps[i]
		switch {
		case r.left > 0:
		case m != nil:
			for _, leaf := range []*leafCursor{&m.keys, &m.values} {
				if _, err := leaf.peek(); err == nil {
					return wrong(damaged("the row group has %d rows, and its pages have more", r.file.Metadata().RowGroups[group].NumRows))
				} else if err != io.EOF {
					return wrong(err)
				}
			}
		case c.counted && c.nulls != c.found:
			return wrong(damaged("its pages have %d nulls, and there are %d", c.nulls, c.found))
		case c.statistics.Valid && c.statistics.V != c.found:
			return wrong(damaged("its statistics have %d nulls, and there are %d", c.statistics.V, c.found))
		}
	}
	return nil
}
