package target_test

import (
	"context"
	"fmt"
	"io"
	"os"

	"sluice/jobs/target"
)

// The files of a run are seen when its manifest is there, and not before.
func Example() {
	if err := publishRun(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// before: 0 files
	// after: 2 files
}

func publishRun(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "target")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t, err := target.CreateLocal(dir)
	if err != nil {
		return err
	}
	defer t.Close()

	const run = "visits/2026-11-29"
	up, err := t.Begin(ctx, run, "run-1")
	if err != nil {
		return err
	}
	defer up.Abort() // after Commit it does nothing
	f, err := up.Create(ctx, "part-0.csv")
	if err != nil {
		return err
	}
	if _, err := io.WriteString(f, "ann,3\n"); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	files, _ := t.List(ctx, run) // target.ErrNotFound
	fmt.Println("before:", len(files), "files")
	if err := up.Commit(ctx, "manifest.json", []byte(`{"rows": 1}`)); err != nil {
		return err
	}
	files, err = t.List(ctx, run)
	fmt.Println("after:", len(files), "files")
	return err
}
