package iceberg

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// metadata is a table as metadata/vN.metadata.json has it (Iceberg's Table Metadata and
// Snapshots, format version 2), with all fields that this package writes.
type metadata struct {
	FormatVersion     int               `json:"format-version"`
	UUID              string            `json:"table-uuid"`
	Location          string            `json:"location"`
	LastSequence      int64             `json:"last-sequence-number"`
	LastUpdated       int64             `json:"last-updated-ms"`
	LastColumnID      int32             `json:"last-column-id"`
	Schemas           []schema          `json:"schemas"`
	CurrentSchemaID   int               `json:"current-schema-id"`
	Specs             []partitionSpec   `json:"partition-specs"`
	DefaultSpecID     int               `json:"default-spec-id"`
	LastPartitionID   int               `json:"last-partition-id"`
	SortOrders        []sortOrder       `json:"sort-orders"`
	DefaultSortOrder  int               `json:"default-sort-order-id"`
	Properties        map[string]string `json:"properties"`
	CurrentSnapshotID int64             `json:"current-snapshot-id"`
	Snapshots         []snapshot        `json:"snapshots"`
	SnapshotLog       []logged          `json:"snapshot-log"`
	MetadataLog       []previousFile    `json:"metadata-log"`
	Refs              map[string]ref    `json:"refs"`
}

type snapshot struct {
	ID           int64             `json:"snapshot-id"`
	Parent       int64             `json:"parent-snapshot-id,omitempty"`
	Sequence     int64             `json:"sequence-number"`
	Time         int64             `json:"timestamp-ms"`
	ManifestList string            `json:"manifest-list"`
	Summary      map[string]string `json:"summary"`
	SchemaID     int               `json:"schema-id"`
}

// The keys of a snapshot's summary that are not Iceberg's, and of the table's properties.
const (
	summaryRun      = "sluice.run-id"
	summaryTime     = "sluice.logical-time"
	summaryManifest = "sluice.manifest"
	summarySequence = "sluice.sequence"
	summaryFinished = "sluice.finished-at"
	summaryVersion  = "sluice.version"
	summaryWhole    = "sluice.whole-sequence-number" // of an increment: of the snapshot of the whole run that it goes on from
	summarySpecs    = "sluice.partition-spec-ids"    // of its files, and of those that it replaces
	propertyJob     = "sluice.job"
)

// logged says when a snapshot became the current one.
type logged struct {
	Time     int64 `json:"timestamp-ms"`
	Snapshot int64 `json:"snapshot-id"`
}

// previousFile is a version of the metadata before.
type previousFile struct {
	Time int64  `json:"timestamp-ms"` // of its last change
	File string `json:"metadata-file"`
}

// ref is a branch; main is the table.
type ref struct {
	Snapshot int64  `json:"snapshot-id"`
	Type     string `json:"type"`
}

const mainBranch = "main"

// newMetadata returns a table without a snapshot.
func newMetadata(location, job string) *metadata {
	return &metadata{
		FormatVersion: 2, UUID: newUUID(), Location: location, LastPartitionID: firstPartitionID - 1,
		// Lists are there where they are empty: readers ask for them.
		Schemas: []schema{}, Specs: []partitionSpec{}, SortOrders: []sortOrder{{Fields: []sortField{}}},
		Snapshots: []snapshot{}, SnapshotLog: []logged{}, MetadataLog: []previousFile{},
		Properties: map[string]string{
			propertyJob: job,
			// Files belong to runs, which are removed whole: no engine is to do it.
			"gc.enabled": "false",
		},
	}
}

// newUUID returns a random one (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// decode reads metadata. Its error wraps ErrForeign where another writer has written it.
func decode(data []byte) (*metadata, error) {
	var version struct {
		FormatVersion int               `json:"format-version"`
		Properties    map[string]string `json:"properties"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, err
	}
	if version.FormatVersion != 2 || version.Properties[propertyJob] == "" {
		return nil, fmt.Errorf("%w: format version %d, properties %v", ErrForeign, version.FormatVersion, version.Properties)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	m := new(metadata)
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	for i := range m.Snapshots {
		if m.Snapshots[i].Summary[summaryRun] == "" {
			return nil, fmt.Errorf("%w: its snapshot %d is of no run", ErrForeign, m.Snapshots[i].ID)
		}
	}
	if m.current() == nil || m.schema(m.CurrentSchemaID) == nil {
		return nil, fmt.Errorf("%w: its current snapshot, %d, or schema, %d, is not there", ErrForeign, m.CurrentSnapshotID, m.CurrentSchemaID)
	}
	return m, nil
}

func (m *metadata) encode() ([]byte, error) {
	data, err := json.MarshalIndent(m, "", "  ")
	return append(data, '\n'), err
}

// current returns the current snapshot; nil = there is none.
func (m *metadata) current() *snapshot {
	i := slices.IndexFunc(m.Snapshots, func(s snapshot) bool { return s.ID == m.CurrentSnapshotID })
	if i < 0 {
		return nil
	}
	return &m.Snapshots[i]
}

// snapshotOf returns the snapshot of a run; nil = there is none.
func (m *metadata) snapshotOf(run string) *snapshot {
	i := slices.IndexFunc(m.Snapshots, func(s snapshot) bool { return s.Summary[summaryRun] == run })
	if i < 0 {
		return nil
	}
	return &m.Snapshots[i]
}

// of reports whether s, which may be nil, is of r: of two runs for one time, of which somebody has
// removed the first, the ids are the same. A zero FinishedAt, and the snapshot of a program that
// has not said it, are any.
func (s *snapshot) of(r *Run) bool {
	if s == nil || s.Summary[summaryRun] != r.ID || s.Summary[summarySequence] != strconv.FormatUint(r.Sequence, 10) {
		return false
	}
	finished := s.Summary[summaryFinished]
	return finished == "" || r.FinishedAt.IsZero() || finished == finishedText(r.FinishedAt)
}

func finishedText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// forget drops the snapshot of the sequence and those that go on from it. Where the current one
// is among them, the table is the one before again, if there is one.
func (m *metadata) forget(sequence int64) {
	m.drop(func(i int) bool { s := &m.Snapshots[i]; return s.whole() <= sequence && sequence <= s.Sequence })
	m.LastUpdated++
	if n := len(m.Snapshots); m.current() == nil && n > 0 {
		m.CurrentSnapshotID, m.CurrentSchemaID = m.Snapshots[n-1].ID, m.Snapshots[n-1].SchemaID
	}
}

// snapshotID returns the id of a run's snapshot in this table.
func (m *metadata) snapshotID(run string) int64 {
	sum := sha256.Sum256([]byte(m.UUID + "\x00" + run))
	return int64(binary.BigEndian.Uint64(sum[:])&(math.MaxInt64-1)) + 1
}

// add makes s the current snapshot, as of now, or right behind the change before where the
// clock is not past that: times of a table ascend.
func (m *metadata) add(s snapshot, now time.Time) {
	s.Time = max(now.UnixMilli(), m.LastUpdated+1)
	m.LastUpdated, m.LastSequence, m.CurrentSnapshotID = s.Time, s.Sequence, s.ID
	m.Snapshots = append(m.Snapshots, s)
	m.SnapshotLog = append(m.SnapshotLog, logged{Time: s.Time, Snapshot: s.ID})
	m.Refs = map[string]ref{mainBranch: {Snapshot: s.ID, Type: "branch"}}
	if n := len(m.Snapshots) - maxSnapshots; n > 0 {
		m.drop(func(i int) bool { return i < n })
	}
}

// goesOnFrom reports whether a snapshot goes on from that of the sequence.
func (m *metadata) goesOnFrom(sequence int64) bool {
	return slices.ContainsFunc(m.Snapshots, func(s snapshot) bool { return s.whole() <= sequence && sequence < s.Sequence })
}

// whole returns the sequence of the snapshot of the whole run that s goes on from, or is.
func (s *snapshot) whole() int64 {
	if n, err := strconv.ParseInt(s.Summary[summaryWhole], 10, 64); err == nil {
		return n
	}
	return s.Sequence
}

// maxSnapshots is how many snapshots a table has at most, the newest, as every commit
// writes all of them.
const maxSnapshots = 1_000

// expire takes the snapshots of these runs out; it reports whether there were any.
func (m *metadata) expire(runs map[string]bool) bool {
	if !m.drop(func(i int) bool { return runs[m.Snapshots[i].Summary[summaryRun]] }) {
		return false
	}
	m.LastUpdated++
	return true
}

// drop takes snapshots out, by their indexes, and what only they needed; it reports whether
// there were any.
func (m *metadata) drop(goes func(i int) bool) bool {
	gone := map[int64]bool{}
	schemas, specs := map[int]bool{m.CurrentSchemaID: true}, map[string]bool{}
	var kept []snapshot
	for i := range m.Snapshots {
		s := &m.Snapshots[i]
		if goes(i) {
			gone[s.ID] = true
			continue
		}
		kept = append(kept, *s)
		schemas[s.SchemaID] = true
		for _, id := range strings.Fields(s.Summary[summarySpecs]) {
			specs[id] = true
		}
	}
	if len(gone) == 0 {
		return false
	}
	m.Snapshots = kept
	// The log is what time travel goes by: behind an expired snapshot it would lead to the
	// one before that, which was not current then. Iceberg's own writers cut it there.
	for i := len(m.SnapshotLog) - 1; i >= 0; i-- {
		if gone[m.SnapshotLog[i].Snapshot] {
			m.SnapshotLog = m.SnapshotLog[i+1:]
			break
		}
	}
	m.Schemas = slices.DeleteFunc(m.Schemas, func(s schema) bool { return !schemas[s.ID] })
	m.Specs = slices.DeleteFunc(m.Specs, func(s partitionSpec) bool { return !specs[strconv.Itoa(s.ID)] })
	return true
}

// unbind drops the snapshots whose files are divided by columns that the current schema has
// not: engines do not open a table with a partition spec of such.
func (m *metadata) unbind() {
	ids := map[int32]bool{}
	for _, f := range m.schema(m.CurrentSchemaID).Fields {
		ids[f.ID] = true
	}
	lost := map[string]bool{}
	for i := range m.Specs {
		s := &m.Specs[i]
		lost[strconv.Itoa(s.ID)] = slices.ContainsFunc(s.Fields, func(f partitionField) bool { return !ids[f.Source] })
	}
	m.drop(func(i int) bool {
		return slices.ContainsFunc(strings.Fields(m.Snapshots[i].Summary[summarySpecs]), func(id string) bool { return lost[id] })
	})
}

// totals of files.
type totals struct {
	files       int
	rows, bytes int64
}

func totalsOf(files []File) (t totals) {
	for i := range files {
		t.add(totals{1, files[i].Rows, files[i].Bytes})
	}
	return t
}

func (t *totals) add(more totals) {
	t.files += more.files
	t.rows += more.rows
	t.bytes += more.bytes
}

// The keys of a snapshot's summary that count what all of it has.
const (
	totalFiles       = "total-data-files"
	totalRecords     = "total-records"
	totalBytes       = "total-files-size"
	totalDeleteFiles = "total-delete-files"
	totalPositions   = "total-position-deletes"
	totalEqualities  = "total-equality-deletes"
)

// summary returns what a snapshot says of itself: r's files were added, and those of
// replaced, if there are any, are gone.
func summary(r *Run, replaced []*Run) map[string]string {
	added := totalsOf(r.Files)
	s := map[string]string{
		"operation":        "append",
		"added-data-files": strconv.Itoa(added.files), "added-records": strconv.FormatInt(added.rows, 10), "added-files-size": strconv.FormatInt(added.bytes, 10),
		totalFiles: strconv.Itoa(added.files), totalRecords: strconv.FormatInt(added.rows, 10), totalBytes: strconv.FormatInt(added.bytes, 10),
		totalDeleteFiles: "0", totalPositions: "0", totalEqualities: "0",
		summaryRun: r.ID, summaryTime: r.LogicalTime.UTC().Format(time.RFC3339Nano), summaryManifest: r.Dir + "/_manifest.json",
		summarySequence: strconv.FormatUint(r.Sequence, 10), summaryFinished: finishedText(r.FinishedAt), summaryVersion: r.Version,
	}
	if len(replaced) > 0 {
		var gone totals
		for _, before := range replaced {
			gone.add(totalsOf(before.Files))
		}
		s["operation"] = "overwrite"
		s["deleted-data-files"], s["deleted-records"], s["removed-files-size"] = strconv.Itoa(gone.files), strconv.FormatInt(gone.rows, 10), strconv.FormatInt(gone.bytes, 10)
	}
	return s
}
