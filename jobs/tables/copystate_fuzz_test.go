package tables

import (
	"encoding/json"
	"errors"
	"testing"

	"sluice/cell"
	"sluice/jobs/jobstest"
	"sluice/jobs/target"
	"sluice/store"
)

// FuzzCopyState has what a store remembers of a copy into a table, and of one of a whole
// store, say anything: reading it has a class of error, and going on with it, or forgetting
// it, neither panics nor writes to another table.
func FuzzCopyState(f *testing.F) {
	for _, s := range []*CopyState{
		{Version: 1, ID: "x", Table: "t", Checkpoint: "c", Sequence: 7, Families: []string{"f"}, Parts: []string{"b", `\xff`}},
		{Version: 1, ID: "x", Table: "t", Checkpoint: "c", StartRow: "a", StopRow: `\`, Visible: true},
		{Version: 2},
	} {
		b, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, "me", "0", "ra")
		f.Add(b, "", "-1", "d")
		f.Add(b, "me", "1", "x")
	}
	b, err := json.Marshal(&StoreCopyState{Version: 1, ID: "x", Checkpoint: "c", Whole: true, Tables: []string{"t"}, Steps: []CopyStep{{Table: "t", StartRow: `\`}}, Done: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, "me", "", "")
	f.Add([]byte(`{"version":1,"done":2}`), "me", "", "")
	f.Add([]byte(`null`), "me", "x", "y")
	f.Add([]byte(noCopy), noCopy, "x", "y")
	f.Fuzz(func(t *testing.T, state []byte, owner, part, cursor string) {
		e := jobstest.OpenMemory(t)
		jobstest.Mutate(t, e, "t", "a", jobstest.PutOp("f", "x", 1, "1"))
		jobstest.CreateTable(t, e, "into")
		for _, row := range [][]byte{copyRow("into"), copyRow("t"), storeCopyRow()} {
			m := cell.Mutation{Table: store.JobsTable, Row: row}
			m.Put(store.JobsFamily, []byte(copyColumn), 1, state)
			m.Put(store.JobsFamily, []byte(doneColumn), 1, state)
			m.Put(store.JobsFamily, []byte(ownerColumn), 1, []byte(owner))
			m.Put(store.JobsFamily, []byte(cursorColumn+"x/"+part), 1, []byte(cursor))
			if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
				t.Fatal(err)
			}
		}
		classed := func(what string, err error) {
			for _, class := range []error{target.ErrNotFound, store.ErrCorrupt, store.ErrUnsupported, store.ErrInvalidArgument, store.ErrRefused} {
				if errors.Is(err, class) {
					return
				}
			}
			if err != nil {
				t.Errorf("%s of %s: Got %v, which is of no class", what, state, err)
			}
		}
		_, err := ReadCopy(t.Context(), e, "into")
		classed("ReadCopy", err)
		_, err = ReadCopied(t.Context(), e, "into")
		classed("ReadCopied", err)
		_, err = ReadStoreCopy(t.Context(), e)
		classed("ReadStoreCopy", err)
		_, err = Copy(t.Context(), &CopyOptions{Source: jobstest.SnapshotOf(t, e), Table: "t", To: e, Into: "into", Families: []string{"f"}, Checkpoint: "c", Resume: true})
		classed("Copy", err)
		classed("ForgetCopy", ForgetCopy(t.Context(), e, "into"))
		classed("ForgetStoreCopy", ForgetStoreCopy(t.Context(), e))
	})
}
