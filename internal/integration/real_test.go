//go:build integration

package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"sluice/jobs"
	"sluice/pipeline/kafka"
	"sluice/store/pebblestore"
)

func TestMain(m *testing.M) {
	code := m.Run()
	RemoveBinaries()
	os.Exit(code)
}

// I2, I3: the same as TestKilledTenTimes of cmd/ingest, against a real Kafka. The
// broker must allow session timeouts of 1 s.
func TestKilledTenTimesRealKafka(t *testing.T) {
	brokers := os.Getenv("SLUICE_REAL_KAFKA")
	if brokers == "" {
		t.Skip("SLUICE_REAL_KAFKA names no broker")
	}
	c, err := kafka.NewClient(&kafka.Options{Brokers: []string{brokers}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for topic, partitions := range map[string]int{"access-log": 3, "access-log.dead": 1} {
		if err := c.CreateTopic(t.Context(), topic, partitions); err != nil {
			t.Fatal(err)
		}
	}
	kills := 10
	if n, err := strconv.Atoi(os.Getenv("SLUICE_KILLS")); err == nil {
		kills = n
	}
	log := SharedLog(t)
	data := filepath.Join(t.TempDir(), "data")
	KillRun(t, &KillOptions{
		Config: FastConfig(t, "500ms"), Brokers: brokers, Data: data, Topic: "access-log", Log: log,
		Kills: kills, Seed: uint64(time.Now().UnixNano()), MaxDelay: 2 * time.Second,
	})
	db, err := pebblestore.Open(data, &pebblestore.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := log.Check(t.Context(), db); err != nil {
		t.Error(err)
	}
}

// reading is what readers.py prints of one reader.
type reading struct {
	Rows    int64 `json:"rows"`
	Columns []struct {
		Name   string `json:"name"`
		Type   string `json:"type"`
		Nulls  int64  `json:"nulls"`
		SHA256 string `json:"sha256"`
	} `json:"columns"`
}

// I6: the files of the demo on an access log are read equally by parquet-go and
// arrow (export verify), pyarrow and DuckDB.
func TestReadersInOtherLanguages(t *testing.T) {
	python := os.Getenv("SLUICE_PYTHON")
	if python == "" {
		t.Skip("SLUICE_PYTHON names no Python with the packages of requirements.txt")
	}
	log := SharedLog(t)
	dir := t.TempDir()
	input := filepath.Join(dir, "access.log")
	var text []byte
	for _, l := range log.Lines {
		text = append(append(text, l...), '\n')
	}
	if err := os.WriteFile(input, text, 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	if _, err := Run(t, os.Environ(), nil, "ingest", "demo", "--input", input, "--format", "combined", "--data", filepath.Join(dir, "data"), "--out", out); err != nil {
		t.Fatal(err)
	}
	for job, rows := range map[string]int64{"access_log": int64(len(log.Lines) - log.Bad), "path_counts": -1} {
		report, err := jobs.Verify(t.Context(), filepath.Join(out, job))
		if err != nil {
			t.Fatal(err)
		}
		if err := report.Err(); err != nil {
			t.Fatal(err)
		}
		script := filepath.Join(ModuleRoot(t), "internal", "integration", "readers.py")
		cmd := exec.Command(python, script, filepath.Join(out, filepath.Base(filepath.Dir(report.Dir)), filepath.Base(report.Dir), "_manifest.json"))
		b, err := cmd.Output()
		if err != nil {
			t.Fatalf("readers.py: %v\n%s", err, b)
		}
		var readings map[string]reading
		if err := json.Unmarshal(b, &readings); err != nil {
			t.Fatalf("readers.py: %v\n%s", err, b)
		}
		delete(readings, "versions")
		if len(readings) != 3 {
			t.Errorf("%s: %d readers, want pyarrow twice and DuckDB:\n%s", job, len(readings), b)
		}
		for name, r := range readings {
			if rows >= 0 && r.Rows != rows {
				t.Errorf("%s: %s reads %d rows, want %d", job, name, r.Rows, rows)
			}
			var sums []string
			for i, c := range r.Columns {
				sums = append(sums, c.SHA256)
				if want := report.Manifest.Columns[i].Name; c.Name != want {
					t.Errorf("%s: %s calls column %d %s, want %s", job, name, i, c.Name, want)
				}
				if c.Name == "bytes" && c.Nulls == 0 {
					t.Errorf("%s: %s reads no null bytes", job, name)
				}
			}
			for format, want := range report.Checksums {
				if !slices.Equal(sums, want) {
					t.Errorf("%s: %s reads other values than we do from %s:\n got %q\nwant %q", job, name, format, sums, want)
				}
			}
		}
	}
}
