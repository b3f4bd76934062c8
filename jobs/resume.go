package jobs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/schedule"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
)

// ErrResumable is wrapped by the errors of Run after which the finished files were
// kept: a Run for the same logical time, at the same checkpoint, goes on from
// there. Wrapped by the cause of a cancellation, it says that they are to be kept.
var ErrResumable = errors.New("jobs: the run can be resumed")

// noteRun is the note with the runState. The other notes are workNotes: of a file
// by fileNote, of a split that is done by splitNote.
const noteRun = "run"

// fileNote is the name of the note of a file: the file's, or, where that is a path, which
// the name of a note is not, its hash.
func fileNote(name string) string {
	if !strings.Contains(name, "/") {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "file-" + hex.EncodeToString(sum[:16])
}

func splitNote(region int) string { return fmt.Sprintf("split-%06d", region) }

// runState is what a run must share with one that was cut off, to go on with its
// files. It is written before the first file.
type runState struct {
	FormatVersion int       `json:"format_version"` // ManifestVersion
	Job           string    `json:"job"`
	RunID         string    `json:"run_id"`
	LogicalTime   time.Time `json:"logical_time"`
	StartedAt     time.Time `json:"started_at"`
	Checkpoint    string    `json:"checkpoint"`
	Sequence      uint64    `json:"sequence"`
	// Definition is a hash of what the bytes of the files depend on besides the
	// instant: the job and the program's version.
	Definition    string `json:"definition"`
	PreviousRunID string `json:"previous_run_id"`
	// Join says that the run is of a join: Checkpoint may then name the manifests
	// of both sides instead.
	Join bool `json:"join,omitempty"`
	// Sorted says that the run is sorted by other columns than the row key.
	Sorted bool `json:"sorted,omitempty"`
	// Offsets and Regions (keepRegions) are, of a run of an Unfrozen source, those
	// of its beginning: they are other ones now.
	Offsets []Offset `json:"offsets,omitempty"`
	Regions []string `json:"regions,omitempty"`
	// Incarnation is what the table of such a run was (instant.Unfrozen.Incarnation).
	Incarnation string `json:"incarnation,omitempty"`
	// Cuts are where its regions were cut into parts, escaped.
	Cuts []string `json:"cuts,omitempty"`
}

// workNote is a finished file, or a split of which every file is finished.
type workNote struct {
	FormatVersion int   `json:"format_version"`
	Region        int   `json:"region"` // of the split (instant.Split.Index)
	File          *File `json:"file,omitempty"`
	// Digest is, of a file of a join or of a run that is sorted, the SHA-256 of its batches
	// (columnar.Batch.HashTo), 64 hex digits.
	Digest string `json:"digest,omitempty"`
	Rows   int64  `json:"rows"` // of a split: of its files of each format
}

// differs says why the files of a run with state s cannot be those of one with
// want, or nothing.
func (s *runState) differs(want *runState) string {
	switch {
	case s.RunID != want.RunID || s.Job != want.Job:
		return fmt.Sprintf("they are of run %s of job %s", s.RunID, s.Job)
	case s.Checkpoint != want.Checkpoint || s.Sequence != want.Sequence:
		return fmt.Sprintf("they are of another instant, checkpoint %s at commit %d", s.Checkpoint, s.Sequence)
	case s.Definition != want.Definition:
		return "the job or the program has changed since"
	}
	return ""
}

// definition hashes what decides, besides the instant, which bytes the files hold.
func (j *Job) definition(version string) (string, error) {
	s := j.spec
	s.Columns = j.schema.Specs()
	s.TargetFileBytes, s.RowGroupBytes = j.layout.targetFileBytes, j.layout.rowGroupBytes
	s.Out, s.Keep, s.Schedule, s.Incremental, s.RowsPerSecond, s.Priority = "", Keep{}, schedule.Spec{}, Incremental{}, 0, ""
	s.YieldToLag, s.SchemaChanges = YieldToLag{}, ""
	s.MemoryBytes, s.SpillDir, s.SpillBytes, s.Iceberg = 0, "", 0, false
	data, err := json.Marshal(struct {
		Spec    Spec
		Version string
	}{s, version})
	if err != nil {
		return "", fmt.Errorf("encode the job: %w", err)
	}
	return hexSHA256(data), nil
}

// finishedWork is what a run that was cut off has finished.
type finishedWork struct {
	state runState
	files map[int]map[fileSet][]File // by region, in key order
	done  map[int]int64              // rows of each format, by region
	// digests are those of a join's files, by path.
	digests map[string]string
}

// decodeWork reads the notes of an upload. Its error wraps ErrManifest.
func decodeWork(notes map[string][]byte) (*finishedWork, error) {
	w := &finishedWork{files: map[int]map[fileSet][]File{}, done: map[int]int64{}, digests: map[string]string{}}
	if err := decodeStrict(notes[noteRun], &w.state); err != nil {
		return nil, fmt.Errorf("note %s: %w", noteRun, err)
	}
	for name, data := range notes {
		if name == noteRun {
			continue
		}
		var n workNote
		if err := decodeStrict(data, &n); err != nil {
			return nil, fmt.Errorf("note %s: %w", name, err)
		}
		switch {
		case n.File == nil && name == splitNote(n.Region):
			w.done[n.Region] = n.Rows
		case n.File != nil && name == fileNote(n.File.Path):
			if w.files[n.Region] == nil {
				w.files[n.Region] = map[fileSet][]File{}
			}
			w.files[n.Region][n.File.set()] = append(w.files[n.Region][n.File.set()], *n.File)
			w.digests[n.File.Path] = n.Digest
		default:
			return nil, fmt.Errorf("%w: note %s is not of region %d", ErrManifest, name, n.Region)
		}
	}
	for region, formats := range w.files {
		for set, files := range formats {
			slices.SortFunc(files, func(a, b File) int { return comparePaths(a.Path, b.Path) })
			var before *File
			for i := range files {
				err := files[i].validate(before, !w.state.Join && !w.state.Sorted)
				if err == nil && files[i].Path != path.Join(set.dir, partName(region, i, set.format)) {
					err = fmt.Errorf("want %s", partName(region, i, set.format))
				}
				if err != nil {
					return nil, fmt.Errorf("%w: note %s: %w", ErrManifest, files[i].Path, err)
				}
				before = &files[i]
			}
		}
	}
	return w, nil
}

// sets returns every finished file by its set, in the order of their names.
func (w *finishedWork) sets() map[fileSet][]File {
	sets := map[fileSet][]File{}
	for _, region := range slices.Sorted(maps.Keys(w.files)) {
		for set, files := range w.files[region] {
			sets[set] = append(sets[set], files...)
		}
	}
	return sets
}

// missing says which region has fewer files than it had, or nothing.
func (w *finishedWork) missing(j *Job) string {
	for region, want := range w.done {
		for i := range j.formats {
			rows := int64(0)
			for _, f := range w.of(region, j.formats[i].name) {
				rows += f.Rows
			}
			if rows != want {
				return fmt.Sprintf("of region %d there are %d rows in %s files, not %d", region, rows, j.formats[i].name, want)
			}
		}
	}
	return ""
}

// of returns the files of a region in a format.
func (w *finishedWork) of(region int, format string) (files []File) {
	for set, some := range w.files[region] {
		if set.format == format {
			files = append(files, some...)
		}
	}
	return files
}

// all returns every finished file.
func (w *finishedWork) all() []File {
	var all []File
	for _, formats := range w.files {
		for _, files := range formats {
			all = append(all, files...)
		}
	}
	return all
}

// state is what is noted of the run of m, nil where nobody can go on with it, and whether
// parts of regions can be gone on with.
func (r *run) state(m *Manifest) (_ *runState, parts bool, err error) {
	u := instant.UnfrozenOf(r.Source)
	// What is not frozen cannot be read and sorted again as it was.
	if r.Checkpoint == "" || r.sorted != nil && u != nil {
		return nil, false, nil
	}
	definition, err := r.Job.definition(r.Version)
	if err != nil {
		return nil, false, err
	}
	want := newRunState(m, r.Checkpoint, definition)
	if r.sorted != nil { // nothing that is noted of it depends on the parts
		want.Sorted = true
		return want, true, nil
	}
	want.Cuts = keepCuts(r.cuts)
	if u != nil {
		want.Offsets, want.Regions, want.Incarnation = m.Offsets, keepRegions(r.regions), r.incarnation
	}
	// The files of two formats end at different rows, and what comes behind the
	// first of these ends would not be read a second time as it was. Those of
	// partitions, too: a row whose cells expire meanwhile would be in two.
	return want, r.Job.partition == nil && (u == nil || len(r.Job.formats) == 1), nil
}

// newRunState returns what is noted of the run of m, at the instant of a checkpoint.
func newRunState(m *Manifest, checkpoint, definition string) *runState {
	return &runState{
		FormatVersion: ManifestVersion, Job: m.Job, RunID: m.RunID, LogicalTime: m.LogicalTime, StartedAt: m.StartedAt,
		Checkpoint: checkpoint, Sequence: m.Sequence, Definition: definition, PreviousRunID: m.PreviousRunID,
	}
}

// usable makes of r what the run was that was cut off, or says why it cannot.
func (r *run) usable(ctx context.Context, w *finishedWork, m *Manifest) error {
	if r.sorted != nil {
		return nil // the rows are read and sorted again
	}
	if why := w.missing(r.Job); why != "" {
		return useless(errors.New(why))
	}
	if u := instant.UnfrozenOf(r.Source); u != nil {
		return r.takeUpUnfrozen(ctx, u, &w.state, m)
	}
	return r.cutAsBefore(ctx, w.state.Cuts)
}

// begun sets out to write what is not finished.
func (r *run) begun(w *finishedWork) error {
	if r.sorted != nil {
		r.sorted.begun(w)
		return nil
	}
	if u := instant.UnfrozenOf(r.Source); w == nil && u != nil && u.Reopened() && r.notes != nil {
		return fmt.Errorf("%w: what was left of the run is of no use, and what the table held then cannot be read any more: run it again without --resume", store.ErrUnsupported)
	}
	if r.work = w; w == nil {
		return nil
	}
	r.report(func(p *work.Progress) {
		for i := range r.splits {
			if _, done := w.done[r.splits[i].Index]; done {
				r.measures.whole(r.splits[i].Index)
				p.RegionsDone++
			}
			p.Rows += w.rows(r.splits[i].Index, r.Job)
		}
		p.ResumedRows, p.ResumedDone = p.Rows, r.measures.sum()
	})
	r.Logger.Info("export resumed", "job", r.Job.name, "run", r.id, "files", len(r.files), "rows", r.progress.Rows)
	return nil
}

// takeUpUnfrozen makes of r what the run was that was cut off: its regions, and the
// offsets that it was complete to.
func (r *run) takeUpUnfrozen(ctx context.Context, u *instant.Unfrozen, left *runState, m *Manifest) error {
	if err := instant.SameTable(r.Job.Table(), left.Incarnation, r.incarnation); err != nil {
		return useless(err)
	}
	regions, err := keptRegions(r.Job.Table(), left.Regions)
	if err != nil {
		return useless(err)
	}
	r.divide(regions)
	r.progress.Regions = len(r.splits)
	m.Offsets = append([]Offset{}, left.Offsets...)
	describeUnfrozen(m, u, r.table)
	return r.measure(ctx)
}

// uselessError is why what a run has left cannot be gone on with, whoever tries and whenever.
type uselessError struct{ error }

func (e *uselessError) Unwrap() error { return e.error }

func useless(err error) error { return &uselessError{err} }

// readWork reads what is finished of an upload and removes what is not, with the
// files of regions that are not finished unless parts is set. Its error is an uselessError
// where that is not what a run has left.
func readWork(ctx context.Context, u target.Resumable, parts bool) (*finishedWork, error) {
	notes, err := u.Notes(ctx)
	if err != nil {
		return nil, err
	}
	w, err := decodeWork(notes)
	if err != nil {
		return nil, useless(err)
	}
	if !parts {
		for region := range w.files {
			if _, done := w.done[region]; !done {
				delete(w.files, region)
			}
		}
	}
	keep := map[string]int64{}
	for _, f := range w.all() {
		keep[f.Path] = f.Bytes
	}
	if err := u.Retain(ctx, keep); errors.Is(err, target.ErrNotFound) {
		return nil, useless(err)
	} else if err != nil {
		return nil, err
	}
	return w, nil
}

// rows returns the output rows of a region that are finished in every format.
func (w *finishedWork) rows(region int, j *Job) int64 {
	least := int64(-1)
	for i := range j.formats {
		n := int64(0)
		for _, f := range w.of(region, j.formats[i].name) {
			n += f.Rows
		}
		if least < 0 || n < least {
			least = n
		}
	}
	return least
}

// resumeAt sets up the outputs of a split where a run that was cut off has stopped:
// it returns the row key after which to scan, nil for the split's beginning, and
// the row keys at which files ended, where batches must end as they did then.
func (w *finishedWork) resumeAt(region int, outputs []*output) (after []byte, ends [][]byte, err error) {
	for i, o := range outputs {
		for _, f := range w.files[region][fileSet{o.format.name, "."}] {
			key, err := columnar.UnescapeKey(f.MaxRow)
			if err != nil {
				return nil, nil, err
			}
			o.chunk++
			o.rows += f.Rows
			o.after = key
			ends = append(ends, key)
		}
		if i == 0 || bytes.Compare(o.after, after) < 0 {
			after = o.after
		}
	}
	slices.SortFunc(ends, bytes.Compare)
	return after, ends, nil
}

// Unfinished is a run that was cut off, or is at work.
type Unfinished struct {
	Job         string
	RunID       string
	LogicalTime time.Time
	StartedAt   time.Time
	Checkpoint  string
	Sequence    uint64
	Files       int   // finished
	Bytes       int64 // of these
	Busy        bool  // it is at work, or that cannot be known
}

// ListUnfinished returns the runs below the local directory out that were cut off
// and can be resumed, and those at work, by job and logical time, the newest first.
// Its error wraps target.ErrNotFound where there is no such directory.
func ListUnfinished(ctx context.Context, out string) (_ []Unfinished, err error) {
	t, err := target.OpenLocal(out)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	return ListUnfinishedTarget(ctx, t)
}

// ListUnfinishedTarget is ListUnfinished of any target; one without resumable
// uploads has none. What cannot be read as a run is left out.
func ListUnfinishedTarget(ctx context.Context, t target.Target) ([]Unfinished, error) {
	uploads, err := unfinishedUploads(ctx, t)
	if err != nil {
		return nil, err
	}
	var all []Unfinished
	for i := range uploads {
		w, err := decodeWork(uploads[i].Notes)
		if err != nil {
			continue
		}
		s := &w.state
		u := Unfinished{
			Job: s.Job, RunID: s.RunID, LogicalTime: s.LogicalTime, StartedAt: s.StartedAt, Checkpoint: s.Checkpoint,
			Sequence: s.Sequence, Busy: uploads[i].Busy,
		}
		for _, f := range w.all() {
			u.Files++
			u.Bytes += f.Bytes
		}
		all = append(all, u)
	}
	slices.SortStableFunc(all, func(a, b Unfinished) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), b.LogicalTime.Compare(a.LogicalTime))
	})
	return all, nil
}

// unfinishedUploads returns the uploads that were cut off, none of a target that has no
// resumable ones.
func unfinishedUploads(ctx context.Context, t target.Target) ([]target.Unfinished, error) {
	r, ok := t.(target.Resumer)
	if !ok {
		return nil, nil
	}
	return r.Unfinished(ctx)
}
