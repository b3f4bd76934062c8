package jobs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/jobs/instant"
	"sluice/store"
)

// parseFilter reads a filter string, or a filter as a JSON object, which is none.
func parseFilter(text string) (store.Filter, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		return store.ParseFilterJSON([]byte(text))
	}
	return store.ParseFilterString(text)
}

// compileFilter reads the job's filter. Every region is a scan of its own,
// so what counts or ends the rows of one scan would mean something else in each
// run with other regions.
func (j *Job) compileFilter(schema *store.TableDescriptor, bad func(path, format string, args ...any)) {
	if j.spec.Filter == "" {
		return
	}
	f, err := parseFilter(j.spec.Filter)
	if err != nil {
		bad("filter", "%v", err)
		return
	}
	if err := j.checkFilter(f, schema); err != nil {
		bad("filter", "%v", err)
		return
	}
	j.filter = f
	if j.schema == nil {
		return
	}
	s := j.scan(&instant.Split{})
	st, err := f.Start(s)
	if err != nil {
		bad("filter", "%v", err)
	} else if s.Batch > 0 && st.WholeRow() {
		bad("filter", "it judges whole rows, and rows: cell reads them in pieces")
	}
}

// checkFilter refuses filters whose answer depends on the rows before, and those
// of a column that is never read: to them every row would lack it.
func (j *Job) checkFilter(f store.Filter, schema *store.TableDescriptor) error {
	family := func(name string) error {
		switch {
		case schema != nil && schema.Family(name) == nil:
			return fmt.Errorf("table %s has no family %q", schema.Name, name)
		case j.families != nil && !slices.Contains(j.families, name):
			return fmt.Errorf("it is about family %q, which is not among families", name)
		}
		return nil
	}
	switch f := f.(type) {
	case *store.FilterList:
		for _, m := range f.Filters {
			if err := j.checkFilter(m, schema); err != nil {
				return err
			}
		}
	case *store.SkipFilter:
		return j.checkFilter(f.Filter, schema)
	case *store.WhileMatchFilter:
		return errors.New("WHILE ends a scan, and an export scans each region by itself; start_row and stop_row bound it")
	case *store.PageFilter:
		return errors.New("PageFilter ends a scan, and an export scans each region by itself")
	case *store.ColumnCountGetFilter:
		return errors.New("ColumnCountGetFilter ends a scan, and an export scans each region by itself; ColumnPaginationFilter does not")
	case *store.RandomRowFilter:
		return errors.New("RandomRowFilter lets other rows pass whenever it is asked, so that no run could be resumed or be an increment")
	case *store.SingleColumnValueFilter:
		return family(f.Family)
	case *store.SingleColumnValueExcludeFilter:
		return family(f.Family)
	case *store.ColumnValueFilter:
		return family(f.Family)
	case *store.DependentColumnFilter:
		return family(f.Family)
	}
	return nil
}
