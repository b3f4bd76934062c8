package hbasestore

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"sluice/store"
)

// state is where a source's partition stands. It is one column of the partition's
// row of store.OffsetsTable, stateQualifier, beside store.ProgressQualifier, and
// changes by check-and-put alone. docs/format/hbase.md has its layout.
type state struct {
	source   uint32 // of the counters' cells; 0 = the row is absent
	revision uint64 // counts the changes; timestamp of the row's cells
	next     int64  // offset that is applied next; store.Absent = the first batch is on its way
	// until is the end of the furthest batch that was begun. Beyond next it may
	// have been applied in part.
	until   int64
	version string // of the mapping that maps the offsets from next to until
	// becomes is the source that takes the place of source once a switch to counters
	// that were counted anew is made (type switcher); 0 = none is. No batch is begun
	// until then.
	becomes uint32
	// floors are those of counters that are being removed (type remover), as encode has
	// them; "" = none are.
	floors string
}

// stateQualifier is the column of a state, behind that of the progress.
const stateQualifier = "state"

const (
	stateVersion = 1
	stateFixed   = 1 + 4 + 8 + 8 + 8
	// switchingVersion is that of a state with becomes, which is 4 bytes behind until.
	// Programs that do not know it refuse it, and so apply nothing amid a switch.
	switchingVersion = 2
	// removingVersion is that of a state with floors: becomes, 0 = none, then their
	// length, 4 bytes, and they. Programs that do not know it refuse it, too: they would
	// go on from counts that are removed.
	removingVersion = 3
)

// absentState is that of a row which is not there.
func absentState() state { return state{next: store.Absent, until: store.Absent} }

// encode returns the stored form: a version byte, source (4 bytes big-endian),
// revision, next and until (8 each), becomes (4) where it is set, the floors where
// there are any, and the mapping version.
func (s *state) encode() []byte {
	b := append(make([]byte, 0, stateFixed+8+len(s.floors)+len(s.version)), stateVersion)
	switch {
	case s.floors != "":
		b[0] = removingVersion
	case s.becomes != 0:
		b[0] = switchingVersion
	}
	b = binary.BigEndian.AppendUint32(b, s.source)
	for _, v := range [...]uint64{s.revision, uint64(s.next), uint64(s.until)} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	if b[0] != stateVersion {
		b = binary.BigEndian.AppendUint32(b, s.becomes)
	}
	if b[0] == removingVersion {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(s.floors))), s.floors...)
	}
	return append(b, s.version...)
}

// decodeState is the reverse of encode. Its error wraps store.ErrCorrupt, or
// store.ErrUnsupported for a version that a newer program wrote.
func decodeState(b []byte) (state, error) {
	corrupt := func() (state, error) {
		return state{}, fmt.Errorf("%w: state of a partition: %.100x", store.ErrCorrupt, b)
	}
	switch {
	case len(b) > 0 && b[0] > removingVersion:
		return state{}, fmt.Errorf("%w: state of a partition in version %d; this program knows up to %d", store.ErrUnsupported, b[0], removingVersion)
	case len(b) < stateFixed || b[0] < stateVersion || b[0] > stateVersion && len(b) < stateFixed+4:
		return corrupt()
	}
	s := state{
		source:   binary.BigEndian.Uint32(b[1:]),
		revision: binary.BigEndian.Uint64(b[5:]),
		next:     int64(binary.BigEndian.Uint64(b[13:])),
		until:    int64(binary.BigEndian.Uint64(b[21:])),
	}
	rest := b[stateFixed:]
	if b[0] > stateVersion {
		s.becomes, rest = binary.BigEndian.Uint32(rest), rest[4:]
	}
	if b[0] == removingVersion {
		if len(rest) < 4 || uint64(len(rest)-4) < uint64(binary.BigEndian.Uint32(rest)) {
			return corrupt()
		}
		n := binary.BigEndian.Uint32(rest)
		s.floors, rest = string(rest[4:4+n]), rest[4+n:]
		if all, err := decodeFloors(s.floors); err != nil || len(all) == 0 {
			return corrupt()
		}
	}
	s.version = string(rest)
	if s.source == 0 || b[0] == switchingVersion && s.becomes == 0 || s.revision == 0 || s.revision > 1<<62 || s.next < store.Absent || s.until < s.next {
		return state{}, fmt.Errorf("%w: state of a partition: %+v", store.ErrCorrupt, s)
	}
	return s, nil
}

// UnfinishedError is the refusal of a batch by one mapping while a batch of another
// may have been applied in part. Whoever maps the offsets up to Until as Version did
// finishes it: Sluice started once with that mapping, or another process that still
// has it.
type UnfinishedError struct {
	Source    store.Source
	Partition int32
	Next      int64  // offset from which on it may have been applied
	Until     int64  // the end, exclusive
	Version   string // of the mapping that began it
}

// Error says what is unfinished and what can be done.
func (e *UnfinishedError) Error() string {
	if name, number, ok := strings.Cut(e.Source.Pipeline, mark); ok {
		if _, err := strconv.Atoi(number); err == nil {
			return fmt.Sprintf("hbasestore: pipeline %s, %s/%d: a rebuild was cut off while it counted offsets %d to %d: finish it with --switch or --discard of \"ingest replay rebuild %s\"",
				name, e.Source.Topic, e.Partition, e.Next, e.Until-1, name)
		}
	}
	return fmt.Sprintf("hbasestore: pipeline %s, %s/%d: offsets %d to %d were begun with mapping version %s, by a process that was killed or still runs, and HBase may have a part of them: "+
		"where it runs stop it, which leaves nothing unfinished where it may drain; where it was killed start once with that mapping, so that they are finished, then with another one; "+
		"where the topic was deleted make it anew and start with on_topic_change: new_incarnation, which gives them up",
		e.Source.Pipeline, e.Source.Topic, e.Partition, e.Next, e.Until-1, e.Version)
}
