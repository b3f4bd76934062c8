package mapping_test

import (
	"testing"

	"sluice/pipeline/mapping"
)

// BenchmarkExpression is what one more column costs: of direct code, and of expr's machine.
func BenchmarkExpression(b *testing.B) {
	for name, expression := range map[string]string{"direct": `upper(country)`, "machine": `country == "de" ? "DE" : country`} {
		b.Run(name, func(b *testing.B) {
			plan, err := mapping.Compile(&mapping.Spec{
				Decode: mapping.DecodeSpec{Format: "json"},
				Rules:  []mapping.RuleSpec{{Table: "t", Row: "key", Put: map[string]map[string]string{"f": {"q": expression}}}},
			}, nil)
			if err != nil {
				b.Fatal(err)
			}
			m := plan.NewMapper()
			r := &mapping.Record{Topic: "t", Key: []byte("k"), Value: []byte(`{"country":"de"}`)}
			b.ReportAllocs()
			for b.Loop() {
				r.Offset++
				if _, err := m.Map(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
