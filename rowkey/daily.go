package rowkey

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"sluice/cell"
)

// TransactionKeySize is the bytes of a TransactionKey.
const TransactionKeySize = 6

// TransactionKey is the 6-byte key of a transaction in a table of its day: 2 bytes
// of a hash, then 4 bytes of the ms of the day, big-endian. The hash spreads a
// day's transactions; those of one account are together, in order of time.
//
// Transactions of accounts with one hash in one ms share a row: the column's
// qualifier has to tell them apart. In mapping: hash16(x) + u32(ms_of_day(t)).
type TransactionKey struct {
	Hash    uint16
	MsOfDay uint32 // 0..86,399,999, of the day in UTC
}

// NewTransactionKey returns the key of a transaction of account at t.
func NewTransactionKey(account []byte, t cell.Timestamp) TransactionKey {
	return TransactionKey{Hash: Hash16(account), MsOfDay: MsOfDay(t)}
}

// Append appends the key. The error wraps ErrValue where MsOfDay is beyond a day.
func (k TransactionKey) Append(dst []byte) ([]byte, error) {
	if k.MsOfDay >= day {
		return dst, fmt.Errorf("%w: %d ms of a day", ErrValue, k.MsOfDay)
	}
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(dst, k.Hash), k.MsOfDay), nil
}

// ParseTransactionKey takes a key apart. The error wraps ErrKey.
func ParseTransactionKey(key []byte) (TransactionKey, error) {
	d := NewDecoder(key)
	k := TransactionKey{Hash: d.Uint16(), MsOfDay: d.Uint32()}
	if err := d.End(); err != nil {
		return TransactionKey{}, fmt.Errorf("transaction key: %w", err)
	}
	if k.MsOfDay >= day {
		return TransactionKey{}, fmt.Errorf("transaction key: %w: %x has %d ms of a day", ErrKey, key, k.MsOfDay)
	}
	return k, nil
}

// StatisticsKeySize is the bytes of a StatisticsKey.
const StatisticsKeySize = 6

// StatisticsKey is the 6-byte key of a statistic in a table of its day: 4 bytes of
// the number of what is counted, then 2 bytes of the minute of the day,
// big-endian. A scan of 4 bytes as a prefix is that thing's day, minute by minute.
// In mapping: u32(sequence) + u16(minute_of_day(t)).
type StatisticsKey struct {
	Sequence uint32
	Minute   uint16 // 0..1439, of the day in UTC
}

// NewStatisticsKey returns the key of sequence's minute at t.
func NewStatisticsKey(sequence uint32, t cell.Timestamp) StatisticsKey {
	return StatisticsKey{Sequence: sequence, Minute: MinuteOfDay(t)}
}

// Append appends the key. The error wraps ErrValue where Minute is beyond a day.
func (k StatisticsKey) Append(dst []byte) ([]byte, error) {
	if k.Minute >= day/60_000 {
		return dst, fmt.Errorf("%w: minute %d of a day", ErrValue, k.Minute)
	}
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(dst, k.Sequence), k.Minute), nil
}

// ParseStatisticsKey takes a key apart. The error wraps ErrKey.
func ParseStatisticsKey(key []byte) (StatisticsKey, error) {
	d := NewDecoder(key)
	k := StatisticsKey{Sequence: d.Uint32(), Minute: d.Uint16()}
	if err := d.End(); err != nil {
		return StatisticsKey{}, fmt.Errorf("statistics key: %w", err)
	}
	if k.Minute >= day/60_000 {
		return StatisticsKey{}, fmt.Errorf("statistics key: %w: %x has minute %d of a day", ErrKey, key, k.Minute)
	}
	return k, nil
}

// DayTables is tables that are named by a prefix and the day whose rows they hold,
// as events_20150517: old days are dropped with their tables, which costs nothing.
// In mapping: table: events_{date(time, "yyyyMMdd")}.
type DayTables struct {
	Prefix string         // may have a namespace
	Zone   *time.Location // in which a day begins; nil = UTC, as in mapping
}

// dayLayout is the mapping's yyyyMMdd.
const dayLayout = "20060102"

func (d DayTables) zone() *time.Location {
	if d.Zone == nil {
		return time.UTC
	}
	return d.Zone
}

// Name returns the table of t. The error wraps ErrValue outside the years 0..9999.
func (d DayTables) Name(t cell.Timestamp) (string, error) {
	at := time.UnixMilli(int64(t)).In(d.zone())
	if y := at.Year(); y < 0 || y > 9999 {
		return "", fmt.Errorf("%w: year %d in a day's name", ErrValue, y)
	}
	return d.Prefix + at.Format(dayLayout), nil
}

// Start returns the first ms of the day of a table. The error wraps ErrKey where
// name is none of d's, or its zone has no such day.
func (d DayTables) Start(name string) (cell.Timestamp, error) {
	fail := func() (cell.Timestamp, error) {
		return 0, fmt.Errorf("%w: table %q is not %syyyyMMdd of a day in %s", ErrKey, name, d.Prefix, d.zone())
	}
	digits, ok := strings.CutPrefix(name, d.Prefix)
	midnight, err := time.Parse(dayLayout, digits)
	if !ok || err != nil {
		return fail()
	}
	at := InZone(midnight, d.zone())
	if at.In(d.zone()).Format(dayLayout) != digits {
		return fail()
	}
	return cell.Timestamp(at.UnixMilli()), nil
}

// Between returns the tables that hold rows of times in [from, to), a day after
// the other. Some may not exist, as days without rows make none. The error wraps
// ErrValue outside the years 0..9999.
func (d DayTables) Between(from, to cell.Timestamp) ([]string, error) {
	if from >= to {
		return nil, nil
	}
	first, err := d.Name(from)
	if err != nil {
		return nil, err
	}
	last, err := d.Name(to - 1)
	if err != nil {
		return nil, err
	}
	// Where clocks go back over midnight, a day comes before the one that it follows: the
	// first and the last of them may lie within the range.
	for _, change := range d.changes(from, to) {
		for _, t := range []cell.Timestamp{change - 1, change} {
			name, err := d.Name(t)
			if err != nil {
				return nil, err
			}
			first, last = min(first, name), max(last, name)
		}
	}
	// Days of the calendar, which have no clocks.
	at, err := time.Parse(dayLayout, strings.TrimPrefix(first, d.Prefix))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrValue, first, err)
	}
	names := []string{first}
	for name := first; name != last; names = append(names, name) {
		at = at.AddDate(0, 0, 1)
		name = d.Prefix + at.Format(dayLayout)
	}
	return names, nil
}

// changes returns when, in (from, to), clocks change: as far as the days are not in order
// for that, which is within two days of either end, as no clock goes back by more than one.
func (d DayTables) changes(from, to cell.Timestamp) []cell.Timestamp {
	const near = 2 * day
	var all []cell.Timestamp
	for _, begin := range []cell.Timestamp{from, max(from, to-near)} {
		at, end := time.UnixMilli(int64(begin)).In(d.zone()), time.UnixMilli(int64(min(to, begin+near)))
		for {
			_, change := at.ZoneBounds()
			if change.IsZero() || !change.Before(end) || !at.Before(end) {
				break
			}
			if !change.After(at) {
				// On the last day of a leap year behind the zone's table, ZoneBounds
				// ends a stretch before the time that it was asked about.
				at = at.Add(time.Minute)
				continue
			}
			all = append(all, cell.Timestamp(change.UnixMilli()))
			at = change
		}
	}
	return all
}

// InZone returns when, in UTC, clocks in loc show what those of UTC show at wall, a time in
// UTC. Of a time that they
// show twice, as they were put back, that is the first; one that they never show, as they were
// put forward, is read as if they had not been yet (java.time.ZonedDateTime.ofLocal). What
// time.Date takes depends on the zone, and may depend on the version of Go.
func InZone(wall time.Time, loc *time.Location) time.Time {
	if loc == time.UTC {
		return wall
	}
	year, month, day := wall.Date()
	hour, minute, second := wall.Clock()
	t := time.Date(year, month, day, hour, minute, second, wall.Nanosecond(), loc)
	_, offset := t.Zone()
	shift := func(offset int) time.Time { return wall.Add(-time.Duration(offset) * time.Second) }
	if start, _ := t.ZoneBounds(); !start.IsZero() {
		_, before := start.Add(-1).Zone()
		// The clocks showed it before they were put back, or would have.
		if first := shift(before); first.Before(start) || shift(offset).Before(start) {
			return first
		}
	}
	return shift(offset)
}
