package iceberg

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"path"
	"strconv"

	"sluice/jobs/parquetfile"
	"sluice/jobs/target"
)

// An increment is a snapshot that keeps the files of the one before, and says what of them
// is no row of the table any more (Iceberg's Delete Formats, version 2):
//
//   - The rows of files before with an Identity that the increment has. That is said by the
//     increment's own files, which an equality delete may be, as it may have more columns than
//     those that are compared.
//   - The increment's rows that are Gone, by their positions, in a small file of its own for
//     each that has some.

// addIncrement writes the manifests of a snapshot of r, which goes on from the current one, and
// makes it the current one.
func (t *Table) addIncrement(ctx context.Context, m *metadata, r *Run) error {
	current := m.current()
	w := t.newManifestWriter(m, r)
	w.snapshot.Parent = current.ID
	m.setSchema(r.Columns)
	before, err := t.readList(ctx, m, current)
	if err != nil {
		return err
	}
	for _, f := range before {
		if f.added.files > 0 { // and not what that snapshot has replaced
			w.manifests = append(w.manifests, f)
		}
	}
	identities, err := w.identities(ctx, r)
	if err != nil {
		return err
	}
	positions, err := w.positions(ctx, r)
	if err != nil {
		return err
	}
	says, err := current.increment(r, identities, positions)
	if err != nil {
		return err
	}
	return w.end(ctx, r, says)
}

// identities makes the files of r say which rows before are none any more.
func (w *manifestWriter) identities(ctx context.Context, r *Run) (totals, error) {
	// Files that are not divided speak of all partitions: a row may have gone to another.
	e, err := w.entries(r, w.metadata.CurrentSchemaID, nil)
	if err != nil {
		return totals{}, err
	}
	e.content = contentEquality
	if e.identity, err = fieldOf(r.Columns, r.Identity); err != nil {
		return totals{}, err
	}
	if r.Key == r.Identity {
		e.bounded = e.identity
	}
	return totalsOf(r.Files), w.writeEntries(ctx, e)
}

// positions writes where the rows of r are that are Gone.
func (w *manifestWriter) positions(ctx context.Context, r *Run) (totals, error) {
	m := w.metadata
	// They lie with the metadata: the run has its own files alone.
	of := *r
	of.Dir, of.Files = metadataDir, nil
	for i := range r.Files {
		f := &r.Files[i]
		gone := int64(0)
		for _, word := range f.Gone {
			gone += int64(bits.OnesCount64(word))
		}
		if gone == 0 {
			continue
		}
		url := m.Location + "/" + path.Join(r.Dir, f.Path)
		data, err := parquetfile.EncodePositions(url, f.Gone)
		if err != nil {
			return totals{}, err
		}
		name := fmt.Sprintf("%s-p%d.parquet", w.stem, len(of.Files))
		if err := w.table.write(ctx, name, data); err != nil {
			return totals{}, err
		}
		of.Files = append(of.Files, File{Path: name, Rows: gone, Bytes: int64(len(data)), Partition: f.Partition, Min: []byte(url), Max: []byte(url)})
	}
	e, err := w.entries(&of, m.CurrentSchemaID, r.PartitionBy)
	if err != nil {
		return totals{}, err
	}
	e.content, e.bounded = contentPositions, parquetfile.PositionsFile
	return totalsOf(of.Files), w.writeEntries(ctx, e)
}

// increment returns what the snapshot of r says of itself, which goes on from s: the files
// of r were added, and say of so many identities and rows that they are gone.
func (s *snapshot) increment(r *Run, identities, positions totals) (map[string]string, error) {
	says := summary(r, nil)
	says["operation"] = "overwrite"
	says[summaryWhole] = strconv.FormatInt(s.whole(), 10)
	deletes := totals{files: identities.files + positions.files, bytes: identities.bytes + positions.bytes}
	added := totalsOf(r.Files)
	added.bytes += deletes.bytes
	says["added-files-size"] = strconv.FormatInt(added.bytes, 10)
	for key, n := range map[string]int64{
		"added-delete-files": int64(deletes.files), "added-equality-delete-files": int64(identities.files), "added-position-delete-files": int64(positions.files),
		"added-equality-deletes": identities.rows, "added-position-deletes": positions.rows,
	} {
		if n > 0 {
			says[key] = strconv.FormatInt(n, 10)
		}
	}
	for key, n := range map[string]int64{
		totalFiles: int64(added.files), totalRecords: added.rows, totalBytes: added.bytes,
		totalDeleteFiles: int64(deletes.files), totalEqualities: identities.rows, totalPositions: positions.rows,
	} {
		was, err := strconv.ParseInt(s.Summary[key], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: snapshot %d: %s: %w", ErrForeign, s.ID, key, err)
		}
		says[key] = strconv.FormatInt(was+n, 10)
	}
	return says, nil
}

// addedIn returns the sequences in which the files of runs were added that make up the
// snapshot current, in their order.
func (t *Table) addedIn(ctx context.Context, m *metadata, current *snapshot, runs []*Run) ([]int64, error) {
	all := make([]int64, len(runs))
	if len(runs) == 1 { // it is whole, and the snapshot's own
		all[0] = current.Sequence
		return all, nil
	}
	if len(runs) == 0 {
		return nil, nil
	}
	list, err := t.readList(ctx, m, current)
	if err != nil {
		return nil, err
	}
	for i, r := range runs {
		id := m.snapshotID(r.ID)
		for _, f := range list {
			if f.snapshot == id && !f.deletes && f.added.files > 0 {
				all[i] = f.minSequence
			}
		}
		if all[i] == 0 && len(r.Files) > 0 {
			return nil, fmt.Errorf("%w: snapshot %d has no manifest of run %s, which it is made of", ErrForeign, current.ID, r.ID)
		}
	}
	return all, nil
}

// maxListBytes bounds what is read as a list of manifests: some 100 bytes a manifest.
const maxListBytes = 16 << 20

// errMissing: the table is damaged, or it has become another one since it was read.
var errMissing = errors.New("iceberg: a list of manifests is missing")

// readList reads the list of a snapshot's manifests.
func (t *Table) readList(ctx context.Context, m *metadata, s *snapshot) ([]manifestFile, error) {
	dir := m.Location + "/" + metadataDir
	if s.ManifestList != dir+"/"+path.Base(s.ManifestList) {
		return nil, fmt.Errorf("%w: the manifests of snapshot %d are listed in %s, which is not in %s", ErrForeign, s.ID, s.ManifestList, dir)
	}
	name := t.name(path.Base(s.ManifestList))
	data, err := target.ReadFile(ctx, t.Target, name, maxListBytes)
	if errors.Is(err, target.ErrNotFound) { // which callers take for that of a run
		return nil, fmt.Errorf("%w: %s, of snapshot %d: remove %s, and a run that is whole makes the table anew", errMissing, name, s.ID, t.name(""))
	}
	if err != nil {
		return nil, err
	}
	list, err := decodeList(data, dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}
