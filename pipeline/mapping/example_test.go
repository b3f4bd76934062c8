package mapping_test

import (
	"fmt"

	"sluice/pipeline/mapping"
)

func Example() {
	plan, err := mapping.Compile(&mapping.Spec{
		Decode:    mapping.DecodeSpec{Format: "json"},
		EventTime: mapping.EventTimeSpec{Field: "ts", Format: "unix_ms"},
		Rules: []mapping.RuleSpec{
			{
				Table: "views", Row: `user + "/" + pad(offset, 8)`,
				Put: map[string]map[string]string{"v": {"page": "page", "referrer": "referrer"}},
			},
			{
				Table: "view_counts", Row: "page", When: "not is_bot",
				Increment: []mapping.IncrementSpec{{Family: "day", Qualifier: `date(time, "yyyyMMdd")`}},
			},
		},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	m := plan.NewMapper()
	out, err := m.Map(&mapping.Record{Offset: 42, Value: []byte(`{"ts":1431857103123,"user":"anna","page":"/a","is_bot":false}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, mut := range out.Mutations {
		for _, op := range mut.Ops {
			fmt.Printf("%s %s %s %s:%s %q %d\n", mut.Table, mut.Row, op.Type, op.Family, op.Qualifier, op.Value, op.Delta)
		}
	}
	_, err = m.Map(&mapping.Record{Value: []byte(`{"page":"/a","is_bot":false}`)})
	fmt.Println(err)
	// Output:
	// views anna/00000042 Put v:page "/a" 0
	// view_counts /a Increment day:20150517 "" 1
	// map: missing_field: map[0].row: field user is missing or null
}
