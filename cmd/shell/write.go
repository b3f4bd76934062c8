package main

import (
	"bytes"
	"fmt"

	"sluice/cell"
	"sluice/store"
)

func writeCommands() []*commandInfo {
	return []*commandInfo{
		{
			name: "put", min: 4, max: 6, first: tableArgument, options: []string{"TTL", "ATTRIBUTES"}, run: put,
			summary: "Write a cell, at the store's clock or a timestamp; TTL in ms.",
			examples: `put 't1', 'r1', 'f1:c1', 'value'
put 't1', 'r1', 'f1:c1', 'value', 1700000000000
put 't1', 'r1', 'f1:c1', "\x00\x01", {TTL => 60000}
put 't1', 'r1', 'f1:c1', 'value', 1700000000000, {ATTRIBUTES => {'k' => 'v'}}`,
		},
		{
			name: "incr", min: 3, max: 5, first: tableArgument, options: []string{"TTL", "ATTRIBUTES"}, run: incr,
			summary: "Add to an 8-byte number, 1 unless said, and show the sum.",
			examples: `incr 't1', 'r1', 'f1:n'
incr 't1', 'r1', 'f1:n', 10
incr 't1', 'r1', 'f1:n', 10, {TTL => 60000}`,
		},
		{
			name: "append", min: 4, max: 5, first: tableArgument, options: []string{"TTL", "ATTRIBUTES"}, run: appendValue,
			summary: "Append to a value and show the new one.", examples: `append 't1', 'r1', 'f1:c1', 'more'`,
		},
		{
			name: "delete", min: 3, max: 5, first: tableArgument, run: deleteCell,
			summary: "Delete one version of a column, the newest or that of a timestamp; of a family, what has exactly the timestamp.",
			examples: `delete 't1', 'r1', 'f1:c1'
delete 't1', 'r1', 'f1:c1', 1700000000000
delete 't1', 'r1', 'f1', 1700000000000`,
		},
		{
			name: "deleteall", min: 2, max: 5, first: tableArgument, options: []string{"ROWPREFIXFILTER", "CACHE"}, run: deleteAll,
			summary: "Delete all versions of a row, family or column, up to a timestamp; of all rows with a prefix.",
			examples: `deleteall 't1', 'r1'
deleteall 't1', 'r1', 'f1'
deleteall 't1', 'r1', 'f1:c1', 1700000000000
deleteall 't1', 'r1', '', 1700000000000
deleteall 't1', {ROWPREFIXFILTER => 'r', CACHE => 100}
deleteall 't1', {ROWPREFIXFILTER => 'r'}, 'f1:c1'`,
		},
	}
}

// target reads table, row and column: the first arguments of most commands.
func (s *session) target(args []any) (*store.TableDescriptor, *cell.Mutation, store.Column, error) {
	t, err := s.table(text(args[0]))
	if err != nil {
		return nil, nil, store.Column{}, err
	}
	m := &cell.Mutation{Table: t.Name, Row: []byte(text(args[1]))}
	if len(args) < 3 {
		return t, m, store.Column{}, nil
	}
	col, err := s.column(t, args[2])
	return t, m, col, err
}

// column reads a column of t.
func (s *session) column(t *store.TableDescriptor, v any) (store.Column, error) {
	col, _, err := column(v)
	if err == nil && t.Family(col.Family) == nil {
		err = s.explain(t, fmt.Errorf("%w: %s", store.ErrFamilyNotFound, col.Family))
	}
	return col, err
}

// writeOptions sets the options of put, incr and append in op.
func writeOptions(op *cell.Op, h hash) error {
	for _, p := range h {
		switch name := p.name(); name {
		case "TTL":
			n, err := p.number()
			if err != nil {
				return err
			}
			if n < 0 {
				return badArgument("TTL => takes a number of milliseconds, 0 or more")
			}
			if op.TTL = n; n == 0 {
				op.TTL = cell.NoLife
			}
		case "ATTRIBUTES":
			if err := checkAttributes(p); err != nil {
				return err
			}
		case "VISIBILITY":
			return fmt.Errorf("%w: VISIBILITY: there are no visibility labels", store.ErrUnsupported)
		default:
			return badArgument("unknown option %s; known are TTL, ATTRIBUTES", name)
		}
	}
	return nil
}

// mutate applies m and gives its errors HBase's words.
func (s *session) mutate(t *store.TableDescriptor, m *cell.Mutation) (store.Result, error) {
	r, err := s.store.MutateRow(s.ctx, nil, m)
	return r, s.explain(t, err)
}

func put(s *session, args []any) (string, error) {
	t, m, col, err := s.target(args)
	if err != nil {
		return "", err
	}
	op := cell.Op{Type: cell.OpPut, Family: col.Family, Qualifier: col.Qualifier, Time: cell.Latest, Value: []byte(text(args[3]))}
	for i, a := range args[4:] {
		if h, ok := a.(hash); ok {
			err = writeOptions(&op, h)
		} else if i == 0 && a != nil {
			op.Time, err = timeArgument(args, 4)
		} else if a != nil {
			err = badArgument("%s: the options of put are {NAME => value}", inspect(a))
		}
		if err != nil {
			return "", err
		}
	}
	m.Ops = append(m.Ops, op)
	_, err = s.mutate(t, m)
	return "", err
}

func incr(s *session, args []any) (string, error) {
	t, m, col, err := s.target(args)
	if err != nil {
		return "", err
	}
	op := cell.Op{Type: cell.OpIncrement, Family: col.Family, Qualifier: col.Qualifier, Time: cell.Latest, Delta: 1}
	for i, a := range args[3:] {
		if h, ok := a.(hash); ok {
			err = writeOptions(&op, h)
		} else if i == 0 && a != nil {
			op.Delta, err = numberArgument(a)
		} else if a != nil {
			err = badArgument("%s: the options of incr are {NAME => value}", inspect(a))
		}
		if err != nil {
			return "", err
		}
	}
	m.Ops = append(m.Ops, op)
	r, err := s.mutate(t, m)
	if err != nil {
		return "", err
	}
	return "", s.counter(r.Cells)
}

func appendValue(s *session, args []any) (string, error) {
	t, m, col, err := s.target(args)
	if err != nil {
		return "", err
	}
	op := cell.Op{Type: cell.OpAppend, Family: col.Family, Qualifier: col.Qualifier, Time: cell.Latest, Value: []byte(text(args[3]))}
	for _, a := range args[4:] {
		h, ok := a.(hash)
		if !ok {
			return "", badArgument("%s: the options of append are {NAME => value}", inspect(a))
		}
		if err := writeOptions(&op, h); err != nil {
			return "", err
		}
	}
	m.Ops = append(m.Ops, op)
	r, err := s.mutate(t, m)
	if err != nil {
		return "", err
	}
	for i := range r.Cells {
		s.print.linef("CURRENT VALUE = %s", escape(r.Cells[i].Value))
		if err := s.print.object(object{{"value", r.Cells[i].Value}}); err != nil {
			return "", err
		}
	}
	return "", nil
}

// deleteTime reads the timestamp of a delete, args[i], and what may follow it.
func deleteTime(args []any, i int) (cell.Timestamp, error) {
	if len(args) <= i+1 {
		return timeArgument(args, i)
	}
	a := args[i+1]
	if h, ok := a.(hash); ok && len(h) > 0 {
		return 0, fmt.Errorf("%w: %s of a delete", store.ErrUnsupported, h[0].name())
	}
	return 0, badArgument("%s: a delete takes a timestamp and no more", inspect(a))
}

func deleteCell(s *session, args []any) (string, error) {
	t, m, col, err := s.target(args)
	if err != nil {
		return "", err
	}
	at, err := deleteTime(args, 3)
	if err != nil {
		return "", err
	}
	switch {
	case t.Family(col.Family).InPlace() && !col.All:
		m.DeleteColumn(col.Family, col.Qualifier, at) // a counter has one version, and so has a distinct count
	case col.All:
		m.DeleteFamilyVersion(col.Family, at)
	default:
		m.Delete(col.Family, col.Qualifier, at)
	}
	_, err = s.mutate(t, m)
	return "", err
}

func deleteAll(s *session, args []any) (string, error) {
	t, err := s.table(text(args[0]))
	if err != nil {
		return "", err
	}
	var col *store.Column // nil = the whole row, which an empty column says as well, before a time
	if len(args) > 2 && args[2] != nil && args[2] != "" {
		c, err := s.column(t, args[2])
		if err != nil {
			return "", err
		}
		col = &c
	}
	at, err := deleteTime(args, 3)
	if err != nil {
		return "", err
	}
	if h, ok := args[1].(hash); ok {
		return "", s.deletePrefix(t, h, col, at)
	}
	m := &cell.Mutation{Table: t.Name, Row: []byte(text(args[1]))}
	deleteOf(m, col, at)
	_, err = s.mutate(t, m)
	return "", err
}

// deleteOf adds the delete of a whole row, or of a family or column of it.
func deleteOf(m *cell.Mutation, col *store.Column, at cell.Timestamp) {
	switch {
	case col == nil:
		m.DeleteRow(at)
	case col.All:
		m.DeleteFamily(col.Family, at)
	default:
		m.DeleteColumn(col.Family, col.Qualifier, at)
	}
}

// deletePrefix deletes from all rows with a prefix. It scans their keys and deletes
// CACHE of them at a time, HBase's way: rows are atomic, all of them are not.
func (s *session) deletePrefix(t *store.TableDescriptor, h hash, col *store.Column, at cell.Timestamp) error {
	var prefix []byte
	batch := int64(100)
	for _, p := range h {
		var err error
		switch name := p.name(); name {
		case "ROWPREFIXFILTER":
			prefix = []byte(text(p.value))
		case "CACHE":
			if batch, err = p.number(); err == nil && (batch < 1 || batch > 100_000) {
				err = badArgument("CACHE => takes 1..100000")
			}
		default:
			err = badArgument("unknown option %s; known are ROWPREFIXFILTER, CACHE", name)
		}
		if err != nil {
			return err
		}
	}
	if len(prefix) == 0 {
		return badArgument("ROWPREFIXFILTER => takes a prefix; 'truncate' removes all rows")
	}
	table, err := store.OpenTable(s.ctx, s.store, t.Name)
	if err != nil {
		return s.explain(t, err)
	}
	scan := &store.Scan{Prefix: prefix, Filter: &store.FilterList{Filters: []store.Filter{&store.FirstKeyOnlyFilter{}, &store.KeyOnlyFilter{}}}}
	var waiting []*cell.Mutation
	flush := func() error {
		_, errs := table.MutateRows(s.ctx, waiting...)
		for i, err := range errs {
			if err != nil {
				return fmt.Errorf("row %q: %w", waiting[i].Row, s.explain(t, err))
			}
		}
		waiting = waiting[:0]
		return nil
	}
	for row, err := range table.Rows(s.ctx, scan) {
		if err != nil {
			return s.explain(t, err)
		}
		m := table.NewMutation(bytes.Clone(row.Key))
		deleteOf(m, col, at)
		if waiting = append(waiting, m); int64(len(waiting)) == batch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	return flush()
}
