package jobs

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
)

// ManifestVersion is the format version of the manifests that this package
// writes, and the only one that it reads.
const ManifestVersion = 1

// Names of the files that are not data.
const (
	ManifestName = "_manifest.json" // in a run's directory
	LatestName   = "_latest.json"   // in a job's directory
)

// maxManifestBytes bounds what is published and read as a manifest: about 350 bytes a
// file leave room for 190,000 files.
const maxManifestBytes = 64 << 20

// Manifest describes one run: what it is, and every file of it.
// docs/format/manifest.md has the JSON. Row keys are escaped as HBase's shell
// prints them.
type Manifest struct {
	FormatVersion int                  `json:"format_version"`
	Job           string               `json:"job"`
	RunID         string               `json:"run_id"`
	LogicalTime   time.Time            `json:"logical_time"` // what the run is for
	StartedAt     time.Time            `json:"started_at"`
	FinishedAt    time.Time            `json:"finished_at"`
	PausedSeconds float64              `json:"paused_seconds,omitempty"` // for how long it paused for ingest
	Sequence      uint64               `json:"sequence"`                 // last commit in the data; with consistency row, TimeBound
	Offsets       []Offset             `json:"offsets"`                  // what the data is complete to
	Table         string               `json:"table"`
	Rows          string               `json:"rows"`               // row | cell
	RowKey        *columnar.KeySpec    `json:"row_key,omitempty"`  // how row keys are made; nil = the job does not say
	Mode          string               `json:"mode,omitempty"`     // versions | history; empty = the newest version of each column
	Versions      int                  `json:"versions,omitempty"` // of a column at most, with mode versions
	Columns       []Column             `json:"columns"`
	SortedBy      []string             `json:"sorted_by"`              // columns; files of a format follow each other in this order too
	Sort          []SortColumn         `json:"sort,omitempty"`         // what SortedBy begins with; empty = the row key
	PartitionBy   []string             `json:"partition_by,omitempty"` // columns that directories say and files have not
	StartRow      string               `json:"start_row"`              // what was asked for: [StartRow, StopRow)
	StopRow       string               `json:"stop_row"`
	Families      []string             `json:"families"`             // read; empty = all
	TimeRange     *ReadTimes           `json:"time_range,omitempty"` // of the cells that were read; nil = all
	Filter        string               `json:"filter,omitempty"`     // filter string, or JSON; empty = none
	Where         []columnar.Predicate `json:"where,omitempty"`      // conditions on columns; empty = none
	Join          *JoinInfo            `json:"join,omitempty"`       // how two sides were joined; nil = a table was exported
	Iceberg       bool                 `json:"iceberg,omitempty"`    // it is a snapshot of the Iceberg table in the job's directory
	// Incremental says what a run of an incremental job is; nil = of another.
	Incremental *IncrementInfo `json:"incremental,omitempty"`
	Files       []File         `json:"files"`  // by format, then key order
	Totals      []Total        `json:"totals"` // one a format
	// Consistency is row where rows are of different moments (Unfrozen); empty =
	// the data is the table at one commit.
	Consistency string `json:"consistency,omitempty"`
	// TimeBound is, with consistency row, what the timestamps of all cells are
	// below, ms since the Unix epoch.
	TimeBound     cell.Timestamp `json:"time_bound,omitempty"`
	Limits        []string       `json:"limits,omitempty"` // with consistency row: what a reader cannot count on
	Engine        string         `json:"engine"`
	Version       string         `json:"sluice_version"`
	PreviousRunID string         `json:"previous_run_id"` // the job's latest run before; empty = none
}

// Offset says that a source's partition is in the data up to Next.
type Offset struct {
	Pipeline  string `json:"pipeline"`
	Topic     string `json:"topic"`
	ClusterID string `json:"cluster_id"`
	TopicID   string `json:"topic_id"` // 32 hex digits
	Partition int32  `json:"partition"`
	Next      int64  `json:"next"` // every record before it has had its effect
}

// Column is one column of the files.
type Column struct {
	Name     string `json:"name"`
	From     string `json:"from"`
	Type     string `json:"type"`
	Coding   string `json:"coding"` // empty where the source has none
	Nullable bool   `json:"nullable"`
	OnError  string `json:"on_error"`
}

// column is c as files have it, of a manifest that was checked.
func (c *Column) column() columnar.Column {
	t, _ := columnar.ParseType(c.Type)
	return columnar.Column{Name: c.Name, Type: t, Nullable: c.Nullable}
}

// columns are m's as files have them.
func (m *Manifest) columns() []columnar.Column {
	all := make([]columnar.Column, len(m.Columns))
	for i := range m.Columns {
		all[i] = m.Columns[i].column()
	}
	return all
}

// opColumn returns the column that says whether a row is there, or what a cell is, or -1.
func (m *Manifest) opColumn() int {
	return slices.IndexFunc(m.Columns, func(c Column) bool { return c.From == columnar.FromOp })
}

// File is one file of a run.
type File struct {
	Path        string `json:"path"` // below the run's directory
	Format      string `json:"format"`
	Rows        int64  `json:"rows"`
	Bytes       int64  `json:"bytes"`
	SHA256      string `json:"sha256"`  // 64 hex digits
	MinRow      string `json:"min_row"` // first row key; empty in a file without rows
	MaxRow      string `json:"max_row"` // last row key
	RegionStart string `json:"region_start"`
	RegionStop  string `json:"region_stop"`
	// Partition are the values of the columns of PartitionBy, as text; nil = null.
	Partition []*string `json:"partition,omitempty"`
}

// Total is the sum over the files of one format.
type Total struct {
	Format string `json:"format"`
	Files  int    `json:"files"`
	Rows   int64  `json:"rows"`
	Bytes  int64  `json:"bytes"`
}

// Latest is what a job's _latest.json holds: where its newest run is.
type Latest struct {
	FormatVersion  int       `json:"format_version"`
	RunID          string    `json:"run_id"`
	LogicalTime    time.Time `json:"logical_time"`
	Manifest       string    `json:"manifest"` // below the job's directory
	ManifestSHA256 string    `json:"manifest_sha256"`
}

// ErrManifest is wrapped by the errors of the decoders: what was read is not what
// this version writes.
var ErrManifest = errors.New("jobs: invalid manifest")

// Encode returns m as JSON with a newline at the end.
func (m *Manifest) Encode() ([]byte, error) { return encodeJSON(m) }

// Encode returns l as JSON with a newline at the end.
func (l *Latest) Encode() ([]byte, error) { return encodeJSON(l) }

func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return b.Bytes(), nil
}

// decodeStrict reads one JSON value without unknown fields. The format version is
// looked at first, so that a file of a later version is named as such and not as
// one with unknown fields; that step also refuses what follows the value.
func decodeStrict(data []byte, v any) error { return decodeVersion(data, ManifestVersion, v) }

// decodeVersion is decodeStrict of another format.
func decodeVersion(data []byte, known int, v any) error {
	var version struct {
		FormatVersion int `json:"format_version"`
		Version       any `json:"sluice_version"` // a string, where it is one of ours
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if version.FormatVersion != known {
		return fmt.Errorf("%w: format version %d; this program reads version %d", ErrManifest, version.FormatVersion, known)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	switch writer, ok := version.Version.(string); {
	case err == nil:
		return nil
	case ok && strings.HasPrefix(err.Error(), "json: unknown field "): // encoding/json has no type for it
		return fmt.Errorf("%w: %w: it was written by Sluice %q; read it with that version, or a later one", ErrManifest, err, writer)
	}
	return fmt.Errorf("%w: %w", ErrManifest, err)
}

// DecodeManifest reads a manifest and checks that it is consistent in itself. Its
// error wraps ErrManifest.
func DecodeManifest(data []byte) (*Manifest, error) {
	m := new(Manifest)
	if err := decodeStrict(data, m); err != nil {
		return nil, err
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	return m, nil
}

// DecodeLatest reads a job's _latest.json. Its error wraps ErrManifest.
func DecodeLatest(data []byte) (*Latest, error) {
	l := new(Latest)
	if err := decodeStrict(data, l); err != nil {
		return nil, err
	}
	if !isHex(l.ManifestSHA256, 64) || !fs.ValidPath(l.Manifest) || l.RunID == "" {
		return nil, fmt.Errorf("%w: %s with run %q, manifest %q, sha256 %q", ErrManifest, LatestName, l.RunID, l.Manifest, l.ManifestSHA256)
	}
	return l, nil
}

func isHex(s string, digits int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(s) == digits && hex.EncodeToString(b) == s
}

// validate checks what must hold between the fields.
func (m *Manifest) validate() error {
	if !jobName.MatchString(m.Job) || m.RunID == "" || (m.Table == "") != (m.Join != nil) || len(m.Columns) == 0 {
		return fmt.Errorf("job %q, run %q, table %q, %d columns", m.Job, m.RunID, m.Table, len(m.Columns))
	}
	if m.Rows != string(columnar.PerRow) && m.Rows != string(columnar.PerCell) {
		return fmt.Errorf("rows %q", m.Rows)
	}
	if err := m.validateMode(); err != nil {
		return err
	}
	for i := range m.Columns {
		if _, ok := columnar.ParseType(m.Columns[i].Type); !ok || m.Columns[i].Name == "" {
			return fmt.Errorf("columns[%d]: %q of type %q", i, m.Columns[i].Name, m.Columns[i].Type)
		}
	}
	if row := m.Consistency == ConsistencyRow; !row && m.Consistency != "" || row != (m.TimeBound > 0) || !row && len(m.Limits) > 0 {
		return fmt.Errorf("consistency %q, time bound %d, %d limits", m.Consistency, m.TimeBound, len(m.Limits))
	}
	if !(m.PausedSeconds >= 0) {
		return fmt.Errorf("paused for %v seconds", m.PausedSeconds)
	}
	if m.TimeRange != nil {
		if err := m.TimeRange.validate(); err != nil {
			return err
		}
	}
	if m.Join != nil {
		for i, side := range []*JoinedSide{&m.Join.Left, &m.Join.Right} {
			if side.TimeRange == nil {
				continue
			}
			if err := side.TimeRange.validate(); err != nil {
				return fmt.Errorf("join: %s: %w", sideNames[i], err)
			}
		}
	}
	if m.Incremental != nil {
		if err := m.Incremental.validate(); err != nil {
			return err
		}
	}
	for i := range m.Offsets {
		if err := m.Offsets[i].validate(); err != nil {
			return fmt.Errorf("offsets[%d]: %w", i, err)
		}
	}
	totals := make(map[string]Total)
	if err := m.validatePartitions(); err != nil {
		return err
	}
	if err := m.validateSort(); err != nil {
		return err
	}
	last := make(map[fileSet]*File)
	paths := make(map[string]bool, len(m.Files))
	for i := range m.Files {
		f := &m.Files[i]
		if paths[f.Path] {
			return fmt.Errorf("files[%d]: %s is listed twice", i, f.Path)
		}
		paths[f.Path] = true
		if err := f.validate(last[f.set()], m.keyed()); err != nil {
			return fmt.Errorf("files[%d] (%s): %w", i, f.Path, err)
		}
		if err := m.validatePartition(f); err != nil {
			return fmt.Errorf("files[%d] (%s): %w", i, f.Path, err)
		}
		last[f.set()] = f
		t := totals[f.Format]
		totals[f.Format] = Total{Format: f.Format, Files: t.Files + 1, Rows: t.Rows + f.Rows, Bytes: t.Bytes + f.Bytes}
	}
	if len(m.Totals) != len(totals) {
		return fmt.Errorf("%d totals for %d formats", len(m.Totals), len(totals))
	}
	for i, t := range m.Totals {
		if totals[t.Format] != t {
			return fmt.Errorf("totals[%d]: %s has %+v, its files sum to %+v", i, t.Format, t, totals[t.Format])
		}
		if t.Rows != m.Totals[0].Rows {
			return fmt.Errorf("totals[%d]: %s has %d rows, %s has %d", i, t.Format, t.Rows, m.Totals[0].Format, m.Totals[0].Rows)
		}
	}
	return nil
}

// validate checks one offset.
func (o *Offset) validate() error {
	if !isHex(o.TopicID, 32) || o.Partition < 0 || o.Next < 0 {
		return fmt.Errorf("topic id %q, partition %d, next %d", o.TopicID, o.Partition, o.Next)
	}
	return nil
}

// maxFileRows bounds the rows and bytes of one file, so that totals cannot
// overflow.
const maxFileRows = 1 << 50

// validate checks one file against the one before it in its fileSet, nil for the
// first. keyed says that its rows are a table's, in order of row keys.
func (f *File) validate(before *File, keyed bool) error {
	switch {
	case !fs.ValidPath(f.Path) || f.Path == "." || f.Path == ManifestName || strings.HasPrefix(f.Path, "_"):
		return errors.New("not a path of a data file")
	case f.Rows < 0 || f.Rows > maxFileRows || f.Bytes < 0 || f.Bytes > maxFileRows:
		return fmt.Errorf("%d rows, %d bytes", f.Rows, f.Bytes)
	case !isHex(f.SHA256, 64):
		return fmt.Errorf("sha256 %q", f.SHA256)
	case !keyed && f.MinRow+f.MaxRow+f.RegionStart+f.RegionStop != "":
		return errors.New("its rows are not in the order of row keys, and it has some")
	case keyed && (f.Rows == 0) != (f.MinRow == "" && f.MaxRow == ""):
		return fmt.Errorf("%d rows, but rows %q to %q", f.Rows, f.MinRow, f.MaxRow)
	}
	if _, ok := formatOf(f.Format); !ok {
		return fmt.Errorf("format %q", f.Format)
	}
	var keys [4][]byte
	for i, s := range []string{f.MinRow, f.MaxRow, f.RegionStart, f.RegionStop} {
		key, err := columnar.UnescapeKey(s)
		if err != nil {
			return err
		}
		keys[i] = key
	}
	if f.Rows == 0 || !keyed {
		return nil
	}
	rg := cell.Range{Start: keys[2], Stop: keys[3]}
	switch {
	case bytes.Compare(keys[0], keys[1]) > 0:
		return fmt.Errorf("its first row %s is after its last, %s", f.MinRow, f.MaxRow)
	case !rg.Contains(keys[0]) || !rg.Contains(keys[1]):
		return fmt.Errorf("rows %s to %s are not in its region [%s, %s)", f.MinRow, f.MaxRow, f.RegionStart, f.RegionStop)
	}
	if before != nil && before.Rows > 0 {
		max, err := columnar.UnescapeKey(before.MaxRow)
		if err != nil {
			return err
		}
		if bytes.Compare(keys[0], max) <= 0 {
			return fmt.Errorf("its first row %s is not after %s, the last of %s", f.MinRow, before.MaxRow, before.Path)
		}
	}
	return nil
}

// fileSet are the files whose key ranges follow each other: those of a format and a
// partition.
type fileSet struct{ format, dir string }

func (f *File) set() fileSet { return fileSet{f.Format, path.Dir(f.Path)} }

// sortFiles puts the files in the manifest's order and fills in the totals.
func (m *Manifest) sortFiles() {
	slices.SortFunc(m.Files, func(a, b File) int {
		if d := strings.Compare(a.Format, b.Format); d != 0 {
			return d
		}
		return comparePaths(a.Path, b.Path)
	})
	m.Totals = []Total{}
	for i := range m.Files {
		f := &m.Files[i]
		if n := len(m.Totals); n == 0 || m.Totals[n-1].Format != f.Format {
			m.Totals = append(m.Totals, Total{Format: f.Format})
		}
		t := &m.Totals[len(m.Totals)-1]
		t.Files++
		t.Rows += f.Rows
		t.Bytes += f.Bytes
	}
}
