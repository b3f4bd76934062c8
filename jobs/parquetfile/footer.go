package parquetfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

const (
	// magic begins and ends a file.
	magic = "PAR1"
	// formatVersion says data pages version 2.
	formatVersion = 2
)

// footer gathers what the end of a file says: the indexes of the pages and the
// metadata, as parquet-format's README.md and PageIndex.md lay them out.
type footer struct {
	file    format.FileMetaData
	leaves  int
	nan     []bool // of each leaf: a chunk has one
	sorting []format.SortingColumn
	indexes []format.ColumnIndex // of every column of every row group
	offsets []format.OffsetIndex // likewise
}

func newFooter(schema *parquet.Schema, leaves []leaf, o *Options) *footer {
	// Not nil: the file says that there is none of these, too.
	f := &footer{leaves: len(leaves), nan: make([]bool, len(leaves)), sorting: []format.SortingColumn{}, file: format.FileMetaData{KeyValueMetadata: []format.KeyValue{}}}
	root := format.SchemaElement{Name: schema.Name()}
	fields := schema.Fields()
	root.NumChildren.Set(int32(len(fields)))
	f.file.Schema = append(f.file.Schema, root)
	for _, n := range fields {
		f.describe(n)
	}
	for _, by := range o.Order {
		i := slices.IndexFunc(leaves, func(l leaf) bool { return l.name == by.Column })
		f.sorting = append(f.sorting, format.SortingColumn{ColumnIdx: int32(i), Descending: by.Descending, NullsFirst: by.NullsFirst})
	}
	for _, k := range slices.Sorted(maps.Keys(o.Metadata)) {
		f.file.KeyValueMetadata = append(f.file.KeyValueMetadata, format.KeyValue{Key: k, Value: o.Metadata[k]})
	}
	f.file.Version = formatVersion
	f.file.CreatedBy = cmp.Or(o.Application, "sluice") + " version " + o.Version + "(build )"
	return f
}

// describe appends a node of the schema, and those below it.
func (f *footer) describe(n parquet.Field) {
	e, t := format.SchemaElement{Name: n.Name(), FieldID: int32(n.ID())}, n.Type()
	switch {
	case n.Optional():
		e.RepetitionType.Set(format.Optional)
	case n.Repeated():
		e.RepetitionType.Set(format.Repeated)
	default:
		e.RepetitionType.Set(format.Required)
	}
	if l := t.LogicalType(); l != nil {
		e.LogicalType = *l
	}
	if c := t.ConvertedType(); c != nil {
		e.ConvertedType.Set(*c)
	}
	if !n.Leaf() {
		fields := n.Fields()
		e.NumChildren.Set(int32(len(fields)))
		f.file.Schema = append(f.file.Schema, e)
		for _, n := range fields {
			f.describe(n)
		}
		return
	}
	e.Type.Set(*t.PhysicalType())
	if l := t.Length(); l > 0 { // readers look at it of fixed-length bytes alone
		e.TypeLength.Set(int32(l))
	}
	if d := decimalOf(t); d != nil { // as the converted type asks for
		e.Precision.Set(d.Precision)
		e.Scale.Set(d.Scale)
	}
	f.file.Schema = append(f.file.Schema, e)
	f.file.ColumnOrders = append(f.file.ColumnOrders, *t.ColumnOrder())
}

// writeGroup writes the chunks of a row group and takes note of them.
func (f *footer) writeGroup(w *countingWriter, chunks []*chunk, rows int64) error {
	g := format.RowGroup{NumRows: rows, SortingColumns: f.sorting, FileOffset: w.n, Ordinal: int16(len(f.file.RowGroups))}
	for i, k := range chunks {
		c, index, dictionary, err := k.finish()
		if err != nil {
			return err
		}
		f.nan[i] = f.nan[i] || k.nan
		pages, first := k.pages[:len(k.pages)-dictionary], k.pages[len(k.pages)-dictionary:]
		if dictionary > 0 {
			c.MetaData.DictionaryPageOffset = w.n
		}
		if _, err := w.Write(first); err != nil {
			return err
		}
		c.MetaData.DataPageOffset = w.n
		for p := range k.offsets.PageLocations {
			k.offsets.PageLocations[p].Offset += w.n
		}
		if _, err := w.Write(pages); err != nil {
			return err
		}
		g.TotalByteSize += c.MetaData.TotalUncompressedSize
		g.TotalCompressedSize += c.MetaData.TotalCompressedSize
		g.Columns = append(g.Columns, c)
		f.indexes = append(f.indexes, index)
		f.offsets = append(f.offsets, k.offsets)
	}
	f.file.NumRows += rows
	f.file.RowGroups = append(f.file.RowGroups, g)
	return nil
}

// dropBounds takes the bounds from all chunks of the leaves of which one has a NaN:
// DataFusion takes those of some chunks for the bounds of the file.
func (f *footer) dropBounds() {
	for i := range f.indexes {
		if f.nan[i%f.leaves] {
			s := &f.column(i).MetaData.Statistics
			s.MinValue, s.MaxValue = nil, nil
		}
	}
}

// write writes the indexes, the metadata, its length and the magic.
func (f *footer) write(w *countingWriter) error {
	f.dropBounds()
	var b bytes.Buffer
	e := thrift.NewEncoder(new(thrift.CompactProtocol).NewWriter(&b))
	at := func() int64 { return w.n + int64(b.Len()) }
	for i := range f.indexes {
		if len(f.indexes[i].NullPages) == 0 { // one a page, where there is an index
			continue
		}
		c := f.column(i)
		c.ColumnIndexOffset = at()
		if err := e.Encode(&f.indexes[i]); err != nil {
			return err
		}
		c.ColumnIndexLength = int32(at() - c.ColumnIndexOffset)
	}
	for i := range f.offsets {
		c := f.column(i)
		c.OffsetIndexOffset = at()
		if err := e.Encode(&f.offsets[i]); err != nil {
			return err
		}
		c.OffsetIndexLength = int32(at() - c.OffsetIndexOffset)
	}
	begin := b.Len()
	if err := e.Encode(&f.file); err != nil {
		return err
	}
	end := binary.LittleEndian.AppendUint32(b.AvailableBuffer(), uint32(b.Len()-begin))
	b.Write(append(end, magic...))
	_, err := w.Write(b.Bytes())
	return err
}

// column returns the column chunk of the i-th index.
func (f *footer) column(i int) *format.ColumnChunk {
	return &f.file.RowGroups[i/f.leaves].Columns[i%f.leaves]
}
