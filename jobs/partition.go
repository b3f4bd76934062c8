package jobs

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sluice/jobs/columnar"
)

// DefaultMaxPartitions is how many partitions of a region may be written at once
// unless a Spec says otherwise.
const DefaultMaxPartitions = 64

const (
	// limitPartitions bounds what a Spec may say: each has a file open, and
	// systems stop at a few thousand of them.
	limitPartitions = 1024
	// partitionGroups is how many row groups the partitions of a region share:
	// memory that a core without partitions would not need, in exchange for row
	// groups that are not tiny.
	partitionGroups = 4
	// maxPartitionName is the longest name of a directory on Linux's file
	// systems, maxPartitionPath what leaves room for the rest of a key of an
	// object, of 1,024 bytes.
	maxPartitionName = 255
	maxPartitionPath = 600
)

// nullPartition is what Hive calls the partition of rows without a value.
const nullPartition = "__HIVE_DEFAULT_PARTITION__"

// escapePartition writes a value as Hive writes it in the name of a directory
// (FileUtils.escapePathName), and NUL as well, which no file name holds.
func escapePartition(s string) string {
	escaped := func(c byte) bool { return c < ' ' || c == 0x7f || strings.IndexByte("\"#%'*/:=?\\{[]^", c) >= 0 }
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; escaped(c) {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unescapePartition is the inverse of escapePartition and of what others escape
// beyond it. A % without two hex digits is itself, as in Hive.
func unescapePartition(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				b.WriteByte(c[0])
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// partitionDir is the directory of a partition below the run's; nil = null.
func partitionDir(names []string, values []*string) string {
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = name + "=" + nullPartition
		if v := values[i]; v != nil {
			parts[i] = name + "=" + escapePartition(*v)
		}
	}
	return path.Join(parts...)
}

// partitioning is how the rows of a job are divided into directories.
type partitioning struct {
	names []string // of the columns, in the order of the directories
	by    []int    // these columns
	nulls []bool   // of each, whether what no directory can say is null there
	files []int    // the columns that are in the files
	max   int      // partitions of a region
}

// compilePartitions checks the job's partition_by, after its columns and layout. The
// columns that directories say are not in the files.
func (j *Job) compilePartitions(bad func(path, format string, args ...any)) {
	s := &j.spec
	if s.MaxPartitions < 0 || s.MaxPartitions > limitPartitions {
		bad("max_partitions", "%d is not from 1 to %d", s.MaxPartitions, limitPartitions)
	}
	if len(s.PartitionBy) == 0 {
		if s.MaxPartitions > 0 {
			bad("max_partitions", "there is no partition_by")
		}
		return
	}
	if s.MaxPartitions == 0 {
		s.MaxPartitions = DefaultMaxPartitions
	}
	if j.schema == nil {
		return
	}
	p := &partitioning{names: s.PartitionBy, max: s.MaxPartitions}
	specs := j.schema.Specs()
	for i, name := range s.PartitionBy {
		at := fmt.Sprintf("partition_by[%d]", i)
		n := slices.IndexFunc(specs, func(c columnar.ColumnSpec) bool { return c.Name == name })
		if n < 0 {
			bad(at, "%q is no column of the job", name)
			continue
		}
		c := &specs[n]
		switch {
		case slices.Contains(p.by, n):
			bad(at, "%s is given twice", name)
		case c.From == columnar.FromRow:
			bad(at, "%s is the row key: each row would be a partition", name)
		case c.From == columnar.FromOp && j.spec.Mode != ModeHistory:
			bad(at, "%s says what an increment does with a row, and stays in the files", name)
		case !partitionType(c.Type):
			bad(at, "%s is of type %s; partitions are of string, int64 or bool", name, c.Type)
		case !isPartitionName(name):
			bad(at, "%q becomes the name of a directory, which begins with a letter or a digit and has letters, digits, _ and - alone", name)
		}
		p.by, p.nulls = append(p.by, n), append(p.nulls, c.OnError == columnar.OnErrorNull)
	}
	for i := range specs {
		if !slices.Contains(p.by, i) {
			p.files = append(p.files, i)
		}
		if strings.EqualFold(specs[i].Name, "run") {
			bad(fmt.Sprintf("columns[%d].name", i), "with partition_by it is not run: readers would take the run's directory, run=…, for it")
		}
	}
	if len(p.files) == 0 {
		bad("partition_by", "it has every column, and the files would have none")
		return
	}
	j.partition = p
	all := j.layout.columns
	j.layout.columns, j.layout.order = nil, slices.DeleteFunc(j.layout.order, func(o columnar.Order) bool { return slices.Contains(p.names, o.Column) })
	for _, i := range p.files {
		j.layout.columns = append(j.layout.columns, all[i])
	}
	if len(s.Sort) > 0 {
		return // its partitions are written one after the other
	}
	j.layout.rowGroupBytes = min(j.layout.rowGroupBytes, max(1, j.layout.rowGroupBytes/int64(p.max)*partitionGroups))
}

// partitionType reports whether columns of this type can be partitions: those whose
// text is the same for every reader.
func partitionType(t string) bool {
	return t == columnar.String.String() || t == columnar.Int64.String() || t == columnar.Bool.String()
}

// isPartitionName reports whether every reader takes name=… for a partition: some
// pass over directories that begin with _ or ., and do not agree on escapes.
func isPartitionName(name string) bool {
	for i, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', i > 0 && (c == '_' || c == '-'):
		default:
			return false
		}
	}
	return name != ""
}

// partitionText returns the text of the i-th value of v, nil for null, or why no
// directory can say it.
func partitionText(v *columnar.Vector, i int) (text *string, why string) {
	if v.IsNull(i) {
		return nil, ""
	}
	var s string
	switch v.Type() {
	case columnar.Int64:
		s = strconv.FormatInt(v.Int64s()[i], 10)
	case columnar.Bool:
		s = strconv.FormatBool(v.Bool(i))
	default:
		s = string(v.Bytes(i))
		// What readers take for null, or for no partition at all.
		if s == "" || s == nullPartition {
			return nil, "no partition can say it: readers take it for null"
		}
	}
	return &s, ""
}

// appendPartition appends the value that text, nil for null, says n times to v.
func appendPartition(v *columnar.Vector, text *string, n int) error {
	for range n {
		if text == nil {
			v.AppendNull()
			continue
		}
		switch v.Type() {
		case columnar.Int64:
			x, err := strconv.ParseInt(*text, 10, 64)
			if err != nil {
				return fmt.Errorf("partition %q is no int64", *text)
			}
			v.AppendInt64(x)
		case columnar.Bool:
			if *text != "true" && *text != "false" {
				return fmt.Errorf("partition %q is no bool", *text)
			}
			v.AppendBool(*text == "true")
		case columnar.String:
			if !utf8.ValidString(*text) {
				return fmt.Errorf("partition %q is not UTF-8", *text)
			}
			if err := v.AppendBytes([]byte(*text)); err != nil {
				return err
			}
		default:
			return fmt.Errorf("partitions are of string, int64 or bool, not of %v", v.Type())
		}
	}
	return nil
}

// partitionReader reads a file as if the columns that its directory says were in it.
type partitionReader struct {
	columnar.FileReader
	columns  []columnar.Column
	from     []int           // of each column, that of the file, or -1
	values   []*string       // of each column that is not the file's
	constant *columnar.Batch // the values, as often as the last batch had rows
	batch    *columnar.Batch
}

// newPartitionReader reads r as if columns, besides its own, had values, by their
// names. Those that r has too are the directory's, as for other readers.
func newPartitionReader(r columnar.FileReader, columns []columnar.Column, values map[string]*string) (*partitionReader, error) {
	p := &partitionReader{
		FileReader: r, columns: columns, from: make([]int, len(columns)), values: make([]*string, len(columns)),
		constant: columnar.NewBatch(columns), batch: columnar.NewBatch(columns),
	}
	own := r.Columns()
	for i, c := range columns {
		value, ok := values[c.Name]
		p.from[i], p.values[i] = -1, value
		if !ok {
			p.from[i] = slices.IndexFunc(own, func(o columnar.Column) bool { return o.Name == c.Name })
			if p.from[i] < 0 {
				return nil, fmt.Errorf("neither the file nor its directory has column %s", c.Name)
			}
		}
	}
	return p, p.repeat(1) // values that cannot be read are found before there are rows
}

// Columns returns the columns of the file and of its directory.
func (p *partitionReader) Columns() []columnar.Column { return p.columns }

// Next returns the next rows.
func (p *partitionReader) Next() (*columnar.Batch, error) {
	b, err := p.FileReader.Next()
	if err != nil {
		return nil, err
	}
	if err := p.repeat(b.Rows()); err != nil {
		return nil, err
	}
	for i, from := range p.from {
		if from >= 0 {
			p.batch.Share(i, b.Vector(from))
		} else {
			p.batch.Share(i, p.constant.Vector(i))
		}
	}
	return p.batch, nil
}

// repeat makes the constant columns n rows long.
func (p *partitionReader) repeat(n int) error {
	i := slices.Index(p.from, -1)
	if i < 0 || p.constant.Vector(i).Len() == n {
		return nil
	}
	p.constant.Reset()
	for i := range p.columns {
		if p.from[i] >= 0 {
			continue
		}
		if err := appendPartition(p.constant.Vector(i), p.values[i], n); err != nil {
			return fmt.Errorf("column %s: %w", p.columns[i].Name, err)
		}
	}
	return nil
}

// read opens a file of the run with all of the run's columns.
func (m *Manifest) read(f *File, in io.ReaderAt, size int64) (columnar.FileReader, error) {
	format, ok := formatOf(f.Format)
	if !ok {
		return nil, fmt.Errorf("%q is no format", f.Format)
	}
	r, err := format.read(in, size)
	if err != nil || len(m.PartitionBy) == 0 {
		return r, err
	}
	columns, values, err := m.partitioned(r.Columns(), f)
	if err == nil {
		var p *partitionReader
		if p, err = newPartitionReader(r, columns, values); err == nil {
			return p, nil
		}
	}
	return nil, errors.Join(err, r.Close())
}

// partitioned returns the columns of a file with those of its directory, in the order
// of the manifest where that has them.
func (m *Manifest) partitioned(own []columnar.Column, f *File) (columns []columnar.Column, values map[string]*string, err error) {
	rest := slices.Clone(own)
	for _, c := range m.Columns {
		if i := slices.Index(m.PartitionBy, c.Name); i >= 0 {
			if slices.ContainsFunc(own, func(o columnar.Column) bool { return o.Name == c.Name }) {
				return nil, nil, fmt.Errorf("column %s is that of its directory, and the file has one, too", c.Name)
			}
			columns = append(columns, c.column())
			if values == nil {
				values = map[string]*string{}
			}
			values[c.Name] = f.Partition[i]
		} else if len(rest) > 0 {
			columns = append(columns, rest[0]) // compared with the manifest by whoever asked
			rest = rest[1:]
		}
	}
	return append(columns, rest...), values, nil
}

// validatePartitions checks what the manifest says of partitions.
func (m *Manifest) validatePartitions() error {
	for i, name := range m.PartitionBy {
		n := slices.IndexFunc(m.Columns, func(c Column) bool { return c.Name == name })
		if n < 0 || m.Join != nil || !isPartitionName(name) || slices.Contains(m.PartitionBy[:i], name) || !partitionType(m.Columns[n].Type) {
			return fmt.Errorf("partition_by[%d]: %q", i, name)
		}
		if len(m.Sort) > 0 {
			continue // validateSort
		}
		for k, sorted := range m.SortedBy { // readers of partitions go by them
			at := slices.IndexFunc(m.Columns, func(c Column) bool { return c.Name == sorted })
			// Versions before took the row key in any coding for the key.
			if at < 0 || sorted == name || k == 0 && (m.Columns[at].From != columnar.FromRow || m.Columns[at].OnError == columnar.OnErrorNull) || m.Columns[at].Type != columnar.String.String() && m.Columns[at].Type != columnar.Bytes.String() {
				return fmt.Errorf("sorted_by[%d]: %q", k, sorted)
			}
		}
	}
	if len(m.PartitionBy) == len(m.Columns) {
		return errors.New("partition_by has all columns")
	}
	return nil
}

// validatePartition checks the partition of a file.
func (m *Manifest) validatePartition(f *File) error {
	if len(f.Partition) != len(m.PartitionBy) {
		return fmt.Errorf("%d partition values for %d columns", len(f.Partition), len(m.PartitionBy))
	}
	if len(m.PartitionBy) == 0 {
		return nil
	}
	for i, text := range f.Partition {
		c := &m.Columns[slices.IndexFunc(m.Columns, func(c Column) bool { return c.Name == m.PartitionBy[i] })]
		typ, _ := columnar.ParseType(c.Type)
		v := columnar.NewBatch([]columnar.Column{{Name: c.Name, Type: typ}}).Vector(0)
		if err := appendPartition(v, text, 1); err != nil {
			return fmt.Errorf("column %s: %w", c.Name, err)
		}
		if text == nil && !c.Nullable && f.Rows > 0 {
			return fmt.Errorf("column %s is null, which it cannot be", c.Name)
		}
		if got, why := partitionText(v, 0); why != "" || got != nil && *got != *text {
			return fmt.Errorf("column %s: %q is not as it is written", c.Name, *text)
		}
	}
	if dir := partitionDir(m.PartitionBy, f.Partition); path.Dir(f.Path) != dir {
		return fmt.Errorf("it is not in %s", dir)
	}
	return nil
}
