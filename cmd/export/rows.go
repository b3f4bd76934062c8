package main

import (
	"fmt"

	"sluice/cell"
	"sluice/cmd/internal/cli"
	"sluice/jobs/columnar"
)

// rowsFlags choose rows of a table.
type rowsFlags struct {
	StartRow string `placeholder:"KEY" help:"First row key; other bytes than printable ASCII as \\xNN. Default: the table's first."`
	StopRow  string `placeholder:"KEY" help:"Row key before which to stop. Default: the table's end."`
}

// rows reads the flags; the error wraps cli.ErrUsage.
func (f *rowsFlags) rows() (r cell.Range, err error) {
	if r.Start, err = columnar.UnescapeKey(f.StartRow); err != nil {
		return r, fmt.Errorf("%w: --start-row: %w", cli.ErrUsage, err)
	}
	if r.Stop, err = columnar.UnescapeKey(f.StopRow); err != nil {
		return r, fmt.Errorf("%w: --stop-row: %w", cli.ErrUsage, err)
	}
	if len(r.Stop) > 0 && string(r.Stop) <= string(r.Start) {
		return r, fmt.Errorf("%w: --stop-row %s is not after --start-row %s", cli.ErrUsage, f.StopRow, f.StartRow)
	}
	return r, nil
}
