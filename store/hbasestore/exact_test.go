package hbasestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/counters"
	"sluice/internal/thinned"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// model is the cells of an HBase as far as exact batches go: of a column the cell of
// the highest timestamp is there, of two with one timestamp that written last.
type model struct {
	rows    map[string]map[string]*hbase.TColumnValue // by table and row, by family and qualifier
	numbers uint32
	// moves are the versions that took the state of a row over an offset.
	moves map[string]map[int64]string
	// begun is the first row of sourcesTable of each source.
	begun map[string]registered
	// deleted is up to which timestamp a row was deleted.
	deleted map[string]int64
	// entries are the entries of journals, by claim.
	entries []claimed
	// rebuilt are the families of a rebuild, which are dropped.
	rebuilt map[string]bool
	// switched is up to which offset a row's counters are those of a rebuild, and begun
	// by which mapping.
	switched map[string]int64
	// hidden is up to which timestamp columns of a row were deleted.
	hidden map[string]map[string]int64
	// uncounted is up to which revision of a journal of redrives what these have counted is
	// replaced by a rebuild.
	uncounted map[string]int64
	// floored are the floors that a row has had, of the number that it has.
	floored map[string]floors
}

func newModel() *model {
	return &model{rows: map[string]map[string]*hbase.TColumnValue{}, moves: map[string]map[int64]string{}, begun: map[string]registered{}, deleted: map[string]int64{}, rebuilt: map[string]bool{}, switched: map[string]int64{}, hidden: map[string]map[string]int64{}, floored: map[string]floors{}, uncounted: map[string]int64{}}
}

func (m *model) put(table string, row []byte, v *hbase.TColumnValue) {
	key := table + "/" + string(row)
	if family := string(v.Family); strings.Contains(family, "~") && !m.rebuilt[family] {
		return // it was dropped
	}
	if at, ok := m.deleted[key]; ok && v.GetTimestamp() <= at {
		return
	}
	if m.rows[key] == nil {
		m.rows[key] = map[string]*hbase.TColumnValue{}
	}
	column := string(v.Family) + ":" + string(v.Qualifier)
	if at, ok := m.hidden[key][column]; ok && v.GetTimestamp() <= at {
		return
	}
	if old := m.rows[key][column]; old == nil || old.GetTimestamp() <= v.GetTimestamp() {
		m.rows[key][column] = v
	}
}

func (m *model) value(table string, row []byte, family, qualifier string) []byte {
	if v := m.rows[table+"/"+string(row)][family+":"+qualifier]; v != nil {
		return v.Value
	}
	return nil
}

func (m *model) read(table string, gets []*hbase.TGet) []*hbase.TResult_ {
	var out []*hbase.TResult_
	for _, get := range gets {
		r := &hbase.TResult_{}
		if columns := m.rows[table+"/"+string(get.Row)]; len(get.Columns) == 0 {
			for _, name := range sortedKeys(columns) {
				r.Row, r.ColumnValues = get.Row, append(r.ColumnValues, columns[name])
			}
		}
		for _, c := range get.Columns {
			if v := m.rows[table+"/"+string(get.Row)][string(c.Family)+":"+string(c.Qualifier)]; v != nil {
				r.Row, r.ColumnValues = get.Row, append(r.ColumnValues, v)
			}
		}
		out = append(out, r)
	}
	return out
}

func (m *model) checkAndPut(table string, row []byte, family, qualifier string, value []byte, put []*hbase.TColumnValue) bool {
	old := m.value(table, row, family, qualifier)
	if string(old) != string(value) {
		return false
	}
	for _, v := range put {
		m.put(table, row, v)
	}
	switch table {
	case journalsTable:
		m.decided(row, put)
		m.entries = append(m.entries, claimOf(row, put)...)
		if s, err := decodeJournalState(m.value(table, row, journalsFamily, stateQualifier)); err == nil {
			m.floored[string(row)] = append(m.floored[string(row)], inForce(s.floors)...)
		}
	case sourcesTable:
		r, err := decodeSource(m.value(table, row, family, qualifier))
		if err != nil {
			panic(err)
		}
		m.begun[string(row)] = r
	case store.OffsetsTable:
		before := absentState()
		if old != nil {
			before, _ = decodeState(old)
		}
		after, err := decodeState(m.value(table, row, family, qualifier))
		if err != nil {
			panic(err)
		}
		if m.moves[string(row)] == nil {
			m.moves[string(row)] = map[int64]string{}
		}
		if before.becomes != 0 && after.becomes == 0 && after.source == before.becomes {
			m.switched[string(row)] = after.next
			delete(m.floored, string(row))
		}
		m.floored[string(row)] = append(m.floored[string(row)], inForce(after.floors)...)
		for o := before.next; o < after.next && before.next >= 0; o++ {
			m.moves[string(row)][o] = after.version
		}
	}
	return true
}

func (m *model) write(h *mutation) {
	for _, w := range h.writes {
		if w.DeleteSingle != nil {
			if len(w.DeleteSingle.Columns) > 0 {
				m.hide(h, w.DeleteSingle.Columns)
				continue
			}
			m.delete(h.table, h.row, w.DeleteSingle.GetTimestamp())
			continue
		}
		for _, v := range w.Put.ColumnValues {
			m.put(h.table, h.row, v)
		}
	}
}

// delete hides what a row has up to a timestamp, and what comes late.
func (m *model) delete(table string, row []byte, at int64) {
	key := table + "/" + string(row)
	m.deleted[key] = max(m.deleted[key], at)
	for column, v := range m.rows[key] {
		if v.GetTimestamp() <= at {
			delete(m.rows[key], column)
		}
	}
}

// What the world does with a call.
type fate int

const (
	done       fate = iota
	notDone         // an error, before it was done
	replyLost       // it is done, and the caller does not know
	killed          // before it is done, with its process
	killedSoon      // it is done after the process was killed, some time
)

var errKilled = errors.New("killed")

// worker calls a model, a call at a time, each when the world lets it.
type worker struct {
	w      *world
	x      *exact
	turn   chan fate
	asks   chan bool // true: for a call. false: it has ended
	mutant string
	done   bool                       // a rebuild: it was switched to; a remover: it was done
	remove bool                       // it removes counters
	owner  string                     // of rebuilds
	data   []func()                   // of mutant "offset before data": what is written after the offset
	old    map[string]*hbase.TResult_ // of mutants "old rows tested" and "old bases": by row, or columns
}

// call makes f where it is time. It returns what the caller learns.
func (p *worker) call(f func()) (fate, error) {
	p.asks <- true
	switch t := <-p.turn; t {
	case done:
		f()
		return t, nil
	case replyLost:
		f()
		return t, fmt.Errorf("%w: lost", store.ErrUnknownOutcome)
	case killedSoon:
		p.w.late = append(p.w.late, f)
		return t, errKilled
	case killed:
		return t, errKilled
	default:
		return t, fmt.Errorf("%w: refused", store.ErrTransient)
	}
}

func (p *worker) read(_ context.Context, table string, gets []*hbase.TGet) (out []*hbase.TResult_, err error) {
	_, err = p.call(func() { out = p.w.m.read(table, gets) })
	if p.mutant == "owner ignored" && table == journalsTable {
		p.believeOwner(gets, out)
	}
	if (p.mutant == "old rows tested" && table == store.OutboxTable || p.mutant == "old bases" && table == "t") && err == nil {
		for i, get := range gets {
			key := string(get.Row)
			if table == "t" {
				key = fmt.Sprint(get.Columns)
			}
			if p.old[key] == nil {
				p.old[key] = out[i]
			}
			out[i] = p.old[key]
		}
	}
	if p.mutant == "bases not read" && table == "t" && err == nil {
		for i := range out {
			out[i] = &hbase.TResult_{}
		}
	}
	if p.mutant == "base timestamps ignored" && table == "t" {
		for _, r := range out {
			for i, v := range r.ColumnValues {
				zero, c := int64(0), *v
				c.Timestamp = &zero
				r.ColumnValues[i] = &c
			}
		}
	}
	return out, err
}

func (p *worker) checkAndPut(_ context.Context, table string, row []byte, family, qualifier string, value []byte, put []*hbase.TColumnValue) (ok bool, err error) {
	claim := table == store.OffsetsTable && len(put) == 1 || table == journalsTable && len(claimOf(row, put)) > 0
	if p.mutant == "claims not stored" && claim {
		return true, nil
	}
	if put, ok = p.changeMarks(table, row, put); ok {
		return true, nil
	}
	value = p.changeOwner(table, row, value)
	if put, ok = p.changeFloors(table, row, put); ok {
		return true, nil
	}
	_, err = p.call(func() {
		if p.mutant == "check ignored" {
			value = p.w.m.value(table, row, family, qualifier)
		}
		ok = p.w.m.checkAndPut(table, row, family, qualifier, value, put)
		if p.w.r.IntN(10) == 0 { // HBase's client has lost an answer, and answers for its second try
			ok = p.w.m.checkAndPut(table, row, family, qualifier, value, put)
		}
	})
	if p.mutant == "lost replies believed" && errors.Is(err, store.ErrUnknownOutcome) {
		return true, nil
	}
	for ; (!claim || p.remove) && err == nil && ok && len(p.data) > 0; p.data = p.data[1:] {
		if _, err := p.call(p.data[0]); err != nil {
			p.data = nil
			return false, err
		}
	}
	return ok, err
}

func (p *worker) write(_ context.Context, hs []*mutation) []error {
	errs := make([]error, len(hs))
	dead := false
	for _, i := range p.w.r.Perm(len(hs)) { // several calls at a time
		if dead {
			errs[i] = errKilled
			continue
		}
		if p.mutant == "counters now" {
			for _, w := range hs[i].writes {
				if f := w.Put; f == nil || string(f.ColumnValues[0].Family) != "n" && string(f.ColumnValues[0].Family) != "u" {
					continue
				}
				for _, v := range w.Put.ColumnValues {
					p.w.clock++
					now := p.w.clock
					v.Timestamp = &now
				}
			}
		}
		if p.mutant == "sums without revision" && hs[i].table == store.OutboxTable && hs[i].row[0] == 0 {
			for _, v := range hs[i].writes[0].Put.ColumnValues {
				*v.Timestamp = 1
			}
		}
		p.changeRetired(hs[i])
		f := func() { p.w.m.write(hs[i]) }
		if p.mutant == "nothing deleted" && p.remove {
			continue
		}
		if p.mutant == "offset before data" || p.mutant == "cleared before deleted" && p.remove {
			p.data = append(p.data, f)
			continue
		}
		_, err := p.call(f)
		dead = errors.Is(err, errKilled)
		errs[i] = err
		if p.mutant == "write errors ignored" && !dead {
			errs[i] = nil
		}
	}
	return errs
}

func (p *worker) allot(context.Context) (n uint32, err error) {
	_, err = p.call(func() { p.w.m.numbers++; n = p.w.m.numbers })
	if p.mutant == "one number for all" {
		n = 1
	}
	return n, err
}

// lane is a partition of a source.
type lane struct {
	source    store.Source
	partition int32
}

// world is a log, what is stored of it, and the processes that store it.
type world struct {
	r        *rand.Rand
	m        *model
	lanes    []lane
	end      int64 // of each lane's log
	seed     uint64
	clock    int64
	late     []func()
	mutant   string
	fatal    bool   // processes are killed
	left     int    // rebuilds that are to be switched to before it ends
	owners   int    // processes that have rebuilt
	removing int    // removers at work
	remove   int    // counters are to be removed so often before it ends
	counts   string // what is counted: "n" increments, "u" different elements, "nu" both
}

// record is what a version of the mapping makes of the record at offset: increments
// of counters, and whether it has a row.
func (w *world) record(l lane, version string, offset int64) (deltas map[string]int64, row bool) {
	r := rand.New(rand.NewPCG(w.seed, uint64(offset)<<8|uint64(l.partition)<<4|uint64(len(l.source.Pipeline))<<2|uint64(version[1]&3)))
	deltas = map[string]int64{}
	for range r.IntN(3) {
		deltas[string(rune('a'+r.IntN(3)))] += int64(r.IntN(7)) - 2
	}
	if !strings.Contains(w.counts, "n") {
		deltas = nil
	}
	return deltas, r.IntN(3) > 0
}

// added is what a version of the mapping adds to distinct counts for the record at
// offset: few different elements, so that most are there already, at times of which most
// are no newer.
func (w *world) added(l lane, version string, offset int64) (names, elements []string) {
	if !strings.Contains(w.counts, "u") {
		return nil, nil
	}
	r := rand.New(rand.NewPCG(w.seed+1, uint64(offset)<<8|uint64(l.partition)<<4|uint64(len(l.source.Pipeline))<<2|uint64(version[1]&3)))
	for range r.IntN(3) {
		names, elements = append(names, string(rune('a'+r.IntN(3)))), append(elements, fmt.Sprintf("user-%d", r.IntN(8)))
	}
	return names, elements
}

// eventTime is that of the record at an offset.
func eventTime(offset int64) cell.Timestamp { return cell.Timestamp(1000 + offset%5) }

// progress reads how far a lane is stored.
func (p *worker) progress(l lane) (store.Progress, bool, error) {
	row := store.AppendSourceRow(nil, &l.source, l.partition)
	var value []byte
	if _, err := p.call(func() {
		value = p.w.m.value(store.OffsetsTable, row, store.ProgressFamily, store.ProgressQualifier)
	}); err != nil || value == nil {
		return store.Progress{}, false, err
	}
	got, err := store.DecodeProgress(value)
	return got, err == nil, err
}

// begin does what a pipeline does with a topic: partitions that are not begun are,
// at what is the end of the log then, or at its start where others were begun before.
func (p *worker) begin(s store.Source, version string) error {
	for {
		var missing []int32
		known := false
		for _, l := range p.w.lanes {
			if l.source != s {
				continue
			}
			_, ok, err := p.progress(l)
			switch {
			case err != nil:
				return err
			case ok:
				known = true
			default:
				missing = append(missing, l.partition)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		var advances []store.Advance
		for _, n := range missing {
			first := int64(0)
			if !known {
				first = p.w.r.Int64N(4)
			}
			advances = append(advances, store.Advance{Source: s, Partition: n, From: store.Absent, Progress: store.Progress{First: first, Next: first, MappingVersion: version, MappingFrom: first}})
		}
		if err := p.x.begin(context.Background(), advances); err != nil && !errors.Is(err, store.ErrStale) {
			return err
		}
	}
}

// batch makes the batch that goes on at prev, of n records.
func (w *world) batch(l lane, version string, prev *store.Progress, n int64) (*store.Advance, []*mutation, []*counter) {
	a := &store.Advance{Source: l.source, Partition: l.partition, From: prev.Next, Progress: *prev}
	a.Progress.Next = min(prev.Next+n, w.end)
	a.Progress.Applied += a.Progress.Next - prev.Next
	a.Progress.MappingVersion = version
	var rows []*mutation
	byName := map[string]*counter{}
	var counters []*counter
	for o := prev.Next; o < a.Progress.Next; o++ {
		deltas, row := w.record(l, version, o)
		at := 1000 + o
		if row {
			key := fmt.Appendf(nil, "%s/%d/%s/%d", l.source.Pipeline, l.partition, version, o)
			rows = append(rows, &mutation{table: "rows", row: key, writes: []*hbase.TMutation{{Put: &hbase.TPut{Row: key, ColumnValues: []*hbase.TColumnValue{
				{Family: []byte("f"), Qualifier: []byte("q"), Value: key, Timestamp: &at},
			}}}}})
		}
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for k := range deltas {
				if !yield(k) {
					return
				}
			}
		}) {
			c := byName[name]
			if c == nil {
				c = &counter{table: "t", family: "n", row: []byte("r"), column: []byte(name), key: name}
				byName[name] = c
				counters = append(counters, c)
			}
			c.steps = append(c.steps, step{o, deltas[name], eventTime(o)})
		}
		names, elements := w.added(l, version, o)
		for i, name := range names {
			c := byName["u:"+name]
			if c == nil {
				c = &counter{table: "t", family: "u", row: []byte("r"), column: []byte(name), key: "u:" + name, distinct: true}
				byName["u:"+name] = c
				counters = append(counters, c)
			}
			c.elements = append(c.elements, newElement(o, eventTime(o), []byte(elements[i])))
		}
	}
	return a, rows, counters
}

// run applies a lane until its log ends, or until it is killed.
func (p *worker) run(l lane, version string) error {
	join := func(errs []error) error { return errors.Join(errs...) }
	for {
		if err := p.begin(l.source, version); err != nil {
			if errors.Is(err, errKilled) || !errors.Is(err, store.ErrTransient) && !errors.Is(err, store.ErrUnknownOutcome) {
				return err
			}
			continue
		}
		prev, _, err := p.progress(l)
		for err == nil && prev.Next < p.w.end {
			var a *store.Advance
			var rows []*mutation
			var counters []*counter
			a, rows, counters = p.w.batch(l, version, &prev, 1+p.w.r.Int64N(6))
			if err = p.x.apply(context.Background(), a, rows, counters, join); err == nil {
				prev = a.Progress
			}
		}
		var unfinished *UnfinishedError
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errKilled):
			return err
		case errors.As(err, &unfinished):
			return err // in its place somebody with the other mapping may come
		case !errors.Is(err, store.ErrStale) && !errors.Is(err, store.ErrTransient) && !errors.Is(err, store.ErrUnknownOutcome):
			return err
		}
	}
}

// start begins a process on a lane.
func (w *world) start(l lane, version string) (*worker, chan error) {
	p := &worker{w: w, turn: make(chan fate), asks: make(chan bool), mutant: w.mutant, old: map[string]*hbase.TResult_{}}
	p.x = newExact(p, 2+w.r.IntN(3))
	ended := make(chan error, 1)
	go func() {
		ended <- p.run(l, version)
		close(p.asks)
	}()
	return p, ended
}

// play runs processes side by side, kills them at any call and lets others take
// their place, until every log is at its end. It returns what is wrong then.
func play(seed uint64, counts, mutant string) error { return playWith(seed, counts, mutant, 0, 0) }

// playWith is play with rebuilds of one pipeline, and removals of counters, besides.
func playWith(seed uint64, counted, mutant string, rebuilds, removals int) error {
	w := &world{left: rebuilds, remove: removals, counts: counted, r: rand.New(rand.NewPCG(seed, 1)), m: newModel(), end: 12, seed: seed, clock: 1 << 40, mutant: mutant, fatal: true}
	topic := func(name string) store.Source {
		return store.Source{Pipeline: name, Topic: "topic", TopicID: [16]byte{1}}
	}
	w.lanes = []lane{{topic("p"), 0}, {topic("p"), 1}, {topic("pp"), 0}}
	if rebuilds > 0 {
		w.lanes = w.lanes[:2] // what others count in the same families is not rebuilt
	}
	type member struct {
		p        *worker
		ended    chan error
		rebuilds bool
	}
	versions := []string{"m1", "m2"}
	var running []member
	defer func() {
		for _, m := range running { // where something is wrong
			m.p.turn <- killed
			for range m.p.asks {
				m.p.turn <- killed
			}
		}
	}()
	deaths := 0
	for calls := 0; ; calls++ {
		if calls > 20_000 {
			return errors.New("it does not end")
		}
		w.fatal = deaths < 12
		counts := func(m member) bool { return !m.rebuilds && !m.p.remove }
		if len(running) < 3 && w.fatal && w.r.IntN(20) == 0 || len(running) == 0 || !w.fatal && w.behind() >= 0 && !slices.ContainsFunc(running, counts) {
			// Who is behind most, by whichever mapping may go on.
			l := w.lanes[w.r.IntN(len(w.lanes))]
			version := versions[w.r.IntN(2)]
			if !w.fatal {
				at := w.behind()
				switch {
				case at < 0 && !w.rebuilds() && w.remove == 0 && !w.floored():
					for _, f := range w.late {
						f()
					}
					return w.check()
				case at < 0:
					at = 0 // its log is at its end; a rebuild comes, or a remover
				}
				l = w.lanes[at]
				if s := w.stored(l); s.until > s.next {
					version = s.version
				}
			}
			p, ended := w.start(l, version)
			<-p.asks // its first call
			running = append(running, member{p, ended, false})
		}
		rebuilding := 0
		for _, m := range running {
			if m.rebuilds {
				rebuilding++
			}
		}
		if w.rebuilds() && rebuilding < 2 && w.r.IntN(30) == 0 {
			p, ended := w.startRebuild()
			<-p.asks
			running = append(running, member{p, ended, true})
		}
		if w.removing < 2 && w.removes() {
			p, ended := w.startRemover()
			<-p.asks
			running = append(running, member{p, ended, false})
		}
		if len(w.late) > 0 && w.r.IntN(15) == 0 {
			i := w.r.IntN(len(w.late))
			w.late[i]()
			w.late = slices.Delete(w.late, i, i+1)
		}
		i := w.r.IntN(len(running))
		m := running[i]
		f := done
		if w.fatal {
			switch n := w.r.IntN(60); {
			case n < 4:
				f = fate(1 + n)
			}
			if f >= killed {
				deaths++
			}
		}
		m.p.turn <- f
		if asks := <-m.p.asks; !asks {
			err := <-m.ended
			running = slices.Delete(running, i, i+1)
			if err != nil && !errors.Is(err, errKilled) && !errors.As(err, new(*UnfinishedError)) {
				return err
			}
			switch {
			case m.p.done && m.p.remove:
				w.remove = max(w.remove-1, 0)
			case m.p.done:
				w.left = max(w.left-1, 0)
			}
		}
	}
}

func (w *world) stored(l lane) state {
	value := w.m.value(store.OffsetsTable, store.AppendSourceRow(nil, &l.source, l.partition), store.ProgressFamily, stateQualifier)
	if value == nil {
		return absentState()
	}
	s, err := decodeState(value)
	if err != nil {
		panic(err)
	}
	return s
}

// check compares what is stored with what the logs say.
func (w *world) check() error {
	want, rows := map[string]int64{}, map[string]bool{}
	distinct := map[string]*counters.Sketch{}
	newest := map[string]cell.Timestamp{}
	for _, l := range w.lanes {
		row := store.AppendSourceRow(nil, &l.source, l.partition)
		p, err := store.DecodeProgress(w.m.value(store.OffsetsTable, row, store.ProgressFamily, store.ProgressQualifier))
		if err != nil {
			return err
		}
		if p.Next != w.end || !p.Balanced() {
			return fmt.Errorf("%s/%d: progress %+v", l.source.Pipeline, l.partition, p)
		}
		if b, ok := w.m.begun[string(appendSource(nil, &l.source))].begins[l.partition]; ok && b.First != p.First {
			return fmt.Errorf("%s/%d: begun at %d, decided was %d", l.source.Pipeline, l.partition, p.First, b.First)
		}
		for o := p.First; o < w.end; o++ {
			version := w.m.moves[string(row)][o]
			if version == "" {
				return fmt.Errorf("%s/%d: offset %d was applied by nobody", l.source.Pipeline, l.partition, o)
			}
			_, has := w.record(l, version, o)
			counted := version
			if o < w.m.switched[string(row)] {
				counted = rebuiltVersion
			}
			deltas, _ := w.record(l, counted, o)
			for name, d := range deltas {
				if w.m.floored[string(row)].hides("n", name, o) {
					continue
				}
				want[name] += d
				newest[name] = max(newest[name], eventTime(o))
			}
			names, elements := w.added(l, counted, o)
			for i, name := range names {
				if w.m.floored[string(row)].hides("u", name, o) {
					continue
				}
				if distinct[name] == nil {
					distinct[name] = new(counters.Sketch)
				}
				distinct[name].Add([]byte(elements[i]))
				newest["u:"+name] = max(newest["u:"+name], eventTime(o))
			}
			if has {
				rows[fmt.Sprintf("%s/%d/%s/%d", l.source.Pipeline, l.partition, version, o)] = true
			}
		}
	}
	var a adder
	got := map[string]int64{}
	take := func(c cell.Cell, ok bool) error {
		if !ok {
			return nil
		}
		name := string(c.Qualifier)
		if c.Family == "u" {
			if s := distinct[name]; s == nil || string(s.Append(nil)) != string(c.Value) || c.Time != newest["u:"+name] {
				return fmt.Errorf("distinct count %s is %x at %d, want it at %d", name, c.Value, c.Time, newest["u:"+name])
			}
			delete(distinct, name)
			return nil
		}
		if got[name] = int64(binary.BigEndian.Uint64(c.Value)); got[name] != want[name] || c.Time != newest[name] {
			return fmt.Errorf("counter %s is %d at %d, want %d at %d", name, got[name], c.Time, want[name], newest[name])
		}
		return nil
	}
	columns := w.m.rows["t/r"]
	for _, name := range sortedKeys(columns) {
		family, _, _ := strings.Cut(name, ":")
		c, ok, err := a.add(family, family == "u", &cell.Cell{Qualifier: columns[name].Qualifier, Time: cell.Timestamp(columns[name].GetTimestamp()), Value: columns[name].Value})
		if err = errors.Join(err, take(c, ok)); err != nil {
			return err
		}
	}
	c, ok := a.end()
	if err := take(c, ok); err != nil {
		return err
	}
	if len(distinct) > 0 {
		return fmt.Errorf("distinct counts %q are missing", sortedKeys(distinct))
	}
	for name, n := range want {
		if _, ok := got[name]; !ok {
			return fmt.Errorf("counter %s is missing, want %d", name, n)
		}
	}
	for key := range rows {
		if w.m.rows["rows/"+key] == nil {
			return fmt.Errorf("row %s is missing", key)
		}
	}
	for key := range w.m.rows {
		if len(key) > 5 && key[:5] == "rows/" && !rows[key[5:]] {
			return fmt.Errorf("row %s is of a mapping that was not in force", key[5:])
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// exactSeeds is how many schedules the tests play, SLUICE_EXACT_SEEDS or 500.
func exactSeeds(t *testing.T) uint64 {
	if n, err := strconv.ParseUint(os.Getenv("SLUICE_EXACT_SEEDS"), 10, 64); err == nil {
		return n
	}
	return thinned.Of[uint64](500, 100)
}

// TestExactSchedules (I2): processes of two mappings that are killed between any two
// calls, whose writes come late and whose answers are lost, several to a partition,
// with batches that end anywhere, leave each record's effect once.
func TestExactSchedules(t *testing.T) {
	t.Parallel()
	for seed := range exactSeeds(t) {
		if err := play(seed, "nu", ""); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestExactFindsMutants takes away what makes batches exact, one thing at a time.
func TestExactFindsMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: whether schedules find what is missing does not depend on the race detector")
	}
	t.Parallel()
	both := []string{
		"bases not read", "claims not stored", "check ignored", "lost replies believed", "offset before data", "counters now",
		"write errors ignored", "one number for all", "old bases",
	}
	find := func(t *testing.T, counts string, mutants ...string) {
		for _, mutant := range mutants {
			t.Run(mutant, func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(20_000) {
					if err := play(seed, counts, mutant); err != nil {
						t.Logf("seed %d: %v", seed, err)
						return
					}
				}
				t.Error("nothing has noticed")
			})
		}
	}
	t.Run("counters", func(t *testing.T) { find(t, "n", append(slices.Clone(both), "base timestamps ignored")...) })
	t.Run("distinct counts", func(t *testing.T) { find(t, "u", both...) }) // an element may be added twice
}
