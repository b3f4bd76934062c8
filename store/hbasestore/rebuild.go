package hbasestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// Names of sources beside a pipeline's. A rebuild is NAME~NUMBER.
const (
	mark           = store.SourceMark
	redriveSuffix  = mark + "redrive" // of journals, and of the numbers that they get
	keptSuffix     = mark + "kept"    // of partitions that a rebuild has not counted
	switcherSuffix = mark + "switch"  // of the journal of switches
)

// retiredAt is the timestamp of a cell without a value that takes the place of one of a
// source that counts no more: whatever that source's processes still write is older.
const retiredAt int64 = 1 << 62

// switcher puts the counters that a rebuild has counted, as a source of its own in
// families of its own, into the place of those that a pipeline has counted.
//
//  1. begin: the journals of the pipeline's redrives get new numbers, and what they
//     stand at is noted in the journal of switches.
//  2. mark: each of the pipeline's partitions that stands where the rebuild stands is
//     marked with the number that it gets. From then on no batch of it is begun.
//  3. decide: the journal of switches says that it is done, and what. Before that it can
//     be given up, after that it cannot.
//  4. carry out: row by row, the rebuild's cells are written beside those that are
//     served, under the same numbers, and the latter are retired, in one mutation. The
//     API's counts are not changed, as HBase adds to them meanwhile: what they were
//     before step 3 is taken from them by a cell of its own (takenPartition).
//  5. the rebuild's families are dropped.
//  6. the partitions get the numbers for which they are marked, and may go on.
//  7. the journal of switches says that it is finished.
//
// Why it may be killed anywhere and done again: steps 4 to 7 begin with what the journal
// says, and write the same cells each time. The cells that the rebuild has written of a
// counter are (t, f(t)) as those of any source (type exact), its partition stands where
// the pipeline's does, and with its number goes on there: no offset is in two cells, and
// none in no cell.
//
// Why processes that believe to own a partition still do no harm: who has begun a batch
// before the mark and comes late writes under the old number, cells that others had
// written before the partition stood where it was marked. They are retired, and with
// retiredAt no cell of that number is newer. Whoever begins a batch reads the number
// from the state, which says that none may begin, or the new one.
//
// One process does this at a time; what one that was taken over from still does is harmless
// (rebuildhold.go).
type switcher struct {
	x        *exact
	tables   familyTables
	pipeline string
	owner    string // as the journal of switches has it
}

// errorf says what a step was about; nil stays nil.
func (w *switcher) errorf(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("counters of pipeline %s: %w", w.pipeline, err)
}

// standing is where a partition of the pipeline stands.
type standing struct {
	source  store.Source
	number  int32
	row     []byte
	state   state
	rebuilt *state // where the rebuild of it stands; nil = it was not counted
}

func (p *standing) String() string {
	return fmt.Sprintf("%s/%d", p.source.Topic, p.number)
}

// partitions returns where the pipeline's partitions stand, and those of a rebuild.
func (w *switcher) partitions(ctx context.Context, rebuilt string) ([]*standing, error) {
	var all []*standing
	own := map[string]*state{} // by row of the pipeline's partition
	of := func(name string) bool { return name == w.pipeline || name == rebuilt }
	err := w.x.eachState(ctx, of, func(src *store.Source, number int32, row []byte, s *state) error {
		if src.Pipeline == w.pipeline {
			all = append(all, &standing{source: *src, number: number, row: row, state: *s})
			return nil
		}
		src.Pipeline = w.pipeline
		own[string(store.AppendSourceRow(nil, src, number))] = s
		return nil
	})
	for _, p := range all {
		p.rebuilt = own[string(p.row)]
	}
	return all, err
}

// ours reports whether a source counts for the pipeline: it is its own, a rebuild of it,
// or one of either's redrives.
func (w *switcher) ours(name string) bool {
	return name == w.pipeline || strings.HasPrefix(name, w.pipeline+mark)
}

// edit changes the state of a row, where to says so, and where w still holds the rebuilds
// after it was read.
func (w *switcher) edit(ctx context.Context, row []byte, to func(*state) (bool, error)) error {
	_, err := w.x.edit(ctx, statePlace(row), func(s state) (state, *store.Progress, error) {
		want := s
		if write, err := to(&want); err != nil || !write {
			return s, nil, err
		}
		want.revision++ // it is written though nothing else changes
		return want, nil, w.held(ctx)
	})
	return err
}

// note is what the journal of switches says.
type note struct {
	rebuilt string // "" = none was begun
	ended   string // the newest that was switched to, given up or about to begin; "" = none was
	// taken is, of a switch that is decided, the timestamp of what was noted of the API's
	// counts.
	taken        int64
	redrives     map[string]int64 // the revisions at which the redrives' journals stood, by row
	replacements []store.FamilyReplacement
}

func (n *note) encode() []byte {
	ms := []cell.Mutation{{Table: n.rebuilt, Row: []byte(n.ended)}}
	if n.taken != 0 {
		ms[0].Ops = []cell.Op{{Type: cell.OpPut, Time: cell.Timestamp(n.taken)}}
	}
	for _, row := range sortedRows(n.redrives) {
		ms = append(ms, cell.Mutation{Row: []byte(row), Ops: []cell.Op{{Type: cell.OpPut, Time: cell.Timestamp(n.redrives[row])}}})
	}
	for i := range n.replacements {
		r := &n.replacements[i]
		ms = append(ms, cell.Mutation{Table: r.Table, Ops: []cell.Op{{Type: cell.OpPut, Family: r.Family, Qualifier: []byte(r.By)}}})
	}
	return appendEntry(nil, ms)
}

func sortedRows(m map[string]int64) []string {
	rows := make([]string, 0, len(m))
	for row := range m {
		rows = append(rows, row)
	}
	slices.Sort(rows)
	return rows
}

// decodeNote is the reverse of encode; nothing is the zero note. Its error wraps
// store.ErrCorrupt.
func decodeNote(b []byte) (n note, err error) {
	ms, err := decodeEntry(b)
	if err != nil || len(ms) == 0 {
		return n, err
	}
	n.rebuilt, n.ended, n.redrives = ms[0].Table, string(ms[0].Row), map[string]int64{}
	if len(ms[0].Ops) > 0 {
		n.taken = int64(ms[0].Ops[0].Time)
	}
	for i := range ms[1:] {
		m := &ms[1+i]
		switch {
		case len(m.Ops) != 1:
			return n, fmt.Errorf("%w: note of a switch: %.100x", store.ErrCorrupt, b)
		case m.Table == "":
			n.redrives[string(m.Row)] = int64(m.Ops[0].Time)
		default:
			n.replacements = append(n.replacements, store.FamilyReplacement{Table: m.Table, Family: m.Ops[0].Family, By: string(m.Ops[0].Qualifier)})
		}
	}
	return n, nil
}

// journal returns the journal of switches.
func (w *switcher) journal() *journal {
	return &journal{x: w.x, source: &store.Source{Pipeline: w.pipeline + switcherSuffix}}
}

// advance writes the next state of the journal of switches, which is as many revisions
// further as it says. Its error wraps store.ErrHeld where another process has taken over.
func (w *switcher) advance(ctx context.Context, s journalState, by uint64, n note) (journalState, error) {
	return w.replaceState(ctx, s, s, by, n)
}

// replaceState writes s, so many revisions further, into the place of before.
func (w *switcher) replaceState(ctx context.Context, before, s journalState, by uint64, n note) (journalState, error) {
	s.switches = true
	if s.source == apiSource {
		r, err := w.x.register(ctx, w.journal().source, nil)
		if err != nil {
			return s, err
		}
		s.source = r.id
	}
	s.revision, s.nonce = s.revision+by, rand.Uint64()
	_, _, err := w.journal().change(ctx, &before, func(now journalState, _ []byte, _ bool) (journalState, []byte, error) {
		if now != before {
			return now, nil, lostHold(&now)
		}
		return s, n.encode(), nil
	})
	return s, err
}

// redrives returns the revisions of the journals of the pipeline's redrives, by row. With
// renumber these count under the number that they have for rebuilt from then on. rebuilt is
// about to begin, "" = none is.
func (w *switcher) redrives(ctx context.Context, rebuilt string, renumber bool) (map[string]int64, error) {
	revisions := map[string]int64{}
	err := w.x.eachJournal(ctx, w.redrive, func(src *store.Source, number int32, row []byte, _ *journalState) error {
		j := &journal{x: w.x, source: src, partition: number}
		named := *src
		named.Pipeline = rebuilt + redriveSuffix
		s, _, err := j.change(ctx, nil, func(s journalState, _ []byte, _ bool) (journalState, []byte, error) {
			switch {
			case rebuilt != "" && s.floors != "":
				return s, nil, errRemoving
			case s.pending():
				return s, nil, fmt.Errorf("%w: %s/%d: a redrive or purge of dead letters is not carried out: run \"ingest dlq redrive\" or \"purge\" once more, which finishes it", store.ErrRefused, src.Topic, number)
			case !renumber:
				return s, nil, nil
			}
			own, err := w.x.register(ctx, &named, nil)
			if err != nil || s.source == own.id {
				return s, nil, err
			}
			s.source, s.revision = own.id, s.revision+2
			return s, nil, w.held(ctx)
		})
		revisions[string(row)] = int64(s.revision)
		return err
	})
	return revisions, err
}

// errRemoving is why a rebuild is not begun: what it counts again would come back amid
// the removal.
var errRemoving = fmt.Errorf("%w: counters are being removed, by a process that was killed or still runs: \"ingest counters remove\" finishes it", store.ErrRefused)

// begin is step 1.
func (w *switcher) begin(ctx context.Context, rebuilt string) error {
	if _, err := w.resume(ctx); err != nil {
		return err
	}
	s, n, err := w.load(ctx)
	switch {
	case err != nil || n.rebuilt == rebuilt:
		return err
	case n.rebuilt != "":
		return fmt.Errorf("%w: %s was begun, and is not finished", store.ErrRefused, n.rebuilt)
	case w.number(rebuilt) <= w.number(n.ended):
		return fmt.Errorf("%w: %s is not above %s, which has ended", store.ErrRefused, rebuilt, n.ended)
	}
	all, err := w.partitions(ctx, rebuilt)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(p *standing) bool { return p.state.floors != "" }) {
		return errRemoving
	}
	if slices.ContainsFunc(all, func(p *standing) bool { return p.rebuilt != nil }) {
		return fmt.Errorf("%w: %s was begun, and is discarded in part: discard it once more", store.ErrRefused, rebuilt)
	}
	if _, err := w.redrives(ctx, rebuilt, false); err != nil {
		return err
	}
	// What is redriven under the new numbers from now on would be taken for what came behind
	// the beginning: where it is cut off here, the next one has another number.
	if s, err = w.advance(ctx, s, 2, note{ended: rebuilt}); err != nil {
		return err
	}
	revisions, err := w.redrives(ctx, rebuilt, true)
	if err == nil {
		_, err = w.advance(ctx, s, 2, note{rebuilt: rebuilt, ended: rebuilt, redrives: revisions})
	}
	return err
}

// decide is steps 2 and 3.
func (w *switcher) decide(ctx context.Context, rebuilt string, replacements []store.FamilyReplacement) error {
	s, n, err := w.load(ctx)
	switch {
	case err != nil:
		return err
	case n.rebuilt != rebuilt:
		return fmt.Errorf("%w: %s was not begun, or was discarded", store.ErrStale, rebuilt)
	}
	// What an earlier try has noted of the API's counts is older from now on.
	if s, err = w.advance(ctx, s, 2, n); err != nil {
		return err
	}
	if err := w.check(ctx, s, rebuilt, replacements); err != nil {
		return err
	}
	for marked := -1; ; {
		all, err := w.partitions(ctx, rebuilt)
		if err != nil {
			return err
		}
		if len(all) == marked {
			break
		}
		marked = len(all)
		for _, p := range all {
			if err := w.mark(ctx, rebuilt, p, all); err != nil {
				return err
			}
		}
	}
	revisions, err := w.redrives(ctx, "", false)
	if err != nil {
		return err
	}
	if !sameRevisions(n.redrives, revisions) {
		return fmt.Errorf("%w: dead letters were redriven or purged since the count began: discard it and count again", store.ErrStale)
	}
	n.replacements, n.taken = replacements, int64(s.revision)
	_, err = w.advance(ctx, s, 1, n)
	return err
}

func sameRevisions(a, b map[string]int64) bool {
	if len(a) != len(b) {
		return false
	}
	for row, n := range a {
		if b[row] != n {
			return false
		}
	}
	return true
}

// mark marks a partition with the number that it gets.
func (w *switcher) mark(ctx context.Context, rebuilt string, p *standing, all []*standing) error {
	var becomes uint32
	if p.rebuilt != nil {
		becomes = p.rebuilt.source
	} else {
		counted := slices.ContainsFunc(all, func(o *standing) bool { return o.source == p.source && o.rebuilt != nil })
		if counted {
			return fmt.Errorf("%w: %s was begun since the others were counted: stop the daemon and give the command again, which counts it", store.ErrStale, p)
		}
		kept := p.source
		kept.Pipeline = rebuilt + keptSuffix
		r, err := w.x.register(ctx, &kept, nil)
		if err != nil {
			return err
		}
		becomes = r.id
	}
	return w.edit(ctx, p.row, func(s *state) (bool, error) {
		switch {
		case p.rebuilt != nil && p.rebuilt.version == store.DiscardedMapping:
			return false, fmt.Errorf("%w: %s: the rebuild was discarded", store.ErrStale, p)
		case s.source == becomes:
			return false, fmt.Errorf("%w: %s goes on from it already", store.ErrStale, p)
		case s.next != s.until:
			return false, &UnfinishedError{Source: p.source, Partition: p.number, Next: max(s.next, 0), Until: s.until, Version: s.version}
		case p.rebuilt != nil && (s.next != p.rebuilt.next || p.rebuilt.until != p.rebuilt.next):
			return false, fmt.Errorf("%w: %s was applied up to offset %d and counted up to %d: stop the daemon and give the command again, which counts the rest", store.ErrStale, p, s.next, p.rebuilt.next)
		}
		s.becomes = becomes
		return true, nil
	})
}

// check returns why replacements cannot be made, and notes what of the API's counts is
// taken, with the revision of s as timestamp: what an earlier try has noted is older.
func (w *switcher) check(ctx context.Context, s journalState, rebuilt string, replacements []store.FamilyReplacement) error {
	if err := store.CheckReplacements(replacements); err != nil {
		return err
	}
	n, err := w.numbers(ctx, rebuilt)
	if err != nil {
		return err
	}
	for i := range replacements {
		r := &replacements[i]
		d, err := w.tables.descriptor(ctx, r.Table)
		if err != nil {
			return err
		}
		if _, err := r.Replaced(d); err != nil {
			return err
		}
		served := d.Family(r.Family)
		if !served.InPlace() {
			return fmt.Errorf("%w: table %s: family %s is no COUNTER or DISTINCT family", store.ErrInvalidSchema, r.Table, r.Family)
		}
		var hs []*mutation
		write := func() error {
			err := ofWrites(w.x.cells.write(ctx, hs))
			hs = nil // what was sent keeps them
			return err
		}
		if err := w.x.each(ctx, d.Name, []string{r.Family}, counterRows, func(row *hbase.TResult_) error {
			for _, v := range row.ColumnValues {
				_, source, _, _, err := decodeCounter(v.Qualifier, nil)
				if err != nil {
					return err
				}
				if other := n.others[source]; other != "" && len(v.Value) > 0 {
					return fmt.Errorf("%w: family %s of table %s has counts of pipeline %s, which would be lost", store.ErrRefused, r.Family, r.Table, other)
				}
			}
			h, err := w.take(int64(s.revision), r, served.Distinct, row)
			if err != nil {
				return fmt.Errorf("table %s, row %.100q: %w", r.Table, row.Row, err)
			}
			if r.By != "" && len(h.writes[0].Put.ColumnValues) > 0 {
				hs = append(hs, h)
			}
			if len(hs) == counterRows {
				return write()
			}
			return nil
		}); err != nil {
			return err
		}
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

// resume is steps 4 to 7. It reports whether a switch was decided.
func (w *switcher) resume(ctx context.Context) (bool, error) {
	s, n, err := w.load(ctx)
	if err != nil || !s.pending() {
		return false, err
	}
	fail := func(err error) (bool, error) {
		return true, fmt.Errorf("the switch to %s is decided and not carried out; \"ingest replay rebuild\" finishes it: %w", n.rebuilt, err)
	}
	for i := range n.replacements {
		if err := w.replace(ctx, s, &n, &n.replacements[i]); err != nil {
			return fail(err)
		}
	}
	for i := range n.replacements {
		if r := &n.replacements[i]; r.By != "" {
			err := w.held(ctx)
			if err == nil {
				err = w.tables.dropFamily(ctx, r.Table, r.By)
			}
			if err != nil {
				return fail(err)
			}
		}
	}
	all, err := w.partitions(ctx, n.rebuilt)
	if err != nil {
		return fail(err)
	}
	for _, p := range all {
		if err := w.edit(ctx, p.row, func(s *state) (bool, error) {
			if s.becomes == 0 {
				return false, nil
			}
			s.source, s.becomes, s.floors = s.becomes, 0, "" // the floors were the old number's
			return true, nil
		}); err != nil {
			return fail(err)
		}
	}
	if _, err := w.advance(ctx, s, 1, note{ended: n.rebuilt}); err != nil {
		return fail(err)
	}
	return true, nil
}

// abandon gives up what was begun and not decided.
func (w *switcher) abandon(ctx context.Context) error {
	s, n, err := w.load(ctx)
	if err != nil {
		return err
	}
	if s.pending() {
		return fmt.Errorf("%w: the switch to %s is decided; \"ingest replay rebuild\" without --discard finishes it", store.ErrRefused, n.rebuilt)
	}
	ended := n.rebuilt
	later := func(name string) {
		if w.number(name) > w.number(ended) {
			ended = name
		}
	}
	later(n.ended)
	if err := w.x.eachState(ctx, w.rebuild, func(src *store.Source, _ int32, _ []byte, _ *state) error { // of programs that did not note what has ended
		later(src.Pipeline)
		return nil
	}); err != nil {
		return err
	}
	// From now on they are never decided, and their families may be dropped at any time.
	if _, err := w.advance(ctx, s, 2, note{ended: ended}); err != nil {
		return err
	}
	if err := w.unmark(ctx); err != nil {
		return err
	}
	// What a rebuild has applied in part is in families that are dropped: another
	// mapping may end it.
	return w.x.eachState(ctx, w.rebuild, func(_ *store.Source, _ int32, row []byte, _ *state) error {
		return w.edit(ctx, row, func(s *state) (bool, error) {
			write := s.until > s.next
			s.until = s.next
			return write, nil
		})
	})
}

// rebuild reports whether a name is that of a rebuild of the pipeline.
func (w *switcher) rebuild(name string) bool { return w.number(name) > 0 }

// redrive reports whether a name is that of the pipeline's redrives.
func (w *switcher) redrive(name string) bool { return name == w.pipeline+redriveSuffix }

// switchPending is why something is refused until a switch that is decided is carried out;
// src is that of its journal.
func switchPending(src *store.Source) error {
	return fmt.Errorf("%w: the counters of pipeline %s are being switched to those that were counted again: run \"ingest replay rebuild\" once more, which finishes it", store.ErrRefused, strings.TrimSuffix(src.Pipeline, switcherSuffix))
}

// number returns the number of a rebuild of the pipeline, 0 = it is none.
func (w *switcher) number(name string) int {
	digits, ok := strings.CutPrefix(name, w.pipeline+mark)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 0 {
		return 0
	}
	return n
}
