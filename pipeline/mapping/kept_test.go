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
	t.Parallel()
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
			t.Parallel()
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
