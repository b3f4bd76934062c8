package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"sluice/jobs/instant"
	"sluice/jobs/schedule"
)

// instant names what is read, so that a run that goes on reads the same: the
// checkpoint, or the manifests of both runs. Empty = it has no name.
func (r *joinRun) instant() string {
	sums := []string{"runs"}
	for _, in := range r.inputs {
		if in, ok := in.(*runInput); ok {
			sums = append(sums, in.sum)
		}
	}
	if len(sums) == 1 && instant.UnfrozenOf(r.Source) != nil {
		return "" // what it joins again would not be what it has joined
	}
	if len(sums) == 1 {
		return r.Checkpoint
	}
	return strings.Join(sums, " ")
}

// definition hashes what decides, besides the instant, which bytes the files hold.
func (j *Join) definition(version string) (string, error) {
	s := j.spec
	s.Out, s.SpillDir, s.Keep, s.Schedule, s.SchemaChanges = "", "", Keep{}, schedule.Spec{}, ""
	s.TargetFileBytes, s.RowGroupBytes = j.layout.targetFileBytes, j.layout.rowGroupBytes
	var sides []string
	for _, side := range j.sides {
		if side == nil {
			continue
		}
		d, err := side.definition(version)
		if err != nil {
			return "", err
		}
		sides = append(sides, d)
	}
	data, err := json.Marshal(struct {
		Spec    JoinSpec
		Sides   []string
		Version string
	}{s, sides, version})
	if err != nil {
		return "", fmt.Errorf("encode the join: %w", err)
	}
	return hexSHA256(data), nil
}

// state is what is noted of the run of m; nil = nobody can go on with it.
func (r *joinRun) state(m *Manifest) (*runState, error) {
	instant := r.instant()
	if instant == "" {
		return nil, nil
	}
	definition, err := r.Join.definition(r.Version)
	if err != nil {
		return nil, err
	}
	want := newRunState(m, instant, definition)
	want.Join = true
	return want, nil
}

// usable finds nothing wrong: all is read and joined again.
func (r *joinRun) usable(context.Context, *finishedWork, *Manifest) error { return nil }

// begun sets out to write what is not finished.
func (r *joinRun) begun(w *finishedWork) error {
	r.rows = r.newReplay(&r.Join.layout, r.Join.format, w)
	r.rows.enter(&filePartition{})
	if w != nil {
		r.Logger.Info("join resumed", "job", r.name, "run", r.id, "files", len(r.files))
	}
	return nil
}
