package decode_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/decode"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	many := make([]string, decode.MaxColumns+1)
	for i := range many {
		many[i] = strings.Repeat("c", i+1)
	}
	tests := []struct {
		o    decode.Options
		want string
	}{
		{decode.Options{}, `format: no format ""; there are avro, combined, common, csv, json, logfmt, ndjson, protobuf, raw, tsv`},
		{decode.Options{Format: "xml"}, `format: no format "xml"; there are avro, combined, common, csv, json, logfmt, ndjson, protobuf, raw, tsv`},
		{decode.Options{Format: "csv"}, "columns: format csv needs the names of its columns"},
		{decode.Options{Format: "json", Columns: []string{"a"}}, "columns: format json has no columns"},
		{decode.Options{Format: "tsv", Columns: many}, "columns: 4097 columns, at most 4096"},
		{decode.Options{Format: "csv", Columns: []string{"a", "b c"}}, `columns: column 2: "b c" is no name of letters, digits and _ (the names are yours to choose)`},
		{decode.Options{Format: "csv", Columns: []string{"a", "1"}}, `columns: column 2: "1" is no name of letters, digits and _ (the names are yours to choose)`},
		{decode.Options{Format: "csv", Columns: []string{"a", "b", "a"}}, `columns: columns 1 and 3 are both named "a"`},
		{decode.Options{Format: "tsv", Columns: []string{"a"}, Delimiter: ","}, "delimiter: format tsv has none to choose"},
		{decode.Options{Format: "csv", Columns: []string{"a"}, Delimiter: "::"}, `delimiter: "::" is not one ASCII character other than a quote or a line end`},
		{decode.Options{Format: "csv", Columns: []string{"a"}, Delimiter: "\""}, `delimiter: "\"" is not one ASCII character other than a quote or a line end`},
		{decode.Options{Format: "json", Compression: "lzo"}, `compression: no compression "lzo"; there are none, gzip, zstd`},
		{decode.Options{Format: "json", Compression: "gzip", MaxBytes: -1}, "max_bytes: -1 is negative"},
		{decode.Options{Format: "json", MaxBytes: 1}, "max_bytes: bounds what is decompressed, and there is no compression"},
	}
	f, err := decode.NewFields(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		err := tt.o.Validate()
		var mistake *decode.OptionError
		if !errors.As(err, &mistake) || mistake.Option+": "+mistake.Reason != tt.want {
			t.Errorf("%+v: got %v, want %s", tt.o, err, tt.want)
		}
		if _, other := decode.New(&tt.o, f); other == nil || other.Error() != err.Error() {
			t.Errorf("%+v: New says %v, Validate %v", tt.o, other, err)
		}
	}
}

func TestKnown(t *testing.T) {
	t.Parallel()
	combined := []string{"agent", "bytes", "client", "ident", "method", "path", "protocol", "referrer", "request", "status", "time", "time_local", "user"}
	common := slices.DeleteFunc(slices.Clone(combined), func(s string) bool { return s == "agent" || s == "referrer" })
	tests := []struct {
		o    decode.Options
		want []string
	}{
		{decode.Options{Format: "combined"}, combined},
		{decode.Options{Format: "common"}, common},
		{decode.Options{Format: "csv", Columns: []string{"z", "a"}}, []string{"z", "a"}},
		{decode.Options{Format: "raw"}, []string{"payload"}},
		{decode.Options{Format: "json"}, nil},
		{decode.Options{Format: "logfmt"}, nil},
	}
	f, err := decode.NewFields([]string{"nope"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, tt.o.Known()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.o.Format, diff)
		}
		_, err := decode.New(&tt.o, f)
		if want := `no field "nope"; it has ` + strings.Join(tt.want, ", "); tt.want == nil {
			if err != nil {
				t.Errorf("%s: %v", tt.o.Format, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", tt.o.Format, err, want)
		}
	}
}
