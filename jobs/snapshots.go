package jobs

import (
	"context"
	"errors"
	"path"
	"slices"

	"sluice/jobs/columnar"
	"sluice/jobs/iceberg"
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

// publishSnapshot makes the run in dir, of manifest m, the current snapshot of its job's
// Iceberg table.
func publishSnapshot(ctx context.Context, t target.Target, dir string, m *Manifest) error {
	r, err := snapshotOf(dir, m)
	if err != nil {
		return err
	}
	return icebergTable(t, m.Job).Publish(ctx, r, func(ctx context.Context, before string) (*iceberg.Run, error) {
		before = path.Join(m.Job, before)
		replaced, _, err := readManifest(ctx, t, path.Join(before, ManifestName))
		if errors.Is(err, target.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return snapshotOf(before, replaced)
	})
}

// snapshotOf returns the run in dir, of manifest m, as Iceberg knows it: its Parquet files
// that have rows.
func snapshotOf(dir string, m *Manifest) (*iceberg.Run, error) {
	r := &iceberg.Run{
		ID: m.RunID, LogicalTime: m.LogicalTime, FinishedAt: m.FinishedAt, Dir: path.Base(dir), Sequence: m.Sequence, Version: m.Version,
		PartitionBy: m.PartitionBy, Order: m.order(), Columns: m.columns(),
	}
	if key := m.keyColumn(); key >= 0 && m.keyed() {
		r.Key = m.Columns[key].Name
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
