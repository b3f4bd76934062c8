package tables

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/work"
	"sluice/store"
)

// CompareOptions configures Compare. Left, Right and LeftTable must be set.
type CompareOptions struct {
	// Left and Right are where the tables are: often one, or two stores.
	Left, Right instant.Source
	// LeftTable and RightTable are compared. Default of RightTable: LeftTable.
	LeftTable, RightTable string
	// Rows are the rows to compare. Default: all.
	Rows cell.Range
	// Families are what is compared; both tables must have them. Default: all of
	// both tables, which must be the same.
	Families []string
	// Raw compares delete markers, and what they mask, too, and what has expired:
	// equal tables differ in it where one was rewritten. Default: what a read can
	// see, all versions.
	Raw bool
	// Differences is how many rows that differ are named. Default: 10.
	Differences int
	// Parallelism is how many regions of Left are compared at a time, each by one
	// goroutine. Default: GOMAXPROCS.
	Parallelism int
	// Progress is called now and then, by one goroutine at a time; it must return
	// soon. Done counts regions.
	Progress func(work.Progress)
	// Now is the clock. Default: time.Now.
	Now func() time.Time

	partBytes int // of a row in memory, where tests want little; 0 = partBytes
}

// Difference is a row that is not the same in both tables.
type Difference struct {
	Row []byte
	// Left and Right are the first cells, in key order, in which the two differ;
	// nil = there is no such cell on this side. Values are cut at 100 bytes.
	Left, Right *cell.Cell
}

// String says what differs.
func (d *Difference) String() string {
	side := func(c *cell.Cell) string {
		if c == nil {
			return "nothing"
		}
		text := fmt.Sprintf("%s:%s at %d, %v, %q", c.Family, columnar.EscapeKey(c.Qualifier), c.Time, c.Kind, c.Value)
		if d.Left != nil && d.Right != nil && d.Left.TTL != d.Right.TTL {
			if c.TTL == 0 {
				return text + " without a TTL of its own"
			}
			text += fmt.Sprintf(" with a TTL of %d ms", c.TTL)
		}
		return text
	}
	return fmt.Sprintf("%s: %s, and %s on the right", columnar.EscapeKey(d.Row), side(d.Left), side(d.Right))
}

// ComparedRows counts rows.
type ComparedRows struct {
	Same      int64
	Different int64 // in both, with other cells
	OnlyLeft  int64
	OnlyRight int64
}

func (c *ComparedRows) add(o *ComparedRows) {
	c.Same += o.Same
	c.Different += o.Different
	c.OnlyLeft += o.OnlyLeft
	c.OnlyRight += o.OnlyRight
}

// ComparedRange is a range of rows in both tables: a region of the left one.
type ComparedRange struct {
	Rows cell.Range
	ComparedRows
	LeftCells int64 // all versions
	// LeftSHA256 and RightSHA256 are, in hex, the digests of all keys and cells
	// of the range. They depend on nothing else: equal tables have equal ones,
	// in whichever stores.
	LeftSHA256, RightSHA256 string
}

// Comparison is what Compare found.
type Comparison struct {
	LeftTable, RightTable       string
	LeftSequence, RightSequence uint64 // of the last commits that were read; 0 = the source is Unfrozen
	ComparedRows
	LeftCells   int64           // all versions
	Ranges      []ComparedRange // in key order
	Differences []Difference    // the first, in key order
}

// Equal reports that no row differs.
func (c *Comparison) Equal() bool { return c.Different+c.OnlyLeft+c.OnlyRight == 0 }

// Compare reads two tables, each at one instant, side by side and compares them row
// by row, and names the first rows that differ (HBase's VerifyReplication, and
// HashTable with SyncTable in one). A row that is wider than memory is compared like
// any other. A row that differs is read again, as its cells may have expired between
// the two reads. The error wraps store.ErrTableNotFound or store.ErrFamilyNotFound;
// differences are none.
func Compare(ctx context.Context, o *CompareOptions) (*Comparison, error) {
	c := &compare{CompareOptions: *o}
	if c.Left == nil || c.Right == nil || c.LeftTable == "" {
		return nil, errors.New("tables: CompareOptions need Left, Right and LeftTable")
	}
	c.Left, c.Right = instant.Whole(c.Left), instant.Whole(c.Right)
	c.RightTable = cmp.Or(c.RightTable, c.LeftTable)
	c.Differences = cmp.Or(c.Differences, 10)
	c.partBytes = cmp.Or(c.partBytes, partBytes)
	if c.Now == nil {
		c.Now = time.Now
	}
	r, err := c.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("compare %s with %s: %w", c.LeftTable, c.RightTable, err)
	}
	return r, nil
}

// compare is one execution of Compare.
type compare struct {
	CompareOptions
	report work.Reporter
}

// side is one of the two tables.
type side struct {
	source instant.Source
	table  string
}

func (c *compare) left() side  { return side{c.Left, c.LeftTable} }
func (c *compare) right() side { return side{c.Right, c.RightTable} }

func (c *compare) run(ctx context.Context) (*Comparison, error) {
	if err := c.checkSchemas(ctx); err != nil {
		return nil, err
	}
	m, err := c.Left.Regions(ctx, c.LeftTable)
	if err != nil {
		return nil, err
	}
	splits := instant.Splits(m, c.Rows)
	r := &Comparison{
		LeftTable: c.LeftTable, RightTable: c.RightTable, LeftSequence: c.Left.Sequence(), RightSequence: c.Right.Sequence(),
		Ranges: make([]ComparedRange, len(splits)),
	}
	differences := make([][]Difference, len(splits))
	c.report.Start(c.Progress, c.Now, len(splits))
	c.report.Regions()
	err = work.Parallel(ctx, c.Parallelism, len(splits), func(ctx context.Context, i int) (err error) {
		differences[i], err = c.rows(ctx, splits[i].Rows, &r.Ranges[i])
		return err
	})
	if err = wasRead(ctx, err, c.Left, c.Right); err != nil {
		return nil, err
	}
	for i := range r.Ranges {
		r.add(&r.Ranges[i].ComparedRows)
		r.LeftCells += r.Ranges[i].LeftCells
	}
	all := slices.Concat(differences...)
	r.Differences = all[:min(len(all), c.Differences)]
	return r, nil
}

// checkSchemas looks whether both tables have the families to compare.
func (c *compare) checkSchemas(ctx context.Context) error {
	left, err := c.Left.Table(ctx, c.LeftTable)
	if err != nil {
		return err
	}
	right, err := c.Right.Table(ctx, c.RightTable)
	if err != nil {
		return err
	}
	if len(c.Families) > 0 {
		return errors.Join(instant.CheckFamilies(left, c.Families), instant.CheckFamilies(right, c.Families))
	}
	c.Families = readFamilies(nil, left)
	return errors.Join(instant.CheckFamilies(left, familyNames(right)), instant.CheckFamilies(right, c.Families))
}

// wasRead returns err, how reading sources has ended, with why these are lost; or where it ended
// well, why what was read is not to be trusted.
func wasRead(ctx context.Context, err error, sources ...instant.Source) error {
	failed := err != nil
	for _, s := range sources {
		if failed {
			err = errors.Join(err, instant.Lost(s))
		} else {
			err = errors.Join(err, instant.Check(ctx, s))
		}
	}
	return err
}

// readFamilies returns the families that are read of t: those that are named, or all that it
// had when it was looked at. An Unfrozen table may get others while it is read.
func readFamilies(named []string, t *store.TableDescriptor) []string {
	if len(named) > 0 {
		return named
	}
	return familyNames(t)
}

func familyNames(t *store.TableDescriptor) []string {
	names := make([]string, len(t.Families))
	for i := range t.Families {
		names[i] = t.Families[i].Name
	}
	return names
}

// rows compares the rows of one range and returns the first that differ.
func (c *compare) rows(ctx context.Context, rows cell.Range, r *ComparedRange) (differences []Difference, err error) {
	r.Rows = rows
	left, right := c.digests(ctx, c.left(), rows), c.digests(ctx, c.right(), rows)
	defer func() { err = errors.Join(err, left.close(), right.close()) }()
	left.next()
	right.next()
	var told int64
	for seen := int64(0); left.key != nil || right.key != nil; seen++ {
		if err := errors.Join(left.err, right.err); err != nil {
			return nil, err
		}
		if seen-told >= reportRows {
			c.report.Rows(seen - told)
			told = seen
		}
		order := bytes.Compare(left.key, right.key)
		switch {
		case left.key == nil:
			order = 1
		case right.key == nil:
			order = -1
		}
		key := left.key
		if order > 0 {
			key = right.key
		}
		if order == 0 && left.sum == right.sum {
			r.Same++
		} else {
			d, err := c.difference(ctx, key)
			if err != nil {
				return nil, err
			}
			switch {
			case d == nil: // what differed has expired
				r.Same++
			case order < 0:
				r.OnlyLeft++
			case order > 0:
				r.OnlyRight++
			default:
				r.Different++
			}
			if d != nil && len(differences) < c.Differences {
				differences = append(differences, *d)
			}
		}
		if order <= 0 {
			left.next()
		}
		if order >= 0 {
			right.next()
		}
	}
	if err := errors.Join(left.err, right.err); err != nil {
		return nil, err
	}
	r.LeftSHA256, r.RightSHA256 = left.total(), right.total()
	r.LeftCells = left.cells
	c.report.RegionDone(r.Same + r.Different + r.OnlyLeft + r.OnlyRight - told)
	return differences, nil
}

func (c *compare) scan(ctx context.Context, s side, rows cell.Range) store.Scanner {
	return s.source.Scan(ctx, &store.Scan{
		Table: s.table, Start: rows.Start, Stop: rows.Stop, Columns: instant.Families(c.Families), Raw: c.Raw,
		Versions: store.AllVersions, MaxResultBytes: c.partBytes,
	})
}

// rereads is how often a row that differs is read again. Once would do but for cells
// that expire just between the two reads.
const rereads = 3

// difference reads a row on both sides and returns the first cells that differ; nil
// where there are none.
func (c *compare) difference(ctx context.Context, key []byte) (d *Difference, err error) {
	one := cell.Range{Start: key, Stop: append(slices.Clip(bytes.Clone(key)), 0)}
	for range rereads {
		left, right := &cells{sc: c.scan(ctx, c.left(), one)}, &cells{sc: c.scan(ctx, c.right(), one)}
		d = nil
		for d == nil {
			l, r := left.next(), right.next()
			if l == nil && r == nil {
				break
			}
			if l == nil || r == nil || !sameCell(l, r) {
				d = &Difference{Row: bytes.Clone(key)}
				// Of two different cells the one that is first is missing on the
				// other side, unless only their values differ.
				if r == nil || l != nil && cell.CompareInRow(l, r) <= 0 {
					d.Left = shown(l)
				}
				if l == nil || r != nil && cell.CompareInRow(l, r) >= 0 {
					d.Right = shown(r)
				}
			}
		}
		if err := errors.Join(left.sc.Err(), right.sc.Err(), left.sc.Close(), right.sc.Close()); err != nil {
			return nil, err
		}
		if d == nil {
			return nil, nil
		}
	}
	return d, nil
}

func sameCell(a, b *cell.Cell) bool {
	return cell.CompareInRow(a, b) == 0 && a.TTL == b.TTL && bytes.Equal(a.Value, b.Value)
}

// shown is a copy of c to be printed.
func shown(c *cell.Cell) *cell.Cell {
	s := *c
	s.Qualifier, s.Value = bytes.Clone(c.Qualifier), bytes.Clone(c.Value[:min(len(c.Value), 100)])
	return &s
}

// cells is the cells of a scanner, one by one.
type cells struct {
	sc store.Scanner
	at []cell.Cell
}

// next returns the next cell, valid until the one after it, or nil.
func (c *cells) next() *cell.Cell {
	for len(c.at) == 0 {
		if !c.sc.Next() {
			return nil
		}
		c.at = c.sc.Row().Cells
	}
	first := &c.at[0]
	c.at = c.at[1:]
	return first
}

// digests is the rows of a scanner, each as its key and a digest of its cells. A row
// that comes in parts is one.
type digests struct {
	sc   store.Scanner
	key  []byte            // of the current row; nil = there is none
	sum  [sha256.Size]byte // of its cells
	err  error
	all  hash.Hash // of all rows
	row  hash.Hash
	buf  []byte
	part *cell.Row // the first of the row after, or nil

	cells int64 // so far
}

func (c *compare) digests(ctx context.Context, s side, rows cell.Range) *digests {
	return &digests{sc: c.scan(ctx, s, rows), all: sha256.New(), row: sha256.New()}
}

// next moves to the next row.
func (d *digests) next() {
	if d.part == nil && d.sc.Next() {
		d.part = d.sc.Row()
	}
	if d.part == nil {
		d.key, d.err = nil, d.sc.Err()
		return
	}
	key := bytes.Clone(d.part.Key)
	d.row.Reset()
	for d.part != nil && bytes.Equal(d.part.Key, key) {
		d.cells += int64(len(d.part.Cells))
		for i := range d.part.Cells {
			d.buf = appendCell(d.buf[:0], &d.part.Cells[i])
			d.row.Write(d.buf)
		}
		more := d.part.More
		d.part = nil
		if !more {
			break
		}
		if d.sc.Next() {
			d.part = d.sc.Row()
		}
	}
	if d.err = d.sc.Err(); d.err != nil {
		d.key = nil
		return
	}
	d.row.Sum(d.sum[:0])
	d.key = key
	d.buf = cell.AppendPart(d.buf[:0], key)
	d.all.Write(append(d.buf, d.sum[:]...))
}

// total is the digest of all rows so far.
func (d *digests) total() string { return hex.EncodeToString(d.all.Sum(nil)) }

func (d *digests) close() error { return d.sc.Close() }
