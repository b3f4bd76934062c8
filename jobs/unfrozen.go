package jobs

import (
	"fmt"
	"slices"

	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/region"
	"sluice/store"
)

// ConsistencyRow is the Manifest.Consistency of a run of an instant.Unfrozen.
const ConsistencyRow = "row"

// describeUnfrozen says in m, which has its offsets, what a run of u, which reads these
// tables, is and what a reader cannot count on.
func describeUnfrozen(m *Manifest, u *instant.Unfrozen, tables ...*store.TableDescriptor) {
	m.Consistency, m.TimeBound = ConsistencyRow, u.Before()
	m.Limits = []string{
		"each row was read whole, at one moment between started_at and finished_at; two rows are of two moments",
		"cells with timestamps of time_bound or later are left out; what was written or deleted meanwhile at earlier timestamps may be in it or not; " +
			"a cell that was overwritten since is in it as long as the family still keeps the version before",
	}
	if slices.ContainsFunc(tables, func(t *store.TableDescriptor) bool {
		return slices.ContainsFunc(t.Families, func(f store.FamilyDescriptor) bool { return f.InPlace() })
	}) {
		m.Limits = append(m.Limits, "COUNTER and DISTINCT families have no time bound: counts may hold records beyond offsets")
	}
	if len(m.Offsets) == 0 {
		m.Limits = append(m.Limits, "the store keeps no offsets: nothing says up to which records the data is complete")
	} else {
		m.Limits = append(m.Limits, "offsets were read before the first row: every record before them is in the data, but for cells with timestamps of time_bound or later; "+
			"of the records from there on some may be in it")
	}
	if m.Mode == ModeHistory {
		m.Limits = append(m.Limits, "the history has the versions and delete markers that the store still had when each row was read: its compactions drop what no read sees")
	}
	if m.increment() {
		m.Limits = append(m.Limits, "the increment has the rows with cells whose timestamps are from incremental.since to time_bound: rows that were deleted since, and cells that were "+
			"written since with earlier timestamps, are not in it; the next full run has them")
	}
}

// keepRegions returns what a run of u notes of a table's regions, so that one that
// goes on has the same parts: the first row of each but the first, escaped.
func keepRegions(m *region.Map) []string {
	starts := []string{}
	for _, key := range m.Splits() {
		starts = append(starts, columnar.EscapeKey(key))
	}
	return starts
}

// keptRegions is the reverse of keepRegions.
func keptRegions(table string, starts []string) (*region.Map, error) {
	infos := []region.Info{{Table: table}}
	for i, s := range starts {
		key, err := columnar.UnescapeKey(s)
		if err != nil {
			return nil, fmt.Errorf("%w: region %q: %w", ErrManifest, s, err)
		}
		infos[i].Stop = key
		infos = append(infos, region.Info{Table: table, ID: int64(i + 1), Start: key})
	}
	m, err := region.NewMap(table, infos)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	return m, nil
}
