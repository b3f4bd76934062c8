package store

import (
	"context"
	"encoding/binary"
	"fmt"

	"sluice/cell"
)

// System tables exist in every store from its first opening. They are read as
// any table is; only OutboxTable and JobsTable are written as one.
// docs/format/offsets.md has their layout.
const (
	// SystemNamespace is the namespace that users cannot create tables in.
	SystemNamespace = "sluice"
	// CatalogTable holds schemas and region maps.
	CatalogTable = "sluice:catalog"
	// OffsetsTable holds one row per source and partition: family
	// ProgressFamily, qualifier ProgressQualifier, value AppendProgress.
	OffsetsTable = "sluice:offsets"
	// OutboxTable holds dead letters: one row per refused record.
	OutboxTable = "sluice:outbox"
	// JobsTable holds what the schedules of jobs remember, and their history.
	JobsTable = "sluice:jobs"
)

// The one column of OffsetsTable.
const (
	ProgressFamily    = "p"
	ProgressQualifier = "progress"
)

// OutboxFamily is the one family of OutboxTable.
const OutboxFamily = "d"

// OutboxCounts begins the keys of those rows of OutboxTable that count letters and
// are none: no pipeline has an empty name.
const OutboxCounts = "\x00\x01"

// JobsFamily is the one family of JobsTable.
const JobsFamily = "j"

// SystemTables returns the schemas of the system tables that hold cells a reader
// can scan, in a new slice.
func SystemTables() []*TableDescriptor {
	one := func(table, family string) *TableDescriptor {
		return &TableDescriptor{Name: table, Families: []FamilyDescriptor{NewFamily(family)}}
	}
	outbox := one(OutboxTable, OutboxFamily)
	// A record too large for its table still fits its outbox: what a record
	// batch may unfold to (256 MiB unless told otherwise), headers in base64.
	outbox.MaxCellBytes = 1 << 30
	return []*TableDescriptor{one(OffsetsTable, ProgressFamily), outbox, one(JobsTable, JobsFamily)}
}

// AppendSourceRow appends the row of OffsetsTable that belongs to partition of s:
// the escaped pipeline, topic and cluster id with their terminators, the topic id
// (16 bytes) and the partition (4 bytes big-endian).
func AppendSourceRow(dst []byte, s *Source, partition int32) []byte {
	dst = cell.AppendPart(dst, []byte(s.Pipeline))
	dst = cell.AppendPart(dst, []byte(s.Topic))
	dst = cell.AppendPart(dst, []byte(s.ClusterID))
	dst = append(dst, s.TopicID[:]...)
	return binary.BigEndian.AppendUint32(dst, uint32(partition))
}

// DecodeSourceRow reads what AppendSourceRow wrote. Its error wraps ErrCorrupt.
func DecodeSourceRow(row []byte) (s Source, partition int32, err error) {
	rest := row
	for _, field := range []*string{&s.Pipeline, &s.Topic, &s.ClusterID} {
		var part []byte
		if part, rest, _, err = cell.DecodePart(rest, nil); err != nil {
			return s, 0, fmt.Errorf("%w: offsets row %q: %w", ErrCorrupt, row, err)
		}
		*field = string(part)
	}
	if len(rest) != 20 {
		return s, 0, fmt.Errorf("%w: offsets row %q: %d bytes after the cluster id, want 20", ErrCorrupt, row, len(rest))
	}
	copy(s.TopicID[:], rest)
	return s, int32(binary.BigEndian.Uint32(rest[16:])), nil
}

const (
	progressVersion = 5 // 1 has no Dropped; 2 to 4 have nothing of AppendProgress's next
	progressFixed   = 1 + 8*10 + 4
)

// AppendProgress appends p's stored form: a version byte, First, Next,
// LastOffset, LastTime, Fingerprint, Applied, Filtered, Dead, Control and Lost (8
// bytes big-endian each), LeaderEpoch (4) and the mapping version. Version 2 has
// Dropped (8 bytes) after the epoch, version 3 also Duplicate, Unmet and
// MappingFrom after that, version 4 Aborted, Late, the number of Gaps (2) and From
// and To of each, version 5 Skipped, the number of Skips (2) and From, To and the reason
// (1) of each. The lowest that will do is written: a program that does
// not know a version reads what it can. Below 3, MappingFrom is First.
func AppendProgress(dst []byte, p *Progress) []byte {
	version := byte(1)
	switch {
	case p.Skipped != 0 || p.Skips != "":
		version = 5
	case p.Aborted|p.Late != 0 || p.Gaps != "":
		version = 4
	case p.Duplicate|p.Unmet != 0 || p.MappingFrom != p.First:
		version = 3
	case p.Dropped != 0:
		version = 2
	}
	dst = append(dst, version)
	for _, v := range [...]int64{p.First, p.Next, p.LastOffset, p.LastTime, int64(p.Fingerprint), p.Applied, p.Filtered, p.Dead, p.Control, p.Lost} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v))
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(p.LeaderEpoch))
	if version >= 2 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.Dropped))
	}
	if version >= 3 {
		for _, v := range [...]int64{p.Duplicate, p.Unmet, p.MappingFrom} {
			dst = binary.BigEndian.AppendUint64(dst, uint64(v))
		}
	}
	if version >= 4 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.Aborted))
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.Late))
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(p.Gaps)/gapSize))
		dst = append(dst, p.Gaps...)
	}
	if version >= 5 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.Skipped))
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(p.Skips)/skipSize))
		dst = append(dst, p.Skips...)
	}
	return append(dst, p.MappingVersion...)
}

// DecodeProgress reads what AppendProgress wrote. Its error wraps ErrCorrupt, or
// ErrUnsupported where a newer program wrote it.
func DecodeProgress(b []byte) (p Progress, err error) {
	if len(b) > 0 && b[0] > progressVersion {
		return p, fmt.Errorf("%w: progress has version %d, this program knows up to %d: use a newer one", ErrUnsupported, b[0], progressVersion)
	}
	if len(b) < progressFixed || b[0] == 0 || len(b) < progressFixed+[...]int{1: 0, 2: 8, 3: 4 * 8, 4: 6*8 + 2, 5: 7*8 + 4}[b[0]] {
		return p, fmt.Errorf("%w: progress of %d bytes, version %d", ErrCorrupt, len(b), first(b))
	}
	var fingerprint int64
	rest := b[1:]
	for _, v := range [...]*int64{&p.First, &p.Next, &p.LastOffset, &p.LastTime, &fingerprint, &p.Applied, &p.Filtered, &p.Dead, &p.Control, &p.Lost} {
		*v = int64(binary.BigEndian.Uint64(rest))
		rest = rest[8:]
	}
	p.Fingerprint = uint64(fingerprint)
	p.LeaderEpoch = int32(binary.BigEndian.Uint32(rest))
	rest = rest[4:]
	if b[0] >= 2 {
		p.Dropped = int64(binary.BigEndian.Uint64(rest))
		rest = rest[8:]
	}
	p.MappingFrom = p.First
	if b[0] >= 3 {
		for _, v := range [...]*int64{&p.Duplicate, &p.Unmet, &p.MappingFrom} {
			*v = int64(binary.BigEndian.Uint64(rest))
			rest = rest[8:]
		}
	}
	if b[0] >= 4 {
		p.Aborted, p.Late = int64(binary.BigEndian.Uint64(rest)), int64(binary.BigEndian.Uint64(rest[8:]))
		size := gapSize * int(binary.BigEndian.Uint16(rest[16:]))
		if rest = rest[18:]; size > len(rest) {
			return p, fmt.Errorf("%w: progress with %d bytes of gaps in %d", ErrCorrupt, size, len(rest))
		}
		p.Gaps, rest = Gaps(rest[:size]), rest[size:]
		if err := p.Gaps.check(); err != nil {
			return p, fmt.Errorf("%w: progress: %w", ErrCorrupt, err)
		}
	}
	if b[0] >= 5 {
		if len(rest) < 10 {
			return p, fmt.Errorf("%w: progress with %d bytes of skips", ErrCorrupt, len(rest))
		}
		p.Skipped = int64(binary.BigEndian.Uint64(rest))
		size := skipSize * int(binary.BigEndian.Uint16(rest[8:]))
		if rest = rest[10:]; size > len(rest) {
			return p, fmt.Errorf("%w: progress with %d bytes of skips in %d", ErrCorrupt, size, len(rest))
		}
		p.Skips, rest = Skips(rest[:size]), rest[size:]
		if err := p.Skips.check(); err != nil {
			return p, fmt.Errorf("%w: progress: %w", ErrCorrupt, err)
		}
	}
	p.MappingVersion = string(rest)
	return p, nil
}

func first(b []byte) int {
	if len(b) == 0 {
		return -1
	}
	return int(b[0])
}

// ReadProgress returns the stored progress of a source's partition; ok is false
// where there is none yet.
func ReadProgress(ctx context.Context, r Reader, s *Source, partition int32) (p Progress, ok bool, err error) {
	key := AppendSourceRow(nil, s, partition)
	row, err := FirstRow(ctx, r, &Scan{Table: OffsetsTable, Start: key, Stop: key, StopInclusive: true, Columns: progressColumn()})
	if row == nil {
		return p, false, err
	}
	p, err = DecodeProgress(row.Cells[0].Value)
	return p, err == nil, err
}

// PartitionProgress is one row of OffsetsTable.
type PartitionProgress struct {
	Source    Source
	Partition int32
	Progress  Progress
}

// progressColumn is what is read of OffsetsTable: an engine may have columns of its
// own there.
func progressColumn() []Column {
	return []Column{{Family: ProgressFamily, Qualifier: []byte(ProgressQualifier)}}
}

// AllProgress returns every stored progress, ordered by pipeline, topic, cluster,
// topic id and partition.
func AllProgress(ctx context.Context, r Reader) ([]PartitionProgress, error) {
	sc := r.Scan(ctx, &Scan{Table: OffsetsTable, Columns: progressColumn()})
	defer sc.Close()
	var all []PartitionProgress
	for sc.Next() {
		row := sc.Row()
		s, partition, err := DecodeSourceRow(row.Key)
		if err != nil {
			return nil, err
		}
		p, err := DecodeProgress(row.Cells[0].Value)
		if err != nil {
			return nil, err
		}
		all = append(all, PartitionProgress{Source: s, Partition: partition, Progress: p})
	}
	return all, sc.Err()
}
