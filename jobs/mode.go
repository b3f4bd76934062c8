package jobs

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/store"
)

// The values of Spec.Mode; the empty one is ModeLatest, which manifests leave out.
const (
	ModeLatest   = "latest"   // the newest version of each column
	ModeVersions = "versions" // the newest Spec.Versions of each column
	ModeHistory  = "history"  // every version that is stored, and the delete markers
)

// compileMode checks the job's mode, after its columns and families.
func (j *Job) compileMode(schema *store.TableDescriptor, bad func(path, format string, args ...any)) {
	s := &j.spec
	switch s.Mode {
	case "", ModeLatest:
		s.Mode = ""
	case ModeVersions, ModeHistory:
		if j.schema != nil && j.schema.Mode() == columnar.PerRow {
			bad("mode", "%s needs rows: cell; with rows: row a column holds the newest version", s.Mode)
		}
	default:
		bad("mode", "%q is no mode; it is %s, %s or %s", s.Mode, ModeLatest, ModeVersions, ModeHistory)
		return
	}
	switch {
	case s.Mode == ModeVersions && (s.Versions < 1 || s.Versions > math.MaxInt32):
		bad("versions", "%d is not from 1 to %d, how many versions of a column mode: versions exports", s.Versions, math.MaxInt32)
	case s.Mode != ModeVersions && s.Versions != 0:
		bad("versions", "it is for mode: versions")
	}
	if s.Mode != ModeHistory {
		return
	}
	if len(s.Where) > 0 {
		bad("where", "mode history exports what is stored, deletes and what they delete; filter the files")
	}
	if s.Filter != "" {
		bad("filter", "mode history exports what is stored, deletes and what they delete; filter the files")
	}
	if j.schema != nil && j.schema.Mode() == columnar.PerCell && !j.schema.Op() {
		bad("columns", "a history says of each cell whether it is a value or deletes some: add {name: op, from: %s, type: string}", columnar.FromOp)
	}
	if schema == nil {
		return
	}
	for i := range schema.Families {
		f := &schema.Families[i]
		if why := noHistory(f); why != "" && (j.families == nil || slices.Contains(j.families, f.Name)) {
			bad("mode", "history of family %s: %s; name the job's other families", f.Name, why)
		}
	}
}

// checkHistory refuses a history of families without one, as compileMode does where the
// schema is known.
func (j *Job) checkHistory(t *store.TableDescriptor) error {
	if j.spec.Mode != ModeHistory {
		return nil
	}
	for i := range t.Families {
		f := &t.Families[i]
		if why := noHistory(f); why != "" && (j.families == nil || slices.Contains(j.families, f.Name)) {
			return fmt.Errorf("%w: history of table %s, family %s: %s; name the job's other families", store.ErrUnsupported, t.Name, f.Name, why)
		}
	}
	return nil
}

// noHistory says why the cells of a family are no history, or nothing.
func noHistory(f *store.FamilyDescriptor) string {
	switch {
	case f.InPlace():
		return "COUNTER and DISTINCT families keep what they are now and no versions"
	case f.NewVersionBehavior:
		return "with NEW_VERSION_BEHAVIOR the order of writes decides what a marker deletes, and cells do not tell it"
	}
	return ""
}

// validateMode checks what a manifest says of versions.
func (m *Manifest) validateMode() error {
	known := m.Mode == "" || m.Mode == ModeVersions || m.Mode == ModeHistory
	if !known || m.Versions < 0 || (m.Mode == ModeVersions) != (m.Versions > 0) || m.Mode != "" && (m.Rows != string(columnar.PerCell) || m.Join != nil) || m.Mode == ModeHistory && m.Incremental != nil {
		return fmt.Errorf("mode %q, %d versions, rows %q", m.Mode, m.Versions, m.Rows)
	}
	return nil
}

// opType returns the write that makes the cell in a row of a batch.
func (m *tableImport) opType(b *columnar.Batch, i int) (cell.OpType, error) {
	if m.op < 0 {
		return cell.OpPut, nil
	}
	name := m.manifest.Columns[m.op].Name
	v := b.Vector(m.op)
	if v.IsNull(i) {
		return 0, &columnError{name, errors.New("it is null")}
	}
	switch op := string(v.Bytes(i)); op {
	case columnar.OpPut:
		return cell.OpPut, nil
	case columnar.OpDelete:
		return cell.OpDelete, nil
	case columnar.OpDeleteColumn:
		return cell.OpDeleteColumn, nil
	case columnar.OpDeleteFamily:
		return cell.OpDeleteFamily, nil
	case columnar.OpDeleteFamilyVersion:
		return cell.OpDeleteFamilyVersion, nil
	default:
		return 0, &columnError{name, fmt.Errorf("%q is nothing that a cell does", op)}
	}
}
