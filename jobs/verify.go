package jobs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"sluice/jobs/columnar"
	"sluice/jobs/target"
)

// Report is what Verify found.
type Report struct {
	Manifest *Manifest
	Dir      string       // of the run
	Files    []FileReport // in the manifest's order
	// Checksums are, by format, the digests of the columns' values
	// (columnar.Checksum) over all files: equal in every format of a run, and
	// what readers in other languages compute too.
	Checksums map[string][]string
	// Problems are those of the run as a whole: files that nobody listed, a
	// _latest.json that does not match, formats that differ.
	Problems []string
}

// FileReport is what Verify found in one file.
type FileReport struct {
	Path     string
	Rows     int64 // counted
	Bytes    int64 // of the file
	Problems []string
}

// OK reports that everything is as the manifest says.
func (r *Report) OK() bool {
	return len(r.Problems) == 0 && !slices.ContainsFunc(r.Files, func(f FileReport) bool { return len(f.Problems) > 0 })
}

// Err returns nil where the report is OK, and an error that names every problem
// otherwise.
func (r *Report) Err() error { return problemsOf(r.Problems, r.Files) }

func problemsOf(all []string, files []FileReport) error {
	var errs []error
	for _, p := range all {
		errs = append(errs, errors.New(p))
	}
	for _, f := range files {
		for _, p := range f.Problems {
			errs = append(errs, fmt.Errorf("%s: %s", f.Path, p))
		}
	}
	return errors.Join(errs...)
}

// Verify reads a published run back and compares it with its manifest: the
// checksum and size of every file, its rows as the file's own format counts them,
// its columns, that row keys lie in the key range (where a column holds them), that
// rows are in the order of sorted_by, within each file and from one to the next, and
// that the files say so, that timestamps are in time_range (where a column holds them),
// and that no other file lies beside them. at is the run's
// directory, the job's (its latest run), or the manifest itself. What does not
// match is in the Report; an error means that it could not be looked at: no run,
// or a manifest that cannot be read.
func Verify(ctx context.Context, at string) (*Report, error) {
	t, dir, name, err := openRun(at)
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	defer t.Close()
	r, err := verify(ctx, t, name)
	if err != nil {
		return nil, fmt.Errorf("verify %s: %w", at, err)
	}
	r.Dir = filepath.Join(dir, filepath.FromSlash(r.Dir))
	return r, nil
}

// VerifyTarget is Verify of the run, or the job's latest run, that t is the directory
// of. Dir of its Report is below t.
func VerifyTarget(ctx context.Context, t target.Target) (*Report, error) {
	r, err := verify(ctx, t, "")
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	return r, nil
}

// ReadRun finds a published run and returns its manifest and directory. at is what
// Verify takes. The run's files are not looked at.
func ReadRun(ctx context.Context, at string) (m *Manifest, dir string, err error) {
	t, dir, name, err := openRun(at)
	if err != nil {
		return nil, "", err
	}
	defer t.Close()
	found, err := findManifest(ctx, t, name)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", at, err)
	}
	return found.manifest, filepath.Join(dir, filepath.FromSlash(path.Dir(found.name))), nil
}

// ReadRunTarget is ReadRun of the run, or the job's latest run, that t is the directory
// of. The run's directory is below t.
func ReadRunTarget(ctx context.Context, t target.Target) (m *Manifest, dir string, err error) {
	found, err := findManifest(ctx, t, "")
	if err != nil {
		return nil, "", err
	}
	return found.manifest, path.Dir(found.name), nil
}

// openRun opens the directory of a run, of a job or of a manifest; name is the
// manifest's, or empty.
func openRun(at string) (t *target.Local, dir, name string, err error) {
	info, err := os.Stat(at)
	if err != nil {
		return nil, "", "", err
	}
	dir = at
	if !info.IsDir() {
		dir, name = filepath.Dir(at), filepath.Base(at)
	}
	t, err = target.OpenLocal(dir)
	return t, dir, name, err
}

// foundManifest is a manifest and where it was.
type foundManifest struct {
	manifest *Manifest
	name     string // below the target
	data     []byte
	latest   *Latest // what named it; nil = nothing
}

// findManifest reads the manifest with this name, or, without one, that of the
// job's latest run or of the run that the target is.
func findManifest(ctx context.Context, t target.Target, name string) (*foundManifest, error) {
	f := &foundManifest{name: name}
	if name == "" || name == LatestName {
		f.name = ManifestName
		l, err := readLatest(ctx, t, ".")
		switch {
		case err == nil:
			f.latest, f.name = l, l.Manifest
		case !errors.Is(err, target.ErrNotFound):
			return nil, err
		}
	}
	var err error
	f.manifest, f.data, err = readManifest(ctx, t, f.name)
	switch {
	case errors.Is(err, target.ErrNotFound) && f.latest != nil:
		return nil, f.latest.gone(err)
	case errors.Is(err, target.ErrNotFound):
		return nil, fmt.Errorf("there is no %s and no %s: name the directory of a job or of a run: %w", LatestName, ManifestName, err)
	case err != nil && path.Base(f.name) == BackupManifestName:
		return nil, fmt.Errorf("%w: %s is the manifest of a backup, not of an export", ErrManifest, f.name)
	}
	return f, err
}

// verify finds the manifest and checks its run; name is the manifest's, or empty.
func verify(ctx context.Context, t target.Target, name string) (*Report, error) {
	found, err := findManifest(ctx, t, name)
	if err != nil {
		return nil, err
	}
	m, latest := found.manifest, found.latest
	r := &Report{Manifest: m, Dir: path.Dir(found.name), Files: make([]FileReport, 0, len(m.Files))}
	if latest != nil {
		r.Problems = slices.Concat(latest.differences("run", m.RunID, found.data), latest.wrongTime("run", m.LogicalTime))
	}
	if id := runID(m.Job, m.LogicalTime.UTC()); id != m.RunID {
		r.Problems = append(r.Problems, fmt.Sprintf("the manifest is of run %s, and job %s has run %s for %s", m.RunID, m.Job, id, m.LogicalTime.Format(time.RFC3339Nano)))
	}
	sums := make(map[string]*columnar.Checksum)
	orders := &orderCheckers{manifest: m, all: map[fileSet]*orderChecker{}}
	for i := range m.Files {
		format := m.Files[i].Format
		if sums[format] == nil {
			sums[format] = columnar.NewChecksum(len(m.Columns))
		}
		c := &fileCheck{manifest: m, want: &m.Files[i], sum: sums[format], order: orders.of(&m.Files[i])}
		if err := c.run(ctx, t, r.Dir); err != nil {
			return nil, err
		}
		r.Files = append(r.Files, c.FileReport)
	}
	r.compareFormats(sums)
	if latest != nil { // the runs beside it are in reach
		problems, err := verifyChain(ctx, t, m)
		if err != nil {
			return nil, err
		}
		r.Problems = append(r.Problems, problems...)
	}
	listed := map[string]bool{ManifestName: true}
	for i := range m.Files {
		listed[m.Files[i].Path] = true
	}
	extra, err := unlisted(ctx, t, r.Dir, ".", listed)
	if err != nil {
		return nil, err
	}
	r.Problems = append(r.Problems, extra...)
	return r, nil
}

// compareFormats fills in the checksums, and a problem for each column that
// differs between formats.
func (r *Report) compareFormats(sums map[string]*columnar.Checksum) {
	r.Checksums = make(map[string][]string)
	for format, c := range sums {
		r.Checksums[format] = c.Sums()
	}
	if !r.OK() {
		return // they would differ
	}
	first := ""
	for _, t := range r.Manifest.Totals {
		if first == "" {
			first = t.Format
			continue
		}
		for i, c := range r.Manifest.Columns {
			if r.Checksums[first][i] != r.Checksums[t.Format][i] {
				r.Problems = append(r.Problems, fmt.Sprintf("column %s has other values in %s than in %s", c.Name, t.Format, first))
			}
		}
	}
}

// unlisted names the files in sub, below the run's directory, that are not in listed.
func unlisted(ctx context.Context, t target.Target, dir, sub string, listed map[string]bool) ([]string, error) {
	entries, err := t.List(ctx, path.Join(dir, sub))
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, e := range entries {
		name := path.Join(sub, e.Name)
		if e.Dir {
			more, err := unlisted(ctx, t, dir, name, listed)
			if err != nil {
				return nil, err
			}
			problems = append(problems, more...)
			continue
		}
		if !listed[name] {
			problems = append(problems, fmt.Sprintf("%s is not in the manifest", name))
		}
	}
	return problems, nil
}

// fileCheck is the check of one file of a run.
type fileCheck struct {
	FileReport
	manifest *Manifest
	want     *File
	sum      *columnar.Checksum // of all files of the format
	order    *orderChecker      // of these, and of the partition; nil = there is nothing to check
}

func (c *fileCheck) bad(format string, args ...any) {
	c.Problems = append(c.Problems, fmt.Sprintf(format, args...))
}

// run checks the file, which lies in dir. Its error is that of ctx only.
func (c *fileCheck) run(ctx context.Context, t target.Target, dir string) error {
	want := c.want
	c.Path = want.Path
	f, err := t.Open(ctx, path.Join(dir, want.Path))
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, target.ErrNotFound):
		c.bad("the file is missing")
		return nil
	default:
		c.bad("%v", err)
		return nil
	}
	defer f.Close()
	if c.Bytes = f.Size(); c.Bytes != want.Bytes {
		c.bad("it has %d bytes, the manifest says %d", c.Bytes, want.Bytes)
	}
	h := sha256.New()
	if _, err := io.Copy(h, &contextReader{ctx: ctx, r: io.NewSectionReader(f, 0, f.Size())}); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.bad("%v", err)
		return nil
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want.SHA256 {
		// What the file says of itself is not to be believed any more.
		c.bad("its sha256 is %s, the manifest says %s: the content has changed; its rows were not read", got, want.SHA256)
		return nil
	}
	if err := c.rows(ctx, f); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.bad("after %d rows: %v", c.Rows, err)
		return nil
	}
	if c.Rows != want.Rows {
		c.bad("it has %d rows, the manifest says %d", c.Rows, want.Rows)
	}
	return nil
}

// contextReader stops reading when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// rows reads the rows of the file and compares them with what the manifest says of them.
func (c *fileCheck) rows(ctx context.Context, f target.File) error {
	m, want := c.manifest, c.want
	rd, err := m.read(want, f, f.Size())
	if err != nil {
		return err
	}
	defer rd.Close()
	if err := compareColumns(rd.Columns(), m.Columns); err != nil {
		c.bad("%v", err)
		return nil
	}
	c.compareMetadata(rd.Metadata())
	c.compareOrder(rd)
	keys := &keyChecker{column: m.keyColumn(), strict: m.Rows == string(columnar.PerRow)}
	if len(m.Sort) > 0 {
		keys.column = -1 // order checks it
	}
	times := m.newTimeChecker()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := rd.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := keys.check(b); err != nil {
			return err
		}
		if err := cmp.Or(c.order.check(b, &c.FileReport), times.check(b)); err != nil {
			return err
		}
		c.sum.Add(b)
		c.Rows += int64(b.Rows())
	}
	if keys.column >= 0 && c.Rows > 0 && (columnar.EscapeKey(keys.min) != want.MinRow || columnar.EscapeKey(keys.max) != want.MaxRow) {
		c.bad("its rows are %s to %s, the manifest says %s to %s", columnar.EscapeKey(keys.min), columnar.EscapeKey(keys.max), want.MinRow, want.MaxRow)
	}
	return nil
}

// compareMetadata compares what a file says of its run with the manifest.
func (c *fileCheck) compareMetadata(file map[string]string) {
	want := c.manifest.metadata()
	if run := file[metaRun]; run != want[metaRun] {
		c.bad("it is of run %q", run)
		return // what else it says is of that one
	}
	for _, key := range []string{metaJob, metaTable, metaRows, metaSequence, metaVersion} {
		if got, ok := file[key]; ok && got != want[key] {
			c.bad("it says that %s is %q, the manifest %q", key, got, want[key])
		}
	}
}

// verbatim is columnar's Coding.Verbatim of a type and a coding as they are spelled.
func verbatim(typ, coding string) bool {
	t, _ := columnar.ParseType(typ)
	c, _ := columnar.ParseCoding(coding)
	return c.Verbatim(t)
}

// keyColumn returns the column that holds the row keys as they are, or -1.
func (m *Manifest) keyColumn() int {
	return slices.IndexFunc(m.Columns, func(c Column) bool {
		return c.From == columnar.FromRow && c.OnError != columnar.OnErrorNull && verbatim(c.Type, c.Coding)
	})
}

func compareColumns(got []columnar.Column, want []Column) error {
	if len(got) != len(want) {
		return fmt.Errorf("it has %d columns, the manifest says %d", len(got), len(want))
	}
	for i, c := range got {
		if w := &want[i]; c.Name != w.Name || c.Type.String() != w.Type || c.Nullable != w.Nullable {
			return fmt.Errorf("column %d is %s %s (nullable %t), the manifest says %s %s (nullable %t)", i, c.Name, c.Type, c.Nullable, w.Name, w.Type, w.Nullable)
		}
	}
	return nil
}

// keyChecker follows the column that holds the row key.
type keyChecker struct {
	column   int  // -1 = none does
	strict   bool // each key once
	seen     bool
	min, max []byte
}

func (c *keyChecker) check(b *columnar.Batch) error {
	if c.column < 0 {
		return nil
	}
	v := b.Vector(c.column)
	for i := range v.Len() {
		key := v.Bytes(i)
		if !c.seen {
			c.min, c.seen = bytes.Clone(key), true
		} else if d := bytes.Compare(key, c.max); d < 0 || (d == 0 && c.strict) {
			return fmt.Errorf("row %s comes after %s: not sorted", columnar.EscapeKey(key), columnar.EscapeKey(c.max))
		}
		c.max = append(c.max[:0], key...)
	}
	return nil
}
