// Package iceberg keeps the metadata by which engines read the published runs of a job as
// the snapshots of one Apache Iceberg table: Spark, Trino, DuckDB, PyIceberg and what else
// knows the format (https://iceberg.apache.org/spec/, version 2).
//
// The table lies in the job's directory. Its data files are the Parquet files of runs,
// where they are; each snapshot is one run, which replaces the one before, or, of an
// increment, goes on from it (increment.go). The metadata is as Iceberg's file-system tables have it: metadata/vN.metadata.json, the
// newest N being the table, and metadata/version-hint.text, which says N to readers that
// cannot list. Who makes the next N first has committed, atomically (target.Target.Update);
// what lost is removed.
//
// The package knows runs by a Run, and nothing of manifests (package jobs). It writes the
// table, and does not read Iceberg tables of others: what another writer has committed to,
// it refuses to touch.
package iceberg

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"sluice/jobs/columnar"
	"sluice/jobs/target"
)

// ErrForeign is wrapped by the errors about metadata that this package has not written.
var ErrForeign = errors.New("iceberg: the table is not of this writer alone")

// ErrBase is wrapped by the errors about increments that go on from another run than the
// table is.
var ErrBase = errors.New("iceberg: the table is not the run that this one goes on from")

// ErrColumns is wrapped by the errors about columns that no table can have together.
var ErrColumns = errors.New("iceberg: columns")

// Table is the Iceberg table of one job.
type Table struct {
	Target target.Target
	// Dir is the directory of the job, below Target.
	Dir string
	// Job is its name, which the table's properties say.
	Job string
}

// Run is one run as a snapshot.
type Run struct {
	ID          string
	LogicalTime time.Time // what it is for; a snapshot never replaces one for a later time
	FinishedAt  time.Time
	Dir         string // below the table's
	Sequence    uint64 // last commit in the data, as the run's manifest says
	Version     string // of the program, for the summary

	Columns     []columnar.Column // of the table; those of PartitionBy are not in the files
	PartitionBy []string          // columns of type string, int64 or bool
	Order       []columnar.Order  // by which the rows of a file follow each other
	Key         string            // the column that files have bounds of; empty = none
	Files       []File            // its Parquet files

	// Base is the id of the run that this one, an increment, goes on from; empty = it is whole.
	// Of each value of the column Identity, which tells rows apart, the rows of the increment
	// replace all those before.
	Base         string
	BaseSequence uint64 // its Sequence
	Identity     string
}

// File is a data file.
type File struct {
	Path        string // below the run's directory
	Rows, Bytes int64
	Partition   []*string // the values of PartitionBy, as text; nil = null
	Min, Max    []byte    // of the column Key; nil in a file without rows
	// Gone are, in an increment, the rows that are no rows of the table, and say that there is
	// none of their Identity any more: row i where bit i%64 of Gone[i/64] is set. Rows behind
	// its end are there.
	Gone []uint64
}

// Check returns what keeps a table from having these columns: its error wraps ErrColumns.
func Check(columns []columnar.Column) error {
	seen := make(map[int32]string, len(columns))
	for i := range columns {
		for _, id := range fieldIDs(&columns[i]) {
			if other, ok := seen[id]; ok {
				return fmt.Errorf("%w: %s and %s have the same field id, %d: give one of them another name", ErrColumns, other, columns[i].Name, id)
			}
			seen[id] = columns[i].Name
		}
	}
	return nil
}

// CheckLocation returns what keeps readers from finding files below this URL: a character
// that some of them take for more than itself.
func CheckLocation(url string) error {
	if i := strings.IndexAny(url, "?#\\"); i >= 0 {
		return fmt.Errorf("iceberg: the location %s has %q, which readers take for more than itself: write to another directory", url, url[i])
	}
	return nil
}

// Publish makes r the table's current snapshot, and the table where there is none. It does
// nothing where r is one of its snapshots already, or the current one is for a later
// time. A snapshot of another run with r's ID, whose files are not there any more, goes before,
// with those that go on from it. previous returns the run in a directory below the table's, whose files the new
// snapshot's replace, behind all those that it goes on from, the whole one first, or none where
// one of these is gone: then the snapshot does not say what it replaces. The error wraps ErrBase
// where r goes on from another run than the table is.
func (t *Table) Publish(ctx context.Context, r *Run, previous func(ctx context.Context, dir string) ([]*Run, error)) error {
	if err := Check(r.Columns); err != nil {
		return err
	}
	location := t.Target.URL(t.Dir)
	if err := CheckLocation(location); err != nil {
		return err
	}
	err := t.commit(ctx, func(m *metadata) (*metadata, error) {
		switch {
		case m == nil:
			m = newMetadata(location, t.Job)
		case m.Location != location:
			return nil, fmt.Errorf("%w: it was made for %s and is at %s, where the files that it names are not: remove %s", ErrForeign, m.Location, location, t.name(""))
		}
		made := m.snapshotOf(r.ID)
		if made.of(r) {
			return nil, nil
		}
		if made != nil { // of a run for the same time that somebody has removed
			m.forget(made.Sequence)
		}
		var replaced []*Run
		current := m.current()
		if current != nil {
			at, err := time.Parse(time.RFC3339Nano, current.Summary[summaryTime])
			if err != nil {
				return nil, fmt.Errorf("%w: snapshot %d: %w", ErrForeign, current.ID, err)
			}
			if at.After(r.LogicalTime) {
				if made != nil {
					return m, nil
				}
				return nil, nil
			}
		}
		if r.Base != "" {
			if !current.of(&Run{ID: r.Base, Sequence: r.BaseSequence}) {
				return nil, fmt.Errorf("%w, %s: a run that is whole makes the table anew", ErrBase, r.Base)
			}
			return m, t.addIncrement(ctx, m, r)
		}
		if current != nil {
			var err error
			if replaced, err = previous(ctx, path.Dir(current.Summary[summaryManifest])); err != nil {
				return nil, err
			}
		}
		return m, t.addSnapshot(ctx, m, r, replaced)
	})
	if err != nil {
		return fmt.Errorf("iceberg table in %s: %w", t.Dir, err)
	}
	return nil
}

// Current returns the id of the run that the table is, empty where there is no table.
func (t *Table) Current(ctx context.Context) (run string, err error) {
	m, _, err := t.read(ctx)
	if err != nil {
		return "", fmt.Errorf("iceberg table in %s: %w", t.Dir, err)
	}
	if m == nil {
		return "", nil
	}
	return m.current().Summary[summaryRun], nil
}

// Newest returns where the newest metadata of the table is, as other programs call it, and that
// metadata, JSON. Its error wraps target.ErrNotFound where there is no table.
func (t *Table) Newest(ctx context.Context) (location string, data []byte, err error) {
	m, version, err := t.read(ctx)
	if err == nil && m == nil {
		err = target.ErrNotFound
	}
	if err == nil {
		data, err = m.encode()
	}
	if err != nil {
		return "", nil, fmt.Errorf("iceberg table in %s: %w", t.Dir, err)
	}
	return m.Location + "/" + metadataDir + "/" + versionName(version), data, nil
}

// Is reports whether the table is r, of which ID, Sequence and FinishedAt count.
func (t *Table) Is(ctx context.Context, r *Run) (bool, error) {
	m, _, err := t.read(ctx)
	if err != nil {
		return false, fmt.Errorf("iceberg table in %s: %w", t.Dir, err)
	}
	return m != nil && m.current().of(r), nil
}

// Expire takes the snapshots of these runs from the table, so that the runs can be removed;
// but for the current one, which stays.
func (t *Table) Expire(ctx context.Context, runs []string) error {
	err := t.commit(ctx, func(m *metadata) (*metadata, error) {
		if m == nil {
			return nil, nil
		}
		of := make(map[string]bool, len(runs))
		for _, id := range runs {
			of[id] = id != m.current().Summary[summaryRun]
		}
		if !m.expire(of) {
			return nil, nil
		}
		return m, nil
	})
	if err != nil {
		return fmt.Errorf("iceberg table in %s: %w", t.Dir, err)
	}
	return nil
}
