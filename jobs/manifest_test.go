package jobs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/jobs/columnar"
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
	if d := cmp.Diff(string(data), string(again)); d != "" {
		t.Error(d)
	}
}

func TestDecodeManifestErrors(t *testing.T) {
	t.Parallel()
	golden := string(goldenManifest(t))
	for name, tt := range map[string]struct{ old, new, want string }{
		"later version":  {`"format_version": 1`, `"format_version": 2`, "format version 2; this program reads version 1"},
		"unknown field":  {`"job"`, `"jobs"`, `unknown field "jobs"`},
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
	if d := cmp.Diff(&good, got); d != "" {
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
		if d := cmp.Diff(m, m2); d != "" {
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
		if d := cmp.Diff(l, l2); d != "" {
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
