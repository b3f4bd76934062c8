package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/cmd/internal/cli"
	"sluice/config"
)

const derivedMapping = `
tables:
  views: {families: {e: {}}}
  counts: {families: {hour: {COUNTER: true}}}
  unwritten: {families: {e: {}}}
pipelines:
  p:
    topics: [views]
    group: g
    decode: {format: json}
    map:
      - {table: views, row: user + "/" + u64(offset), put: {e: {page: page, n: int(n)}}}
      - {table: counts, row: page, increment: [{family: hour, qualifier: 'date(time, "yyyyMMddHH")'}]}
`

const derivedViews = `jobs:
  # views is written by pipelines.p.map[0]
  # any value: the format does not tell what a field is before it is read, and string takes all of them. Where it is always of one type, say so here, or in the rule: int(clicks)
  views:
    table: views
    row_key:
      fields:
        - {name: user, until: "/"} # user
        - {name: offset, width: 8} # u64(offset)
    columns:
      - {name: row, from: $row, type: bytes}
      - {name: user, from: $row.user, type: string} # any value
      - {name: offset, from: $row.offset, type: int64, coding: u64}
      - {name: "n", from: "e:n", type: int64}
      - {name: page, from: "e:page", type: string} # any value
      - {name: timestamp, from: $timestamp, type: timestamp} # of the row's newest cell
    out: ./sluice-export
`

// TestDerive: what is printed can be put behind the file, and is its jobs then.
func TestDerive(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(derivedMapping), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := export(t, "derive", "-c", file, "views")
	if status != 0 || stdout != derivedViews {
		t.Fatalf("Got status %d, %s\n%s", status, stderr, stdout)
	}
	stdout, stderr, status = export(t, "derive", "-c", file, "--out", "s3://bucket/exports")
	if status != 0 || strings.Count(stdout, "\n    out: \"s3://bucket/exports\"\n") != 2 || strings.Contains(stdout, "unwritten") {
		t.Fatalf("Got status %d, %s\n%s", status, stderr, stdout)
	}
	whole := derivedMapping + strings.ReplaceAll(stdout, "s3://bucket/exports", "./o")
	cfg, err := config.Parse(file, []byte(whole), nil)
	if err != nil || strings.Join(cfg.JobNames(), " ") != "counts views" {
		t.Fatalf("Got %v, %v", cfg, err)
	}

	// Beside jobs of their names, others are.
	if err := os.WriteFile(file, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status = export(t, "derive", "-c", file, "views")
	if status != 0 || !strings.HasPrefix(stdout, "# "+file+" has jobs: already. ") || !strings.Contains(stdout, "\n  views_2:\n") {
		t.Errorf("Got status %d, %s\n%s", status, stderr, stdout)
	}

	stdout, stderr, status = export(t, "derive", "-c", file, "--json", "views", "counts")
	var out struct {
		Jobs  map[string]map[string]any
		Notes map[string]struct{ Columns, Fields map[string]string }
	}
	if err := json.Unmarshal([]byte(stdout), &out); err != nil || status != 0 {
		t.Fatalf("Got %v, status %d, %s\n%s", err, status, stderr, stdout)
	}
	views := out.Jobs["views_2"]
	if views["table"] != "views" || len(views["columns"].([]any)) != 6 || views["row_key"] == nil || out.Jobs["counts_2"]["rows"] != "cell" ||
		out.Notes["views_2"].Columns["page"] != "any value" || out.Notes["views_2"].Fields["offset"] != "u64(offset)" {
		t.Errorf("Got %s", stdout)
	}
}

func TestDeriveRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(derivedMapping), 0o600); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]string{
		"unwritten": "no rule writes the table: unwritten; the rules of " + file + " write counts, views",
		"veiws":     "veiws is not in " + file + "; the rules of " + file + " write counts, views",
		"view*":     "view* stands for all tables whose names begin so: name one",
	} {
		stdout, stderr, status := export(t, "derive", "-c", file, table)
		if status != cli.StatusUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: got status %d\n%s%s", table, status, stdout, stderr)
		}
	}
}
