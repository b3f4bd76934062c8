package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os/exec"
)

// duckDBScript is what the scripts for DuckDB begin with.
//
//go:embed duckdb.py
var duckDBScript string

// askDuckDB runs a script behind duckDBScript, which reads asked as JSON and prints
// answered.
func askDuckDB(ctx context.Context, python, script string, asked, answered any) error {
	in, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, python, "-c", duckDBScript+script)
	var problems bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &problems
	data, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("DuckDB in %s: %w: %s", python, err, problems.String())
	}
	if err := json.Unmarshal(data, answered); err != nil {
		return fmt.Errorf("DuckDB: %w: %s", err, data)
	}
	return nil
}
