package hbasestore

import (
	"bytes"
	"context"
	"errors"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// place is a column whose cell changes by check-and-put on itself alone, and with it what
// else of its row is written by the same calls. What several processes decide between them
// in HBase is in such places, as HBase has nothing larger that is decided at once.
//
// Who changes one reads it, makes of what it has read what is to be there, and asks HBase to
// put that if the cell still holds what was read (change). From that:
//
//   - Of those that have read the same, one changes it; the others read again, and make what
//     they do of what they find then.
//   - Whatever is known to be so while the cell holds a value, such as that no batch is under
//     way, is so until it is changed. What is read between the read and the check-and-put may
//     be relied upon where it is changed only behind a change of the place.
//   - No state comes back: each has a revision, which is its timestamp, too, as a server's
//     clock that goes back must not hide what was written last. So a check-and-put that comes
//     late finds another state and does nothing, and whoever finds the one that he has tried
//     to put, the answer being lost, knows that it was put. (What comes back in the cells of
//     counts that are changed so has a higher timestamp than what comes late.)
//
// Four protocols are made of changes: of batches (type exact), redrives and purges (journaled),
// switches to a rebuild (switcher) and removals (remover). In each a change says what is
// about to be written, what is written is the same whoever writes it and however late, and
// another change says that it is done: the first must come before any of it and the last
// behind all, or a process that is killed would leave what nobody finishes, or what is
// finished and not there. They are no one procedure, as each has its own answer to who goes
// on from what was left, and so to what must be said at first:
//
//   - a batch by whoever has the records, cut as he likes: how far it goes, and the mapping;
//   - a redrive by anybody who comes: all that it writes, to the last byte;
//   - a switch by who holds the pipeline's rebuilds, from the rows as they are, which are too
//     many to be said: which family takes the place of which. That is behind a change of the
//     state of each partition, which none of them is bound by before the switch is decided;
//   - a removal by anybody, while batches go on: a floor for each partition, which is not
//     where the remover wants it but where the partition next stands still.
type place struct {
	table, family string
	row           []byte
	qualifier     string
	beside        string // another column of the family that is read with it, "" = none
	// known is what the cell held when this process read or wrote it last; nil = not known.
	// It is read only where that is out of date.
	known []byte
}

// seen is what a change is made of.
type seen struct {
	cell   *hbase.TColumnValue // nil = there is none
	beside *hbase.TColumnValue
	// lost says that the answer of a try before was lost: what that puts is not there, but
	// it may come until something else does, or have been followed by something else.
	lost bool
}

// valueOf returns what v holds, nil where there is none.
func valueOf(v *hbase.TColumnValue) []byte {
	if v == nil {
		return nil
	}
	return v.Value
}

// look reads a place.
func look(ctx context.Context, c cells, at *place) (*seen, error) {
	get := &hbase.TGet{Row: at.row, Columns: []*hbase.TColumn{{Family: []byte(at.family), Qualifier: []byte(at.qualifier)}}}
	if at.beside != "" {
		get.Columns = append(get.Columns, &hbase.TColumn{Family: []byte(at.family), Qualifier: []byte(at.beside)})
	}
	results, err := c.read(ctx, at.table, []*hbase.TGet{get})
	if err != nil {
		return nil, err
	}
	s := &seen{}
	for _, v := range results[0].ColumnValues {
		if string(v.Qualifier) == at.qualifier {
			s.cell = v
		} else {
			s.beside = v
		}
	}
	return s, nil
}

// change changes a place to what to returns, the place's column first, and returns once that
// is there; none = it stays as it is. to is asked again where another process was faster, or
// where the answer was lost and what was tried is not there. It must not change anything
// itself that is not to be done once more.
func change(ctx context.Context, c cells, at *place, to func(*seen) ([]*hbase.TColumnValue, error)) error {
	var tried []byte
	lost := false
	for fresh := at.known == nil; ; fresh = true {
		s := &seen{cell: &hbase.TColumnValue{Value: at.known}}
		if fresh {
			var err error
			if s, err = look(ctx, c, at); err != nil {
				return err
			}
			if s.lost = lost; tried != nil && bytes.Equal(valueOf(s.cell), tried) {
				return nil
			}
		}
		put, err := to(s)
		switch {
		case err != nil && !fresh:
			continue // what was known may be out of date
		case err != nil || len(put) == 0:
			return err
		}
		ok, err := c.checkAndPut(ctx, at.table, at.row, at.family, at.qualifier, valueOf(s.cell), put)
		unknown := errors.Is(err, store.ErrUnknownOutcome) && ctx.Err() == nil
		switch {
		case ok && err == nil:
			return nil
		case err != nil && !unknown:
			return err
		}
		// What is said not to be put may be there, too: the gateway repeats a call of which it
		// has lost the answer, and the second one finds what the first has put.
		tried, lost = put[0].Value, lost || unknown
	}
}
