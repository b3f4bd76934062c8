package storetest

import (
	"errors"
	"slices"
	"testing"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// situation is what happens to the storage while a case runs.
type situation string

const (
	asWritten situation = "as-written"
	unpacked  situation = "unpacked"  // a put of several columns is several puts
	flushed   situation = "flushed"   // before each read what is in memory is written to disk
	compacted situation = "compacted" // before each read there is a flush and a major compaction
	tidied    situation = "tidied"    // before each read the engine rewrites what holds garbage
	reshaped  situation = "reshaped"  // regions are split and merged between the operations
	reopened  situation = "reopened"  // before each read the engine is closed and opened
)

var situations = []situation{asWritten, unpacked, flushed, compacted, tidied, reshaped, reopened}

// unavailable says why engines cannot be brought into the situation.
func (s situation) unavailable(t *testing.T, open Factory) string {
	e := start(t, open)
	switch s {
	case flushed, compacted:
		if _, ok := e.Engine.(store.Compactor); !ok {
			return "the engine is no store.Compactor"
		}
	case tidied:
		if _, ok := e.Engine.(Tidier); !ok {
			return "the engine does not rewrite by itself"
		}
	case reopened:
		if !e.durable() {
			return "the engine is not durable"
		}
	}
	return ""
}

// suits reports whether the situation leaves the case's expectations as they are.
// A case with "physical" pins what flushes and compactions of its own leave behind.
// A flush removes versions in excess and masked puts, as HBase's does, which
// later writes, deletes and clocks can make visible: so it suits cases that only
// read after their first read. Reads that look at such cells directly are left
// out (flushNeutral).
func (s situation) suits(c *testCase) bool {
	if c.Physical && s != asWritten {
		return false
	}
	switch s {
	case reshaped:
		return c.Area != "regions" && c.Area != "admin" // they look at the map
	case flushed, compacted, tidied:
		reading := false
		for i := range c.Ops {
			switch o := &c.Ops[i]; {
			case o.read():
				reading = true
			case reading || o.Op == "flush" || o.Op == "minorCompact" || o.Op == "majorCompact":
				return false
			}
		}
		return reading
	case reopened:
		return slices.ContainsFunc(c.Ops, func(o op) bool { return o.read() }) &&
			!slices.ContainsFunc(c.Ops, func(o op) bool { return o.buffered() }) // a write buffer ends with its engine
	}
	return true
}

// flushNeutral reports whether a read returns the same after a flush.
func flushNeutral(c *testCase, o *op) bool {
	for _, attrs := range c.Table.Families {
		if attrs["MIN_VERSIONS"] != nil {
			return false // ttl-019: one expired version too many comes back before
		}
		if keep := attrs["KEEP_DELETED_CELLS"]; keep != nil && keep != "FALSE" {
			return false // masked puts count against VERSIONS there
		}
	}
	return !o.Raw && o.TimeRange == nil && o.TS == nil && o.FamilyTimeRange == nil
}

// prepare brings the storage into the situation; false leaves the read out.
func (r *caseRun) prepare(o *op) bool {
	r.t.Helper()
	switch r.situation {
	case flushed, compacted, tidied:
		if !flushNeutral(r.c, o) {
			return false
		}
		if err := r.tidy(); err != nil {
			r.t.Fatalf("%s: %v", r.situation, err)
		}
	case reopened:
		if !r.fresh {
			r.e.reopen()
			r.openTable()
			r.fresh = true
		}
	}
	return true
}

// tidy makes the engine drop what the situation lets it drop.
func (r *caseRun) tidy() error {
	if r.situation == tidied {
		return r.e.Engine.(Tidier).Tidy(r.t.Context())
	}
	c := r.e.Engine.(store.Compactor)
	if err := c.Flush(r.t.Context()); err != nil || r.situation == flushed || r.table == nil {
		return err
	}
	return c.MajorCompact(r.t.Context(), caseTable)
}

// putCells makes a put of each cell of m.
func (r *caseRun) putCells(m *cell.Mutation) error {
	for i := range m.Ops {
		one := *m
		one.Ops = m.Ops[i : i+1]
		if _, err := r.table.MutateRow(r.t.Context(), &one); err != nil {
			return err
		}
	}
	return nil
}

// allRegions returns a row of each region of m.
func allRegions(m *region.Map) [][]byte { return append([][]byte{nil}, m.Splits()...) }

// moveRegions splits the table at the row that the op, the case's i-th, is about, or
// makes one region of all.
func (r *caseRun) moveRegions(i int, o *op) {
	r.t.Helper()
	m, err := r.e.Regions(r.t.Context(), caseTable)
	if errors.Is(err, store.ErrTableNotFound) {
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	switch row := r.bytes(o.Row); {
	case i%3 == 2 && m.Len() > 1:
		err = r.e.admin().MergeRegions(r.t.Context(), caseTable, allRegions(m)...)
	case cell.CheckRow(row) == nil && !slices.Equal(m.At(m.Locate(row)).Start, row):
		err = r.e.admin().SplitRegion(r.t.Context(), caseTable, row)
	}
	if err != nil {
		r.t.Fatalf("move regions: %v", err)
	}
}
