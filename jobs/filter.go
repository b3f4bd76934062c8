package jobs

import (
	"errors"

	"sluice/store"
)

// compileFilter reads the job's filter string. Every region is a scan of its own,
// so what counts or ends the rows of one scan would mean something else in each
// run with other regions.
func (j *Job) compileFilter(bad func(path, format string, args ...any)) {
	if j.spec.Filter == "" {
		return
	}
	f, err := store.ParseFilterString(j.spec.Filter)
	if err != nil {
		bad("filter", "%v", err)
		return
	}
	if err := checkFilter(f); err != nil {
		bad("filter", "%v", err)
		return
	}
	j.filter = f
	if j.schema == nil {
		return
	}
	s := j.scan(&split{})
	st, err := f.Start(s)
	if err != nil {
		bad("filter", "%v", err)
	} else if s.Batch > 0 && st.WholeRow() {
		bad("filter", "it judges whole rows, and rows: cell reads them in pieces")
	}
}

// checkFilter refuses filters whose answer depends on the rows before.
func checkFilter(f store.Filter) error {
	switch f := f.(type) {
	case *store.FilterList:
		for _, m := range f.Filters {
			if err := checkFilter(m); err != nil {
				return err
			}
		}
	case *store.SkipFilter:
		return checkFilter(f.Filter)
	case *store.WhileMatchFilter:
		return errors.New("WHILE ends a scan, and an export scans each region by itself; start_row and stop_row bound it")
	case *store.PageFilter:
		return errors.New("PageFilter ends a scan, and an export scans each region by itself")
	case *store.ColumnCountGetFilter:
		return errors.New("ColumnCountGetFilter ends a scan, and an export scans each region by itself; ColumnPaginationFilter does not")
	}
	return nil
}
