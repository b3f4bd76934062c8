package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/region"
	"sluice/store"
)

func regionCommands() []*commandInfo {
	return []*commandInfo{
		{
			name: "split", min: 1, max: 2, onlyHBase: true, first: tableArgument, run: split,
			summary:  "Cut a region in two, at a row or in its middle: one named, or each of a table.",
			examples: "split 't1'\nsplit 't1', 'r4'",
		},
		{
			name: "merge_region", min: 1, max: -1, onlyHBase: true, run: mergeRegion,
			summary:  "Make one region of adjacent ones, given by their encoded names (locate_region, list_regions); true takes those between them, too.",
			examples: "merge_region '0703470c2afdd2a8d64a43f53f7b7168', '120880de8a61eb4c01da437c759a6b50'",
		},
		{
			name: "locate_region", min: 2, max: 2, first: tableArgument, run: locateRegion,
			summary: "Show the region that holds a row.", examples: "locate_region 't1', 'r1'",
		},
		{
			name: "list_regions", min: 1, max: 3, servers: true, first: tableArgument, run: listRegions, options: regionColumnNames(),
			summary:  "List a table's regions with sizes in MB and requests.",
			examples: "list_regions 't1'\nlist_regions 't1', 'localhost', ['REGION_NAME', 'SIZE']",
		},
		{
			name: "get_splits", min: 1, max: 1, first: tableArgument, run: getSplits,
			summary: "Print how many regions a table has and the keys between them.", examples: "get_splits 't1'",
		},
		{
			name: "flush", min: 1, max: 2, onlyHBase: true, first: tableArgument, run: flush,
			summary: "Write what is in memory to disk: a table's, with all others'.", examples: "flush 't1'",
		},
		{
			name: "major_compact", min: 1, max: 3, onlyHBase: true, first: tableArgument, run: majorCompact,
			summary: "Flush, then rewrite a table so that only what a read can see remains.", examples: "major_compact 't1'",
		},
		{
			name: "compact", min: 1, max: 3, onlyHBase: true, first: tableArgument, run: compact,
			summary: "Merge a table's files, keeping what a minor compaction keeps, where the store can.", examples: "compact 't1'",
		},
	}
}

// regions returns a table's region map, with HBase's words where there is none.
func (s *session) regions(name string) (*region.Map, error) {
	m, err := s.store.Regions(s.ctx, store.CanonicalName(name))
	return m, tableErrorOf(name, err)
}

// findRegion returns the region with this full or encoded name.
func (s *session) findRegion(name string) (*region.Info, error) {
	tables, err := s.store.Tables(s.ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		m, err := s.store.Regions(s.ctx, t)
		if errors.Is(err, store.ErrTableNotFound) {
			continue // dropped since
		}
		if err != nil {
			return nil, err
		}
		for i := range m.Len() {
			if r := m.At(i); r.EncodedName() == name || r.Name() == name || escape([]byte(r.Name())) == name {
				return r, nil
			}
		}
	}
	return nil, badArgument("Unknown region %s!", name)
}

// split cuts the regions that its first argument names: a table's, or one.
func split(s *session, args []any) (string, error) {
	name := text(args[0])
	var regions []region.Info
	m, err := s.store.Regions(s.ctx, store.CanonicalName(name))
	switch {
	case err == nil:
		regions = m.All()
	case errors.Is(err, store.ErrTableNotFound):
		r, findErr := s.findRegion(name)
		if findErr != nil {
			return "", &tableError{"Unknown table or region " + name + "!", err}
		}
		regions = []region.Info{*r}
	default:
		return "", err
	}
	table := regions[0].Table
	if len(args) == 2 {
		at := []byte(text(args[1]))
		if len(regions) == 1 && !regions[0].Range().Contains(at) {
			return "", badArgument("row %q is not in region %s", at, regions[0].EncodedName())
		}
		for i := range regions {
			if string(regions[i].Start) == string(at) {
				return "", badArgument("should not give a splitkey which equals to startkey!")
			}
		}
		return "", tableErrorOf(table, s.store.SplitRegion(s.ctx, table, at))
	}
	meter, ok := s.store.(store.RegionMeter)
	if !ok {
		return "", fmt.Errorf("%w: the middle of a region, by the %s store; give a row: split '%s', 'row'", store.ErrUnsupported, s.store.Traits().Name, name)
	}
	cuts := 0
	var last error
	for i := range regions {
		at, err := meter.SplitPoint(s.ctx, table, regions[i].Start)
		if errors.Is(err, store.ErrRefused) && !errors.Is(err, store.ErrTableNotEnabled) {
			last = err // too few rows; another region may have more
			continue
		}
		if err == nil {
			err = s.store.SplitRegion(s.ctx, table, at)
		}
		if err != nil {
			return "", tableErrorOf(table, err)
		}
		cuts++
	}
	if cuts == 0 {
		return "", last
	}
	return "", nil
}

// mergeRegion merges regions given as arguments or as one array. With a last true
// (HBase's force) they need not be adjacent: HBase leaves the regions between them
// as they are, so that regions overlap; here those are merged with them.
func mergeRegion(s *session, args []any) (string, error) {
	force := false
	if last, ok := args[len(args)-1].(bool); ok {
		force, args = last, args[:len(args)-1]
	}
	var names []any
	for _, a := range args {
		names = append(names, (pair{value: a}).list()...)
	}
	if len(names) < 2 {
		return "", badArgument("merge_region takes two regions or more")
	}
	table := ""
	var rows [][]byte
	for _, n := range names {
		r, err := s.findRegion(text(n))
		if err != nil {
			return "", err
		}
		if table != "" && r.Table != table {
			return "", fmt.Errorf("%w: regions of tables %s and %s", store.ErrMergeRegion, table, r.Table)
		}
		table, rows = r.Table, append(rows, r.Start)
	}
	if force {
		m, err := s.regions(table)
		if err != nil {
			return "", err
		}
		first, last := slices.MinFunc(rows, bytes.Compare), slices.MaxFunc(rows, bytes.Compare)
		rows = nil
		for i := m.Locate(first); i <= m.Locate(last); i++ {
			rows = append(rows, m.At(i).Start)
		}
	}
	return "", tableErrorOf(table, s.store.MergeRegions(s.ctx, table, rows...))
}

// locator is a store whose regions are on servers of their own.
type locator interface {
	// LocateRegion returns the region that holds row and the host:port of its server.
	LocateRegion(ctx context.Context, table string, row []byte) (region.Info, string, error)
}

func locateRegion(s *session, args []any) (string, error) {
	if s.realHBase() {
		return "", s.locateOnHBase(text(args[0]), []byte(text(args[1])))
	}
	m, err := s.regions(text(args[0]))
	if err != nil {
		return "", err
	}
	r := m.At(m.Locate([]byte(text(args[1]))))
	s.print.header("HOST", "REGION")
	s.print.data(s.server, fmt.Sprintf("{ENCODED => %s, NAME => '%s', STARTKEY => '%s', ENDKEY => '%s'}",
		r.EncodedName(), escape([]byte(r.Name())), escape(r.Start), escape(r.Stop)))
	s.print.count(1)
	return "", s.print.object(regionObject(s, r))
}

// locateOnHBase prints the bounds of a region of a real HBase and its server, where the
// store knows it. Its name is left out: the gateway does not tell the time in it.
func (s *session) locateOnHBase(table string, row []byte) error {
	var r region.Info
	server := ""
	if l, ok := s.store.(locator); ok {
		var err error
		if r, server, err = l.LocateRegion(s.ctx, store.CanonicalName(table), row); err != nil {
			return tableErrorOf(table, err)
		}
	} else {
		m, err := s.regions(table)
		if err != nil {
			return err
		}
		r = *m.At(m.Locate(row))
	}
	bounds := fmt.Sprintf("{STARTKEY => '%s', ENDKEY => '%s'}", escape(r.Start), escape(r.Stop))
	o := object{{"start", r.Start}, {"stop", r.Stop}}
	if server == "" {
		s.print.line("REGION")
		s.print.line(" " + bounds)
	} else {
		s.print.header("HOST", "REGION")
		s.print.data(server, bounds)
		o = append(object{{"server", server}}, o...)
	}
	s.print.count(1)
	return s.print.object(o)
}

func regionObject(s *session, r *region.Info) object {
	return object{{"server", s.server}, {"encoded", r.EncodedName()}, {"name", []byte(r.Name())}, {"start", r.Start}, {"stop", r.Stop}}
}

// regionColumns are the columns of list_regions: the least width, and the text.
var regionColumns = []struct {
	name  string
	width int
	text  func(s *session, r *store.RegionStats) string
}{
	{"SERVER_NAME", 12, func(s *session, _ *store.RegionStats) string { return s.server }},
	{"REGION_NAME", 12, func(_ *session, r *store.RegionStats) string { return escape([]byte(r.Region.Name())) }},
	{"START_KEY", 10, func(_ *session, r *store.RegionStats) string { return escape(r.Region.Start) }},
	{"END_KEY", 10, func(_ *session, r *store.RegionStats) string { return escape(r.Region.Stop) }},
	{"SIZE", 5, func(_ *session, r *store.RegionStats) string { return fmt.Sprint(r.Bytes >> 20) }},
	{"REQ", 5, func(_ *session, r *store.RegionStats) string { return fmt.Sprint(r.Reads + r.Writes) }},
	{"LOCALITY", 10, func(*session, *store.RegionStats) string { return "1.0" }}, // every byte is here
}

func regionColumnNames() []string {
	var names []string
	for _, c := range regionColumns {
		names = append(names, c.name)
	}
	return names
}

func listRegions(s *session, args []any) (string, error) {
	columns := regionColumnNames()
	shown := true
	for i, a := range args[1:] {
		switch a := a.(type) {
		case hash:
			for _, p := range a {
				switch name := p.name(); name {
				case "SERVER_NAME":
					shown = strings.HasPrefix(s.server, text(p.value))
				case "LOCALITY_THRESHOLD":
					// Locality is 1.0, and HBase shows regions up to the threshold.
					f, ok := p.value.(float64)
					n, isInt := p.value.(int64)
					if !ok && !isInt {
						return "", badArgument("LOCALITY_THRESHOLD => takes a number, not %s", inspect(p.value))
					}
					shown = shown && (f >= 1 || n >= 1)
				default:
					return "", badArgument("unknown option %s; known are SERVER_NAME, LOCALITY_THRESHOLD", name)
				}
			}
		case []any:
			columns = nil
			for _, c := range a {
				columns = append(columns, strings.ToUpper(text(c)))
			}
		default:
			if i > 0 {
				return "", badArgument("%s is not an array of columns", inspect(a))
			}
			shown = a == nil || strings.HasPrefix(s.server, text(a))
		}
	}
	t, err := s.table(text(args[0]))
	if err != nil {
		return "", err
	}
	stats, err := s.regionStats(t.Name)
	if err != nil {
		return "", tableErrorOf(t.Name, err)
	}
	if !shown {
		stats = nil
	}
	return "", s.regionTable(columns, stats)
}

// regionTable prints HBase's table of regions, and a warning of hot ones, which
// HBase has not.
func (s *session) regionTable(columns []string, stats []store.RegionStats) error {
	head, dashes := "", ""
	rows := make([]string, len(stats))
	for _, name := range columns {
		at := -1
		for i := range regionColumns {
			if regionColumns[i].name == name {
				at = i
			}
		}
		if at < 0 {
			return badArgument("unknown column %s; known are %s", name, strings.Join(regionColumnNames(), ", "))
		}
		c := &regionColumns[at]
		width := c.width
		texts := make([]string, len(stats))
		for i := range stats {
			texts[i] = c.text(s, &stats[i])
			width = max(width, len(texts[i]))
		}
		head += fmt.Sprintf(" %*s |", width, c.name)
		dashes += " " + strings.Repeat("-", width) + " |"
		for i := range rows {
			rows[i] += fmt.Sprintf(" %*s |", width, texts[i])
		}
	}
	s.print.linef("%s\n%s", head, dashes)
	for i := range stats {
		r := &stats[i]
		s.print.line(rows[i])
		if err := s.print.object(append(regionObject(s, &r.Region),
			field{"bytes", r.Bytes}, field{"reads", r.Reads}, field{"writes", r.Writes},
			field{"reads_per_second", r.ReadRate}, field{"writes_per_second", r.WriteRate}, field{"hot", r.Hot})); err != nil {
			return err
		}
	}
	s.print.linef(" %d rows", len(stats))
	for i := range stats {
		if r := &stats[i]; r.Hot {
			s.print.linef("Hot spot: region %s takes %.0f requests a second, far more than the others; salt its keys, or split it",
				r.Region.EncodedName(), r.ReadRate+r.WriteRate)
		}
	}
	return nil
}

func getSplits(s *session, args []any) (string, error) {
	m, err := s.regions(text(args[0]))
	if err != nil {
		return "", err
	}
	s.print.linef("Total number of splits = %d", m.Len())
	keys := []any{}
	for _, k := range m.Splits() {
		s.print.line(escape(k))
		if err := s.print.object(object{{"split", k}}); err != nil {
			return "", err
		}
		keys = append(keys, escape(k))
	}
	return inspect(keys), nil
}

// tidied returns the table that a flush or compaction is about: HBase takes a
// table or a region.
func (s *session) tidied(args []any) (string, error) {
	name := text(args[0])
	t, err := s.table(name)
	if err == nil {
		return t.Name, s.checkFamily(t, args)
	}
	r, findErr := s.findRegion(name)
	if findErr != nil {
		return "", err
	}
	return r.Table, nil
}

// checkFamily refuses a family that the table has not; with one that it has, the
// whole table is done.
func (s *session) checkFamily(t *store.TableDescriptor, args []any) error {
	if len(args) < 2 || args[1] == nil || t.Family(text(args[1])) != nil {
		return nil
	}
	return s.explain(t, fmt.Errorf("%w: %s", store.ErrFamilyNotFound, text(args[1])))
}

func (s *session) compactor() (store.Compactor, error) {
	c, ok := s.store.(store.Compactor)
	if !ok {
		return nil, fmt.Errorf("%w: flush and compaction, by the %s store", store.ErrUnsupported, s.store.Traits().Name)
	}
	return c, nil
}

func flush(s *session, args []any) (string, error) {
	if _, err := s.tidied(args); err != nil {
		return "", err
	}
	c, err := s.compactor()
	if err != nil {
		return "", err
	}
	return "", c.Flush(s.ctx)
}

func majorCompact(s *session, args []any) (string, error) {
	table, err := s.tidied(args)
	if err != nil {
		return "", err
	}
	c, err := s.compactor()
	if err != nil {
		return "", err
	}
	// What is in memory, too: HBase's compaction leaves it, and so does nothing to a
	// table that was written a moment ago.
	if err := c.Flush(s.ctx); err != nil {
		return "", err
	}
	return "", tableErrorOf(table, c.MajorCompact(s.ctx, table))
}

func compact(s *session, args []any) (string, error) {
	table, err := s.tidied(args)
	if err != nil {
		return "", err
	}
	c, ok := s.store.(interface {
		MinorCompact(ctx context.Context, table string) error
	})
	if !ok {
		return "", fmt.Errorf("%w: compact: the %s store merges its files by itself; major_compact drops what no read can see", store.ErrUnsupported, s.store.Traits().Name)
	}
	return "", tableErrorOf(table, c.MinorCompact(s.ctx, table))
}
