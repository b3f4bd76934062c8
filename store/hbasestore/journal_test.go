package hbasestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/counters"
	"sluice/pipeline/buffer"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// claimed is an entry that was claimed.
type claimed struct {
	partition int32
	nonce     uint64
	revision  uint64
	row       string // of the journal
	writes    []cell.Mutation
}

// claimOf returns the entry that a put of columns into a journal's row claims, if it
// claims one.
func claimOf(row []byte, put []*hbase.TColumnValue) []claimed {
	c := claimed{partition: int32(binary.BigEndian.Uint32(row[len(row)-4:])), row: string(row)}
	pending := false
	for _, v := range put {
		var err error
		if string(v.Qualifier) == entryQualifier {
			c.writes, err = decodeEntry(v.Value)
		} else {
			var s journalState
			s, err = decodeJournalState(v.Value)
			c.nonce, c.revision, pending = s.nonce, s.revision, s.pending()
		}
		if err != nil {
			panic(err)
		}
	}
	if !pending {
		return nil
	}
	return []claimed{c}
}

// modelSchemas are the tables of a model.
type modelSchemas struct{}

func (modelSchemas) Table(_ context.Context, name string) (*store.TableDescriptor, error) {
	t := &store.TableDescriptor{Name: name}
	for _, f := range []string{store.OutboxFamily, "f", "n", "u"} {
		t.Families = append(t.Families, store.NewFamily(f))
	}
	t.Families[2].Counter, t.Families[3].Distinct = name == "t", name == "t"
	return t, nil
}

func (s modelSchemas) validate(ctx context.Context, m *cell.Mutation, _ bool) (*mutation, error) {
	t, _ := s.Table(ctx, m.Table)
	return translate(t, m)
}

func (modelSchemas) checkCounter(context.Context, *counter) error { return nil }

// letterWorld is an outbox, and the processes that redrive and purge its letters.
type letterWorld struct {
	*world
	letters []*buffer.DeadLetter
	wrong   error // a call has said something else than it did
}

// redriven is what a version of the mapping makes of a letter.
func (w *letterWorld) redriven(d *buffer.DeadLetter, version string) (deltas map[string]int64, row, refused bool) {
	deltas, row = w.record(w.lanes[d.Partition], version, d.Offset)
	return deltas, row, (d.Offset+int64(version[1]))%4 == 0
}

func rowName(d *buffer.DeadLetter, version string) []byte {
	return fmt.Appendf(nil, "%d/%s/%d", d.Partition, version, d.Offset)
}

// redrive is a unit of a letter, as the pipeline makes it.
func (w *letterWorld) redrive(i int, letter *buffer.DeadLetter, version string) store.Record {
	d := *letter
	dead := d.Unchanged()
	d.MappingVersion = version
	deltas, row, refused := w.redriven(&d, version)
	if refused {
		d.Class, d.Attempts = "class", 2
		return store.Record{Offset: int64(i), Cond: dead, Mutations: []cell.Mutation{d.RefusedMutation()}}
	}
	d.Redriven, d.RedrivenAs, d.RedrivenBy = 5, buffer.Applied, "somebody"
	var effects []cell.Mutation
	if row {
		m := cell.Mutation{Table: "rows", Row: rowName(&d, version)}
		m.Put("f", []byte("q"), 1, []byte("v"))
		effects = append(effects, m)
	}
	m := cell.Mutation{Table: "t", Row: []byte("r")}
	for _, name := range sortedKeys(deltas) {
		m.Increment("n", []byte(name), deltas[name])
		m.Ops[len(m.Ops)-1].Time = cell.Timestamp(1000 + d.Offset)
	}
	names, elements := w.added(w.lanes[d.Partition], version, d.Offset)
	for i, name := range names {
		m.Append("u", []byte(name), []byte(elements[i]))
		m.Ops[len(m.Ops)-1].Time = eventTime(d.Offset)
	}
	if len(m.Ops) > 0 {
		effects = append(effects, m)
	}
	if len(effects) == 0 {
		d.RedrivenAs = buffer.Filtered
	}
	return store.Record{Offset: int64(i), Cond: dead, Mutations: append(append([]cell.Mutation{d.RedrivenMutation()}, effects...), d.CountMutation())}
}

// read returns the letters of a partition that are there.
func (w *letterWorld) read(partition int32) []*buffer.DeadLetter {
	var out []*buffer.DeadLetter
	for _, l := range w.letters {
		if l.Partition != partition {
			continue
		}
		row := &cell.Row{Key: l.AppendRow(nil)}
		for _, r := range w.m.read(store.OutboxTable, []*hbase.TGet{{Row: row.Key}}) {
			for _, v := range r.ColumnValues {
				row.Cells = append(row.Cells, cell.Cell{Family: string(v.Family), Qualifier: v.Qualifier, Value: v.Value})
			}
		}
		if len(row.Cells) == 0 {
			continue
		}
		d, err := buffer.DecodeDeadLetter(row)
		if err != nil {
			panic(err)
		}
		out = append(out, d)
	}
	return out
}

// run redrives letters of a partition by a version of the mapping, or purges some
// where it is "", a few batches.
func (w *letterWorld) run(p *worker, number uint64, partition int32, version string, batches int) error {
	source := w.lanes[0].source
	source.Pipeline += redriveSuffix
	j := &journaled{journal: journal{x: p.x, source: &source, partition: partition}, schemas: modelSchemas{}, most: 1 << 20}
	var nonces []uint64 // of the call
	last := number << 32
	j.nonce = func() uint64 {
		if last++; w.mutant == "one nonce for all" {
			last = 1
		}
		nonces = append(nonces, last)
		return last
	}
	if err := j.apply(context.Background(), &store.Batch{}); err != nil { // of whoever was killed
		return err
	}
	for range batches {
		var letters []*buffer.DeadLetter
		if _, err := p.call(func() { letters = w.read(partition) }); err != nil {
			return err
		}
		var b store.Batch
		for _, d := range letters {
			switch {
			case version == "" && w.r.IntN(6) == 0:
				b.Record(int64(len(b.Records)), nil, d.Unchanged(), d.PurgeMutations()...)
			case version != "" && d.Redriven == 0 && (!w.fatal || w.r.IntN(2) == 0):
				b.Records = append(b.Records, w.redrive(len(b.Records), d, version))
			}
		}
		nonces = nil
		if err := j.apply(context.Background(), &b); err != nil {
			return err
		}
		// What the call has said is what its entries did.
		done := int64(0)
		for _, e := range w.m.entries {
			if slices.Contains(nonces, e.nonce) {
				for i := range e.writes {
					if m := &e.writes[i]; m.Table == store.OutboxTable && m.Row[0] != 0 {
						done++
					}
				}
			}
		}
		if said := int64(len(b.Records)) - b.Unapplied.Unmet; said != done {
			w.wrong = fmt.Errorf("a call says that it applied %d units, its entries have %d", said, done)
		}
	}
	return nil
}

// playJournal runs processes that redrive and purge side by side, kills them at any
// call, and lets one finish what they left. It returns what is wrong then. removes says
// that counters are removed meanwhile, and rebuilds how often they are counted again.
func playJournal(seed uint64, mutant string, removes bool, rebuilds int) error {
	w := &letterWorld{world: &world{counts: "nu", r: rand.New(rand.NewPCG(seed, 2)), m: newModel(), seed: seed, clock: 1 << 40, mutant: mutant, fatal: true, left: rebuilds}}
	source := store.Source{Pipeline: "p", Topic: "topic", TopicID: [16]byte{1}}
	w.lanes = []lane{{source, 0}, {source, 1}}
	if rebuilds > 0 {
		w.end = 6
		if err := w.applyLogs(); err != nil {
			return err
		}
	}
	for _, l := range w.lanes {
		for o := range int64(7) {
			d := &buffer.DeadLetter{Pipeline: "p", Topic: "topic", TopicID: source.TopicID, Partition: l.partition, Offset: o, Time: 100 + o, Stage: "map", Class: "bad"}
			m, err := d.Mutation()
			if err != nil {
				return err
			}
			h, err := modelSchemas{}.validate(context.Background(), &m, false)
			if err != nil {
				return err
			}
			w.m.write(h)
			w.letters = append(w.letters, d)
		}
	}
	type member struct {
		p     *worker
		ended chan error
	}
	var running []member
	join := func(p *worker, ended chan error) {
		<-p.asks
		running = append(running, member{p, ended})
	}
	rebuilders := func() (n int) {
		for _, m := range running {
			if m.p.owner != "" {
				n++
			}
		}
		return n
	}
	defer func() {
		for _, m := range running { // where something is wrong
			m.p.turn <- killed
			for range m.p.asks {
				m.p.turn <- killed
			}
		}
	}()
	processes, deaths, last := uint64(0), 0, int32(0)
	for calls := 0; ; calls++ {
		if calls > 20_000 {
			return errors.New("it does not end")
		}
		w.fatal = deaths < 8 && processes < 25
		if len(running) < 3 && w.fatal && w.r.IntN(15) == 0 || len(running) == 0 {
			if !w.fatal && last == 2 && w.rebuilds() {
				join(w.startRebuild())
				continue
			}
			if !w.fatal && last == 2 && !w.flooredJournals() {
				break
			}
			if !w.fatal && last == 2 {
				join(w.startRemover())
				continue
			}
			partition, version := int32(w.r.IntN(2)), [...]string{"m1", "m2", ""}[w.r.IntN(3)]
			if !w.fatal { // one that redrives all of a partition, when no claim comes late any more
				for ; len(w.late) > 0; w.late = w.late[1:] {
					w.late[0]()
				}
				partition, version = last, "m1"
				last++
			}
			p := &worker{w: w.world, turn: make(chan fate), asks: make(chan bool), mutant: mutant, old: map[string]*hbase.TResult_{}}
			p.x = newExact(p, 0)
			m := member{p, make(chan error, 1)}
			processes++
			number, batches := processes, 1+w.r.IntN(3)
			go func() {
				m.ended <- w.run(p, number, partition, version, batches)
				close(p.asks)
			}()
			<-p.asks
			running = append(running, m)
		}
		if removes && w.fatal && w.removing < 2 && w.r.IntN(15) == 0 {
			join(w.startRemover())
		}
		if w.rebuilds() && rebuilders() < 2 && w.r.IntN(15) == 0 {
			join(w.startRebuild())
		}
		if len(w.late) > 0 && w.r.IntN(15) == 0 {
			i := w.r.IntN(len(w.late))
			w.late[i]()
			w.late = slices.Delete(w.late, i, i+1)
		}
		i := w.r.IntN(len(running))
		m := running[i]
		f := done
		if n := w.r.IntN(40); w.fatal && n < 4 {
			f = fate(1 + n)
			if f >= killed {
				deaths++
			}
		}
		m.p.turn <- f
		if asks := <-m.p.asks; !asks {
			err := <-m.ended
			if err != nil && !errors.Is(err, errKilled) && !errors.Is(err, store.ErrTransient) && !errors.Is(err, store.ErrUnknownOutcome) {
				return err
			}
			running = slices.Delete(running, i, i+1)
			if m.p.done && m.p.owner != "" {
				w.left = max(w.left-1, 0)
			}
		}
	}
	if w.wrong != nil {
		return w.wrong
	}
	return w.check()
}

// fateOf is what the entries say that became of a letter.
type fateOf struct {
	as, version string // "" = dead
	purged      bool
	floors      floors // of its journal
	revision    int64
	uncounted   bool // a rebuild has taken its counts' place
}

// check compares what is stored with what was decided, in which each letter has its
// effect once.
func (w *letterWorld) check() error {
	place := map[string]*buffer.DeadLetter{}
	became := map[string]*fateOf{}
	counts := [2]buffer.Redriven{}
	for _, d := range w.letters {
		place[string(d.AppendRow(nil))] = d
		became[string(d.AppendRow(nil))] = &fateOf{}
	}
	for _, e := range w.m.entries {
		for i := range e.writes {
			m := &e.writes[i]
			d := place[string(m.Row)]
			if m.Table != store.OutboxTable || d == nil {
				continue
			}
			f, n := became[string(m.Row)], &counts[d.Partition]
			if f.purged {
				return fmt.Errorf("letter %d/%d was purged, and then %v", d.Partition, d.Offset, m.Ops)
			}
			if m.Ops[0].Type == cell.OpDeleteRow {
				f.purged = true
				switch f.as {
				case "":
					n.PurgedDead++
				case buffer.Applied:
					n.PurgedApplied++
				default:
					n.PurgedFiltered++
				}
				continue
			}
			values := map[string]string{}
			for _, o := range m.Ops {
				values[string(o.Qualifier)] = string(o.Value)
			}
			if f.as != "" {
				return fmt.Errorf("letter %d/%d was redriven, and then %v", d.Partition, d.Offset, values)
			}
			f.floors, f.revision = w.m.floored[e.row], int64(e.revision)
			f.uncounted = f.revision <= w.m.uncounted[e.row]
			if f.as, f.version = values["redriven_as"], values["mapping_version"]; f.as == buffer.Applied {
				n.Applied++
			} else if f.as != "" {
				n.Filtered++
			}
		}
	}
	want, rows := map[string]int64{}, map[string]bool{}
	distinct, got, gotDistinct := map[string]*counters.Sketch{}, map[string]int64{}, map[string]string{}
	for key, f := range became {
		d := place[key]
		if f.as != "" {
			deltas, row, refused := w.redriven(d, f.version)
			if refused {
				return fmt.Errorf("letter %d/%d was applied by %s, which refuses it", d.Partition, d.Offset, f.version)
			}
			for name, n := range deltas {
				if !f.uncounted && !f.floors.hides("n", name, f.revision-1) {
					want[name] += n
				}
			}
			names, elements := w.added(w.lanes[d.Partition], f.version, d.Offset)
			for i, name := range names {
				if f.uncounted || f.floors.hides("u", name, f.revision-1) {
					continue
				}
				if distinct[name] == nil {
					distinct[name] = new(counters.Sketch)
				}
				distinct[name].Add([]byte(elements[i]))
			}
			if row {
				rows["rows/"+string(rowName(d, f.version))] = true
			}
		} else if _, _, refused := w.redriven(d, "m1"); !f.purged && !refused {
			return fmt.Errorf("letter %d/%d is still dead", d.Partition, d.Offset)
		}
	}
	w.addLogs(want, distinct, rows)
	// What is stored.
	for _, l := range w.lanes {
		for _, d := range w.read(l.partition) {
			f := became[string(d.AppendRow(nil))]
			if f.purged || d.RedrivenAs != f.as {
				return fmt.Errorf("letter %d/%d is %q, want %+v", d.Partition, d.Offset, d.RedrivenAs, *f)
			}
			f.purged = true // it was found
		}
		row := &cell.Row{}
		n := counts[l.partition]
		n.Pipeline, n.Topic, n.TopicID, n.Partition = l.source.Pipeline, l.source.Topic, l.source.TopicID, l.partition
		key := (&buffer.DeadLetter{Pipeline: n.Pipeline, Topic: n.Topic, TopicID: n.TopicID, Partition: n.Partition}).AppendRow(buffer.AppendRedrivenPrefix(nil, ""))
		row.Key = key[:len(key)-8]
		for _, v := range w.m.rows[store.OutboxTable+"/"+string(row.Key)] {
			row.Cells = append(row.Cells, cell.Cell{Qualifier: v.Qualifier, Value: v.Value})
		}
		got, err := buffer.DecodeRedriven(row)
		if err != nil {
			return err
		}
		if d := cmp.Diff(&n, got); d != "" {
			return fmt.Errorf("counts of partition %d (-want +got):\n%s", l.partition, d)
		}
	}
	for key, f := range became {
		if !f.purged {
			return fmt.Errorf("letter %d/%d is gone", place[key].Partition, place[key].Offset)
		}
	}
	var a adder
	take := func(c cell.Cell, ok bool) {
		if ok && c.Family == "u" {
			gotDistinct[string(c.Qualifier)] = string(c.Value)
		} else if ok {
			got[string(c.Qualifier)] = int64(binary.BigEndian.Uint64(c.Value))
		}
	}
	columns := w.m.rows["t/r"]
	for _, name := range sortedKeys(columns) {
		family, _, _ := strings.Cut(name, ":")
		c, ok, err := a.add(family, family == "u", &cell.Cell{Qualifier: columns[name].Qualifier, Time: cell.Timestamp(columns[name].GetTimestamp()), Value: columns[name].Value})
		if err != nil {
			return err
		}
		take(c, ok)
	}
	take(a.end())
	if d := cmp.Diff(want, got); d != "" {
		return fmt.Errorf("counters (-want +got):\n%s", d)
	}
	wantDistinct := map[string]string{}
	for name, s := range distinct {
		wantDistinct[name] = string(s.Append(nil))
	}
	if d := cmp.Diff(wantDistinct, gotDistinct); d != "" {
		return fmt.Errorf("distinct counts (-want +got):\n%s", d)
	}
	for key := range w.m.rows {
		if len(key) > 5 && key[:5] == "rows/" {
			if !rows[key] {
				return fmt.Errorf("row %s is of no redrive", key[5:])
			}
			delete(rows, key)
		}
	}
	if len(rows) > 0 {
		return fmt.Errorf("rows %v are missing", sortedKeys(rows))
	}
	return nil
}

// TestJournalSchedules (I2): processes that redrive by two mappings and purge, killed
// between any two calls, with late writes and lost answers, give each letter its
// effect at most once, and what is decided its effect once.
func TestJournalSchedules(t *testing.T) {
	t.Parallel()
	for seed := range exactSeeds(t) {
		if err := playJournal(seed, "", false, 0); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestJournalFindsMutants takes away what makes a journal exact, one thing at a time.
func TestJournalFindsMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: whether schedules find what is missing does not depend on the race detector")
	}
	t.Parallel()
	for _, mutant := range []string{
		"base timestamps ignored", "claims not stored", "check ignored", "lost replies believed", "offset before data", "counters now",
		"write errors ignored", "one nonce for all", "old rows tested", "sums without revision",
	} {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20_000) {
				if err := playJournal(seed, mutant, false, 0); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("nothing has noticed")
		})
	}
}
