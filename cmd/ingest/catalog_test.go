package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/serve/api"
	"sluice/store"
	"sluice/store/memstore"
)

// TestIcebergCatalog: the daemon's catalog has the tables of jobs and joins with iceberg, once
// they have a snapshot.
func TestIcebergCatalog(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	d := &daemon{cfg: cfg, log: slog.New(slog.DiscardHandler)}
	if c := d.icebergCatalog(); c != nil {
		t.Errorf("Got %v without a table", c)
	}
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	spec := jobs.Spec{Table: "t", Out: out, Columns: []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}}, Iceberg: true}
	plain := spec
	plain.Iceberg = false
	elsewhere := spec
	elsewhere.Out = filepath.Join(dir, "none")
	cfg.Jobs = map[string]jobs.Spec{"views": spec, "plain": plain, "elsewhere": elsewhere}
	cfg.Joins = map[string]jobs.JoinSpec{"both": {Out: out, Iceberg: true}, "files": {Out: out}}
	c := d.icebergCatalog()
	if tables, err := c.Tables(t.Context()); err != nil || len(tables) > 0 {
		t.Errorf("Got %v, %v before a run", tables, err)
	}

	engine, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	desc := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	if err := engine.CreateTable(t.Context(), desc, nil); err != nil {
		t.Fatal(err)
	}
	m := &cell.Mutation{Table: "t", Row: []byte("a")}
	m.Put("f", []byte("q"), 1, nil)
	if _, err := engine.MutateRow(t.Context(), nil, m); err != nil {
		t.Fatal(err)
	}
	snapshot, err := engine.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	for _, name := range []string{"views", "plain"} {
		of := cfg.Jobs[name]
		job, err := jobs.Compile(name, &of, desc)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := jobs.Run(t.Context(), &jobs.RunOptions{Job: job, Source: snapshot, Out: out}); err != nil {
			t.Fatal(err)
		}
	}
	tables, err := c.Tables(t.Context())
	if d := cmp.Diff([]string{"views"}, tables); d != "" || err != nil {
		t.Errorf("%s, %v", d, err)
	}
	location, data, err := c.Load(t.Context(), "views")
	var metadata struct {
		Location string `json:"location"`
	}
	if err := errors.Join(err, json.Unmarshal(data, &metadata)); err != nil || location != metadata.Location+"/metadata/v1.metadata.json" {
		t.Errorf("Got %s of a table at %q, %v", location, metadata.Location, err)
	}
	for table, want := range map[string]string{"plain": "no job or join of this name has iceberg", "both": "no snapshot yet", "elsewhere": "no snapshot yet", "../views": "no job"} {
		if _, _, err := c.Load(t.Context(), table); !errors.Is(err, api.ErrNotFound) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Got %v, want %q", table, err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Tables(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Got %v", err)
	}
}
