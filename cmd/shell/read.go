package main

import (
	"encoding/binary"
	"fmt"

	"sluice/cell"
	"sluice/store"
)

func readCommands() []*commandInfo {
	return []*commandInfo{
		{
			name: "get", min: 2, max: -1, first: tableArgument, options: readOptionNames, run: get,
			summary: "Show the cells of a row.",
			examples: `get 't1', 'r1'
get 't1', 'r1', 'f1:c1', 'f2'
get 't1', 'r1', ['f1:c1', 'f2']
get 't1', 'r1', {COLUMN => ['f1:c1'], VERSIONS => 4, TIMERANGE => [0, 1700000000000]}
get 't1', 'r1', {COLUMN => 'f1:n:toLong'}
get 't1', 'r1', {FILTER => "ValueFilter(=, 'binary:v1')"}`,
		},
		{
			name: "scan", min: 1, max: 2, first: tableArgument, options: scanOptionNames, run: scan,
			summary: "Show the cells of rows, in the order of their keys.",
			examples: `scan 't1'
scan 't1', {COLUMNS => ['f1', 'f2:c1'], LIMIT => 10, STARTROW => 'a', STOPROW => 'z'}
scan 't1', {ROWPREFIXFILTER => 'r', REVERSED => true, VERSIONS => 3, TIMERANGE => [0, 1700000000000]}
scan 't1', {FILTER => "PrefixFilter('r') AND QualifierFilter(=, 'binary:c1')"}
scan 't1', {RAW => true, VERSIONS => 10}
scan 't1', {COLUMNS => ['f1:n:toLong', 'f2:x:c(org.apache.hadoop.hbase.util.Bytes).toInt']}
scan 't1', {FORMATTER => 'toString', MAXLENGTH => 100}`,
		},
		{
			name: "count", min: 1, max: 2, first: tableArgument, run: count,
			options: []string{"INTERVAL", "CACHE", "FILTER", "COLUMN", "COLUMNS", "STARTROW", "STOPROW", "ROWPREFIXFILTER", "TIMERANGE"},
			summary: "Count the rows of a table, with a line for every INTERVAL (1000) of them.",
			examples: `count 't1'
count 't1', INTERVAL => 100000
count 't1', {COLUMNS => 'f1', STARTROW => 'a', STOPROW => 'z'}
count 't1', FILTER => "PrefixFilter('r')"`,
		},
	}
}

func get(s *session, args []any) (string, error) {
	s.print.header("COLUMN", "CELL") // before the call fails, as HBase's does
	t, m, _, err := s.target(args[:2])
	if err != nil {
		return "", err
	}
	var o readOptions
	for _, a := range args[2:] {
		switch a := a.(type) {
		case hash:
			if err := o.getOptions(text(args[1]), a); err != nil {
				return "", err
			}
		case []any:
			for _, c := range a {
				if err := o.column(c); err != nil {
					return "", err
				}
			}
		default:
			if err := o.column(a); err != nil {
				return "", err
			}
		}
	}
	if err := cell.CheckRow(m.Row); err != nil {
		return "", err
	}
	o.scan.Table, o.scan.Start, o.scan.Stop, o.scan.StopInclusive = t.Name, m.Row, m.Row, true
	n := 0
	sc := s.store.Scan(s.ctx, &o.scan)
	defer sc.Close()
	for sc.Next() {
		n++
		row := sc.Row()
		for i := range row.Cells {
			c := &row.Cells[i]
			s.print.data(o.columnName(c), o.cellText(&s.print, c))
		}
		if s.print.json {
			if err := s.print.object(o.rowObject(row)); err != nil {
				return "", err
			}
		}
	}
	if err := sc.Err(); err != nil {
		return "", s.explain(t, err)
	}
	s.print.count(n)
	return "", nil
}

// getOptions reads get's hash. As in HBase it must say which columns or times, or
// give a filter, unless it is empty.
func (o *readOptions) getOptions(row string, h hash) error {
	selects := len(h) == 0
	for _, p := range h {
		known, err := o.shared(p)
		if err != nil {
			return err
		}
		if !known {
			return badArgument("Failed parse of %s, unknown option %s", row, p.name())
		}
		selects = selects || p.name() != "VERSIONS"
	}
	if !selects {
		return badArgument("Failed parse of %s, Hash: it names no COLUMN, TIMESTAMP, TIMERANGE or FILTER", inspect(h))
	}
	return nil
}

func scan(s *session, args []any) (string, error) {
	s.print.header("ROW", "COLUMN+CELL")
	t, err := s.table(text(args[0]))
	if err != nil {
		return "", err
	}
	o := readOptions{scan: store.Scan{Table: t.Name}}
	if len(args) == 2 {
		if err := o.scanOptions(args[1]); err != nil {
			return "", err
		}
	}
	n := 0
	last := ""
	sc := s.store.Scan(s.ctx, &o.scan)
	defer sc.Close()
	for sc.Next() {
		row := sc.Row()
		if key := string(row.Key); n == 0 || key != last {
			n, last = n+1, key // BATCH gives a row in several pieces
		}
		key := o.bytes(row.Key)
		for i := range row.Cells {
			c := &row.Cells[i]
			s.print.data(key, "column="+o.columnName(c)+", "+o.cellText(&s.print, c))
		}
		if s.print.json {
			if err := s.print.object(o.rowObject(row)); err != nil {
				return "", err
			}
		}
	}
	if err := sc.Err(); err != nil {
		return "", s.explain(t, err)
	}
	s.print.count(n)
	return "", nil
}

func count(s *session, args []any) (string, error) {
	t, err := s.table(text(args[0]))
	if err != nil {
		return "", err
	}
	o := readOptions{scan: store.Scan{Table: t.Name}}
	interval := int64(1000)
	if len(args) == 2 {
		h, ok := args[1].(hash)
		if n, isNumber := args[1].(int64); isNumber {
			h, ok = hash{{symbol("INTERVAL"), n}}, true
		}
		if !ok {
			return "", badArgument("%s: the options of count are {NAME => value, …}", inspect(args[1]))
		}
		var rest hash
		for _, p := range h {
			if p.name() != "INTERVAL" {
				rest = append(rest, p)
				continue
			}
			if interval, err = p.number(); err != nil {
				return "", err
			}
			if interval < 1 {
				return "", badArgument("INTERVAL => takes a positive number")
			}
		}
		if err := o.scanOptions(rest); err != nil {
			return "", err
		}
	}
	o.scan.Batch = 0 // rows are counted, in however many pieces a scan would give them
	// One cell a row is enough, but not for the user's filter: one that judges rows
	// must be shown all cells. HBase's count lets FirstKeyOnlyFilter hide them.
	first := []store.Filter{&store.FirstKeyOnlyFilter{}, &store.KeyOnlyFilter{}}
	if o.scan.Filter != nil {
		first[0] = o.scan.Filter
	}
	o.scan.Filter = &store.FilterList{Filters: first}
	n := int64(0)
	sc := s.store.Scan(s.ctx, &o.scan)
	defer sc.Close()
	for sc.Next() {
		if n++; n%interval == 0 {
			s.print.linef("Current count: %d, row: %s", n, escape(sc.Row().Key))
			if err := s.print.flush(); err != nil { // somebody is waiting for it
				return "", err
			}
		}
	}
	if err := sc.Err(); err != nil {
		return "", s.explain(t, err)
	}
	s.print.count(int(n))
	return fmt.Sprint(n), s.print.object(object{{"table", t.Name}, {"rows", n}})
}

// counter prints the number in the first of cells, if any.
func (s *session) counter(cells []cell.Cell) error {
	if len(cells) == 0 {
		s.print.linef("No counter found at specified coordinates")
		return nil
	}
	if n := len(cells[0].Value); n != 8 {
		return fmt.Errorf("%w: it has %d bytes", store.ErrNotANumber, n)
	}
	value := int64(binary.BigEndian.Uint64(cells[0].Value))
	s.print.linef("COUNTER VALUE = %d", value)
	return s.print.object(object{{"value", value}})
}

func showFilters(s *session, _ []any) (string, error) {
	for _, n := range store.FilterStringNames() {
		s.print.line(n)
		if err := s.print.object(object{{"filter", n}}); err != nil {
			return "", err
		}
	}
	return "", nil
}
