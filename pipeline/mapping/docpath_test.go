package mapping_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/mapping"
)

// A field is named in event_time and in for_each as it is in expressions.
func TestDocPaths(t *testing.T) {
	t.Parallel()
	const payload = `{"event time":70,"time":80,"doc":{"event time":90,"x":[7]},"a b":[1,{"c d":[2]}],"x":[5]}`
	for _, c := range []struct{ field, forEach, want string }{
		{`doc["event time"]`, `e in doc["a b"]`, "t \"r\"\n  put e:q @70 \"1\"\nt \"r\"\n  put e:q @70 \"{\\\"c d\\\":[2]}\"\n"},
		{`["event time"]`, `e in ["a b"]`, "t \"r\"\n  put e:q @70 \"1\"\nt \"r\"\n  put e:q @70 \"{\\\"c d\\\":[2]}\"\n"},
		{"doc.time", `e in doc["a b"][1]["c d"]`, "t \"r\"\n  put e:q @80 \"2\"\n"},
		{"time", "e in doc.x", "t \"r\"\n  put e:q @80 \"5\"\n"},
		{`doc.doc["event time"]`, "e in doc.doc.x", "t \"r\"\n  put e:q @90 \"7\"\n"},
		{`doc["doc"]["event time"]`, `e in doc["doc"].x`, "t \"r\"\n  put e:q @90 \"7\"\n"},
	} {
		m := compile(t, &mapping.Spec{
			Decode:    mapping.DecodeSpec{Format: "json"},
			EventTime: mapping.EventTimeSpec{Field: c.field, Format: "unix_ms", Required: true},
			Rules:     []mapping.RuleSpec{{Table: "t", Row: `"r"`, ForEach: []string{c.forEach}, Put: put("e")}},
		})
		if diff := cmp.Diff(c.want, show(t, m, payload)); diff != "" {
			t.Errorf("%s, %s (-want +got):\n%s", c.field, c.forEach, diff)
		}
	}
}
