package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"sluice/jobs/arrowfile"
	"sluice/jobs/columnar"
	"sluice/jobs/parquetfile"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
)

// ImportFilesOptions configures ImportFiles. From, Columns, To and Into must be set.
type ImportFilesOptions struct {
	// From has the files. It is not closed.
	From target.Target
	// Files are paths below From, ending in .parquet or .arrow, which are read in
	// this order. Default: all such files in From and in its directories named
	// COLUMN=VALUE, by name, but for those whose names begin with _ or a point, which
	// are no data to Hive, Spark and pyarrow either. What such directories say counts as
	// columns of the file, in place of its own (Hive's partitions).
	Files []string
	// Format is the only format whose files are taken where Files says nothing.
	// Default: both.
	Format string
	// Columns say what the files' columns of these names become, as those of a job
	// say what is exported: From is the cell that a value is written to, $row,
	// $timestamp, or with Rows cell $family, $qualifier and $value. Other columns
	// of the files are passed over. A Nullable of false makes null an error; of
	// OnError nothing is asked.
	Columns []columnar.ColumnSpec
	// Rows is row (default) or cell, as a job's.
	Rows string
	// RowKey is how row keys are made, as a job's. Columns from its fields are
	// passed over: the row key has them.
	RowKey columnar.KeySpec
	// Key are the columns of which the row key is put together, in place of one
	// column from $row: each a name, or NAME:CODING, whose default is text. They
	// need not be among Columns.
	Key []string
	// Between stands between the parts of the row key. No part but the last may
	// contain it, unless it has a width of its own (int64be, u32), so that
	// no two rows have one key. Default: none.
	Between string
	// Time is that of cells where no column is from $timestamp. Must be set then.
	Time time.Time
	// To has the table Into, which gets the cells.
	To   store.Engine
	Into string
	// Progress is called now and then; it must return soon.
	Progress func(work.Progress)
	// Now is the clock of Progress. Default: time.Now.
	Now func() time.Time

	chunkBytes int // as ImportOptions
}

// ImportFiles writes the rows of Parquet and Arrow files that others have made into a
// table. Before the first row is written, every file is opened and its columns are
// compared with what is asked for. The rest is as with Import: times are explicit and
// counters are set, rows are taken in bulk, sorted, in commits of about 16 MiB, and
// what was written before an error stays. The error wraps a *RowError, which names
// file, row and column, where a value is refused, *columnar.SpecError where Columns
// are, store.ErrInvalidArgument, store.ErrFamilyNotFound and store.ErrUnsupported.
func ImportFiles(ctx context.Context, o *ImportFilesOptions) (*Imported, error) {
	if o.From == nil || o.To == nil || o.Into == "" || len(o.Columns) == 0 {
		return nil, errors.New("jobs: ImportFilesOptions need From, Columns, To and Into")
	}
	i := &fileImport{ImportFilesOptions: *o, tableImport: tableImport{ImportOptions: ImportOptions{
		From: o.From, To: o.To, Into: o.Into, Progress: o.Progress, Now: o.Now, chunkBytes: o.chunkBytes,
	}}}
	if i.tableImport.Now == nil {
		i.tableImport.Now = time.Now
	}
	i.tableImport.chunkBytes, i.tableImport.partBytes = cmp.Or(i.tableImport.chunkBytes, importBytes), importBytes
	if err := i.importAll(ctx); err != nil {
		return nil, fmt.Errorf("import files into %s: %w", o.Into, err)
	}
	return &i.done, nil
}

// fileImport is one execution of ImportFiles.
type fileImport struct {
	ImportFilesOptions
	tableImport
	specs []columnar.ColumnSpec
	parts []keyPart
}

// keyPart is a column of ImportFilesOptions.Key.
type keyPart struct {
	name   string
	coding columnar.Coding
}

func (i *fileImport) importAll(ctx context.Context) (err error) {
	t := &i.tableImport
	var families []string
	for _, c := range i.Columns {
		families = appendFamily(families, c.From)
	}
	if err := t.findTable(ctx, families); err != nil {
		return err
	}
	schema, err := columnar.CompileKeyed(i.Columns, columnar.RowsMode(i.Rows), &i.RowKey, t.schema)
	if err != nil {
		return err
	}
	i.specs = slices.DeleteFunc(schema.Specs(), func(s columnar.ColumnSpec) bool { return columnar.IsRowField(s.From) })
	if err := i.parseKey(schema); err != nil {
		return err
	}
	if i.Files == nil {
		if i.Files, err = dataFiles(ctx, t.From, ".", i.ImportFilesOptions.Format); err != nil {
			return err
		}
	}
	if len(i.Files) == 0 {
		return fmt.Errorf("%w: no file ends in .parquet or .arrow", store.ErrInvalidArgument)
	}
	t.between = []byte(i.Between)
	t.report.Start(t.Progress, t.Now, len(i.Files))
	for _, write := range []bool{false, true} {
		for _, name := range i.Files {
			if err := i.importFile(ctx, name, string(schema.Mode()), write); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseKey reads Key and checks what the specs say of row key and time.
func (i *fileImport) parseKey(schema *columnar.Schema) error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", store.ErrInvalidArgument, fmt.Sprintf(format, args...))
	}
	from := func(source string) bool {
		return slices.ContainsFunc(i.specs, func(s columnar.ColumnSpec) bool { return s.From == source })
	}
	switch {
	case from(columnar.FromRow) && len(i.Key) > 0:
		return invalid("a column comes from %s, which is the row key: name no others for it (--row), or a job without that column", columnar.FromRow)
	case !from(columnar.FromRow) && len(i.Key) == 0:
		return invalid("nothing says what the row key is: the job has no column from %s, so name the columns of a key (--row)", columnar.FromRow)
	case schema.Op():
		return invalid("a column comes from %s: changes are not imported", columnar.FromOp)
	case !from(columnar.FromTimestamp) && i.Time.IsZero():
		return invalid("no column comes from %s: say which time the cells have (--time)", columnar.FromTimestamp)
	}
	for n, key := range i.Key {
		name, coding, given := strings.Cut(key, ":")
		part := keyPart{name: name}
		if given {
			var ok bool
			if part.coding, ok = columnar.ParseCoding(coding); !ok || part.coding == columnar.Distinct {
				return invalid("column %s of the row key has the coding %q", name, coding)
			}
		}
		if i.Between == "" && n < len(i.Key)-1 && !part.coding.FixedWidth() {
			return invalid("nothing stands behind column %s of the row key, whose values differ in length: two rows could have one key", name)
		}
		i.parts = append(i.parts, part)
	}
	return nil
}

// dataFiles returns the files in a directory and its partitions that can be imported, by
// name: those of one format, where it is given. Files of it in other directories are an
// error, as nobody would see that they are not taken.
func dataFiles(ctx context.Context, t target.Target, dir, only string) ([]string, error) {
	entries, err := t.List(ctx, dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		partition := e.Dir && strings.Contains(e.Name, "=")
		if strings.HasPrefix(e.Name, ".") || strings.HasPrefix(e.Name, "_") && !partition {
			continue // as Hive, Spark and pyarrow do
		}
		name := path.Join(dir, e.Name)
		if e.Dir {
			more, err := dataFiles(ctx, t, name, only)
			if err != nil {
				return nil, err
			}
			if len(more) > 0 && !partition {
				return nil, fmt.Errorf("%w: %s is in directory %s, which is not named COLUMN=VALUE: import that by itself", store.ErrInvalidArgument, more[0], name)
			}
			files = append(files, more...)
			continue
		}
		ext := strings.TrimPrefix(path.Ext(e.Name), ".")
		if _, ok := formatOf(ext); ok && (only == "" || ext == only) {
			files = append(files, name)
		}
	}
	return files, nil
}

// importFile checks a file, and where write is set imports it.
func (i *fileImport) importFile(ctx context.Context, name, mode string, write bool) error {
	in, err := i.tableImport.From.Open(ctx, name)
	if err != nil {
		return err
	}
	defer in.Close()
	var names []string
	for _, s := range i.specs {
		names = append(names, s.Name)
	}
	for _, k := range i.parts {
		names = append(names, k.name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	values := partitionValues(name)
	own := slices.DeleteFunc(slices.Clone(names), func(n string) bool { _, ok := values[n]; return ok })
	var rd columnar.FileReader
	switch path.Ext(name) {
	case "." + Parquet:
		rd, err = parquetfile.NewForeignReader(in, in.Size(), own)
	case "." + Arrow:
		rd, err = arrowfile.NewForeignReader(in, in.Size(), own, nil)
	default:
		err = fmt.Errorf("%w: it ends in neither .parquet nor .arrow", store.ErrInvalidArgument)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer rd.Close()
	if len(own) < len(names) {
		if rd, err = newPartitionReader(rd, i.withPartitions(rd.Columns(), names, values), values); err != nil {
			return fmt.Errorf("%s: %w: %w", name, store.ErrInvalidArgument, err)
		}
	}
	if err := i.describe(rd.Columns(), mode); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !write {
		return nil
	}
	if err := i.read(ctx, &File{Path: name}, rd); err != nil {
		return err
	}
	i.report.File(in.Size())
	return nil
}

// partitionValues returns what the directories of a file say, by name; nil = null.
func partitionValues(file string) map[string]*string {
	values := map[string]*string{}
	for _, dir := range strings.Split(path.Dir(file), "/") {
		name, text, ok := strings.Cut(dir, "=")
		if !ok {
			continue
		}
		name = unescapePartition(name)
		values[name] = nil
		if text != nullPartition {
			text = unescapePartition(text)
			values[name] = &text
		}
	}
	return values
}

// withPartitions returns the columns of a file and those of names that its directories
// say: of the type that is asked for, or else strings.
func (i *fileImport) withPartitions(columns []columnar.Column, names []string, values map[string]*string) []columnar.Column {
	columns = slices.Clone(columns)
	for _, name := range names {
		if _, ok := values[name]; !ok {
			continue
		}
		c := columnar.Column{Name: name, Type: columnar.String, Nullable: true}
		if at := slices.IndexFunc(i.specs, func(s columnar.ColumnSpec) bool { return s.Name == name }); at >= 0 {
			c.Type, _ = columnar.ParseType(i.specs[at].Type)
		}
		columns = append(columns, c)
	}
	return columns
}

// describe makes the manifest that a run of the file's columns would have.
func (i *fileImport) describe(columns []columnar.Column, mode string) error {
	t := &i.tableImport
	t.manifest = &Manifest{Rows: mode, LogicalTime: i.Time}
	required := map[int]bool{}
	for n, c := range columns {
		d := Column{Name: c.Name, Type: c.Type.String()}
		if at := slices.IndexFunc(i.specs, func(s columnar.ColumnSpec) bool { return s.Name == c.Name }); at >= 0 {
			s := &i.specs[at]
			if want, _ := columnar.ParseType(s.Type); !takesType(want, c.Type) {
				return fmt.Errorf("%w: column %s is of type %s, not %s", store.ErrInvalidArgument, c.Name, c.Type, s.Type)
			}
			d.From, d.Coding = s.From, s.Coding
			required[n] = !*s.Nullable
		}
		t.manifest.Columns = append(t.manifest.Columns, d)
	}
	unsupported := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", store.ErrUnsupported, fmt.Sprintf(format, args...))
	}
	keys, err := i.keyColumns(columns)
	if err != nil {
		return err
	}
	if err := t.findColumns(unsupported, keys); err != nil {
		return err
	}
	for n := range t.columns {
		t.columns[n].required = required[n]
	}
	return nil
}

// takesType reports whether a file's column of type got is one of type want: the same, or
// some text for bytes and strings, and for those that maps have.
func takesType(want, got columnar.Type) bool {
	if values, ok := want.Map(); ok {
		of, ok := got.Map()
		return ok && takesType(values, of)
	}
	return want == got || (want == columnar.String || want == columnar.Bytes) && got.Storage() == columnar.Bytes
}

// keyColumns finds the columns of Key in those of a file.
func (i *fileImport) keyColumns(columns []columnar.Column) ([]keyColumn, error) {
	var keys []keyColumn
	for _, part := range i.parts {
		at := slices.IndexFunc(columns, func(c columnar.Column) bool { return c.Name == part.name })
		k := keyColumn{column: at, coding: part.coding}
		c := columns[at] // the reader has all that it was asked for
		if k.coding == 0 {
			k.coding = c.Type.Codings()[0]
		}
		if !slices.Contains(c.Type.Codings(), k.coding) {
			return nil, fmt.Errorf("%w: column %s of the row key is of type %s, which has no coding %v", store.ErrInvalidArgument, c.Name, c.Type, k.coding)
		}
		keys = append(keys, k)
	}
	return keys, nil
}
