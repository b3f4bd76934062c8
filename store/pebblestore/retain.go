package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

// A look reads at most sampledKeys keys at each of at most maxSamples places of a
// piece, one for each sampledBytes of it: two thousand keys tell a tenth of garbage
// from a fifth, and cost a hundredth of reading them all.
const (
	sampledKeys  = 512
	maxSamples   = 4
	sampledBytes = 4 << 20
)

// retention is the background half of retention: from time to time it looks where
// garbage has gathered, and rewrites those spans. What no read can see is garbage:
// expired cells and counters, versions in excess, masked puts, and markers that may
// go.
type retention struct {
	db     *DB
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended

	mu    sync.Mutex             // held while looking: one look at a time
	looks map[uint64]*familyLook // by familyHead
}

// familyLook is what the last look at a family has found.
type familyLook struct {
	sequence uint64 // of the store, then
	timed    bool   // time alone can make garbage of what is there
	garbage  uint64 // estimated bytes on disk that a rewrite would give back, after the look
}

// piece is a part of a family that is judged as a whole.
type piece struct {
	low, high []byte
	bytes     uint64 // on disk, estimated
}

func newRetention(db *DB) *retention {
	return &retention{db: db, looks: map[uint64]*familyLook{}}
}

// start begins to look every interval.
func (n *retention) start(interval time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.done = cancel, make(chan struct{})
	go func() {
		defer close(n.done)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if err := n.look(ctx); err != nil && ctx.Err() == nil {
				n.db.opts.Logger.Warn("retention: it tries again later", "err", err)
			}
		}
	}()
}

// stop ends the goroutine, at the latest between two keys of a rewrite.
func (n *retention) stop() {
	if n.cancel != nil {
		n.cancel()
		<-n.done
	}
}

// Tidy does now what the store does by itself every Options.RewriteInterval: it
// looks, by samples, where garbage has gathered, in every table, and rewrites the
// spans in which its share is Options.RewriteMinGarbage or more. What a scan
// returns does not change by it, but for time ranges, raw scans and the expired version
// beyond MIN_VERSIONS of a column that is named (docs/data-model.md), which may have been
// garbage. Tables with COMPACTION_ENABLED => false are left alone. It is
// HBase's major compaction, chosen by content and not by age.
func (db *DB) Tidy(ctx context.Context) error {
	if db.opts.ReadOnly {
		return fmt.Errorf("tidy: %w", store.ErrReadOnly)
	}
	if err := db.retention.look(ctx); err != nil {
		return fmt.Errorf("tidy: %w", err)
	}
	return nil
}

// look looks at every family and rewrites what is worth it.
func (n *retention) look(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	begun := time.Now()
	if err := n.db.forgetChanges(ctx); err != nil {
		return fmt.Errorf("forget changes: %w", err)
	}
	tables := n.db.catalog.Load().tables
	names := make([]string, 0, len(tables))
	for name := range tables {
		names = append(names, name)
	}
	slices.Sort(names)
	seen := map[uint64]*familyLook{}
	var errs []error
	for _, name := range names {
		t := tables[name]
		if !t.desc.Enabled(store.AttrCompaction) {
			continue
		}
		for i := range t.fams {
			f := &t.fams[i]
			if f.tag == cell.TagSystem {
				continue
			}
			head := familyHead(cell.AppendFamilyPrefix(nil, f.tag, t.id, f.id))
			l, err := n.lookAt(ctx, t, f, n.looks[head])
			if err != nil {
				if errors.Is(err, store.ErrClosed) || ctx.Err() != nil {
					return err
				}
				if !errors.Is(err, store.ErrTableNotFound) { // dropped meanwhile
					errs = append(errs, fmt.Errorf("table %s, family %s: %w", name, f.desc.Name, err))
				}
				continue
			}
			seen[head] = l
		}
	}
	n.looks = seen
	garbage := uint64(0)
	for _, l := range seen {
		garbage += l.garbage
	}
	m := &n.db.metrics
	m.garbage.Store(int64(garbage))
	m.looks.Add(1)
	m.lookNanos.Add(int64(time.Since(begun)))
	return errors.Join(errs...)
}

// lookAt looks at one family. before is what the last look has found, or nil.
func (n *retention) lookAt(ctx context.Context, t *table, f *family, before *familyLook) (*familyLook, error) {
	sequence := n.db.sequence.Load()
	if before != nil && before.sequence == sequence && !before.timed {
		return before, nil
	}
	l := &familyLook{sequence: sequence, timed: f.desc.TTL != store.Forever || f.desc.TimeToPurgeDeletes > 0}
	if f.tag == cell.TagCounter && f.desc.TTL == store.Forever {
		return l, nil // its keys are overwritten in place
	}
	worth, err := n.judge(ctx, t, f, l)
	if err != nil {
		return nil, err
	}
	for _, p := range worth {
		done, err := n.rewrite(ctx, &span{
			table: t.desc.Name, family: f.desc.Name, low: p.low, high: p.high, how: rewriteMajor,
			// All cells at once, whatever a flush has seen of them, and no
			// marker that may mask something elsewhere goes for its age.
			upTo: math.MaxUint64, earliestPut: math.MinInt64, tidy: true,
		})
		if err != nil {
			return nil, err
		}
		if done.keys > 0 {
			n.db.opts.Logger.Debug("retention: span rewritten", "table", t.desc.Name, "family", f.desc.Name, "keys", done.keys, "left", done.left)
		}
	}
	return l, nil
}

// judge returns the pieces of a family that are worth a rewrite.
func (n *retention) judge(ctx context.Context, t *table, f *family, l *familyLook) (worth []piece, err error) {
	db := n.db
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	low := cell.AppendFamilyPrefix(nil, f.tag, t.id, f.id)
	high := cell.PrefixEnd(low)
	pieces, err := db.pieces(low, high)
	if err != nil {
		return nil, err
	}
	r := db.newRowRewriter(t, f, &span{how: rewriteMajor, earliestPut: math.MinInt64, tidy: true}, math.MaxUint64)
	if r.it, err = db.liveIterators(ctx)(&pebble.IterOptions{LowerBound: low, UpperBound: high}); err != nil {
		return nil, engineError(err)
	}
	defer func() { err = errors.Join(err, db.closeIterator(r.it)) }()
	for _, p := range pieces {
		share, err := db.sample(ctx, r, p)
		if err != nil {
			return nil, err
		}
		switch garbage := uint64(share * float64(p.bytes)); {
		case share == 0:
		case share >= db.opts.RewriteMinGarbage:
			worth = append(worth, p)
		default:
			l.garbage += garbage
		}
	}
	l.timed = l.timed || r.timed
	db.metrics.sampled.Add(int64(r.done.keys))
	return worth, nil
}

// sample returns the share of a piece, by bytes, that a rewrite would leave out,
// as far as some places of it tell.
func (db *DB) sample(ctx context.Context, r *rowRewriter, p piece) (share float64, err error) {
	places := 1 + min(int(p.bytes/sampledBytes), maxSamples-1)
	before := r.done
	for i := range places {
		if err := db.interrupted(ctx); err != nil {
			return 0, err
		}
		from, until := between(p.low, p.high, i, places), between(p.low, p.high, i+1, places)
		r.it.SetBounds(from, until)
		limit := r.done.keys + sampledKeys
		r.more = false
		for ok := r.it.First(); ok && r.done.keys < limit; {
			if ok, err = r.readRow(); err != nil {
				return 0, err
			}
			if _, err := r.compactRow(); err != nil {
				return 0, err
			}
		}
		if err := r.it.Error(); err != nil {
			return 0, engineError(err)
		}
	}
	if r.done.bytes == before.bytes {
		return 0, nil
	}
	return 1 - float64(r.done.leftBytes-before.leftBytes)/float64(r.done.bytes-before.bytes), nil
}

// rewrite rewrites s no faster than Options.RewriteKeysPerSecond.
func (n *retention) rewrite(ctx context.Context, s *span) (all rewritten, err error) {
	for {
		begun := time.Now()
		next, done, err := n.db.rewriteSpan(ctx, s)
		if err != nil {
			return all, err
		}
		all.add(done)
		if next == nil {
			return all, nil
		}
		s.low = next
		if err := n.pause(ctx, done.keys, time.Since(begun)); err != nil {
			return all, err
		}
	}
}

// pause waits until keys that took so long are no more than the rate allows.
func (n *retention) pause(ctx context.Context, keys int, took time.Duration) error {
	rate := n.db.opts.RewriteKeysPerSecond
	if rate < 0 {
		return nil
	}
	wait := time.Duration(float64(keys)/float64(rate)*float64(time.Second)) - took
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("rewrite: %w", ctx.Err())
	}
}

// pieces cuts the keys [low, high) of a family where Pebble's files begin and end,
// so that each piece is a file's worth of data or less. There is one at least.
func (db *DB) pieces(low, high []byte) ([]piece, error) {
	levels, err := db.pebble.SSTables(pebble.WithKeyRangeFilter(low, high))
	if err != nil {
		return nil, engineError(err)
	}
	var cuts [][]byte
	for _, l := range levels {
		for i := range l {
			for _, key := range [][]byte{l[i].Smallest.UserKey, l[i].Largest.UserKey} {
				if cut := key[:cell.SplitKey(key)]; bytes.Compare(cut, low) > 0 && bytes.Compare(cut, high) < 0 {
					cuts = append(cuts, bytes.Clone(cut))
				}
			}
		}
	}
	sort.Slice(cuts, func(i, j int) bool { return bytes.Compare(cuts[i], cuts[j]) < 0 })
	cuts = append(slices.CompactFunc(cuts, bytes.Equal), high)
	pieces := make([]piece, 0, len(cuts))
	for _, cut := range cuts {
		n, err := db.pebble.EstimateDiskUsage(low, cut)
		if err != nil {
			return nil, engineError(err)
		}
		// A row between two files is no piece of its own.
		if last := len(pieces) - 1; last >= 0 && pieces[last].bytes+n < sampledBytes/4 {
			pieces[last].high = cut
			pieces[last].bytes += n
		} else {
			pieces = append(pieces, piece{low: low, high: cut, bytes: n})
		}
		low = cut
	}
	return pieces, nil
}

// between returns the key i/n of the way from low to high, as bytes go.
func between(low, high []byte, i, n int) []byte {
	switch i {
	case 0:
		return low
	case n:
		return high
	}
	common := 0
	for common < len(low) && common < len(high) && low[common] == high[common] {
		common++
	}
	var a, b [8]byte
	copy(a[:], low[common:])
	copy(b[:], high[common:])
	from, to := binary.BigEndian.Uint64(a[:]), binary.BigEndian.Uint64(b[:])
	return binary.BigEndian.AppendUint64(bytes.Clone(low[:common]), from+(to-from)/uint64(n)*uint64(i))
}
