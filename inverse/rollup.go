package inverse

import (
	"slices"
	"strings"

	"sluice/counters"
	"sluice/jobs/columnar"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// rollupSet is the rows of one set of dimensions, which rollups of several pipelines may
// write.
type rollupSet struct {
	counters.Rollup
	values   []mapping.Value // of the dimensions
	families []string
	distinct bool
	by       []written
}

// rollupJobs returns the jobs of a table that rollups alone write: one for each set of
// dimensions, whose rows lie together, and of which each dimension is a column.
func rollupJobs(table *store.TableDescriptor, rollups []written) []Job {
	var all []Job
	sets := rollupSets(rollups)
	for i := range sets {
		s := &sets[i]
		more := append([]string{s.Name}, s.Dimensions...)
		if len(sets) == 1 {
			more = nil
		}
		b := newBuilder(table, jobName(table.Name, more...))
		spec := &b.job.Spec
		spec.Rows = string(columnar.PerCell)
		b.note("%s is written by %s", table.Name, places(s.by))
		if len(s.families) < len(table.Families) {
			spec.Families = s.families
		}
		rows, err := s.Rows()
		if err != nil {
			panic("inverse: a rollup without values has no rows: " + err.Error()) // only their number can be wrong
		}
		spec.StartRow, spec.StopRow = columnar.EscapeKey(rows.Start), columnar.EscapeKey(rows.Stop)
		b.column(columnar.ColumnSpec{Name: b.name("row"), From: columnar.FromRow, Type: s.rowType()}, "")
		s.dimensions(b)
		b.counts(mapping.Value{Kind: mapping.KindText}, countCoding(table, s.families[0]))
		all = append(all, b.done())
	}
	return apart(all)
}

// rollupSets returns the sets of rollups, each once.
func rollupSets(rollups []written) (sets []rollupSet) {
	for _, w := range rollups {
		r := w.Rollup
		specs := r.Sets
		if len(specs) == 0 { // of one dimension, or of none
			var one []string
			for name := range r.Dimensions {
				one = append(one, name)
			}
			specs = [][]string{one}
		}
		for _, dimensions := range specs {
			s := rollupSet{Rollup: counters.Rollup{Name: r.Name, Dimensions: dimensions}, distinct: r.Distinct != ""}
			k := slices.IndexFunc(sets, func(o rollupSet) bool { return o.Head() == s.Head() && o.distinct == s.distinct })
			if k < 0 {
				k = len(sets)
				s.values = make([]mapping.Value, len(dimensions))
				sets = append(sets, s)
			}
			of := &sets[k]
			of.by = append(of.by, w)
			for i, name := range dimensions {
				of.values[i] = mapping.Either(of.values[i], w.Dimensions[name])
			}
			for _, name := range r.Buckets {
				if bucket, ok := counters.ParseBucket(name); ok && !slices.Contains(of.families, bucket.Family(of.distinct)) {
					of.families = append(of.families, bucket.Family(of.distinct))
				}
			}
		}
	}
	for i := range sets {
		slices.Sort(sets[i].families)
	}
	return sets
}

// rowType is the type of the set's row keys as they are.
func (s *rollupSet) rowType() string {
	if slices.ContainsFunc(s.values, func(v mapping.Value) bool { return !v.IsText() }) {
		return "bytes"
	}
	return "string"
}

// dimensions adds the dimensions' columns.
func (s *rollupSet) dimensions(b *builder) {
	if len(s.values) == 0 {
		return
	}
	b.field(columnar.KeyField{Until: columnar.EscapeKey([]byte(s.Head() + "\x00"))}, "")
	escaped := false
	for i, name := range s.Dimensions {
		f := columnar.KeyField{Name: strings.ReplaceAll(name, "-", "_")}
		for n := 0; slices.ContainsFunc(b.job.Spec.RowKey.Fields, func(o columnar.KeyField) bool { return o.Name == f.Name }); n++ {
			f.Name += "_"
		}
		if i+1 < len(s.Dimensions) {
			f.Until = `\x00`
		}
		b.field(f, "")
		v := s.values[i]
		switch v.Kind {
		case mapping.KindInt, mapping.KindMillis, mapping.KindFloat, mapping.KindDecimal, mapping.KindBool, mapping.KindJSON:
		default:
			escaped = true
			v = mapping.Value{Kind: mapping.KindText, Note: v.Note}
			if !s.values[i].IsText() {
				v.Kind, v.Note = mapping.KindBytes, "as it is in the key: of "+s.values[i].Kind.String()
			}
		}
		b.value(b.name(name, "row_"+name), columnar.FromRow+"."+f.Name, &v)
	}
	if escaped {
		b.note("in the dimensions, byte 00 is written as 01 01 and byte 01 as 01 02 (docs/row-keys.md, Rollups)")
	}
}
