package jobs_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"sluice/cell"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/store"
	"sluice/store/memstore"
)

// A table of visits is exported as it is in a snapshot: what is written later is
// not in the files.
func ExampleRun() {
	ctx := context.Background()
	s, err := memstore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	schema := &store.TableDescriptor{Name: "visits", Families: []store.FamilyDescriptor{store.NewFamily("v")}}
	if err := s.CreateTable(ctx, schema, [][]byte{[]byte("m")}); err != nil {
		log.Fatal(err)
	}
	visit := func(row, page, status string) {
		m := cell.Mutation{Table: "visits", Row: []byte(row)}
		m.Put("v", []byte("page"), 1700000000000, []byte(page))
		if status != "" {
			m.Put("v", []byte("status"), 1700000000000, []byte(status))
		}
		if _, err := s.MutateRow(ctx, nil, &m); err != nil {
			log.Fatal(err)
		}
	}
	visit("ann", "/", "200")
	visit("zoe", "/about", "")

	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer snapshot.Close()
	visit("bob", "/late", "404")

	job, err := jobs.Compile("visits", &jobs.Spec{
		Table: "visits",
		Columns: []columnar.ColumnSpec{
			{Name: "user", From: "$row", Type: "string"},
			{Name: "time", From: "$timestamp", Type: "timestamp"},
			{Name: "page", From: "v:page", Type: "string"},
			{Name: "status", From: "v:status", Type: "int64"},
		},
		Formats: []string{jobs.Parquet, jobs.Arrow},
	}, schema)
	if err != nil {
		log.Fatal(err)
	}
	out, err := os.MkdirTemp("", "export")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(out)
	m, err := jobs.Run(ctx, &jobs.RunOptions{Job: job, Source: snapshot, Out: out})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range m.Files {
		fmt.Println(f.Path, f.Rows, f.MinRow)
	}
	report, err := jobs.Verify(ctx, filepath.Join(out, "visits"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("verified:", report.OK())
	// Output:
	// part-000000-0000.arrow 1 ann
	// part-000001-0000.arrow 1 zoe
	// part-000000-0000.parquet 1 ann
	// part-000001-0000.parquet 1 zoe
	// verified: true
}
