package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"sluice/cell"
	"sluice/store"
)

// readOptions are the options that get and scan share.
type readOptions struct {
	scan      store.Scan
	convert   map[string]string // "family:qualifier" → converter
	maxLength int
}

// option sets one option; it reports whether it knows it.
func (o *readOptions) option(name string, v any) (bool, error) {
	number := func() (int64, error) {
		n, ok := v.(int64)
		if !ok {
			return 0, badArgument("%s => takes a number, not %q", name, text(v))
		}
		return n, nil
	}
	switch name {
	case "COLUMN", "COLUMNS":
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, c := range list {
			if err := o.column(c); err != nil {
				return true, err
			}
		}
	case "VERSIONS":
		n, err := number()
		if err != nil {
			return true, err
		}
		if n < 1 || n > store.AllVersions {
			return true, badArgument("VERSIONS => must be 1..%d", store.AllVersions)
		}
		o.scan.Versions = int(n)
	case "TIMESTAMP":
		n, err := number()
		if err != nil {
			return true, err
		}
		o.scan.Time = &cell.TimeRange{Min: cell.Timestamp(n), Max: cell.Timestamp(n) + 1}
	case "TIMERANGE":
		list, ok := v.([]any)
		if !ok || len(list) != 2 {
			return true, badArgument("TIMERANGE => takes [from, to)")
		}
		from, ok1 := list[0].(int64)
		to, ok2 := list[1].(int64)
		if !ok1 || !ok2 {
			return true, badArgument("TIMERANGE => takes two numbers of milliseconds")
		}
		o.scan.Time = &cell.TimeRange{Min: cell.Timestamp(from), Max: cell.Timestamp(to)}
	case "MAXLENGTH":
		n, err := number()
		if err != nil {
			return true, err
		}
		o.maxLength = int(n)
	case "FILTER":
		return true, fmt.Errorf("%w: FILTER strings are not built yet", store.ErrUnsupported)
	default:
		return false, nil
	}
	return true, nil
}

func (o *readOptions) column(v any) error {
	c, convert, err := column(v)
	if err != nil {
		return err
	}
	if _, family, _ := strings.Cut(text(v), ":"); family == "" {
		c.All = true // 'f' and the older 'f:' are the whole family
	}
	o.scan.Columns = append(o.scan.Columns, c)
	if convert != "" {
		if o.convert == nil {
			o.convert = map[string]string{}
		}
		o.convert[c.Family+":"+string(c.Qualifier)] = convert
	}
	return nil
}

// value prints a cell's value.
func (o *readOptions) value(c *cell.Cell) string {
	if convert := o.convert[c.Family+":"+string(c.Qualifier)]; convert != "" {
		return converters[convert](c.Value)
	}
	return escape(c.Value)
}

func columnName(c *cell.Cell) string { return c.Family + ":" + escape(c.Qualifier) }

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
			for _, p := range a {
				name := strings.ToUpper(text(p.key))
				known, err := o.option(name, p.value)
				if err != nil {
					return "", err
				}
				if !known {
					return "", badArgument("Failed parse of %s, unknown option %s", text(args[1]), name)
				}
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
	o.scan.Table, o.scan.Start, o.scan.Stop, o.scan.StopInclusive = t.Name, m.Row, m.Row, true
	if err := cell.CheckRow(m.Row); err != nil {
		return "", err
	}
	n := 0
	sc := s.store.Scan(s.ctx, &o.scan)
	defer sc.Close()
	for sc.Next() {
		n++
		for i := range sc.Row().Cells {
			c := &sc.Row().Cells[i]
			s.print.data(columnName(c), s.print.cellText(c, o.value(c), o.maxLength))
		}
	}
	if err := sc.Err(); err != nil {
		return "", s.explain(t, err)
	}
	s.print.count(n)
	return "", nil
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
		key := escape(row.Key)
		for i := range row.Cells {
			c := &row.Cells[i]
			s.print.data(key, "column="+columnName(c)+", "+s.print.cellText(c, o.value(c), o.maxLength))
		}
	}
	if err := sc.Err(); err != nil {
		return "", s.explain(t, err)
	}
	s.print.count(n)
	return "", nil
}

// scanOptions reads scan's second argument: a hash, or the older array of
// columns.
func (o *readOptions) scanOptions(arg any) error {
	if list, ok := arg.([]any); ok {
		for _, c := range list {
			if err := o.column(c); err != nil {
				return err
			}
		}
		return nil
	}
	h, ok := arg.(hash)
	if !ok {
		return badArgument("%q: the options of scan are {NAME => value, …}", text(arg))
	}
	for _, p := range h {
		name := strings.ToUpper(text(p.key))
		known, err := o.option(name, p.value)
		if err != nil {
			return err
		}
		if known {
			continue
		}
		switch name {
		case "STARTROW":
			o.scan.Start = []byte(text(p.value))
		case "STOPROW":
			o.scan.Stop = []byte(text(p.value))
		case "ROWPREFIXFILTER":
			o.scan.Prefix = []byte(text(p.value))
		case "LIMIT", "BATCH":
			n, ok := p.value.(int64)
			if !ok {
				return badArgument("%s => takes a number", name)
			}
			if n < 0 {
				n = 0 // HBase: -1 is no limit
			}
			if name == "LIMIT" {
				o.scan.Limit = int(n)
			} else {
				o.scan.Batch = int(n)
			}
		case "REVERSED", "RAW":
			b, ok := p.value.(bool)
			if !ok {
				return badArgument("%s => takes true or false", name)
			}
			if name == "RAW" {
				o.scan.Raw = b
			} else {
				o.scan.Reversed = b
			}
		case "CACHE", "CACHE_BLOCKS", "MAX_RESULT_SIZE":
			// How a reader fetches; the result is the same.
		default:
			return fmt.Errorf("%w: scan option %s", store.ErrUnsupported, name)
		}
	}
	// HBase's shell uses the old constructor: equal rows are that row.
	if len(o.scan.Start) > 0 && string(o.scan.Start) == string(o.scan.Stop) {
		o.scan.StopInclusive = true
	}
	return nil
}

func count(s *session, args []any) (string, error) {
	t, err := s.table(text(args[0]))
	if err != nil {
		return "", err
	}
	interval := int64(1000)
	if len(args) == 2 {
		h, ok := args[1].(hash)
		if n, isNumber := args[1].(int64); isNumber {
			h, ok = hash{{symbol("INTERVAL"), n}}, true
		}
		if !ok {
			return "", badArgument("%q: the options of count are INTERVAL => number", text(args[1]))
		}
		for _, p := range h {
			switch name := strings.ToUpper(text(p.key)); name {
			case "INTERVAL":
				n, ok := p.value.(int64)
				if !ok || n < 1 {
					return "", badArgument("INTERVAL => takes a positive number")
				}
				interval = n
			case "CACHE":
			default:
				return "", fmt.Errorf("%w: count option %s", store.ErrUnsupported, name)
			}
		}
	}
	n := int64(0)
	sc := s.store.Scan(s.ctx, &store.Scan{Table: t.Name, LimitPerFamily: 1})
	defer sc.Close()
	for sc.Next() {
		if n++; n%interval == 0 {
			fmt.Fprintf(s.print.out, "Current count: %d, row: %s\n", n, escape(sc.Row().Key))
		}
	}
	if err := sc.Err(); err != nil {
		return "", s.explain(t, err)
	}
	s.print.count(int(n))
	return fmt.Sprint(n), nil
}

func version(s *session, _ []any) (string, error) {
	v := "unknown"
	if b, ok := debug.ReadBuildInfo(); ok {
		v = b.Main.Version
	}
	fmt.Fprintf(s.print.out, "Sluice %s (%s store)\n", v, s.store.Traits().Name)
	return "", nil
}
