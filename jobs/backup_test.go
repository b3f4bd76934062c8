package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/cell"
	"sluice/jobs/jobstest"
	"sluice/jobs/target"
	"sluice/jobs/target/targettest"
	"sluice/jobs/work"
	"sluice/region"
	"sluice/store"
	"sluice/store/pebblestore"
)

// checkpointed is a BackupSource: a checkpoint that is open read-only.
type checkpointed struct {
	store.Snapshot
	*pebblestore.DB
}

func (c checkpointed) Regions(ctx context.Context, table string) (*region.Map, error) {
	return c.Snapshot.Regions(ctx, table)
}

func (c checkpointed) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	return c.Snapshot.Scan(ctx, s)
}

func (c checkpointed) Table(ctx context.Context, name string) (*store.TableDescriptor, error) {
	return c.Snapshot.Table(ctx, name)
}
func (c checkpointed) StoreID() string { return c.DB.ID() }
func (c checkpointed) Close() error    { return errors.Join(c.Snapshot.Close(), c.DB.Close()) }

func openRestored(dir string) (RestoredStore, error) {
	return pebblestore.Open(dir, jobstest.PebbleOptions())
}

var backupSource = store.Source{Pipeline: "p", Topic: "visits", ClusterID: "c", TopicID: [16]byte{1, 2}}

// visits applies the records [from, to) of a partition: a row and a count each.
func visits(t testing.TB, db *pebblestore.DB, from, to int64) error {
	t.Helper()
	var b store.Batch
	for o := from; o < to; o++ {
		m := cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "%04d", o)}
		m.Put("f", []byte("a"), cell.Timestamp(o+1), []byte("v"))
		b.Add(o, m)
	}
	b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: []byte("all"), Qualifier: []byte("visits"), Delta: to - from, Time: 7, Offset: from})
	stored := from
	if from == 0 {
		stored = store.Absent
	}
	b.Advance(backupSource, 0, stored, store.Progress{Next: to, LastOffset: to - 1, Applied: to})
	return db.Apply(t.Context(), &b)
}

// backupStore is a store with 100 records in it, and a checkpoint of that; 50 more
// come after.
func backupStore(t testing.TB) (*pebblestore.DB, checkpointed) {
	t.Helper()
	db := jobstest.OpenPebble(t, filepath.Join(t.TempDir(), "data"))
	jobstest.CreateTable(t, db, "t", "0050")
	if err := visits(t, db, 0, 90); err != nil {
		t.Fatal(err)
	}
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := visits(t, db, 90, 100); err != nil { // they are in the log only
		t.Fatal(err)
	}
	return db, checkpointOf(t, db)
}

func checkpointOf(t testing.TB, db *pebblestore.DB) checkpointed {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if _, err := db.Checkpoint(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	o := jobstest.PebbleOptions()
	o.ReadOnly = true
	cp, err := pebblestore.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := cp.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := checkpointed{s, cp}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// rawCells are all cells of all tables, raw.
func rawCells(t testing.TB, r store.Reader) []string {
	t.Helper()
	var all []string
	for _, table := range []string{"t", store.OffsetsTable, store.JobsTable, store.OutboxTable} {
		sc := r.Scan(t.Context(), &store.Scan{Table: table, Raw: true, Versions: store.AllVersions})
		for sc.Next() {
			for _, c := range sc.Row().Cells {
				all = append(all, fmt.Sprintf("%s %q %s:%q@%d %v %q", table, sc.Row().Key, c.Family, c.Qualifier, c.Time, c.Kind, c.Value))
			}
		}
		if err := errors.Join(sc.Err(), sc.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func mustLocal(t testing.TB, dir string) *target.Local {
	t.Helper()
	l, err := target.CreateLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// TestBackupAndRestore: the new store holds what the checkpoint did, to the cell and
// the offset, is another store, and counts on from there, once.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	db, cp := backupStore(t)
	if err := visits(t, db, 100, 150); err != nil {
		t.Fatal(err)
	}
	buckets := targettest.NewFakeS3(t)
	s3, err := target.NewS3(&target.S3Options{Endpoint: buckets.URL(), Bucket: "bucket", Prefix: "backups", AccessKey: "access", SecretKey: "hidden"})
	if err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]target.Target{"local": mustLocal(t, filepath.Join(t.TempDir(), "backups")), "s3": s3} {
		t.Run(name, func(t *testing.T) {
			var last work.Progress
			m, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: to, Engine: "pebble", Version: "v1", Progress: func(p work.Progress) { last = p }})
			if err != nil {
				t.Fatal(err)
			}
			if m.Sequence != cp.Sequence() || m.StoreID != db.ID() || len(m.Offsets) != 1 || m.Offsets[0].Next != 100 || last.Files != len(m.Files) || last.Bytes != m.Bytes || last.Done != 1 {
				t.Errorf("Got %+v of commit %d; the last progress is %+v", m, cp.Sequence(), last)
			}
			r, err := VerifyBackupTarget(t.Context(), to)
			if err != nil || !r.OK() || r.Manifest.BackupID != m.BackupID {
				t.Fatalf("Got %+v, %v", r, err)
			}
			dir := filepath.Join(t.TempDir(), "restored")
			done, err := Restore(t.Context(), &RestoreOptions{Backup: to, Dir: dir, Open: openRestored})
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("the data directory has mode %v (%v), want 0700", info.Mode(), err)
			}
			if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
				t.Errorf("beside the data directory lies %v (%v)", entries, err)
			}
			restored := jobstest.OpenPebble(t, dir)
			if restored.ID() != done.StoreID || restored.ID() == db.ID() {
				t.Errorf("the restored store is %s, said to be %s, the original %s", restored.ID(), done.StoreID, db.ID())
			}
			if d := jobstest.Diff(rawCells(t, cp), rawCells(t, restored)); d != "" {
				t.Errorf("restored (-want +got)\n%s", d)
			}
			// What was applied is refused, what comes next counts.
			if err := visits(t, restored, 0, 90); !errors.Is(err, store.ErrStale) {
				t.Errorf("Got %v of records that are in it, want ErrStale", err)
			}
			if err := visits(t, restored, 100, 150); err != nil {
				t.Fatal(err)
			}
			if d := jobstest.Diff(rawCells(t, db), rawCells(t, restored)); d != "" {
				t.Errorf("after the same records (-want +got)\n%s", d)
			}
			if _, err := Restore(t.Context(), &RestoreOptions{Backup: to, Dir: dir, Open: openRestored}); !errors.Is(err, target.ErrExists) || !strings.Contains(err.Error(), dir+" is there already") {
				t.Errorf("Got %v of a directory that exists, want ErrExists that names it", err)
			}
			if _, err := Restore(t.Context(), &RestoreOptions{Backup: to, Dir: filepath.Join(dir, "no", "where"), Open: openRestored}); !errors.Is(err, target.ErrNotFound) {
				t.Errorf("Got %v where the directory would lie nowhere, want ErrNotFound", err)
			}
		})
	}
}

// TestBackupCrash kills a backup at every step: afterwards there is none, or one that
// can be verified, and the next works.
func TestBackupCrash(t *testing.T) {
	t.Parallel()
	_, cp := backupStore(t)
	published, hidden := 0, 0
	for steps := int64(0); ; steps++ {
		out := t.TempDir()
		local := mustLocal(t, out)
		c := &crashing{Target: local}
		c.left.Store(steps)
		_, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: c, Parallelism: 1})
		if err == nil {
			break
		}
		if !errors.Is(err, errCrash) {
			t.Fatalf("step %d: %v", steps, err)
		}
		r, err := VerifyBackupTarget(t.Context(), local)
		visible, _ := filepath.Glob(filepath.Join(out, "backup=*"))
		switch {
		case errors.Is(err, target.ErrNotFound) && len(visible) == 0:
			hidden++
		case errors.Is(err, target.ErrNotFound) && len(visible) == 1:
			// Only _latest.json is missing.
			published++
			if r, err := VerifyBackup(t.Context(), visible[0]); err != nil || !r.OK() {
				t.Errorf("step %d: Got %+v, %v", steps, r, err)
			}
		case err != nil || !r.OK():
			t.Errorf("step %d: Got %+v, %v", steps, r, err)
		}
		if _, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: local, Now: func() time.Time { return time.Now().Add(time.Hour) }}); err != nil {
			t.Errorf("step %d: the next backup: %v", steps, err)
		}
	}
	if published == 0 || hidden < 10 {
		t.Errorf("%d crashes left a backup, %d none", published, hidden)
	}
}

// crashingStaged is a crashingUpload whose files lie in a directory.
type crashingStaged struct{ crashingUpload }

func (u *crashingStaged) Path() string { return u.Upload.(stagedUpload).Path() }

// crashingInto is a crashing target of a restore.
type crashingInto struct{ crashing }

func (c *crashingInto) Begin(ctx context.Context, dir, id string) (target.Upload, error) {
	u, err := c.crashing.Begin(ctx, dir, id)
	if err != nil {
		return nil, err
	}
	return &crashingStaged{*u.(*crashingUpload)}, nil
}

// crashingStore is a restored store of a process that is killed.
type crashingStore struct {
	RestoredStore
	c *crashing
}

func (s *crashingStore) Snapshot(ctx context.Context) (store.Snapshot, error) {
	if err := s.c.step(); err != nil {
		return nil, err
	}
	return s.RestoredStore.Snapshot(ctx)
}

func (s *crashingStore) NewID(ctx context.Context) (string, error) {
	if err := s.c.step(); err != nil {
		return "", err
	}
	id, err := s.RestoredStore.NewID(ctx)
	return id, errors.Join(err, s.c.step())
}

// TestRestoreCrash kills a restore at every step: afterwards there is no data
// directory, or a whole one of a store of its own, and where there is none the next
// restore makes it.
func TestRestoreCrash(t *testing.T) {
	t.Parallel()
	db, cp := backupStore(t)
	backups := mustLocal(t, filepath.Join(t.TempDir(), "backups"))
	if _, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: backups}); err != nil {
		t.Fatal(err)
	}
	want := rawCells(t, cp)
	there, absent := 0, 0
	for steps := int64(0); ; steps++ {
		parent := t.TempDir()
		dir := filepath.Join(parent, "data")
		c := &crashingInto{crashing{Target: mustLocal(t, parent)}}
		c.left.Store(steps)
		o := &RestoreOptions{Backup: backups, Dir: dir, Parallelism: 1, into: c, Open: func(dir string) (RestoredStore, error) {
			s, err := openRestored(dir)
			return &crashingStore{s, &c.crashing}, err
		}}
		_, err := Restore(t.Context(), o)
		if err != nil && !errors.Is(err, errCrash) {
			t.Fatalf("step %d: %v", steps, err)
		}
		crashed := err != nil
		if _, err := os.Stat(dir); err == nil {
			there++
		} else {
			absent++
			if _, err := Restore(t.Context(), &RestoreOptions{Backup: backups, Dir: dir, Open: openRestored}); err != nil {
				t.Fatalf("step %d: the next restore: %v", steps, err)
			}
		}
		restored, err := pebblestore.Open(dir, jobstest.PebbleOptions())
		if err != nil {
			t.Fatalf("step %d: %v", steps, err)
		}
		if restored.ID() == db.ID() {
			t.Errorf("step %d: the data directory is the original's", steps)
		}
		if d := jobstest.Diff(want, rawCells(t, restored)); d != "" {
			t.Errorf("step %d: (-want +got)\n%s", steps, d)
		}
		if err := restored.Close(); err != nil {
			t.Fatal(err)
		}
		if !crashed {
			break
		}
	}
	if there < 2 || absent < 15 {
		t.Errorf("%d times there was a data directory, %d times none", there, absent)
	}
}

// TestRestoreRemovesKilled: what killed restores have left beside the data directory goes
// with the next restore, which needs the room; what is at work, or no restore's, stays.
func TestRestoreRemovesKilled(t *testing.T) {
	t.Parallel()
	_, cp := backupStore(t)
	backups := mustLocal(t, filepath.Join(t.TempDir(), "backups"))
	if _, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: backups}); err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	into := mustLocal(t, parent)
	begin := func(id string) target.Resumable {
		t.Helper()
		u, err := into.Begin(t.Context(), "data", id)
		if err != nil {
			t.Fatal(err)
		}
		return u.(target.Resumable)
	}
	atWork := begin("restore-0123456789ab")
	defer atWork.Abort()
	for _, id := range []string{"restore-0123456789ab", "restore-ba9876543210", "restore-ba9876543210", "restore-of-mine/run=20260102T030405Z"} {
		if err := begin(id).Leave(); err != nil { // as when its process is killed
			t.Fatal(err)
		}
	}
	if _, err := Restore(t.Context(), &RestoreOptions{Backup: backups, Dir: filepath.Join(parent, "data"), Open: openRestored}); err != nil {
		t.Fatal(err)
	}
	left, err := into.Leftovers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range left {
		names = append(names, l.Name)
	}
	if want := []string{"restore-0123456789ab", "restore-of-mine-run=20260102T030405Z"}; !slices.Equal(names, want) {
		t.Errorf("Got %q, want %q", names, want)
	}
}

// TestVerifyBackupFinds damages a backup in every way; none of them is restored.
func TestVerifyBackupFinds(t *testing.T) {
	t.Parallel()
	_, cp := backupStore(t)
	table := func(m *BackupManifest) string {
		i := slices.IndexFunc(m.Files, func(f BackupFile) bool { return strings.HasSuffix(f.Path, ".sst") })
		return m.Files[i].Path
	}
	rewrite := func(t *testing.T, dir string, change func(m *BackupManifest)) {
		name := filepath.Join(dir, BackupManifestName)
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := DecodeBackupManifest(data)
		if err != nil {
			t.Fatal(err)
		}
		change(m)
		if data, err = m.Encode(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string, m *BackupManifest)
		want   string // of the report; empty = only a restore finds it
	}{
		"a flipped bit": {func(t *testing.T, dir string, m *BackupManifest) {
			name := filepath.Join(dir, table(m))
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/2] ^= 8
			if err := os.WriteFile(name, data, 0o666); err != nil {
				t.Fatal(err)
			}
		}, "its sha256 is"},
		"a file cut short": {func(t *testing.T, dir string, m *BackupManifest) {
			if err := os.Truncate(filepath.Join(dir, table(m)), 100); err != nil {
				t.Fatal(err)
			}
		}, "it has 100 bytes"},
		"a missing file": {func(t *testing.T, dir string, m *BackupManifest) {
			if err := os.Remove(filepath.Join(dir, table(m))); err != nil {
				t.Fatal(err)
			}
		}, "the file is missing"},
		"another manifest": {func(t *testing.T, dir string, _ *BackupManifest) {
			rewrite(t, dir, func(m *BackupManifest) { m.Version = "another" })
		}, "names backup"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := mustLocal(t, t.TempDir())
			m, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: out})
			if err != nil {
				t.Fatal(err)
			}
			r, err := VerifyBackupTarget(t.Context(), out)
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "x")
			where := localPath(t, out, r.Dir)
			c.damage(t, where, m)
			r, err = VerifyBackupTarget(t.Context(), out)
			if err != nil || r.OK() || !strings.Contains(r.Err().Error(), c.want) {
				t.Errorf("Got %+v, %v, want %q", r, err, c.want)
			}
			if _, err := Restore(t.Context(), &RestoreOptions{Backup: out, Dir: dir, Open: openRestored}); err == nil {
				t.Error("it was restored")
			}
			if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 0 {
				t.Errorf("a restore that failed has left %v (%v)", entries, err)
			}
		})
	}
	t.Run("another time of the latest", func(t *testing.T) {
		t.Parallel()
		at := t.TempDir()
		out := mustLocal(t, at)
		if _, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: out}); err != nil {
			t.Fatal(err)
		}
		edit(t, filepath.Join(at, LatestName), func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"logical_time": "2`), []byte(`"logical_time": "3`), 1)
		})
		if r, err := VerifyBackupTarget(t.Context(), out); err != nil || r.OK() || !strings.Contains(r.Err().Error(), "says that the backup is for 3") {
			t.Errorf("Got %+v, %v", r, err)
		}
		// The backup is whole.
		if _, err := Restore(t.Context(), &RestoreOptions{Backup: out, Dir: filepath.Join(t.TempDir(), "x"), Open: openRestored}); err != nil {
			t.Error(err)
		}
	})
	t.Run("an extra file", func(t *testing.T) {
		t.Parallel()
		out := mustLocal(t, t.TempDir())
		if _, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: out}); err != nil {
			t.Fatal(err)
		}
		r, err := VerifyBackupTarget(t.Context(), out)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(localPath(t, out, r.Dir), "extra"), nil, 0o666); err != nil {
			t.Fatal(err)
		}
		if r, err = VerifyBackupTarget(t.Context(), out); err != nil || r.OK() {
			t.Errorf("Got %+v, %v", r, err)
		}
	})
	// What the manifest says of the store is compared with the store itself.
	for name, change := range map[string]func(*BackupManifest){
		"sequence": func(m *BackupManifest) { m.Sequence++ },
		"store":    func(m *BackupManifest) { m.StoreID = "another" },
		"offsets":  func(m *BackupManifest) { m.Offsets[0].Next++ },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := mustLocal(t, t.TempDir())
			if _, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: out}); err != nil {
				t.Fatal(err)
			}
			r, err := VerifyBackupTarget(t.Context(), out)
			if err != nil {
				t.Fatal(err)
			}
			where := localPath(t, out, r.Dir)
			rewrite(t, where, change)
			dir := filepath.Join(t.TempDir(), "x")
			if _, err := Restore(t.Context(), &RestoreOptions{Backup: mustLocal(t, where), Dir: dir, Open: openRestored}); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("Got %v, want ErrCorrupt", err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it was restored (%v)", err)
			}
		})
	}
}

// localPath is where dir of a target lies.
func localPath(t *testing.T, l *target.Local, dir string) string {
	t.Helper()
	u, err := l.Begin(t.Context(), "x", "x")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Abort()
	root := filepath.Dir(filepath.Dir(filepath.Dir(u.(stagedUpload).Path()))) // of _tmp/x/files
	return filepath.Join(root, filepath.FromSlash(dir))
}

// TestBackupOfCorruptStore: what is corrupt is reported and not copied.
func TestBackupOfCorruptStore(t *testing.T) {
	t.Parallel()
	_, cp := backupStore(t)
	names, err := filepath.Glob(filepath.Join(cp.Dir(), "*.sst"))
	if err != nil || len(names) == 0 {
		t.Fatalf("tables %v, %v", names, err)
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/3] ^= 1
	// A hard link of the store's own file: another file takes its place.
	if err := errors.Join(os.Remove(names[0]), os.WriteFile(names[0], data, 0o600)); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if _, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: mustLocal(t, out)}); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(names[0])) {
		t.Errorf("Got %v, want ErrCorrupt that names %s", err, filepath.Base(names[0]))
	}
	if entries, err := os.ReadDir(out); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
}

// TestBackupOfGoneCheckpoint: the error says that it was the checkpoint that went, and not
// only which file is not there.
func TestBackupOfGoneCheckpoint(t *testing.T) {
	t.Parallel()
	_, cp := backupStore(t)
	backups := mustLocal(t, t.TempDir())
	copied := false
	_, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: backups, Parallelism: 1, Progress: func(work.Progress) {
		if !copied {
			copied = true
			if err := os.RemoveAll(cp.Dir()); err != nil {
				t.Error(err)
			}
		}
	}})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "lease was over") {
		t.Errorf("Got %v", err)
	}
}

func FuzzDecodeBackupManifest(f *testing.F) {
	m := &BackupManifest{
		FormatVersion: 1, BackupID: "0123456789ab", StoreID: "S", StoreFormat: 2, Offsets: []Offset{{Topic: "t", TopicID: strings.Repeat("0", 32)}},
		Files: []BackupFile{{Path: "000001.sst", Bytes: 5, SHA256: strings.Repeat("a", 64)}, {Path: "MANIFEST-000001", SHA256: strings.Repeat("0", 64)}}, Bytes: 5,
	}
	data, err := m.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	for _, bad := range []string{`"../x"`, `"a/b"`, `"/etc/passwd"`, `"_backup.json"`, `".hidden"`, `"a\\b"`, `""`} {
		f.Add([]byte(strings.Replace(string(data), `"000001.sst"`, bad, 1)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := DecodeBackupManifest(data)
		if err != nil {
			if !errors.Is(err, ErrManifest) {
				t.Fatalf("Got %v, want ErrManifest", err)
			}
			return
		}
		for _, b := range m.Files {
			if name := filepath.Clean(filepath.Join("dir", b.Path)); filepath.Dir(name) != "dir" || b.Path == BackupManifestName {
				t.Errorf("a file of a backup is %q", b.Path)
			}
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeBackupManifest(again)
		if err != nil {
			t.Fatal(err)
		}
		if d := jobstest.Diff(m, back); d != "" {
			t.Error(d)
		}
	})
}

func TestDecodeBackupManifestRefuses(t *testing.T) {
	t.Parallel()
	whole := func() *BackupManifest {
		return &BackupManifest{
			FormatVersion: 1, BackupID: "0123456789ab", StoreID: "S", StoreFormat: 2, Offsets: []Offset{{Topic: "t", TopicID: strings.Repeat("0", 32)}},
			Files: []BackupFile{{Path: "a", Bytes: 5, SHA256: strings.Repeat("a", 64)}, {Path: "b", SHA256: strings.Repeat("0", 64)}}, Bytes: 5,
		}
	}
	for name, change := range map[string]func(m *BackupManifest){
		"a later version":   func(m *BackupManifest) { m.FormatVersion = 2 },
		"no id":             func(m *BackupManifest) { m.BackupID = "" },
		"no store":          func(m *BackupManifest) { m.StoreID = "" },
		"no files":          func(m *BackupManifest) { m.Files, m.Bytes = nil, 0 },
		"a path":            func(m *BackupManifest) { m.Files[0].Path = "../a" },
		"not in order":      func(m *BackupManifest) { m.Files[0].Path = "b" },
		"a wrong sum":       func(m *BackupManifest) { m.Bytes = 6 },
		"negative bytes":    func(m *BackupManifest) { m.Files[0].Bytes, m.Bytes = -5, -5 },
		"a short checksum":  func(m *BackupManifest) { m.Files[0].SHA256 = "ab" },
		"a negative offset": func(m *BackupManifest) { m.Offsets[0].Next = -1 },
	} {
		m := whole()
		change(m)
		data, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeBackupManifest(data); !errors.Is(err, ErrManifest) {
			t.Errorf("%s: Got %v, want ErrManifest", name, err)
		}
	}
	var fields map[string]any
	data, err := whole().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeBackupManifest(data); err != nil {
		t.Errorf("a whole one: %v", err)
	}
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	fields["more"] = 1
	if data, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeBackupManifest(data); !errors.Is(err, ErrManifest) {
		t.Errorf("an unknown field: Got %v, want ErrManifest", err)
	}
}
