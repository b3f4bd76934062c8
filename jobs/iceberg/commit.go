package iceberg

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"sluice/jobs/target"
)

const (
	metadataDir = "metadata"
	versionHint = "version-hint.text"
	// keptVersions is how many versions of the metadata before the newest one stay, for
	// readers that have begun with them.
	keptVersions = 10
	// maxCommits bounds how often a commit is tried: somebody else has made one each time.
	maxCommits = 100
	// maxMetadataBytes bounds what is read as metadata: some 700 bytes a snapshot.
	maxMetadataBytes = 16 << 20
)

// name returns the name, below Target, of a file of the metadata.
func (t *Table) name(file string) string { return path.Join(t.Dir, metadataDir, file) }

// versionName is the file of a version of the metadata.
func versionName(n int) string { return fmt.Sprintf("v%d.metadata.json", n) }

// versionOf returns the version that a file is; ok is false for others.
func versionOf(file string) (n int, ok bool) {
	text, json := strings.CutSuffix(file, ".metadata.json")
	text, v := strings.CutPrefix(text, "v")
	n, err := strconv.Atoi(text)
	return n, json && v && err == nil && n > 0 && versionName(n) == file
}

// newest returns the newest version of the metadata; 0 = there is none.
func (t *Table) newest(ctx context.Context) (version int, err error) {
	files, err := t.Target.List(ctx, t.name(""))
	if errors.Is(err, target.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		n, ok := versionOf(f.Name)
		if !ok && strings.HasSuffix(f.Name, ".metadata.json") {
			return 0, fmt.Errorf("%w: %s has %s, as catalogs write it", ErrForeign, t.name(""), f.Name)
		}
		version = max(version, n)
	}
	return version, nil
}

// read returns the newest version of the metadata; nil and 0 = there is none.
func (t *Table) read(ctx context.Context) (m *metadata, version int, err error) {
	if version, err = t.newest(ctx); err != nil || version == 0 {
		return nil, 0, err
	}
	name := t.name(versionName(version))
	data, err := target.ReadFile(ctx, t.Target, name, maxMetadataBytes)
	if err != nil {
		return nil, 0, err
	}
	if m, err = decode(data); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", name, err)
	}
	return m, version, nil
}

// commit makes what change makes of the table its next version. change gets nil where
// there is no table, may change what it gets, and returns nil where nothing is to be done.
// It is called again where another commit was faster.
func (t *Table) commit(ctx context.Context, change func(m *metadata) (*metadata, error)) error {
	for range maxCommits {
		m, version, err := t.read(ctx)
		if errors.Is(err, target.ErrNotFound) {
			continue // versions have gone by since the list
		}
		if err != nil {
			return err
		}
		was := int64(0)
		if m != nil {
			was = m.LastUpdated
		}
		next, err := change(m)
		if errors.Is(err, errMissing) {
			if newest, newestErr := t.newest(ctx); newestErr == nil && newest != version {
				continue
			}
		}
		if err != nil {
			return err
		}
		if next == nil { // who has made that version may have been killed before the hint
			if version > 0 {
				return t.hint(ctx, version)
			}
			return nil
		}
		if version > 0 {
			next.MetadataLog = append(next.MetadataLog, previousFile{Time: was, File: next.Location + "/" + metadataDir + "/" + versionName(version)})
			next.MetadataLog = next.MetadataLog[max(0, len(next.MetadataLog)-keptVersions):]
		}
		data, err := next.encode()
		if err != nil {
			return err
		}
		first, err := t.create(ctx, versionName(version+1), data)
		if err != nil {
			return err
		}
		if !first {
			continue
		}
		newest, err := t.newest(ctx)
		if err != nil {
			return err
		}
		if newest > version+1+keptVersions {
			// Others have committed so often since the read that they may have swept away the
			// version that this one has made again: the table has not become it.
			continue
		}
		if err := t.hint(ctx, version+1); err != nil {
			return err
		}
		// The table is what it is to be. What is left now goes with the next commit.
		_ = t.sweep(ctx, next, version+1)
		return nil
	}
	return fmt.Errorf("%w: others have committed %d times meanwhile", target.ErrBusy, maxCommits)
}

// create makes a file of the metadata, and reports false where it is another one's.
func (t *Table) create(ctx context.Context, file string, data []byte) (first bool, err error) {
	err = t.Target.Update(ctx, t.name(file), func(old []byte) ([]byte, error) {
		first = old == nil || bytes.Equal(old, data)
		if !first {
			return nil, nil
		}
		return data, nil
	})
	return first, err
}

// hint makes the hint say a version, unless it says a later one.
func (t *Table) hint(ctx context.Context, version int) error {
	return t.Target.Update(ctx, t.name(versionHint), func(old []byte) ([]byte, error) {
		if n, err := strconv.Atoi(strings.TrimSpace(string(old))); err == nil && n >= version {
			return nil, nil
		}
		return []byte(strconv.Itoa(version)), nil
	})
}

// The files of snapshots are named SEQUENCE-RANDOM-KIND: those of one snapshot begin alike, and
// those of a commit that another was faster than with what no snapshot has.

// stemOf returns how the names of a snapshot's files begin, and its sequence; ok is false
// for other files.
func stemOf(file string) (stem string, sequence int64, ok bool) {
	parts := strings.Split(file, "-")
	if len(parts) != 3 || !strings.HasSuffix(file, ".avro") && !strings.HasSuffix(file, ".parquet") {
		return "", 0, false
	}
	sequence, err := strconv.ParseInt(parts[0], 10, 64)
	return parts[0] + "-" + parts[1], sequence, err == nil
}

// sweep removes what version of the table, m, has no use of any more: old versions, the
// files of expired snapshots, but for those that others go on from, and those of commits that
// others were faster than.
func (t *Table) sweep(ctx context.Context, m *metadata, version int) error {
	c, ok := t.Target.(target.Collector)
	if !ok {
		return nil
	}
	files, err := t.Target.List(ctx, t.name(""))
	if err != nil {
		return err
	}
	used := make(map[string]bool, len(m.Snapshots))
	for i := range m.Snapshots {
		stem, _, _ := stemOf(path.Base(m.Snapshots[i].ManifestList))
		used[stem] = true
	}
	for _, f := range files {
		n, old := versionOf(f.Name)
		old = old && n < version-keptVersions
		stem, sequence, ours := stemOf(f.Name)
		// A later sequence is one of a commit at work.
		if old || ours && sequence <= m.LastSequence && !used[stem] && !m.goesOnFrom(sequence) {
			if err := c.RemoveFile(ctx, t.name(f.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// newManifestWriter begins the next snapshot, which is of r.
func (t *Table) newManifestWriter(m *metadata, r *Run) *manifestWriter {
	sequence := m.LastSequence + 1
	return &manifestWriter{
		table: t, metadata: m, snapshot: snapshot{ID: m.snapshotID(r.ID), Sequence: sequence},
		stem: fmt.Sprintf("%d-%s", sequence, rand.Text()),
	}
}

// addSnapshot writes the manifests of a snapshot of r, which replaces the files of
// replaced, those of the current snapshot, or where there are none nobody knows which, and
// makes it the current one.
func (t *Table) addSnapshot(ctx context.Context, m *metadata, r *Run, replaced []*Run) error {
	w := t.newManifestWriter(m, r)
	current, deleted := m.current(), m.CurrentSchemaID
	added, err := t.addedIn(ctx, m, current, replaced)
	if err != nil {
		return err
	}
	m.setSchema(r.Columns)
	if m.unbind(); m.current() == nil {
		replaced = nil
	}
	for i, before := range replaced {
		w.snapshot.Parent = current.ID
		if _, err := w.write(ctx, before, statusDeleted, deleted, added[i]); err != nil {
			return err
		}
	}
	return w.end(ctx, r, summary(r, replaced))
}

// end writes the manifests of the files that r has added, and makes the snapshot, which says
// this of itself, the current one.
func (w *manifestWriter) end(ctx context.Context, r *Run, says map[string]string) error {
	m := w.metadata
	added, err := w.write(ctx, r, statusAdded, m.CurrentSchemaID, w.snapshot.Sequence)
	if err != nil {
		return err
	}
	m.DefaultSpecID, m.DefaultSortOrder = added.spec.ID, added.order
	w.snapshot.SchemaID, w.snapshot.Summary = m.CurrentSchemaID, says
	says[summarySpecs] = w.specs(added)
	if err := w.list(ctx); err != nil {
		return err
	}
	m.add(w.snapshot, r.FinishedAt)
	return nil
}

// manifestWriter writes the manifests of a snapshot.
type manifestWriter struct {
	table     *Table
	metadata  *metadata
	snapshot  snapshot
	stem      string // of the names of its files
	manifests []manifestFile
}

// write writes the manifests of the files of r, which have a status since the snapshot, and
// were added in that of the sequence.
func (w *manifestWriter) write(ctx context.Context, r *Run, status, schema int, sequence int64) (*entries, error) {
	e, err := w.entries(r, schema, r.PartitionBy)
	if err != nil {
		return nil, err
	}
	e.status, e.sequence = status, sequence
	if r.Key != "" {
		if e.bounded, err = fieldOf(r.Columns, r.Key); err != nil {
			return nil, err
		}
	}
	return e, w.writeEntries(ctx, e)
}

// entries returns what entries of files of r have in common that the snapshot adds, divided by
// these columns.
func (w *manifestWriter) entries(r *Run, schema int, by []string) (e *entries, err error) {
	m := w.metadata
	e = &entries{run: r, schema: m.schema(schema), status: statusAdded, snapshot: w.snapshot.ID, sequence: w.snapshot.Sequence, location: m.Location}
	if e.spec, err = m.spec(r.Columns, by); err != nil {
		return nil, err
	}
	e.order, err = m.order(r.Columns, r.Order)
	return e, err
}

// writeEntries writes the manifests of e.
func (w *manifestWriter) writeEntries(ctx context.Context, e *entries) error {
	return e.manifests(func(data []byte, files []File) error {
		f := manifestFile{
			name: fmt.Sprintf("%s-m%d.avro", w.stem, len(w.manifests)), bytes: len(data), spec: e.spec.ID, deletes: e.content != contentData,
			sequence: w.snapshot.Sequence, minSequence: e.sequence, snapshot: w.snapshot.ID,
		}
		if e.status == statusAdded {
			f.added = totalsOf(files)
		} else {
			f.deleted = totalsOf(files)
		}
		w.manifests = append(w.manifests, f)
		return w.table.write(ctx, f.name, data)
	})
}

// specs returns the ids of the partition specs of the files, and of those that are replaced.
func (w *manifestWriter) specs(added *entries) string {
	ids := []int{added.spec.ID}
	for i := range w.manifests {
		ids = append(ids, w.manifests[i].spec)
	}
	slices.Sort(ids)
	return strings.Trim(fmt.Sprint(slices.Compact(ids)), "[]")
}

// list writes the list of the manifests, and makes it the snapshot's.
func (w *manifestWriter) list(ctx context.Context) error {
	dir, name := w.metadata.Location+"/"+metadataDir, w.stem+"-list.avro"
	data, err := encodeList(&w.snapshot, dir, w.manifests)
	if err != nil {
		return err
	}
	w.snapshot.ManifestList = dir + "/" + name
	return w.table.write(ctx, name, data)
}

// write makes a file of the metadata whose name nobody else has.
func (t *Table) write(ctx context.Context, file string, data []byte) error {
	first, err := t.create(ctx, file, data)
	if err == nil && !first {
		err = fmt.Errorf("%w: %s is there", ErrForeign, t.name(file))
	}
	return err
}

// schema returns a schema by its id; nil = there is none.
func (m *metadata) schema(id int) *schema {
	i := slices.IndexFunc(m.Schemas, func(s schema) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return &m.Schemas[i]
}
