package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"sluice/jobs/columnar"
	"sluice/jobs/target"
)

// The keys of the metadata in every file.
const (
	metaJob      = "sluice.job"
	metaRun      = "sluice.run_id"
	metaTable    = "sluice.table"
	metaRows     = "sluice.rows"
	metaSequence = "sluice.sequence"
	metaSorted   = "sluice.sorted_by"
	metaVersion  = "sluice.version"
)

// metadata is what every file of the run says of it.
func (m *Manifest) metadata() map[string]string {
	return map[string]string{
		metaJob: m.Job, metaRun: m.RunID, metaTable: m.Table, metaRows: m.Rows, metaSequence: strconv.FormatUint(m.Sequence, 10),
		metaSorted: sortedText(m.order()), metaVersion: m.Version,
	}
}

// sortedText writes an order for the metadata.
func sortedText(order []columnar.Order) string {
	all := make([]string, len(order))
	for i, o := range order {
		all[i] = o.String()
	}
	return strings.Join(all, ",")
}

// follow names the run before this one, if there is one.
func (m *Manifest) follow(ctx context.Context, t target.Target) error {
	latest, err := readLatest(ctx, t, m.Job)
	switch {
	case err == nil:
		m.PreviousRunID = latest.RunID
	case !errors.Is(err, target.ErrNotFound):
		return err
	}
	return nil
}

// errManifestSize: nobody could read the manifest again, so it is not published.
var errManifestSize = errors.New("the manifest is too large")

// checkManifestSize refuses the manifest of so many files that is too large to be read,
// and says what helps.
func checkManifestSize(files, size int, hint string) error {
	if size <= maxManifestBytes {
		return nil
	}
	return fmt.Errorf("%w: its %d files make it %d bytes, of which at most %d are read: %s", errManifestSize, files, size, maxManifestBytes, hint)
}

// filesHint says what makes a manifest smaller.
const filesHint = "make files larger (target_file_bytes), or have fewer partitions"

// fileList adds up what the files of a run take of its manifest, at least, so that one with
// too many of them ends when it has them, and not when it has all.
type fileList struct {
	files, bytes int
}

// add counts a file. Its error wraps errManifestSize.
func (l *fileList) add(f *File) error {
	data, err := encodeJSON(f)
	if err != nil {
		return err
	}
	l.files, l.bytes = l.files+1, l.bytes+len(data)
	return checkManifestSize(l.files, l.bytes, filesHint)
}
