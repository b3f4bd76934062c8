package storetest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/store"
)

// corrected are expectations of cases that record a defect of HBase's: what an
// engine without the defect returns.
var corrected = map[string]string{
	"upstream-bug-001": `[]`,
	// A PageFilter counts over the scan, not in each region anew: how many rows
	// a page has does not depend on where regions were split.
	"filter-030": `[["r1",[["f:a",1,"1"],["f:b",1,"x"]]]]`,
}

// testCase is one line of a case file.
type testCase struct {
	ID    string `json:"id"`
	Area  string `json:"area"`
	Title string `json:"title"`
	// Physical cases pin what is on disk after a flush or compaction of theirs.
	Physical bool `json:"physical"`
	Table    struct {
		Families map[string]map[string]any `json:"families"`
		Splits   []string                  `json:"splits"`
	} `json:"table"`
	Ops    []op            `json:"ops"`
	Expect json.RawMessage `json:"expect"`
}

// op is one operation of a case.
type op struct {
	Op string `json:"op"`

	Now     *int64 `json:"now"`
	Advance int64  `json:"advance"`

	Row       string              `json:"row"`
	Cells     [][]json.RawMessage `json:"cells"`
	TS        *int64              `json:"ts"`
	TTL       *int64              `json:"ttl"`
	Markers   []marker            `json:"markers"`
	Mutations []op                `json:"mutations"`

	ReturnResults *bool `json:"returnResults"`
	Check         struct {
		Col    string          `json:"col"`
		Cmp    string          `json:"cmp"`
		Value  *string         `json:"value"`
		Filter json.RawMessage `json:"filter"`
	} `json:"check"`

	Columns         []string            `json:"columns"`
	Versions        any                 `json:"versions"`
	TimeRange       []int64             `json:"timeRange"`
	FamilyTimeRange map[string][2]int64 `json:"familyTimeRange"`
	Filter          json.RawMessage     `json:"filter"`
	LimitPerFamily  int                 `json:"limitPerFamily"`
	OffsetPerFamily int                 `json:"offsetPerFamily"`
	ExistsOnly      bool                `json:"existsOnly"`
	Start           string              `json:"start"`
	StartInclusive  *bool               `json:"startInclusive"`
	Stop            string              `json:"stop"`
	StopInclusive   bool                `json:"stopInclusive"`
	Prefix          string              `json:"prefix"`
	Reversed        bool                `json:"reversed"`
	Raw             bool                `json:"raw"`
	Limit           int                 `json:"limit"`
	Batch           int                 `json:"batch"`

	WriteBufferSize int `json:"writeBufferSize"`
	MaxKeyValueSize int `json:"maxKeyValueSize"`

	Table          string          `json:"table"`
	Family         string          `json:"family"`
	Attrs          map[string]any  `json:"attrs"`
	Algo           string          `json:"algo"`
	Regions        json.RawMessage `json:"regions"` // a number, or start keys
	ID             int64           `json:"id"`
	At             *string         `json:"at"`
	PreserveSplits bool            `json:"preserveSplits"`

	Families         map[string]map[string]any `json:"families"`
	MaxTimestampSlop int64                     `json:"max_timestamp_slop"`
	Name             string                    `json:"name"`

	Expect json.RawMessage `json:"expect"`
}

type marker struct {
	Kind   string `json:"kind"`
	TS     *int64 `json:"ts"`
	Col    string `json:"col"`
	Family string `json:"family"`
}

// read reports whether the op reads cells.
func (o *op) read() bool { return o.Op == "get" || o.Op == "scan" }

// timed reports whether the outcome of the case depends on how its clock goes.
func (c *testCase) timed() bool {
	for _, attrs := range c.Table.Families {
		if attrs["TTL"] != nil {
			return true
		}
	}
	var timed func(ops []op) bool
	timed = func(ops []op) bool {
		return slices.ContainsFunc(ops, func(o op) bool {
			for _, attrs := range o.Families {
				if attrs["TTL"] != nil {
					return true
				}
			}
			return o.Op == "clock" || o.TTL != nil || o.MaxTimestampSlop != 0 || timed(o.Mutations)
		})
	}
	return timed(c.Ops)
}

// buffered reports whether the op is one of the write buffer.
func (o *op) buffered() bool { return strings.HasPrefix(o.Op, "buffered") }

// casesDir returns the directory of the case files: $SLUICE_CASES, or
// ../shared/cases beside the module's root.
func casesDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("SLUICE_CASES"); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "..", "shared", "cases")
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Skip("no go.mod above the test's directory and SLUICE_CASES is not set: no case files to run")
		}
		dir = parent
	}
}

// loadCases reads every *.jsonl of the case directory, or skips t, saying so. Those
// with defects expect what HBase does.
func loadCases(t *testing.T, defects []string) []testCase {
	t.Helper()
	dir := casesDir(t)
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skipf("no *.jsonl in %s: set SLUICE_CASES to the directory of the case files", dir)
	}
	slices.Sort(files)
	var cases []testCase
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		sc := bufio.NewScanner(f)
		sc.Buffer(nil, 16<<20)
		for line := 1; sc.Scan(); line++ {
			if len(bytes.TrimSpace(sc.Bytes())) == 0 {
				continue
			}
			var c testCase
			if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
				t.Fatalf("%s:%d: %v", name, line, err)
			}
			if fixed, ok := corrected[c.ID]; ok && !slices.Contains(defects, c.ID) {
				c.Ops[len(c.Ops)-1].Expect = json.RawMessage(fixed)
			}
			cases = append(cases, c)
		}
		if err := sc.Err(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return cases
}

// descriptor returns the schema that families describe.
func descriptor(name string, families map[string]map[string]any) (*store.TableDescriptor, error) {
	d := &store.TableDescriptor{Name: name}
	for family, attrs := range families {
		f := store.NewFamily(family)
		for k, v := range attrs {
			if k == "TIME_TO_PURGE_DELETES" {
				f.TimeToPurgeDeletes = int64(v.(float64))
				continue
			}
			s := fmt.Sprint(v)
			if n, ok := v.(float64); ok {
				s = fmt.Sprintf("%.0f", n)
			}
			if err := f.SetAttribute(k, s); err != nil {
				return nil, err
			}
		}
		d.Families = append(d.Families, f)
	}
	slices.SortFunc(d.Families, func(a, b store.FamilyDescriptor) int { return strings.Compare(a.Name, b.Name) })
	return d, nil
}

// errorCodes are the case files' names of errors.
var errorCodes = []struct {
	code string
	err  error
}{
	{"NoSuchColumnFamily", store.ErrFamilyNotFound},
	{"WrongRow", store.ErrWrongRow},
	{"FailedSanityCheck", store.ErrTimestampTooFar},
	{"IncompatibleFilter", store.ErrIncompatibleFilter},
	{"TableExists", store.ErrTableExists},
	{"TableNotEnabled", store.ErrTableNotEnabled},
	{"TableNotDisabled", store.ErrTableNotDisabled},
	{"NamespaceNotFound", store.ErrNamespaceNotFound},
	{"NamespaceExists", store.ErrNamespaceExists},
	{"ConstraintException", store.ErrConstraint},
	{"MergeRegion", store.ErrMergeRegion},
	{"TableNotFound", store.ErrTableNotFound},
	{"Stale", store.ErrStale},
	{"IllegalState", store.ErrClosed},
	{"IllegalArgument", store.ErrInvalidArgument},
	{"DoNotRetry", store.ErrRefused},
	{"InvalidSchema", store.ErrInvalidSchema},
}

// errorCode returns the case files' name of err.
func errorCode(err error) string {
	for _, c := range errorCodes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return "unknown: " + err.Error()
}
