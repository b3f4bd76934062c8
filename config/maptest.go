package config

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"sluice/pipeline/mapping"
)

// MappingTest is a record and what the rules must make of it. `ingest test` runs
// the tests of a file.
type MappingTest struct {
	// Name says what is tested.
	Name string `yaml:"name" required:"true"`
	// Record is the payload; '' is one of no bytes.
	Record string `yaml:"record"`
	// RecordBase64 is the payload of a format that is no text, in base64; it takes
	// the place of record.
	RecordBase64 string `yaml:"record_base64"`
	// Tombstone says that the record has no payload; it takes the place of record.
	Tombstone bool `yaml:"tombstone"`
	// Key is the record's key; empty = none.
	Key string `yaml:"key"`
	// Headers are the record's headers.
	Headers map[string]string `yaml:"headers"`
	// Topic is the record's, one of the pipeline's; empty = its first.
	Topic string `yaml:"topic"`
	// Partition is the record's.
	Partition int `yaml:"partition"`
	// Offset is the record's.
	Offset int64 `yaml:"offset"`
	// Timestamp is the record's, in ms since 1970.
	Timestamp int64 `yaml:"timestamp"`
	// Expect is the operations, a line each, as `ingest explain` prints them;
	// empty = the rules leave the record out.
	Expect string `yaml:"expect"`
	// Error is the class of the error that is expected in place of mutations.
	Error string `yaml:"error"`
}

// MappingRecord returns the record of a test of p.
func (p *Pipeline) MappingRecord(t *MappingTest) *mapping.Record {
	r := &mapping.Record{Topic: t.Topic, Partition: int32(t.Partition), Offset: t.Offset, Timestamp: t.Timestamp}
	switch {
	case t.Tombstone: // there is none
	case t.RecordBase64 != "":
		r.Value, _ = base64.StdEncoding.DecodeString(t.RecordBase64) // checked when the file was read
	default:
		r.Value = []byte(t.Record)
	}
	if r.Topic == "" && len(p.Topics) > 0 {
		r.Topic = p.Topics[0]
	}
	if t.Key != "" {
		r.Key = []byte(t.Key)
	}
	for name, value := range t.Headers {
		r.Headers = append(r.Headers, mapping.Header{Key: []byte(name), Value: []byte(value)})
	}
	return r
}

// ExpectLines returns the lines of Expect, without empty ones and the space
// around each.
func (t *MappingTest) ExpectLines() []string {
	var lines []string
	for line := range strings.Lines(t.Expect) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// lintTests checks the tests below path. has reports whether the file has a setting: an
// empty payload is one, too.
func (p *Pipeline) lintTests(path string, report reporter, has func(path string) bool) {
	seen := map[string]bool{}
	for i := range p.Tests {
		t := &p.Tests[i]
		at := fmt.Sprintf("%s[%d]", join(path, "tests"), i)
		if seen[t.Name] && t.Name != "" {
			report(join(at, "name"), "", "two tests are named %q", t.Name)
		}
		seen[t.Name] = true
		payloads := 0
		for _, given := range []bool{t.Record != "", t.RecordBase64 != "", t.Tombstone} {
			if given {
				payloads++
			}
		}
		switch {
		case payloads > 1, payloads == 0 && !has(join(at, "record")) && !has(join(at, "record_base64")):
			report(at, "", "a test has a record, or a record_base64, or is a tombstone")
		case t.RecordBase64 != "":
			if _, err := base64.StdEncoding.DecodeString(t.RecordBase64); err != nil {
				report(join(at, "record_base64"), "", "not base64: %v", err)
			}
		}
		if t.Error != "" {
			if classes := mapping.Classes(); !slices.Contains(classes, t.Error) {
				report(join(at, "error"), didYouMean(t.Error, classes), "no class of errors %q", t.Error)
			}
			if t.Expect != "" {
				report(join(at, "error"), "remove one of them", "a record has either mutations or an error")
			}
		}
		if t.Topic != "" && !slices.Contains(p.Topics, t.Topic) {
			report(join(at, "topic"), didYouMean(t.Topic, p.Topics), "the pipeline does not read a topic %q", t.Topic)
		}
		if t.Partition < 0 || t.Partition > 1<<31-1 {
			report(join(at, "partition"), "", "partition is %d, must be 0..%d", t.Partition, 1<<31-1)
		}
		if t.Offset < 0 {
			report(join(at, "offset"), "", "offset is %d, must not be negative", t.Offset)
		}
	}
}
