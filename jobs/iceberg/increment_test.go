package iceberg

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs/columnar"
	"sluice/jobs/parquetfile"
	"sluice/jobs/target"
)

// testIncrement is an increment that goes on from the run before, in whose every second file
// the rows 0, 2 and 65 are gone.
func testIncrement(n, files int) *Run {
	r := testRun(n, files)
	r.Base, r.BaseSequence, r.Identity = fmt.Sprintf("id%d", n-1), uint64(100*(n-1)), "page"
	for i := range r.Files {
		if i%2 == 1 {
			r.Files[i].Gone = []uint64{5, 2}
		}
	}
	return r
}

// shown is what a table shows, by the rules of Iceberg's Scan Planning: each data file with the
// files that say which of its rows are none, equality deletes and positions.
func (l *lake) shown(s *snapshot) (files []string) {
	l.t.Helper()
	type file struct {
		name                string
		content, sequence   int64
		of                  string // the data file, of positions
		undivided, identity bool
	}
	var all []file
	_, list := avroRead(l.t, l.file(s.ManifestList))
	for _, m := range list {
		_, entries := avroRead(l.t, l.file(m["manifest_path"].(string)))
		for _, e := range entries {
			if e["status"] != int64(statusAdded) {
				continue
			}
			d := e["data_file"].(map[string]any)
			f := file{name: path.Base(path.Dir(d["file_path"].(string))) + "/" + path.Base(d["file_path"].(string)), content: d["content"].(int64), sequence: m["sequence_number"].(int64)}
			f.undivided = len(d["partition"].(map[string]any)) == 0
			if ids, ok := d["equality_ids"].([]any); ok {
				f.identity = len(ids) == 1 && ids[0] == int64(columnar.FieldID("page", columnar.String))
			}
			if f.content == contentPositions {
				rd, err := parquetfile.NewForeignReader(bytes.NewReader(l.file(d["file_path"].(string))), d["file_size_in_bytes"].(int64), []string{"file_path", "pos"})
				if err != nil {
					l.t.Fatal(err)
				}
				b, err := rd.Next()
				if err != nil || b.Rows() != int(d["record_count"].(int64)) {
					l.t.Fatalf("Got %v for %v", err, d)
				}
				of := string(b.Vector(0).Bytes(0))
				f.of = path.Base(path.Dir(of)) + "/" + path.Base(of)
				f.name = ""
				for i, row := range b.Vector(1).Int64s() {
					f.name += fmt.Sprintf(" -%d", row)
					if file := string(b.Vector(0).Bytes(i)); file != of || string(d["lower_bounds"].([]any)[0].(map[string]any)["value"].([]byte)) != file {
						l.t.Errorf("Got %s in a file with bounds %v", file, d["lower_bounds"])
					}
				}
			}
			all = append(all, f)
		}
	}
	for _, d := range all {
		if d.content != contentData {
			continue
		}
		text := d.name
		for _, f := range all {
			switch {
			case f.content == contentEquality && f.sequence > d.sequence:
				if !f.undivided || !f.identity {
					l.t.Errorf("Got %+v", f)
				}
				text += " but " + f.name
			case f.content == contentPositions && f.sequence >= d.sequence && f.of == d.name:
				text += f.name
			}
		}
		files = append(files, text)
	}
	slices.Sort(files)
	return files
}

// TestIncrements: an increment is a snapshot that keeps the files before, without the rows that
// it has, or has not any more; a whole run replaces all of them.
func TestIncrements(t *testing.T) {
	for name, open := range map[string]func(*testing.T) target.Target{"local": openLocal, "s3": openS3} {
		t.Run(name, func(t *testing.T) {
			l := newLake(t, open(t))
			l.publish(testRun(1, 1))
			l.publish(testIncrement(2, 2))
			m := l.read()
			if d := cmp.Diff([]string{
				"run=1/part-0.parquet but run=2/part-0.parquet but run=2/part-1.parquet", "run=2/part-0.parquet", "run=2/part-1.parquet -0 -2 -65",
			}, l.shown(m.current())); d != "" {
				t.Error(d)
			}
			says := map[string]string{}
			for k, v := range m.current().Summary {
				if strings.Contains(k, "deletes") || strings.Contains(k, "files") && k != totalBytes && k != "added-files-size" || strings.Contains(k, "records") || k == "operation" || k == summaryWhole {
					says[k] = v
				}
			}
			if d := cmp.Diff(map[string]string{
				"operation": "overwrite", "added-data-files": "2", "added-records": "30", "total-data-files": "3", "total-records": "40",
				"added-delete-files": "3", "added-equality-delete-files": "2", "added-position-delete-files": "1", "added-equality-deletes": "30", "added-position-deletes": "3",
				"total-delete-files": "3", "total-equality-deletes": "30", "total-position-deletes": "3", summaryWhole: "1",
			}, says); d != "" {
				t.Error(d)
			}
			if got := m.current(); got.Parent != m.Snapshots[0].ID {
				t.Errorf("Got %+v", got)
			}

			l.publish(testIncrement(3, 0)) // nothing has changed
			l.publish(testIncrement(4, 1))
			m = l.read()
			if d := cmp.Diff([]string{
				"run=1/part-0.parquet but run=2/part-0.parquet but run=2/part-1.parquet but run=4/part-0.parquet",
				"run=2/part-0.parquet but run=4/part-0.parquet", "run=2/part-1.parquet but run=4/part-0.parquet -0 -2 -65", "run=4/part-0.parquet",
			}, sortedWords(l.shown(m.current()))); d != "" {
				t.Error(d)
			}

			// What snapshots before were needed for stays with those that go on from them.
			if err := l.table.Expire(t.Context(), []string{"id1", "id2", "id3"}); err != nil {
				t.Fatal(err)
			}
			l.publish(testIncrement(5, 1))
			m = l.read()
			if d := cmp.Diff([]string{"id4", "id5"}, runsOf(m)); d != "" {
				t.Error(d)
			}

			l.publish(testRun(6, 1))
			m = l.read()
			if d := cmp.Diff([]string{"run=6/part-0.parquet"}, l.shown(m.current())); d != "" {
				t.Error(d)
			}
			var replaced []string
			for _, e := range l.entriesOf(m.current()) {
				if e["status"] == int64(statusDeleted) {
					replaced = append(replaced, fmt.Sprint(path.Base(path.Dir(e["data_file"].(map[string]any)["file_path"].(string))), " ", e["sequence_number"]))
				}
			}
			if d := cmp.Diff([]string{"run=1 1", "run=2 2", "run=2 2", "run=4 4", "run=5 5"}, replaced); d != "" {
				t.Errorf("replaced: %s", d)
			}
			if got := m.current().Summary; got["deleted-data-files"] != "5" || got["deleted-records"] != "60" || got["total-delete-files"] != "0" {
				t.Errorf("Got %v", got)
			}
			if err := l.table.Expire(t.Context(), []string{"id4", "id5"}); err != nil {
				t.Fatal(err)
			}
			for _, name := range l.metadataFiles() {
				if _, sequence, ok := stemOf(name); ok && sequence < 6 {
					t.Errorf("%s is left", name)
				}
			}
			l.read()
		})
	}
}

// sortedWords sorts what is behind each text's first word, but for positions, which come last.
func sortedWords(texts []string) []string {
	for i, text := range texts {
		positions := ""
		if at := strings.Index(text, " -"); at >= 0 {
			end := len(text)
			if next := strings.Index(text[at:], " but"); next >= 0 {
				end = at + next
			}
			positions = text[at:end]
			text = text[:at] + text[end:]
		}
		parts := strings.Split(text, " but ")
		slices.Sort(parts[1:])
		texts[i] = strings.Join(parts, " but ") + positions
	}
	slices.Sort(texts)
	return texts
}

// TestIncrementsDivided: the rows of an increment are none of any partition before, and where
// rows are gone is said in the partition of their file.
func TestIncrementsDivided(t *testing.T) {
	l := newLake(t, openLocal(t))
	l.publish(partitioned(testRun(1, 2), "day"))
	l.publish(partitioned(testIncrement(2, 2), "day"))
	m := l.read()
	if d := cmp.Diff([]string{
		"run=1/part-0.parquet but run=2/part-0.parquet but run=2/part-1.parquet", "run=1/part-1.parquet but run=2/part-0.parquet but run=2/part-1.parquet",
		"run=2/part-0.parquet", "run=2/part-1.parquet -0 -2 -65",
	}, sortedWords(l.shown(m.current()))); d != "" {
		t.Error(d)
	}
	specs := strings.Fields(m.current().Summary[summarySpecs])
	if len(specs) != 2 || len(m.Specs) != 2 || len(m.Specs[m.DefaultSpecID].Fields) != 1 {
		t.Errorf("Got %v of %+v", specs, m.Specs)
	}
	for _, e := range l.entriesOf(m.current()) {
		if d := e["data_file"].(map[string]any); d["content"] == int64(contentPositions) {
			if diff := cmp.Diff(map[string]any{"day": nil}, d["partition"]); diff != "" {
				t.Error(diff)
			}
		}
	}
	// Without the snapshot nothing is divided, and the specs go.
	l.publish(testRun(3, 1))
	if m = l.read(); len(m.Specs) != 1 || len(m.Snapshots) != 1 {
		t.Errorf("Got %+v, %d snapshots", m.Specs, len(m.Snapshots))
	}
}

// TestIncrementOfAnother: an increment that goes on from another run than the table is becomes
// no snapshot, and nothing is left of it.
func TestIncrementOfAnother(t *testing.T) {
	l := newLake(t, openLocal(t))
	if err := l.table.Publish(t.Context(), testIncrement(2, 2), l.previous); !errors.Is(err, ErrBase) || !strings.Contains(err.Error(), "id1") {
		t.Errorf("Got %v", err)
	}
	l.publish(testRun(3, 1))
	before := l.metadataFiles()
	if err := l.table.Publish(t.Context(), testIncrement(5, 2), l.previous); !errors.Is(err, ErrBase) || !strings.Contains(err.Error(), "id4") {
		t.Errorf("Got %v", err)
	}
	if err := l.table.Publish(t.Context(), testIncrement(2, 2), l.previous); err != nil { // for an earlier time
		t.Error(err)
	}
	if d := cmp.Diff(before, l.metadataFiles()); d != "" {
		t.Error(d)
	}
}

// FuzzDecodeList: whatever a file holds, it is refused, or read as what encodes to the same.
func FuzzDecodeList(f *testing.F) {
	s := &snapshot{ID: 7, Sequence: 9}
	list := []manifestFile{
		{name: "1-X-m0.avro", bytes: 100, spec: 0, sequence: 1, minSequence: 1, snapshot: 3, added: totals{files: 1, rows: 10}},
		{name: "9-Y-m1.avro", bytes: 1 << 40, spec: 1, deletes: true, sequence: 9, minSequence: 9, snapshot: 7, added: totals{files: 2, rows: 1 << 50}, deleted: totals{files: 3, rows: 4}},
	}
	data, err := encodeList(s, "file:///x/metadata", list)
	if err != nil {
		f.Fatal(err)
	}
	if got, err := decodeList(data, "file:///x/metadata"); err != nil || !slices.Equal(got, list) {
		f.Fatalf("Got %+v, %v", got, err)
	}
	if _, err := decodeList(data, "file:///y/metadata"); !errors.Is(err, ErrForeign) {
		f.Fatalf("Got %v", err)
	}
	f.Add(data)
	f.Add(data[:len(data)-1])
	f.Add([]byte("Obj\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := decodeList(data, "file:///x/metadata")
		if err != nil {
			if !errors.Is(err, ErrForeign) {
				t.Errorf("Got %v", err)
			}
			return
		}
		again, err := encodeList(s, "file:///x/metadata", list)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeList(again, "file:///x/metadata"); err != nil || !slices.Equal(got, list) {
			t.Errorf("Got %+v, %v, want %+v", got, err, list)
		}
	})
}
