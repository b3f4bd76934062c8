package config_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sluice/config"
)

// yamlBlocks returns the fenced blocks of YAML of a page.
func yamlBlocks(t *testing.T, page string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// Every piece of a file in docs/export.md, and in the pages that go on from it, is right:
// whole, or as what it says of a job.
func TestExportGuide(t *testing.T) {
	t.Parallel()
	const columns = `    columns:
      - {name: user, from: $row, type: string}
      - {name: country, from: "e:country", type: string}
      - {name: level, from: "e:level", type: int64}
      - {name: time, from: $timestamp, type: timestamp}
      - {name: duration_ms, from: "e:duration_ms", type: int64}
      - {name: referrer, from: "e:referrer", type: string}
`
	var blocks []string
	for _, page := range []string{"export.md", "schedules.md", "buckets.md"} {
		blocks = append(blocks, yamlBlocks(t, page)...)
	}
	if len(blocks) < 10 {
		t.Fatalf("Got %d blocks", len(blocks))
	}
	for _, block := range blocks {
		file := block
		switch {
		case strings.Contains(block, "    # …\n"):
			file = strings.Replace(block, "    # …\n", "    table: t\n    out: ./o\n"+columns, 1)
		case strings.HasPrefix(block, "gc: "):
			file = block + "jobs:\n  j:\n    table: t\n    out: ./o\n" + columns
		case strings.HasPrefix(block, "      - "):
			file = "jobs:\n  j:\n    table: t\n    out: ./o\n    columns:\n" + block
		case strings.HasPrefix(block, "    ") && strings.Contains(block, "columns:"):
			file = "jobs:\n  j:\n    table: t\n    out: ./o\n" + block
		case strings.HasPrefix(block, "    "):
			file = "jobs:\n  j:\n    table: t\n    out: ./o\n" + columns + block
		}
		if _, err := config.Parse("f.yaml", []byte(file), env("S3_KEY", "k", "S3_SECRET", "s")); err != nil {
			t.Errorf("%s\n%v", file, err)
		}
	}
}

// So are those of docs/formats.md, but for the files of schemas that nobody has here.
func TestFormatsGuide(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, block := range yamlBlocks(t, "formats.md") {
		for _, piece := range append(regexp.MustCompile(`(?m)^decode:.*`).FindAllString(block, -1), regexp.MustCompile(`(?s)^schema_registry:.*`).FindAllString(block, -1)...) {
			if strings.Contains(piece, "schema_file") {
				continue
			}
			tried++
			file := tables + "schema_registry: {urls: [\"http://h:8081\"]}\n"
			if strings.HasPrefix(piece, "decode:") {
				file += "pipelines:\n  p:\n    topics: [a]\n    group: g\n    " + piece + "\n    map: [{table: events, row: key, put: {e: {v: value}}}]\n"
			} else {
				file = piece
			}
			if _, err := config.Parse("f.yaml", []byte(file), env("REGISTRY_TOKEN", "t", "REGISTRY_PASSWORD", "p")); err != nil {
				t.Errorf("%s\n%v", file, err)
			}
		}
	}
	if tried < 4 {
		t.Errorf("Got %d pieces", tried)
	}
}

// The pieces of docs/operations.md are indented.
func TestOperationsGuide(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"backups", "store"} {
		block := regexp.MustCompile(`(?m)^    ` + key + `:\n(?:    .*\n)+`).FindString(string(text))
		if block == "" {
			t.Errorf("%s is not on the page", key)
		}
		file := regexp.MustCompile(`(?m)^    `).ReplaceAllString(block, "")
		if _, err := config.Parse("f.yaml", []byte(file), nil); err != nil {
			t.Errorf("%s\n%v", file, err)
		}
	}
}
