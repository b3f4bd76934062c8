package mapping_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/mapping"
)

func limited(record, headers int) *mapping.Spec {
	s := jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Put: put("a")})
	s.Decode.MaxRecordBytes, s.Decode.MaxHeaderBytes = record, headers
	return s
}

func TestLimits(t *testing.T) {
	t.Parallel()
	r := &mapping.Record{Topic: "t", Partition: 3, Offset: 7, Timestamp: 1, Key: []byte("key"), Value: []byte(`{"a":1}`)} // 10 bytes
	headers := []mapping.Header{{Key: []byte("h"), Value: []byte("12")}, {Key: []byte("h"), Value: nil}}                  // 4 bytes
	for _, tt := range []struct {
		name            string
		record, headers int
		with            []mapping.Header
		class, want     string
	}{
		{"no limits", 0, 0, headers, "", ""},
		{"a record at its limit", 14, 0, headers, "", ""},
		{"a record beyond", 13, 0, headers, "record_too_large", "a record of 14 bytes, at most 13 are allowed (decode.max_record_bytes)"},
		{"a record without headers", 9, 9, nil, "record_too_large", "a record of 10 bytes, at most 9 are allowed (decode.max_record_bytes)"},
		{"headers at their limit", 0, 4, headers, "", ""},
		{"headers beyond", 0, 3, headers, "headers_too_large", "2 headers of 4 bytes, at most 3 are allowed (decode.max_header_bytes)"},
		{"both beyond", 13, 3, headers, "headers_too_large", "2 headers of 4 bytes, at most 3 are allowed (decode.max_header_bytes)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := mapping.Compile(limited(tt.record, tt.headers), nil)
			if err != nil {
				t.Fatal(err)
			}
			in := *r
			in.Headers = tt.with
			_, err = p.NewMapper().Map(&in)
			if tt.want == "" {
				if err != nil {
					t.Errorf("Got %v, want no error", err)
				}
				return
			}
			var e *mapping.Error
			if !errors.As(err, &e) {
				t.Fatalf("Got %v, want a *mapping.Error", err)
			}
			if d := cmp.Diff([]string{"decode", tt.class, tt.want}, []string{string(e.Stage), e.Class, e.Err.Error()}); d != "" {
				t.Errorf("Got another error (-want +got):\n%s", d)
			}
		})
	}
}

// What is refused is refused before its payload is read.
func TestLimitsBeforeDecoding(t *testing.T) {
	t.Parallel()
	p, err := mapping.Compile(limited(10, 0), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.NewMapper().Map(&mapping.Record{Topic: "t", Value: []byte(`{"a":` + strings.Repeat("[", 10))})
	if err == nil || !strings.Contains(err.Error(), "record_too_large") {
		t.Errorf("Got %v, want the limit", err)
	}
}

func TestLimitMistakes(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]*mapping.Spec{
		"decode.max_record_bytes: -1 is negative":                                               limited(-1, 0),
		"decode.max_header_bytes: -1 is negative":                                               limited(1, -1),
		"decode.max_header_bytes: 11 is more than max_record_bytes, 10, which headers count to": limited(10, 11),
	} {
		if _, err := mapping.Compile(s, nil); err == nil || err.Error() != want {
			t.Errorf("Got %v, want %s", err, want)
		}
	}
}
