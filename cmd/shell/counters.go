package main

import (
	"fmt"
	"strings"
	"time"

	"sluice/cell"
	"sluice/counters"
	"sluice/counters/query"
	"sluice/store"
)

// rollupOptionNames are the options of series, and of top on a rollup.
var rollupOptionNames = []string{"BUCKET", "BY", "VALUES", "FROM", "TO", "ZONE", "DISTINCT"}

func counterCommands() []*commandInfo {
	return []*commandInfo{
		{
			name: "get_counter", min: 3, max: 3, first: tableArgument, run: getCounter,
			summary: "Show an 8-byte number; of a DISTINCT family, the estimated count.", examples: `get_counter 't1', 'r1', 'f1:n'`,
		},
		{
			name: "series", min: 3, max: 3, first: tableArgument, options: rollupOptionNames, run: series,
			summary: "Show what a rollup has counted in each bucket of a time, for one value of each dimension. Not in HBase.",
			examples: `series 'stats', 'views', {BUCKET => 'hour', FROM => '2026-11-21T00:00:00Z', TO => '2026-11-21T06:00:00Z'}
series 'stats', 'views', {BUCKET => 'day', BY => ['country', 'page'], VALUES => ['de', '/a'], FROM => 1700000000000, TO => 1700500000000, ZONE => 'Europe/Berlin'}
series 'stats', 'users', {BUCKET => 'total', BY => ['country'], VALUES => ['de'], DISTINCT => true}`,
		},
		{
			name: "top", min: 2, max: 3, first: tableArgument, options: append([]string{"LIMIT", "ROWPREFIXFILTER"}, rollupOptionNames...), run: top,
			summary: "Show the rows whose counters of a column or family have the largest sums; with BUCKET, the values of a rollup's dimensions behind VALUES for which most was counted. Not in HBase.",
			examples: `top 'stats', 'day'
top 'stats', 'day:20261121', {LIMIT => 3, ROWPREFIXFILTER => 'views/country'}
top 'stats', 'views', {BUCKET => 'day', BY => ['country', 'page'], VALUES => ['de'], FROM => '2026-11-21T00:00:00Z', TO => '2026-11-22T00:00:00Z', LIMIT => 10}`,
		},
	}
}

func getCounter(s *session, args []any) (string, error) {
	t, m, col, err := s.target(args)
	if err != nil {
		return "", err
	}
	c, ok, err := query.Get(s.ctx, s.store, t.Name, m.Row, col.Family, col.Qualifier)
	switch {
	case err != nil:
		return "", s.explain(t, err)
	case !ok:
		s.print.linef("No counter found at specified coordinates")
		return "", nil
	}
	s.print.linef("COUNTER VALUE = %d", c.Count)
	return "", s.print.object(object{{"value", c.Count}})
}

// rollupOptions are what series and top were asked for.
type rollupOptions struct {
	query.Rollup
	bucket   counters.Bucket // 0 = not given
	values   [][]byte
	from, to cell.Timestamp
	limit    int
	prefix   []byte
}

func (o *rollupOptions) read(arg any) error {
	h, ok := arg.(hash)
	if !ok {
		return badArgument("%s: the options are {NAME => value, …}", inspect(arg))
	}
	for _, p := range h {
		if err := o.option(p); err != nil {
			return err
		}
	}
	if o.bucket == 0 {
		for _, name := range rollupOptionNames {
			if _, ok := h.get(name); ok {
				return badArgument("%s => is about a rollup: give BUCKET, too", name)
			}
		}
	}
	return nil
}

func (o *rollupOptions) option(p pair) (err error) {
	switch p.name() {
	case "BUCKET":
		if o.bucket, _ = counters.ParseBucket(text(p.value)); o.bucket == 0 {
			return badArgument("BUCKET => takes %s, not %s", strings.Join(counters.BucketNames(), ", "), inspect(p.value))
		}
	case "BY":
		o.Dimensions = nil
		for _, d := range p.list() {
			o.Dimensions = append(o.Dimensions, text(d))
		}
	case "VALUES":
		o.values = nil
		for _, v := range p.list() {
			o.values = append(o.values, []byte(text(v)))
		}
	case "FROM":
		o.from, err = p.instant()
	case "TO":
		o.to, err = p.instant()
	case "ZONE":
		name := text(p.value)
		if o.Zone, err = time.LoadLocation(name); err != nil || name == "Local" {
			return badArgument("ZONE => takes the name of a time zone such as Europe/Berlin, not %s", inspect(p.value))
		}
	case "DISTINCT":
		o.Distinct, err = p.boolean()
	case "LIMIT":
		if o.limit, err = p.bound(); err == nil && o.limit == 0 {
			return badArgument("LIMIT => takes a positive number")
		}
	case "ROWPREFIXFILTER":
		o.prefix = []byte(text(p.value))
	default:
		return badArgument("unknown option %s; known are LIMIT, ROWPREFIXFILTER, %s", p.name(), strings.Join(rollupOptionNames, ", "))
	}
	return err
}

// instant returns the option's value as a time: RFC 3339, or ms since 1970.
func (p pair) instant() (cell.Timestamp, error) {
	if ms, ok := p.value.(int64); ok {
		return cell.Timestamp(ms), nil
	}
	t, err := time.Parse(time.RFC3339, text(p.value))
	if err != nil {
		return 0, badArgument("%s => takes a time such as 2026-11-21T00:00:00Z or ms since 1970, not %s", p.name(), inspect(p.value))
	}
	return cell.Timestamp(t.UnixMilli()), nil
}

func series(s *session, args []any) (string, error) {
	s.print.header("START", "COUNT")
	t, err := s.table(text(args[0]))
	if err != nil {
		return "", err
	}
	o := rollupOptions{Rollup: query.Rollup{Table: t.Name, Rollup: counters.Rollup{Name: text(args[1])}}}
	if err := o.read(args[2]); err != nil {
		return "", err
	}
	switch {
	case o.bucket == 0:
		return "", badArgument("give BUCKET => %s", strings.Join(counters.BucketNames(), ", "))
	case o.limit != 0 || o.prefix != nil:
		return "", badArgument("LIMIT and ROWPREFIXFILTER are options of top")
	}
	points, err := o.Series(s.ctx, s.store, o.bucket, o.values, o.from, o.to)
	if err != nil {
		return "", s.explain(t, err)
	}
	for _, p := range points {
		start := s.print.timestamp(p.Start)
		if o.Zone != nil {
			start = time.UnixMilli(int64(p.Start)).In(o.Zone).Format(time.RFC3339)
		}
		s.print.data(start, fmt.Sprint(p.Count))
		row := object{{"start", int64(p.Start)}, {"stop", int64(p.Stop)}, {"count", p.Count}}
		if p.Time > 0 {
			row = append(row, field{"timestamp", int64(p.Time)})
		}
		if err := s.print.object(row); err != nil {
			return "", err
		}
	}
	s.print.count(len(points))
	return "", nil
}

func top(s *session, args []any) (string, error) {
	s.print.header("COUNT", "ROW")
	t, err := s.table(text(args[0]))
	if err != nil {
		return "", err
	}
	o := rollupOptions{Rollup: query.Rollup{Table: t.Name, Rollup: counters.Rollup{Name: text(args[1])}}, limit: 10}
	if len(args) == 3 {
		if err := o.read(args[2]); err != nil {
			return "", err
		}
	}
	if o.limit > query.MaxTop {
		return "", badArgument("LIMIT => must be at most %d", query.MaxTop)
	}
	if o.bucket == 0 {
		return "", topRows(s, t, &o, args[1])
	}
	if o.prefix != nil {
		return "", badArgument("ROWPREFIXFILTER does not go with BUCKET: VALUES are what the rows begin with")
	}
	groups, err := o.Top(s.ctx, s.store, o.bucket, o.values, o.from, o.to, o.limit)
	if err != nil {
		return "", s.explain(t, err)
	}
	for _, g := range groups {
		var parts []string
		values := object{}
		for i, v := range g.Values {
			parts = append(parts, o.Dimensions[i]+"="+escape(v))
			values = append(values, field{o.Dimensions[i], v})
		}
		s.print.data(fmt.Sprint(g.Count), strings.Join(parts, ", "))
		if err := s.print.object(object{{"values", values}, {"count", g.Count}, {"timestamp", int64(g.Time)}}); err != nil {
			return "", err
		}
	}
	s.print.count(len(groups))
	return "", nil
}

// topRows prints the rows of t whose counters of a column or family have the largest
// sums.
func topRows(s *session, t *store.TableDescriptor, o *rollupOptions, what any) error {
	col, err := s.column(t, what)
	if err != nil {
		return err
	}
	b := query.One(col.Qualifier)
	if col.All {
		b = query.Buckets{}
	}
	rows := cell.Range{Start: o.prefix, Stop: cell.PrefixEnd(o.prefix)}
	totals, err := query.Top(s.ctx, s.store, t.Name, rows, col.Family, b, o.limit)
	if err != nil {
		return s.explain(t, err)
	}
	for _, r := range totals {
		s.print.data(fmt.Sprint(r.Count), escape(r.Row))
		if err := s.print.object(object{{"row", r.Row}, {"count", r.Count}, {"timestamp", int64(r.Time)}}); err != nil {
			return err
		}
	}
	s.print.count(len(totals))
	return nil
}
