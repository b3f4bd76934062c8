package hbasestore

import (
	"context"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// journalsTable holds the journals: a row each. docs/format/hbase.md has its layout.
const (
	journalsTable  = store.SystemNamespace + ":journals"
	journalsFamily = "j"
	entryQualifier = "entry"
)

// journal is one call's view of a row of journalsTable, that of a partition of a source: a
// state, and the entry that is written with it.
type journal struct {
	x         *exact
	source    *store.Source
	partition int32
}

func (j *journal) row() []byte { return store.AppendSourceRow(nil, j.source, j.partition) }

func (j *journal) place() *place {
	return &place{table: journalsTable, family: journalsFamily, qualifier: stateQualifier, beside: entryQualifier, row: j.row()}
}

// load reads the journal's state, and the entry where it is pending.
func (j *journal) load(ctx context.Context) (s journalState, entry []byte, err error) {
	seen, err := look(ctx, j.x.cells, j.place())
	if err != nil {
		return s, nil, err
	}
	return seen.journal()
}

// journal decodes what was read of a journal's place.
func (s *seen) journal() (at journalState, entry []byte, err error) {
	if s.cell != nil {
		at, err = decodeJournalState(s.cell.Value)
	}
	return at, valueOf(s.beside), err
}

// change changes the journal's state, with its entry, to what to makes of it, which is as
// many revisions further as it says, or is the same: then nothing is written. to is told
// whether the answer of a try before was lost. known is what this process knows of the state,
// nil = nothing. change returns what is there then.
func (j *journal) change(ctx context.Context, known *journalState, to func(s journalState, entry []byte, lost bool) (journalState, []byte, error)) (now journalState, entry []byte, err error) {
	at := j.place()
	if known != nil && known.source != apiSource {
		at.known = known.encode()
	}
	err = change(ctx, j.x.cells, at, func(seen *seen) ([]*hbase.TColumnValue, error) {
		before, was, err := seen.journal()
		if err != nil {
			return nil, err
		}
		if now, entry, err = to(before, was, seen.lost); err != nil || now == before {
			return nil, err
		}
		revision := int64(now.revision)
		put := func(qualifier string, value []byte) *hbase.TColumnValue {
			return &hbase.TColumnValue{Family: []byte(journalsFamily), Qualifier: []byte(qualifier), Value: value, Timestamp: &revision}
		}
		return []*hbase.TColumnValue{put(stateQualifier, now.encode()), put(entryQualifier, notNil(entry))}, nil
	})
	return now, entry, err
}
