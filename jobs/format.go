package jobs

import (
	"fmt"
	"io"
	"slices"

	"sluice/jobs/arrowfile"
	"sluice/jobs/columnar"
	"sluice/jobs/parquetfile"
)

// The file formats.
const (
	Parquet = "parquet"
	Arrow   = "arrow"
)

// layout is what files of any format are written by.
type layout struct {
	columns         []columnar.Column
	order           []columnar.Order // by which the rows are sorted
	compression     string
	rowGroupBytes   int64
	targetFileBytes int64
}

// compile fills in the defaults.
func (l *layout) compile(bad func(path, format string, args ...any)) {
	for _, n := range []struct {
		path  string
		value *int64
		def   int64
	}{{"target_file_bytes", &l.targetFileBytes, DefaultTargetFileBytes}, {"row_group_bytes", &l.rowGroupBytes, DefaultRowGroupBytes}} {
		switch {
		case *n.value == 0:
			*n.value = n.def
		case *n.value < 0:
			bad(n.path, "%d is negative", *n.value)
		}
	}
}

// format is how files of one format are written and read.
type format struct {
	name   string
	write  func(w io.Writer, l *layout, metadata map[string]string) (columnar.FileWriter, error)
	read   func(r io.ReaderAt, size int64) (columnar.FileReader, error)
	codecs func(name string) error
}

// formats returns all formats.
func formats() []format {
	return []format{
		{
			name: Parquet,
			write: func(w io.Writer, l *layout, metadata map[string]string) (columnar.FileWriter, error) {
				return parquetfile.NewWriter(w, l.columns, &parquetfile.Options{
					Codec: l.compression, RowGroupBytes: l.rowGroupBytes, Order: l.order,
					Metadata: metadata, Application: "sluice", Version: metadata[metaVersion],
				})
			},
			read: func(r io.ReaderAt, size int64) (columnar.FileReader, error) {
				return parquetfile.NewReader(r, size)
			},
			codecs: parquetfile.CheckCodec,
		},
		{
			name: Arrow,
			write: func(w io.Writer, l *layout, metadata map[string]string) (columnar.FileWriter, error) {
				return arrowfile.NewWriter(w, l.columns, &arrowfile.Options{Codec: l.compression, Metadata: metadata})
			},
			read: func(r io.ReaderAt, size int64) (columnar.FileReader, error) {
				return arrowfile.NewReader(r, size, nil)
			},
			codecs: arrowfile.CheckCodec,
		},
	}
}

// formatOf returns the format with this name.
func formatOf(name string) (format, bool) {
	all := formats()
	i := slices.IndexFunc(all, func(f format) bool { return f.name == name })
	if i < 0 {
		return format{}, false
	}
	return all[i], true
}

// compileFormats returns the formats of names, which are Parquet where there are
// none.
func compileFormats(names *[]string, compression string, bad func(path, format string, args ...any)) []format {
	if len(*names) == 0 {
		*names = []string{Parquet}
	}
	var all []format
	for i, name := range *names {
		f, ok := formatOf(name)
		switch {
		case !ok:
			bad(fmt.Sprintf("formats[%d]", i), "%q is no format; it is parquet or arrow", name)
			continue
		case slices.Contains((*names)[:i], name):
			bad(fmt.Sprintf("formats[%d]", i), "%s is given twice", name)
			continue
		}
		if err := f.codecs(compression); err != nil {
			bad("compression", "%v", err)
		}
		all = append(all, f)
	}
	return all
}
