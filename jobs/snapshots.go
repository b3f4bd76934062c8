package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"sluice/jobs/columnar"
	"sluice/jobs/iceberg"
	"sluice/jobs/parquetfile"
	"sluice/jobs/target"
)

// checkIceberg checks that runs with these formats and columns can be snapshots of an
// Iceberg table.
func checkIceberg(formats []format, columns []columnar.Column, bad func(path, format string, args ...any)) {
	if !slices.ContainsFunc(formats, func(f format) bool { return f.name == Parquet }) {
		bad("iceberg", "its files are those of Parquet, which formats has not")
	}
	if err := iceberg.Check(columns); err != nil {
		bad("iceberg", "%v", err)
	}
}

// icebergTable returns the Iceberg table of a job.
func icebergTable(t target.Target, job string) *iceberg.Table {
	return &iceberg.Table{Target: t, Dir: job, Job: job}
}

// isTable reports whether the Iceberg table of the job of m is the run of m.
func isTable(ctx context.Context, t target.Target, m *Manifest) (bool, error) {
	return icebergTable(t, m.Job).Is(ctx, &iceberg.Run{ID: m.RunID, Sequence: m.Sequence, FinishedAt: m.FinishedAt})
}

// publishSnapshot makes the run in dir, of manifest m, the current snapshot of its job's
// Iceberg table.
func publishSnapshot(ctx context.Context, t target.Target, dir string, m *Manifest) error {
	r, err := snapshotOf(dir, m)
	if err != nil {
		return err
	}
	if m.increment() {
		if err := findGone(ctx, t, dir, m, r); err != nil {
			return err
		}
	}
	return icebergTable(t, m.Job).Publish(ctx, r, func(ctx context.Context, before string) ([]*iceberg.Run, error) {
		replaced, err := snapshotsOf(ctx, t, m.Job, before)
		if broken := (*brokenChainError)(nil); errors.Is(err, target.ErrNotFound) || errors.As(err, &broken) {
			return nil, nil
		}
		return replaced, err
	})
}

// snapshotsOf returns the run in dir, below the job's directory, as Iceberg knows it, behind
// those that it goes on from, the full one first.
func snapshotsOf(ctx context.Context, t target.Target, job, dir string) ([]*iceberg.Run, error) {
	m, _, err := readManifest(ctx, t, path.Join(job, dir, ManifestName))
	if err != nil {
		return nil, err
	}
	all := []*Manifest{m}
	if err := walkChain(ctx, t, job, m, func(base *Manifest) { all = append(all, base) }); err != nil {
		return nil, err
	}
	runs := make([]*iceberg.Run, len(all))
	for i, m := range all {
		if runs[len(all)-1-i], err = snapshotOf(dir, m); err != nil {
			return nil, err
		}
		if m.increment() {
			dir = m.Incremental.Base
		}
	}
	return runs, nil
}

// findGone finds the rows of r, the increment in dir of manifest m, that are none of the table.
func findGone(ctx context.Context, t target.Target, dir string, m *Manifest, r *iceberg.Run) error {
	for i := range r.Files {
		f := &r.Files[i]
		var err error
		f.Gone, err = goneIn(ctx, t, path.Join(dir, f.Path), m.Columns[m.opColumn()].Name)
		if errors.Is(err, target.ErrNotFound) { // which callers take for that of the run
			err = errors.New("the run is published, and the file is missing")
		}
		if err != nil {
			return fmt.Errorf("rows that are gone in %s: %w", f.Path, err)
		}
	}
	return nil
}

// goneIn returns the rows of a Parquet file of an increment whose column op says that they are
// gone, as iceberg.File has them.
func goneIn(ctx context.Context, t target.Target, name, op string) (gone []uint64, err error) {
	in, err := t.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	rd, err := parquetfile.NewForeignReader(in, in.Size(), []string{op}) // which reads that column alone
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	for row := 0; ; {
		b, err := rd.Next()
		if err == io.EOF {
			return gone, nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		v := b.Vector(0)
		for i := range v.Len() {
			if string(v.Bytes(i)) == columnar.OpDelete {
				for len(gone) <= row/64 {
					gone = append(gone, 0)
				}
				gone[row/64] |= 1 << (row % 64)
			}
			row++
		}
	}
}

// snapshotOf returns the run in dir, of manifest m, as Iceberg knows it: its Parquet files
// that have rows. Of an increment, findGone finds what is missing.
func snapshotOf(dir string, m *Manifest) (*iceberg.Run, error) {
	r := &iceberg.Run{
		ID: m.RunID, LogicalTime: m.LogicalTime, FinishedAt: m.FinishedAt, Dir: path.Base(dir), Sequence: m.Sequence, Version: m.Version,
		PartitionBy: m.PartitionBy, Order: m.order(), Columns: m.columns(),
	}
	if key := m.keyColumn(); key >= 0 && m.keyed() {
		r.Key = m.Columns[key].Name
	}
	if m.increment() {
		key, op := m.rowColumn(), m.opColumn()
		if key < 0 || op < 0 {
			return nil, fmt.Errorf("%w: an increment without a column of row keys, or one that says whether a row is there", ErrManifest)
		}
		r.Base, r.BaseSequence, r.Identity = m.Incremental.BaseRunID, m.Incremental.Since, m.Columns[key].Name
	}
	for i := range m.Files {
		f := &m.Files[i]
		if f.Format != Parquet || f.Rows == 0 {
			continue
		}
		file := iceberg.File{Path: f.Path, Rows: f.Rows, Bytes: f.Bytes, Partition: f.Partition}
		var err error
		if file.Min, err = columnar.UnescapeKey(f.MinRow); err != nil {
			return nil, err
		}
		if file.Max, err = columnar.UnescapeKey(f.MaxRow); err != nil {
			return nil, err
		}
		r.Files = append(r.Files, file)
	}
	return r, nil
}

// IcebergMetadata returns where the newest metadata of the Iceberg table of a job or join is
// that publishes below t, as other programs call it, and that metadata, JSON. Its error wraps
// target.ErrNotFound where there is no table.
func IcebergMetadata(ctx context.Context, t target.Target, job string) (location string, metadata []byte, err error) {
	return icebergTable(t, job).Newest(ctx)
}
