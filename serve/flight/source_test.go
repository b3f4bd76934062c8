package flight

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"sluice/jobs"
	"sluice/jobs/arrowfile"
	"sluice/jobs/columnar/columnartest"
	"sluice/store"
)

func noJob(context.Context, string, TableReader) (*jobs.Job, error) { panic("not asked for") }

func noTable(context.Context, string) (*store.TableDescriptor, error) { panic("not asked for") }

func noSource(context.Context) (Source, error) { panic("not asked for") }

// readRun returns the rows of the Arrow files of a run as texts.
func readRun(t *testing.T, out string, m *jobs.Manifest) (rows [][]string) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(out, m.Job, "run=*"))
	if err != nil || len(dirs) != 1 {
		t.Fatal(dirs, err)
	}
	for i := range m.Files {
		func() {
			file, err := os.Open(filepath.Join(dirs[0], m.Files[i].Path))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			r, err := arrowfile.NewReader(file, m.Files[i].Bytes, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			for {
				b, err := r.Next()
				if err == io.EOF {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				rows = append(rows, columnartest.Texts(b)...)
			}
		}()
	}
	return rows
}
