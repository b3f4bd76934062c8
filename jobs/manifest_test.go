package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/target"
)

func goldenManifest(t testing.TB) []byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", "golden", "types", "run=*", ManifestName))
	if err != nil || len(names) != 1 {
		t.Fatalf("golden manifest: %v, %v", names, err)
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestManifestRoundTrip(t *testing.T) {
	t.Parallel()
	data := goldenManifest(t)
	m, err := DecodeManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if d := jobstest.Diff(string(data), string(again)); d != "" {
		t.Error(d)
	}
}

func TestDecodeManifestErrors(t *testing.T) {
	t.Parallel()
	golden := string(goldenManifest(t))
	for name, tt := range map[string]struct{ old, new, want string }{
		"later version":  {`"format_version": 1`, `"format_version": 2`, "format version 2; this program reads version 1"},
		"unknown field":  {`"job"`, `"jobs"`, `unknown field "jobs": it was written by Sluice "golden"; read it with that version, or a later one`},
		"trailing":       {"\n}\n", "\n}\n{}", "after top-level value"},
		"no json":        {"{", "", "invalid character"},
		"path":           {`"path": "part-000000-0000.parquet"`, `"path": "../part"`, "not a path of a data file"},
		"manifest path":  {`"path": "part-000000-0000.parquet"`, `"path": "_manifest.json"`, "not a path of a data file"},
		"twice":          {`"path": "part-000001-0000.parquet"`, `"path": "part-000000-0000.parquet"`, "is listed twice"},
		"sha":            {`"sha256": "`, `"sha256": "0`, "sha256"},
		"rows":           {`"rows": 202,`, `"rows": 203,`, "its files sum to"},
		"negative":       {`"rows": 202,`, `"rows": -1,`, "-1 rows"},
		"outside region": {`"min_row": "row0200"`, `"min_row": "row0199"`, "are not in its region"},
		"overlap":        {`"region_start": "row0200"`, `"region_start": ""`, ""},
		"reversed":       {`"min_row": "row0200"`, `"min_row": "row0300"`, "is after its last"},
		"bad key":        {`"min_row": "row0200"`, `"min_row": "row\\0200"`, "a backslash begins"},
		"type":           {`"type": "bytes"`, `"type": "blob"`, `of type "blob"`},
		"format":         {`"format": "arrow"`, `"format": "csv"`, `format "csv"`},
		"mode":           {`"rows": "row"`, `"rows": "table"`, `rows "table"`},
		"history":        {`"rows": "row"`, `"rows": "row", "mode": "history"`, `mode "history", 0 versions, rows "row"`},
		"versions":       {`"rows": "row"`, `"rows": "cell", "mode": "versions"`, `mode "versions", 0 versions, rows "cell"`},
		"unknown mode":   {`"rows": "row"`, `"rows": "cell", "mode": "latest"`, `mode "latest"`},
		"topic id":       {`"topic_id": "00`, `"topic_id": "zz`, "topic id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := strings.Replace(golden, tt.old, tt.new, 1)
			if changed == golden {
				t.Fatalf("%q is not in the golden manifest", tt.old)
			}
			_, err := DecodeManifest([]byte(changed))
			if tt.want == "" {
				if err != nil {
					t.Errorf("Got %v, want none", err)
				}
				return
			}
			if err == nil || !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestDecodeLatest(t *testing.T) {
	t.Parallel()
	good := Latest{FormatVersion: 1, RunID: "a", Manifest: "run=1-a/_manifest.json", ManifestSHA256: strings.Repeat("0", 64)}
	for name, change := range map[string]func(l *Latest){
		"version": func(l *Latest) { l.FormatVersion = 0 }, "run": func(l *Latest) { l.RunID = "" },
		"path": func(l *Latest) { l.Manifest = "../x" }, "sha": func(l *Latest) { l.ManifestSHA256 = "0" },
	} {
		l := good
		change(&l)
		data, err := l.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeLatest(data); !errors.Is(err, ErrManifest) {
			t.Errorf("%s: got %v, want ErrManifest", name, err)
		}
	}
	data, err := good.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeLatest(data)
	if err != nil {
		t.Fatal(err)
	}
	if d := jobstest.Diff(&good, got); d != "" {
		t.Error(d)
	}
}

// FuzzDecodeManifest: whatever is accepted is written and read back as the same.
func FuzzDecodeManifest(f *testing.F) {
	golden := goldenManifest(f)
	f.Add(golden)
	f.Add([]byte(`{"format_version":1,"job":"j","run_id":"r","table":"t","rows":"row","columns":[{"name":"a","type":"bytes"}]}`))
	f.Add(bytes.ReplaceAll(golden, []byte("row"), []byte(`\\x00`)))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := DecodeManifest(data)
		if err != nil {
			if !errors.Is(err, ErrManifest) {
				t.Fatalf("Got %v, want ErrManifest", err)
			}
			return
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		m2, err := DecodeManifest(again)
		if err != nil {
			t.Fatalf("what was accepted is refused when it is written: %v", err)
		}
		if d := jobstest.Diff(m, m2); d != "" {
			t.Fatal(d)
		}
	})
}

// FuzzDecodeLatest is FuzzDecodeManifest of _latest.json.
func FuzzDecodeLatest(f *testing.F) {
	f.Add([]byte(`{"format_version":1,"run_id":"a","logical_time":"2026-01-01T00:00:00Z","manifest":"run=1-a/_manifest.json","manifest_sha256":"` + strings.Repeat("0", 64) + `"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := DecodeLatest(data)
		if err != nil {
			if !errors.Is(err, ErrManifest) {
				t.Fatalf("Got %v, want ErrManifest", err)
			}
			return
		}
		again, err := l.Encode()
		if err != nil {
			t.Fatal(err)
		}
		l2, err := DecodeLatest(again)
		if err != nil {
			t.Fatal(err)
		}
		if d := jobstest.Diff(l, l2); d != "" {
			t.Fatal(d)
		}
	})
}

func TestEscapeKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{"": "", "a b~": "a b~", "\x00\xff\\": `\x00\xFF\x5C`, "é": `\xC3\xA9`} {
		if got := columnar.EscapeKey([]byte(key)); got != want {
			t.Errorf("EscapeKey(%q): got %s, want %s", key, got, want)
		}
	}
	for _, bad := range []string{`\`, `\x`, `\x0`, `\xg0`, `\n`, `a\x0`} {
		if got, err := columnar.UnescapeKey(bad); err == nil {
			t.Errorf("UnescapeKey(%q): got %q, want an error", bad, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOf(rapid.Byte()).Draw(t, "key")
		got, err := columnar.UnescapeKey(columnar.EscapeKey(key))
		if err != nil || !bytes.Equal(got, key) {
			t.Fatalf("Got %q, %v for %q", got, err, key)
		}
	})
}

// endedUpload is an upload that only remembers how it ended.
type endedUpload struct {
	target.Resumable
	committed int // bytes of the manifest; 0 = it was not
	aborted   bool
}

func (u *endedUpload) Commit(_ context.Context, _ string, data []byte) error {
	u.committed = len(data)
	return nil
}

func (u *endedUpload) Abort() error {
	u.aborted = true
	return nil
}

// TestManifestSize: a manifest that nobody could read again is not published, and says
// what to do; its run is not kept, as it would end so another time.
func TestManifestSize(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: JSON of more than 64 MiB, with nothing beside it")
	}
	t.Parallel()
	good, _ := joinedRun(t)
	one := good.Files[0]
	good.Files = nil
	u := &endedUpload{}
	for _, more := range []int{10, 1000, maxManifestBytes / 280} {
		for range more {
			f := one
			f.Path = partName(len(good.Files)/perNumber, len(good.Files)%perNumber, f.Format)
			good.Files = append(good.Files, f)
		}
		good.sortFiles()
		x := &execution{publication: publication{upload: u, notes: u}, RunOptions: RunOptions{Source: jobstest.NewMemory()}}
		data, err := x.commit(t.Context(), x.Source, ManifestName, good, len(good.Files), filesHint, nil)
		if more < maxManifestBytes/280 {
			if _, decoded := DecodeManifest(data); err != nil || decoded != nil || u.committed != len(data) {
				t.Errorf("%d files: Got %v, %v, %d bytes published", len(good.Files), err, decoded, u.committed)
			}
			u.committed = 0
			continue
		}
		want := fmt.Sprintf("the manifest is too large: its %d files make it ", len(good.Files))
		if !errors.Is(err, errManifestSize) || !strings.HasPrefix(err.Error(), want) ||
			!strings.HasSuffix(err.Error(), fmt.Sprintf(" bytes, of which at most %d are read: make files larger (target_file_bytes), or have fewer partitions", maxManifestBytes)) {
			t.Errorf("Got %v", err)
		}
		if u.committed > 0 {
			t.Errorf("Got a manifest of %d bytes published", u.committed)
		}
		if err := x.end(t.Context(), new(run), err); !errors.Is(err, errManifestSize) || errors.Is(err, ErrResumable) || !u.aborted {
			t.Errorf("Got %v, aborted %t", err, u.aborted)
		}
		u.aborted = false
	}
}

// TestManifestSizeEarly: a run ends when it has more files than a manifest can list, not
// when it has written all that it would.
func TestManifestSizeEarly(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: JSON of more than 64 MiB, with nothing beside it")
	}
	t.Parallel()
	m, err := DecodeManifest(goldenManifest(t))
	if err != nil {
		t.Fatal(err)
	}
	r := &execution{RunOptions: RunOptions{Recorder: new(Recorder), Now: func() time.Time { return m.StartedAt }}}
	for err = nil; err == nil; err = r.done(m.Files[0]) {
		if len(r.files) > 300_000 {
			t.Fatal("300,000 files are finished")
		}
	}
	if n := len(r.files); !errors.Is(err, errManifestSize) || !strings.Contains(err.Error(), fmt.Sprintf("its %d files make it", n)) || n < 100_000 {
		t.Errorf("Got %v after %d files", err, n)
	}
	m.Files = r.files
	if data, err := m.Encode(); err != nil || len(data) <= maxManifestBytes {
		t.Errorf("Got a manifest of %d bytes, %v, which could be read", len(data), err)
	}
}

// TestManyFiles: the files of a region, of which there are more than the four digits of
// their names have room for, stay in the order in which they were written, in the manifest
// and for a run that goes on.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	m, err := DecodeManifest(goldenManifest(t))
	if err != nil {
		t.Fatal(err)
	}
	one, notes := m.Files[0], map[string][]byte{}
	notes[noteRun], err = encodeJSON(newRunState(m, "cp", strings.Repeat("0", 64)))
	if err != nil {
		t.Fatal(err)
	}
	m.Files = nil
	one.RegionStart, one.RegionStop = "", ""
	for i := range 10_002 {
		f := one
		f.Path = partName(0, i, f.Format)
		f.MinRow = fmt.Sprintf("%06d", i)
		f.MaxRow = f.MinRow
		m.Files = append(m.Files, f)
		if notes[fileNote(f.Path)], err = encodeJSON(&workNote{FormatVersion: ManifestVersion, File: &f}); err != nil {
			t.Fatal(err)
		}
	}
	want := slices.Clone(m.Files)
	slices.Reverse(m.Files)
	m.sortFiles()
	if d := jobstest.Diff(want[9_998:], m.Files[9_998:]); d != "" {
		t.Error(d)
	}
	if err := m.validate(); err != nil {
		t.Error(err)
	}
	if w, err := decodeWork(notes); err != nil || len(w.all()) != len(want) {
		t.Errorf("Got %v", err)
	}
}
