package store

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math"
	"strings"

	"sluice/cell"
)

// Cursor is where a scan has got to: an opaque text, safe in JSON and in addresses,
// that names a row, or a cell of a row of which parts were returned. The same Scan
// with it in Scan.Cursor goes on exactly after that place, in this process or
// another, on the store or a snapshot of it, whatever has been split, merged,
// rewritten or reopened meanwhile. It goes on with the cells as they are then: for
// one instant let both parts read a Snapshot. It is not a Scan: it holds no columns
// and no filter, only what a filter has counted so far.
//
// HBase has the row alone (Result.getCursor, Scan.setNeedCursorResult), and a scan
// that goes on from it begins the row, its limits and its filters anew.
type Cursor string

// End reports that the scan had come to its end: one that goes on from the cursor
// returns no rows.
func (c Cursor) End() bool {
	p, err := decodeCursor(c)
	return err == nil && p.ended
}

// Resumable is a Scanner that says where it is. The scanners of engines are, and
// the client's.
type Resumable interface {
	// Cursor returns the place after the current row or part of a row; before
	// the first Next the place where the scan begins, after the last that of
	// its end or, where it has failed, of the rows that it is done with:
	// returned, or dropped by its filter. It can be asked for after Close. Its
	// error wraps ErrInvalidArgument where the Scan has not asked for cursors.
	Cursor() (Cursor, error)
}

// CursorOf returns sc's cursor. Its error wraps ErrUnsupported where sc is not
// Resumable.
func CursorOf(sc Scanner) (Cursor, error) {
	if r, ok := sc.(Resumable); ok {
		return r.Cursor()
	}
	return "", fmt.Errorf("cursor: %w: by this scanner", ErrUnsupported)
}

// FirstCursor returns the cursor of s before its first row: s.Cursor where it goes
// on from one. Its error wraps ErrInvalidArgument, or ErrUnsupported where the
// filter is not one of this package.
func FirstCursor(s *Scan) (Cursor, error) {
	p, err := newPlace(s)
	if err != nil {
		return "", err
	}
	return p.encode(), nil
}

// place is what a Cursor holds.
type place struct {
	scan  uint64 // of the Scan: fingerprint
	ended bool
	rows  int    // returned, or begun
	row   []byte // the last that is done with, or returned in part; empty = none
	part  bool   // row was returned up to and including last
	last  cell.Cell
	// filter is what the filter keeps of the rows that are done with.
	filter []byte
}

// errCursor begins the errors about cursors.
var errCursor = fmt.Errorf("cursor: %w", ErrInvalidArgument)

// newPlace returns where s begins or goes on.
func newPlace(s *Scan) (*place, error) {
	scan, err := fingerprint(s)
	if err != nil {
		return nil, fmt.Errorf("cursor: %w", err)
	}
	if s.Cursor == "" {
		return &place{scan: scan}, nil
	}
	p, err := decodeCursor(s.Cursor)
	if err != nil {
		return nil, err
	}
	if p.scan != scan {
		return nil, fmt.Errorf("%w: it is of another scan", errCursor)
	}
	return p, nil
}

// fingerprint tells scans apart by what they return in all: not by how it is cut
// into parts.
func fingerprint(s *Scan) (uint64, error) {
	same := *s
	same.Table = CanonicalName(s.Table)
	same.Cursor, same.NeedCursor, same.PageRows, same.Batch, same.MaxResultBytes = "", false, 0, 0, 0
	same.Versions = max(s.Versions, 1)
	for _, b := range []*[]byte{&same.Start, &same.Stop, &same.Prefix} {
		if len(*b) == 0 {
			*b = nil
		}
	}
	same.Columns = nil
	for _, c := range s.Columns {
		if c.All || len(c.Qualifier) == 0 {
			c.Qualifier = nil
		}
		same.Columns = append(same.Columns, c)
	}
	if len(s.FamilyTime) == 0 {
		same.FamilyTime = nil
	}
	same.Filter = nil
	h := fnv.New64a()
	b, err := json.Marshal(&same)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrInvalidArgument, err)
	}
	h.Write(b)
	if s.Filter != nil {
		if b, err = MarshalFilter(s.Filter); err != nil {
			return 0, err
		}
		h.Write(b)
	}
	return h.Sum64(), nil
}

// cursorVersion begins a cursor's bytes. Those of another version are refused.
const cursorVersion = 1

const (
	cursorEnded = 1 << iota
	cursorPart
	cursorFlags = 1<<iota - 1
)

// encode: version, fingerprint, flags, rows, row, with cursorPart family,
// qualifier, time and kind of the last cell, what the filter keeps, and a CRC-32 of
// all that. Numbers are varints, texts begin with their length.
func (p *place) encode() Cursor {
	text := func(dst, b []byte) []byte { return append(binary.AppendUvarint(dst, uint64(len(b))), b...) }
	b := binary.BigEndian.AppendUint64([]byte{cursorVersion}, p.scan)
	flags := byte(0)
	if p.ended {
		flags |= cursorEnded
	}
	if p.part {
		flags |= cursorPart
	}
	b = binary.AppendUvarint(append(b, flags), uint64(p.rows))
	b = text(b, p.row)
	if p.part {
		b = text(text(b, []byte(p.last.Family)), p.last.Qualifier)
		b = append(binary.AppendUvarint(b, uint64(p.last.Time)), byte(p.last.Kind))
	}
	b = text(b, p.filter)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return Cursor(base64.RawURLEncoding.EncodeToString(b))
}

// maxCursor bounds a cursor's text: it holds a row, a qualifier, which is a part of
// a cell of 10 MiB, and some state.
const maxCursor = 16 << 20

// decodeCursor reads what encode wrote.
func decodeCursor(c Cursor) (*place, error) {
	if len(c) > maxCursor {
		return nil, fmt.Errorf("%w: it has %d bytes", errCursor, len(c))
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimSpace(string(c)))
	if err != nil || len(b) < 1+8+1+1+1+1+4 {
		return nil, fmt.Errorf("%w: %.40q is none", errCursor, c)
	}
	if b[0] != cursorVersion {
		return nil, fmt.Errorf("%w: it is of version %d, this program's are of %d", errCursor, b[0], cursorVersion)
	}
	body := b[:len(b)-4]
	if crc32.ChecksumIEEE(body) != binary.BigEndian.Uint32(b[len(body):]) {
		return nil, fmt.Errorf("%w: %.40q is damaged", errCursor, c)
	}
	r := cursorReader{b: body[10:]}
	p := &place{scan: binary.BigEndian.Uint64(body[1:]), ended: body[9]&cursorEnded != 0, part: body[9]&cursorPart != 0}
	p.rows = int(r.number(math.MaxInt))
	p.row = r.text()
	if p.part {
		p.last.Family, p.last.Qualifier = string(r.text()), r.text()
		p.last.Time, p.last.Kind = cell.Timestamp(r.number(math.MaxInt64)), cell.Kind(r.byte())
	}
	p.filter = r.text()
	if r.bad || len(r.b) != 0 || body[9]&^cursorFlags != 0 || len(p.row) > cell.MaxRowLength || p.part && len(p.row) == 0 {
		return nil, fmt.Errorf("%w: %.40q is damaged", errCursor, c)
	}
	return p, nil
}

// cursorReader reads a cursor's fields; bad says that one was not there.
type cursorReader struct {
	b   []byte
	bad bool
}

func (r *cursorReader) number(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > most {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *cursorReader) text() []byte {
	n := r.number(uint64(len(r.b)))
	if n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	t := r.b[:n:n]
	r.b = r.b[n:]
	return t
}

func (r *cursorReader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

// rest narrows rows to those that a scan has left: from the place's row on, that row
// included where a part of it is left.
func (p *place) rest(rows *cell.Range, reversed bool) {
	switch {
	case len(p.row) == 0:
	case reversed:
		stop := bytes.Clone(p.row)
		if p.part {
			stop = after(stop)
		}
		if len(rows.Stop) == 0 || bytes.Compare(stop, rows.Stop) < 0 {
			rows.Stop = stop
		}
	default:
		start := bytes.Clone(p.row)
		if !p.part {
			start = after(start)
		}
		if bytes.Compare(start, rows.Start) > 0 {
			rows.Start = start
		}
	}
}

// returned reports whether a cell of the place's row was returned, if it is in the
// order of a row's cells.
func (p *place) returned(c *cell.Cell) bool {
	return cell.CompareInRow(c, &p.last) <= 0
}

// at moves the place to row, of which rows were returned or begun.
func (p *place) at(row *cell.Row, rows int) {
	p.row, p.rows, p.part = append(p.row[:0], row.Key...), rows, row.More
	if p.part {
		last := &row.Cells[len(row.Cells)-1]
		p.last = cell.Cell{Family: last.Family, Qualifier: append(p.last.Qualifier[:0], last.Qualifier...), Time: last.Time, Kind: last.Kind}
	}
}

// keep takes what f, which may be nil, keeps of the rows that are done with.
func (p *place) keep(f FilterState) {
	if f != nil {
		p.filter = f.(keeper).appendKept(p.filter[:0])
	}
}

// restore gives f what it has kept.
func (p *place) restore(f FilterState) error {
	if len(p.row) == 0 && len(p.filter) == 0 {
		return nil
	}
	rest, err := f.(keeper).restoreKept(p.filter)
	if err == nil && len(rest) > 0 {
		err = errKept
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errCursor, err)
	}
	return nil
}

// keeper is a FilterState that can say what it keeps of the rows so far, between
// two rows, and begin with it. The states of this package's filters are; others
// have no fingerprint, and so no cursor.
type keeper interface {
	appendKept(dst []byte) []byte
	restoreKept(src []byte) (rest []byte, err error)
}

var errKept = errors.New("what its filter has counted is not readable")

func (passAll) appendKept(dst []byte) []byte                    { return dst }
func (passAll) restoreKept(src []byte) (rest []byte, err error) { return src, nil }

func appendFlag(dst []byte, on bool) []byte {
	if on {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func restoreFlag(src []byte, on *bool) ([]byte, error) {
	if len(src) == 0 || src[0] > 1 {
		return nil, errKept
	}
	*on = src[0] == 1
	return src[1:], nil
}

func (f *pageFilter) appendKept(dst []byte) []byte { return binary.AppendUvarint(dst, uint64(f.rows)) }

func (f *pageFilter) restoreKept(src []byte) ([]byte, error) {
	rows, n := binary.Uvarint(src)
	if n <= 0 || rows > math.MaxInt64 {
		return nil, errKept
	}
	f.rows = int64(rows)
	return src[n:], nil
}

// A columnCountGetFilter that has ended stays so: in a list it is passed over.
func (f *columnCountGetFilter) appendKept(dst []byte) []byte { return appendFlag(dst, f.Done()) }

func (f *columnCountGetFilter) restoreKept(src []byte) ([]byte, error) {
	var done bool
	src, err := restoreFlag(src, &done)
	if done {
		f.count = f.limit + 1
	}
	return src, err
}

func (f *skipFilter) appendKept(dst []byte) []byte { return f.wrapped.(keeper).appendKept(dst) }

func (f *skipFilter) restoreKept(src []byte) ([]byte, error) {
	return f.wrapped.(keeper).restoreKept(src)
}

func (f *whileMatchFilter) appendKept(dst []byte) []byte {
	return f.wrapped.(keeper).appendKept(appendFlag(dst, f.done))
}

func (f *whileMatchFilter) restoreKept(src []byte) ([]byte, error) {
	src, err := restoreFlag(src, &f.done)
	if err != nil {
		return nil, err
	}
	return f.wrapped.(keeper).restoreKept(src)
}

func (f *allOf) appendKept(dst []byte) []byte           { return appendAllKept(dst, f.members) }
func (f *allOf) restoreKept(src []byte) ([]byte, error) { return restoreAllKept(src, f.members) }
func (f *anyOf) appendKept(dst []byte) []byte           { return appendAllKept(dst, f.members) }
func (f *anyOf) restoreKept(src []byte) ([]byte, error) { return restoreAllKept(src, f.members) }

func appendAllKept(dst []byte, members []FilterState) []byte {
	for _, m := range members {
		dst = m.(keeper).appendKept(dst)
	}
	return dst
}

func restoreAllKept(src []byte, members []FilterState) (_ []byte, err error) {
	for _, m := range members {
		if src, err = m.(keeper).restoreKept(src); err != nil {
			return nil, err
		}
	}
	return src, nil
}
