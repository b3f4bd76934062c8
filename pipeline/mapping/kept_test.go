package mapping

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"weak"
)

// What a large record took is let go of with it, or with the next record where the
// decoder has it: of nothing that is beyond what a Mapper keeps a part is held on to, by
// what was made of it, by mutations that later records have fewer of, or by names.
func TestMapperKeepsLittle(t *testing.T) {
	// Alone, with its cases: where several goroutines call runtime.GC, one call may leave what
	// nothing refers to.
	const large = maxKeptBytes + 1
	long := strings.Repeat("x", large)
	escaped := strings.Repeat("x", 5<<20) + `\n` // more than the decoder keeps
	items := func(n int, text string) string {
		return `{"items": [` + strings.Repeat(fmt.Sprintf(`{"text": %q},`, "x"), n) + `{"text": "` + text + `"}]}`
	}
	put := func(value string) map[string]map[string]string {
		return map[string]map[string]string{"f": {"q": value}}
	}
	made := func(m *Mapper) []byte { return m.buf }
	last := func(m *Mapper) []byte {
		ms := m.out.Mutations
		return ms[len(ms)-1].Ops[0].Value
	}
	for name, tc := range map[string]struct {
		spec  Spec
		value string
		bytes func(m *Mapper) []byte // after the record
	}{
		"made": {Spec{Rules: []RuleSpec{{Table: "t", Row: `"r"`, When: "text != nil", Put: put("upper(text)")}}}, `{"text": "` + long + `"}`, made},
		"made of elements": {
			Spec{Rules: []RuleSpec{{Table: "t", Row: `"r"`, ForEach: []string{"i in items"}, Put: put("upper(i.text)")}}}, items(100, long), made,
		},
		"compared": {
			Spec{Rules: []RuleSpec{{Table: "t", Row: `"r"`, When: `upper(text) == "X"`, Put: put("text")}}},
			`{"text": "` + long + `"}`,
			func(m *Mapper) []byte { return m.scratch[:1] },
		},
		"escapes": {Spec{Rules: []RuleSpec{{Table: "t", Row: `"r"`, When: "text != nil", Put: put("text")}}}, `{"text": "` + escaped + `"}`, last},
		"escapes of several mutations": {
			Spec{Rules: []RuleSpec{
				{Table: "t", Row: `"r"`, When: "text != nil", Put: put("text")},
				{Table: "t", Row: `"s"`, When: "text != nil", Put: put("text")},
			}}, `{"text": "` + escaped + `"}`, last,
		},
		"escapes in elements": {
			Spec{Rules: []RuleSpec{{Table: "t", Row: `"r"`, ForEach: []string{"i in items"}, Put: put("i.text")}}}, items(100, escaped), last,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.spec.Decode.Format = "json"
			p, err := Compile(&tc.spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			m := p.NewMapper()
			took := func() weak.Pointer[byte] {
				if _, err := m.Map(&Record{Value: []byte(tc.value)}); err != nil {
					t.Fatal(err)
				}
				b := tc.bytes(m)
				if name != "compared" && len(b) < large {
					t.Fatalf("Got %d bytes of a record that is to take %d", len(b), large)
				}
				m.Release()
				return weak.Make(&b[0])
			}()
			runtime.GC()
			runtime.KeepAlive(m)
			if _, err := m.Map(&Record{Value: []byte(`{"items": [], "key": "k"}`)}); err != nil {
				t.Fatal(err)
			}
			m.Release()
			runtime.GC()
			if took.Value() != nil {
				t.Error("Got what a large record took held on to after the next one")
			}
			runtime.KeepAlive(m)
		})
	}
}

// The machine that runs what is not direct keeps nothing large either.
func TestMachineKeepsLittle(t *testing.T) {
	t.Parallel()
	p, err := Compile(&Spec{
		Decode: DecodeSpec{Format: "json"},
		Rules:  []RuleSpec{{Table: "t", Row: `"r"`, Put: map[string]map[string]string{"f": {"q": `text == "a" ? "b" : text + "z"`}}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := p.NewMapper()
	if _, err := m.Map(&Record{Value: []byte(`{"text": "` + strings.Repeat("x", 1<<20) + `"}`)}); err != nil {
		t.Fatal(err)
	}
	if cap(m.machine.Stack) == 0 {
		t.Fatal("Got nothing run by the machine")
	}
	m.Release()
	for i, v := range m.machine.Stack[:cap(m.machine.Stack)] {
		if n := len(fmt.Sprint(v)); n > 1000 {
			t.Errorf("Got a value of %d bytes kept at %d of the machine's stack", n, i)
		}
	}
}

// A Mapper that forgets refers to no byte of any record, whatever its rules do with it, and
// maps the next one as ever.
func TestMapperForgets(t *testing.T) {
	// Alone, with its cases: where several goroutines call runtime.GC, one call may leave what
	// nothing refers to.
	put := map[string]map[string]string{"f": {"q": "text"}}
	for name, tc := range map[string]struct {
		spec  Spec
		value string
	}{
		"put": {Spec{Decode: DecodeSpec{Format: "json"}, Rules: []RuleSpec{{Table: "t", Row: "text", Put: put}}}, `{"text": "a"}`},
		"elements": {
			Spec{Decode: DecodeSpec{Format: "json"}, Rules: []RuleSpec{{Table: "t", Row: "i", ForEach: []string{"i in items"}, Put: map[string]map[string]string{"f": {"q": "i"}}}}},
			`{"items": ["a", "b", "c"]}`,
		},
		"machine": {
			Spec{Decode: DecodeSpec{Format: "json"}, Rules: []RuleSpec{{Table: "t", Row: `text == "b" ? "b" : trim(text)`, Put: put}}}, `{"text": "a"}`,
		},
		"check":   {Spec{Decode: DecodeSpec{Format: "json"}, Rules: []RuleSpec{{Table: "t", Row: "text", Check: &CheckSpec{Family: "f", Qualifier: "text", Op: "==", Value: "text"}, Put: put}}}, `{"text": "a"}`},
		"dedup":   {Spec{Decode: DecodeSpec{Format: "json"}, Dedup: DedupSpec{ID: "text", TTL: 1e12}, Rules: []RuleSpec{{Table: "t", Row: "text", Put: put}}}, `{"text": "a"}`},
		"rollup":  {Spec{Decode: DecodeSpec{Format: "json"}, Rollups: []RollupSpec{{Name: "n", Table: "t", Dimensions: map[string]string{"text": "text"}, Buckets: []string{"total"}}}}, `{"text": "a"}`},
		"refused": {Spec{Decode: DecodeSpec{Format: "json"}, Rules: []RuleSpec{{Table: "t", Row: "text", Put: put}}}, `{"text": "a", "b`},
		"raw":     {Spec{Decode: DecodeSpec{Format: "raw"}, Rules: []RuleSpec{{Table: "t", Row: "key", Put: map[string]map[string]string{"f": {"q": "payload"}}}}}, "a"},
		"csv":     {Spec{Decode: DecodeSpec{Format: "csv", Columns: []string{"text"}}, Rules: []RuleSpec{{Table: "t", Row: "text", Put: put}}}, "a"},
		"tsv":     {Spec{Decode: DecodeSpec{Format: "tsv", Columns: []string{"text"}}, Rules: []RuleSpec{{Table: "t", Row: "text", Put: put}}}, "a"},
		"logfmt":  {Spec{Decode: DecodeSpec{Format: "logfmt"}, Rules: []RuleSpec{{Table: "t", Row: "text", Put: put}}}, "text=a"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Compile(&tc.spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			m := p.NewMapper()
			var outcomes [2]string
			for i := range outcomes {
				slab := func() weak.Pointer[byte] {
					slab := append([]byte(tc.value), make([]byte, 1<<20)...) // as the records of a batch lie in one
					value := slab[:len(tc.value):len(tc.value)]
					out, err := m.Map(&Record{Key: value[:1], Value: value, Headers: []Header{{Key: value[:1], Value: value}}})
					outcomes[i] = fmt.Sprint(err)
					if err == nil {
						outcomes[i] = fmt.Sprintf("%+v %v", out.Mutations, len(out.Records))
					}
					m.Forget()
					return weak.Make(&slab[0])
				}()
				runtime.GC()
				if slab.Value() != nil {
					t.Errorf("Got the memory of a record held on to after %s", outcomes[i])
				}
			}
			if outcomes[0] != outcomes[1] {
				t.Errorf("Got %s after it forgot, want %s", outcomes[1], outcomes[0])
			}
			runtime.KeepAlive(m)
		})
	}
}
