package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs/instant"
	"sluice/jobs/tables"
	"sluice/jobs/work"
	"sluice/store"
	"sluice/store/memstore"
)

// TestCopyTable copies into the same store and into another, with a daemon and
// without.
func TestCopyTable(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a", "b", "d")
	other := filepath.Join(t.TempDir(), "other")
	for _, with := range []string{"", "daemon"} {
		if with != "" {
			daemon(t, file)
		}
		for _, to := range [][]string{{"views", "copy" + with}, {"--in", other + with, "views"}} {
			args := append([]string{"copy-table", "-c", file, "--verify", "--json"}, to...)
			stdout, stderr, status := export(t, args...)
			var done copied
			d := json.NewDecoder(strings.NewReader(stdout))
			if err := d.Decode(&done); err != nil || status != 0 || done.Rows != 3 || done.Cells != 3 {
				t.Fatalf("%v: Got status %d, %v, %s%s", args, status, err, stdout, stderr)
			}
			var r compared
			if err := d.Decode(&r); err != nil || !r.Equal || r.Same != 3 || len(r.Ranges) != 2 {
				t.Errorf("%v: Got %+v, %v", args, r, err)
			}
			if _, stderr, status := export(t, args...); status != cli.StatusFailed || !strings.Contains(stderr, "it has rows, such as a") {
				t.Errorf("%v again: Got status %d, %s", args, status, stderr)
			}
		}
		stdout, stderr, status := export(t, "count", "-c", file, "copy"+with)
		if status != 0 || !strings.Contains(stdout, "2 regions") || !strings.Contains(stdout, "3 rows") {
			t.Errorf("count: Got status %d, %s%s", status, stdout, stderr)
		}
	}
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"views"}, cli.StatusUsage, "--in"},
		{[]string{"--resume", "--restart", "views", "x"}, cli.StatusUsage, "exclude each other"},
		{[]string{"--resume", "views", "x"}, cli.StatusFailed, "no copy into x was cut off"},
		{[]string{"--resume", "views", "copy"}, 0, ""},
		{[]string{"--resume", "--verify", "views", "copy"}, cli.StatusFailed, "already complete"},
		{[]string{"--resume", "other", "copy"}, cli.StatusFailed, "no copy into copy was cut off"},
		{[]string{"none", "x"}, cli.StatusFailed, "no such table"},
		{[]string{"--family", "g", "views", "x"}, cli.StatusFailed, "no such column family"},
	} {
		if _, stderr, status := export(t, append([]string{"copy-table", "-c", file}, test.args...)...); status != test.status || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: Got status %d and %s, want %d and %q", test.args, status, stderr, test.status, test.want)
		}
	}
}

// TestCopyTableResumes goes on with a copy that was cut off, at its instant; without
// that instant the copy is begun anew.
func TestCopyTableResumes(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		file, _ := setup(t, "a", "b", "c", "d")
		c, err := config.Load(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		cutOffCopy(t, c)
		withEngine(t, c, func(e config.Engine) {
			m := cell.Mutation{Table: "views", Row: []byte("e")}
			m.Put("e", []byte("n"), 1, []byte("9"))
			if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
				t.Fatal(err)
			}
			if gone {
				if err := e.DisableTable(t.Context(), "copy"); err != nil {
					t.Fatal(err)
				}
				if err := e.TruncateTable(t.Context(), "copy", true); err != nil {
					t.Fatal(err)
				}
			}
		})
		want, how, told := "4 rows", "--resume", "were left to copy"
		if gone {
			if err := os.RemoveAll(filepath.Join(c.Store.Dir, "checkpoints")); err != nil {
				t.Fatal(err)
			}
			if _, stderr, status := export(t, "copy-table", "-c", file, "--resume", "views", "copy"); status != cli.StatusFailed || !strings.Contains(stderr, "--restart") {
				t.Errorf("Got status %d, %s", status, stderr)
			}
			want, how, told = "5 rows", "--restart", "5 rows, 5 cells"
		}
		if _, stderr, status := export(t, "copy-table", "-c", file, "views", "copy"); status != cli.StatusFailed || !strings.Contains(stderr, "has not ended: go on with it (--resume), or give it up and begin anew (--restart), for which the table must be empty again") {
			t.Errorf("begun anew beside one that was cut off: Got status %d, %s", status, stderr)
		}
		if stdout, stderr, status := export(t, "copy-table", "-c", file, "--verify", how, "views", "copy"); status != 0 || !strings.Contains(stdout, "is in copy") || !strings.Contains(stdout, told) {
			t.Errorf("%s: Got status %d, %s%s", how, status, stdout, stderr)
		}
		if stdout, stderr, status := export(t, "copy-table", "-c", file, "--resume", "views", "copy"); status != 0 || !strings.Contains(stdout, "already complete, nothing was copied") {
			t.Errorf("%s, and again: Got status %d, %s%s", how, status, stdout, stderr)
		}
		if stdout, stderr, status := export(t, "count", "-c", file, "copy"); status != 0 || !strings.Contains(stdout, "all        "+want) {
			t.Errorf("%s: Got status %d, %s%s", how, status, stdout, stderr)
		}
		dropTable(t, c, "copy")
		if _, stderr, status := export(t, "copy-table", "-c", file, "--resume", "views", "copy"); status != cli.StatusFailed || !strings.Contains(stderr, "no such table: copy") {
			t.Errorf("%s, and the table is gone: Got status %d, %s", how, status, stderr)
		}
		if entries, _ := os.ReadDir(filepath.Join(c.Store.Dir, "checkpoints")); len(entries) != 0 {
			t.Errorf("%s: the checkpoint is still there: %v", how, entries)
		}
	}
}

func dropTable(t *testing.T, c *config.Config, name string) {
	t.Helper()
	e, _, err := config.OpenStore(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := errors.Join(e.DisableTable(t.Context(), name), e.DropTable(t.Context(), name)); err != nil {
		t.Fatal(err)
	}
}

// cutOffCopy begins a copy of views into copy and leaves it after its first region.
func cutOffCopy(t *testing.T, c *config.Config) {
	t.Helper()
	source, err := config.OpenLastingInstant(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	command := copyTableCommand{Table: "views", Into: "copy"}
	if err := command.create(t.Context(), &cli.Program{Stderr: io.Discard}, source, source.Engine); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = tables.Copy(ctx, &tables.CopyOptions{
		Source: source, Table: "views", To: source.Engine, Into: "copy", Checkpoint: source.Checkpoint, Parallelism: 1,
		Progress: func(p work.Progress) {
			if p.RegionsDone == 1 {
				cancel()
			}
		},
	})
	if err == nil {
		t.Fatal("the copy was not cut off")
	}
	err = command.cutOff(ctx, source, source.Engine, err)
	if got := cli.Explain("export", err); got != "export: interrupted: what is copied stays: go on with export copy-table --resume" || cli.Status(err) != cli.StatusInterrupted {
		t.Errorf("Got %q, status %d, of a copy that was cancelled", got, cli.Status(err))
	}
	sc := source.Engine.Scan(t.Context(), &store.Scan{Table: "copy"})
	n := 0
	for sc.Next() {
		n++
	}
	if sc.Err() != nil || sc.Close() != nil || n == 0 || n == 4 {
		t.Errorf("%d rows were copied before the copy was cut off (%v)", n, sc.Err())
	}
	if err := source.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCopyTableIntoMoreFamilies: what is verified is what was copied, also where the table that
// it was copied into has families beside.
func TestCopyTableIntoMoreFamilies(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a", "b")
	tablesLike(t, file, map[string]func(d *store.TableDescriptor){
		"wide": func(d *store.TableDescriptor) { d.Families = append(d.Families, store.NewFamily("own")) },
	})
	stdout, stderr, status := export(t, "copy-table", "-c", file, "-q", "--verify", "views", "wide")
	if status != 0 || !strings.Contains(stdout, "2 rows are the same") {
		t.Errorf("Got status %d, %s%s", status, stdout, stderr)
	}
}

// TestCopyTableIntoLess: a table that is there, and keeps less, is said to.
func TestCopyTableIntoLess(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a", "b")
	tablesLike(t, file, map[string]func(d *store.TableDescriptor){
		"many":  func(d *store.TableDescriptor) { d.Family("e").Versions = 3 },
		"few":   func(d *store.TableDescriptor) { d.Family("e").Versions = 2 },
		"short": func(d *store.TableDescriptor) { d.Family("e").Versions, d.Family("e").TTL = 3, 1e9 },
	})
	if _, stderr, status := export(t, "copy-table", "-c", file, "-q", "views", "many"); status != 0 || stderr != "" {
		t.Errorf("into more: Got status %d, %s", status, stderr)
	}
	for into, want := range map[string]string{
		"few":   "export: few keeps less than many: of family e 2 of 3 VERSIONS\n",
		"short": "export: short keeps less than many: of family e cells for 1000000000 s (TTL)\n",
	} {
		if _, stderr, status := export(t, "copy-table", "-c", file, "-q", "many", into); status != 0 || stderr != want {
			t.Errorf("%s: Got status %d, %s, want %s", into, status, stderr, want)
		}
	}
}

// TestCopyOfFamilyIntoLess: of families that are not copied nothing is said.
func TestCopyOfFamilyIntoLess(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a", "b")
	own := store.NewFamily("own")
	own.Versions = 3
	tablesLike(t, file, map[string]func(d *store.TableDescriptor){
		"more": func(d *store.TableDescriptor) { d.Families = append(d.Families, own) },
		"less": func(d *store.TableDescriptor) { d.Families = append(d.Families, store.NewFamily("own")) },
	})
	if _, stderr, status := export(t, "copy-table", "-c", file, "-q", "--family", "e", "more", "less"); status != 0 || stderr != "" {
		t.Errorf("Got status %d, %s", status, stderr)
	}
}

// tablesLike makes tables beside that of setup, each like it but for what is changed.
func tablesLike(t *testing.T, file string, change map[string]func(d *store.TableDescriptor)) {
	t.Helper()
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	withEngine(t, c, func(e config.Engine) {
		views, err := e.Table(t.Context(), "views")
		if err != nil {
			t.Fatal(err)
		}
		for name, change := range change {
			d := views.Clone()
			d.Name = name
			change(d)
			if err := e.CreateTable(t.Context(), d, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestCountedTogether: only of an engine that freezes nothing, which is HBase, are there cells
// of counts that cannot be compared one by one.
func TestCountedTogether(t *testing.T) {
	t.Parallel()
	e, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	frozen, err := e.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = frozen.Close() })
	unfrozen, err := instant.OpenUnfrozen(t.Context(), e, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("e"), store.NewFamily("n"), store.NewFamily("u")}}
	d.Families[1].Counter, d.Families[2].Distinct = true, true
	for _, test := range []struct {
		name     string
		in       instant.Source
		families []string
		want     []string
	}{
		{"all of a snapshot", frozen, []string{"e", "n", "u"}, nil},
		{"all of HBase", unfrozen, []string{"e", "n", "u"}, []string{"n", "u"}},
		{"those of HBase that are no counts", unfrozen, []string{"e"}, nil},
	} {
		if d := cmp.Diff(test.want, countedTogether(test.in, d, test.families)); d != "" {
			t.Errorf("%s: %s", test.name, d)
		}
	}
}

// TestCopyTableLeavesRebuilds: what an unfinished rebuild has counted so far is neither in
// the copy nor one of its families, but where it is asked for.
func TestCopyTableLeavesRebuilds(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a")
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	const rebuilt = "e~p~1"
	withEngine(t, c, func(e config.Engine) {
		d, err := e.Table(t.Context(), "views")
		if err != nil {
			t.Fatal(err)
		}
		d = d.Clone()
		d.Families = append(d.Families, store.NewFamily(rebuilt))
		if err := e.AlterTable(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		m := cell.Mutation{Table: "views", Row: []byte("b")}
		m.Put(rebuilt, []byte("n"), 1, []byte("7"))
		if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
			t.Fatal(err)
		}
	})
	for _, test := range []struct {
		into string
		args []string
		rows int64
		has  bool
	}{
		{"all", nil, 1, false},
		{"one", []string{"--family", "e"}, 1, false},
		{"asked", []string{"--family", rebuilt}, 1, true},
	} {
		stdout, stderr, status := export(t, append([]string{"copy-table", "-c", file, "--verify", "--json", "views", test.into}, test.args...)...)
		var done copied
		if err := json.NewDecoder(strings.NewReader(stdout)).Decode(&done); err != nil || status != 0 || done.Rows != test.rows {
			t.Errorf("%s: got status %d, %v, %s%s", test.into, status, err, stdout, stderr)
		}
		withEngine(t, c, func(e config.Engine) {
			if d, err := e.Table(t.Context(), test.into); err != nil || (d.Family(rebuilt) != nil) != test.has {
				t.Errorf("%s: got %+v, %v", test.into, d, err)
			}
		})
	}
}
