package jobs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/store"
)

// TestCollectBackups keeps what retention keeps, the latest, what is later, what cannot
// be read and what is no backup, and removes what a killed backup has left.
func TestCollectBackups(t *testing.T) {
	t.Parallel()
	_, cp := backupStore(t)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		keep Keep
		want []int // of five backups, a day apart, the last of now
	}{
		{"all", Keep{}, []int{0, 1, 2, 3, 4}},
		{"runs", Keep{Runs: 2}, []int{3, 4}},
		{"age", Keep{Age: 60 * time.Hour}, []int{2, 3, 4}},
		{"both", Keep{Runs: 4, Age: 60 * time.Hour}, []int{1, 2, 3, 4}},
		{"the latest stays", Keep{Age: time.Nanosecond}, []int{4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "backups")
			to := mustLocal(t, dir)
			now := start
			var names []string
			for range 5 {
				now = now.Add(24 * time.Hour)
				m, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: to, Now: func() time.Time { return now }})
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, m.Dir())
			}
			for _, other := range []string{"backup=unreadable", "else"} {
				if err := os.MkdirAll(filepath.Join(dir, other), 0o777); err != nil {
					t.Fatal(err)
				}
			}
			work, err := to.Begin(t.Context(), "backup=cut", "cut") // it stays
			if err != nil {
				t.Fatal(err)
			}
			defer func() { // until then it is used, so that its files, and with them its lock, stay open
				if err := work.Abort(); err != nil {
					t.Error(err)
				}
			}()
			now = now.Add(time.Hour)
			found, err := CollectBackups(t.Context(), &CollectBackupsOptions{Target: to, Keep: c.keep, Now: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			removed, stay := 0, 0
			for _, g := range found {
				if g.Stays {
					stay++
				} else {
					removed++
				}
			}
			if removed != 5-len(c.want) || stay != 2 {
				t.Errorf("Got %+v", found)
			}
			want := []string{LatestName, "_tmp", "backup=unreadable", "else"}
			for _, i := range c.want {
				want = append(want, names[i])
			}
			slices.Sort(want)
			var got []string
			entries, err := os.ReadDir(dir)
			for _, e := range entries {
				got = append(got, e.Name())
			}
			if d := cmp.Diff(want, got); d != "" || err != nil {
				t.Errorf("%v (-want +got)\n%s", err, d)
			}
			if r, err := VerifyBackupTarget(t.Context(), to); err != nil || !r.OK() {
				t.Errorf("the latest: %v, %v", err, r)
			}
		})
	}
}

func TestCollectBackupsRefuses(t *testing.T) {
	t.Parallel()
	plain := plainTarget{mustLocal(t, t.TempDir())}
	if _, err := CollectBackups(t.Context(), &CollectBackupsOptions{Target: plain, Keep: Keep{Runs: 1}}); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("Got %v of a target that is no Collector, want ErrUnsupported", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := CollectBackups(ctx, &CollectBackupsOptions{Target: mustLocal(t, t.TempDir())}); !errors.Is(err, context.Canceled) {
		t.Errorf("Got %v, want it cancelled", err)
	}
}
