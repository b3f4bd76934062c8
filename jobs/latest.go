package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"sluice/jobs/target"
)

// readLatest reads a job's _latest.json; its error wraps target.ErrNotFound where
// the job has not published a run.
func readLatest(ctx context.Context, t target.Target, job string) (*Latest, error) {
	name := path.Join(job, LatestName)
	data, err := target.ReadFile(ctx, t, name, maxManifestBytes)
	if err != nil {
		return nil, err
	}
	return decodeLatestOf(name, data)
}

// decodeLatestOf decodes the _latest.json that is called name. Its error says what to do
// about one that is damaged, and not about one of another version, which is whole.
func decodeLatestOf(name string, data []byte) (*Latest, error) {
	l, err := DecodeLatest(data)
	switch {
	case err == nil:
		return l, nil
	case !json.Valid(data):
		return nil, fmt.Errorf("%s: %w; remove the file: --resume makes it name the newest run again", name, err)
	}
	return nil, fmt.Errorf("%s: %w", name, err)
}

// publishedBefore says of which time the run is that exists, as err says.
func publishedBefore(at time.Time, err error) error {
	return fmt.Errorf("the run for %s was published before, and there is one for a time: %w", at.UTC().Format(time.RFC3339Nano), err)
}

// pointAgain makes up for a process that was killed between publishing the run in dir
// and pointing at it.
func pointAgain(ctx context.Context, t target.Target, dir string) error {
	m, data, err := readManifest(ctx, t, path.Join(dir, ManifestName))
	if err != nil {
		return err
	}
	return pointLatest(ctx, t, dir, m, data)
}

// announce tells published, which may be nil, of a run that is visible, and then points at
// it. A cancellation must not leave the pointer behind.
func announce(ctx context.Context, t target.Target, dir string, m *Manifest, data []byte, published func(context.Context, *Manifest) error) error {
	ctx = context.WithoutCancel(ctx)
	var err error
	if published != nil {
		err = published(ctx, m)
	}
	if err == nil {
		err = pointLatest(ctx, t, dir, m, data)
	}
	if err != nil {
		return fmt.Errorf("run %s is published, but %s was not replaced, which the same command with --resume does: %w", dir, LatestName, err)
	}
	return nil
}

// pointLatest makes the job's _latest.json name the run of manifest m, encoded in data, once
// its Iceberg table does, where it has one: whoever makes up for a process that was killed
// in between looks at the file.
func pointLatest(ctx context.Context, t target.Target, dir string, m *Manifest, data []byte) error {
	if m.Iceberg {
		if err := publishSnapshot(ctx, t, dir, m); err != nil {
			return err
		}
	}
	return point(ctx, t, m.Job, &Latest{
		FormatVersion: ManifestVersion, RunID: m.RunID, LogicalTime: m.LogicalTime,
		Manifest: path.Join(path.Base(dir), ManifestName), ManifestSHA256: hexSHA256(data),
	}, nil)
}

// point makes the _latest.json of a directory say l, unless it names that run or one
// for a later time already, whoever else publishes there at this moment. overtakes, if not
// nil, says of one for a later time whether l is the newer one all the same.
func point(ctx context.Context, t target.Target, dir string, l *Latest, overtakes func(was *Latest) bool) error {
	data, err := l.Encode()
	if err != nil {
		return err
	}
	name := path.Join(dir, LatestName)
	return t.Update(ctx, name, func(old []byte) ([]byte, error) {
		if old == nil {
			return data, nil
		}
		was, err := decodeLatestOf(name, old)
		if err != nil {
			return nil, err
		}
		later := was.LogicalTime.After(l.LogicalTime) && (overtakes == nil || !overtakes(was))
		if later || was.RunID == l.RunID {
			return nil, nil
		}
		return data, nil
	})
}

// ReadPublished returns the manifest of the run of a job for a time. Its error wraps
// target.ErrNotFound.
func ReadPublished(ctx context.Context, t target.Target, job string, at time.Time) (*Manifest, error) {
	m, _, err := readManifest(ctx, t, path.Join(runDir(job, at.UTC()), ManifestName))
	return m, err
}

// FinishPublished does what is left of a run that was cut off after it was published:
// it makes the job's _latest.json name the run for at, or, where that is zero, the
// newest that is published, and returns its manifest. Its error wraps
// target.ErrNotFound where there is no such run, or _latest.json names it, or one for a
// later time, already.
func FinishPublished(ctx context.Context, t target.Target, job string, at time.Time) (*Manifest, error) {
	latest, err := readLatest(ctx, t, job)
	if err != nil && !errors.Is(err, target.ErrNotFound) {
		return nil, err
	}
	dir := runDir(job, at.UTC())
	if at.IsZero() {
		if dir, err = newestRun(ctx, t, job, latest); err != nil {
			return nil, err
		}
	}
	m, data, err := readManifest(ctx, t, path.Join(dir, ManifestName))
	if err != nil {
		return nil, err
	}
	if latest != nil && (latest.RunID == m.RunID || latest.LogicalTime.After(m.LogicalTime)) {
		return nil, fmt.Errorf("%s of %s names run %s already: %w", LatestName, job, latest.RunID, target.ErrNotFound)
	}
	return m, pointLatest(ctx, t, dir, m, data)
}

// newestRun returns the directory of a job's newest published run that is newer than
// the one that latest, which may be nil, names. Its error wraps target.ErrNotFound.
func newestRun(ctx context.Context, t target.Target, job string, latest *Latest) (string, error) {
	entries, err := t.List(ctx, job)
	if err != nil {
		return "", err
	}
	newest, newestTime := "", time.Time{}
	if latest != nil {
		newestTime = latest.LogicalTime
	}
	for _, e := range entries {
		second, _, ok := strings.Cut(strings.TrimPrefix(e.Name, "run="), "-")
		if !e.Dir || !ok || second < newestTime.UTC().Format(runTime) {
			continue // names tell the second
		}
		m, _, err := readManifest(ctx, t, path.Join(job, e.Name, ManifestName))
		if errors.Is(err, target.ErrNotFound) {
			continue // nothing that an export has published, or it was just removed
		}
		if err != nil {
			return "", err
		}
		if m.LogicalTime.After(newestTime) {
			newest, newestTime = path.Join(job, e.Name), m.LogicalTime
		}
	}
	if newest == "" {
		return "", fmt.Errorf("published runs of %s that %s does not know: %w", job, LatestName, target.ErrNotFound)
	}
	return newest, nil
}

// differences says where l is not of the manifest that it names, of the run or backup with
// the id.
func (l *Latest) differences(kind, id string, manifest []byte) (problems []string) {
	if got := hexSHA256(manifest); got != l.ManifestSHA256 || id != l.RunID {
		problems = append(problems, fmt.Sprintf("%s names %s %s with a manifest of sha256 %s, the manifest is of %s %s and has %s", LatestName, kind, l.RunID, l.ManifestSHA256, kind, id, got))
	}
	return problems
}

// wrongTime says where l is not for the time of its manifest, at. By that it is decided
// whether another run or backup is newer; of the named one it says nothing.
func (l *Latest) wrongTime(kind string, at time.Time) (problems []string) {
	if !l.LogicalTime.Equal(at) {
		problems = append(problems, fmt.Sprintf("%s says that the %s is for %s, its manifest says %s: no %s before that becomes the latest one; write the manifest's time there (the %s can be named by its own directory)",
			LatestName, kind, l.LogicalTime.Format(time.RFC3339Nano), at.Format(time.RFC3339Nano), kind, kind))
	}
	return problems
}

// gone is the error where the manifest that l names is missing, as err says.
func (l *Latest) gone(err error) error {
	kind, again := "run", "run the job again"
	if path.Base(l.Manifest) == BackupManifestName {
		kind, again = "backup", "make one"
	}
	return fmt.Errorf("%s names %s %s, whose %s is missing: name the directory of another %s, or %s: %w", LatestName, kind, l.RunID, l.Manifest, kind, again, err)
}

// hexSHA256 returns the SHA-256 of data as manifests and _latest.json have it: 64 hex digits.
func hexSHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
