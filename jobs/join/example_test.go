package join_test

import (
	"context"
	"fmt"
	"io"

	"sluice/jobs/columnar"
	"sluice/jobs/join"
)

// pairs is an Input of rows of two texts.
type pairs struct {
	columns []columnar.Column
	rows    [][2]string
}

func (p *pairs) Columns() []columnar.Column { return p.columns }

func (p *pairs) Next() (*columnar.Batch, error) {
	if len(p.rows) == 0 {
		return nil, io.EOF
	}
	b := columnar.NewBatch(p.columns)
	for _, row := range p.rows {
		for i, text := range row {
			if err := b.Vector(i).AppendBytes([]byte(text)); err != nil {
				return nil, err
			}
		}
	}
	p.rows = nil
	return b, nil
}

// Views are joined with who has viewed: a left join of two inputs that are sorted by
// the key.
func Example() {
	text := func(name string) columnar.Column { return columnar.Column{Name: name, Type: columnar.String} }
	views := &pairs{[]columnar.Column{text("user"), text("page")}, [][2]string{{"ann", "/"}, {"zoe", "/"}}}
	users := &pairs{[]columnar.Column{text("id"), text("city")}, [][2]string{{"ann", "Berlin"}, {"bob", "Rome"}}}
	j, err := join.Compile(&join.Spec{Kind: join.Left, On: []join.On{{Left: "user", Right: "id"}}}, views.Columns(), users.Columns())
	if err != nil {
		fmt.Println(err)
		return
	}
	err = j.Run(context.Background(), views, users, func(b *columnar.Batch) error {
		for i := range b.Rows() {
			for c, column := range b.Columns() {
				if v := b.Vector(c); v.IsNull(i) {
					fmt.Println(column.Name, "is null")
				} else {
					fmt.Println(column.Name, "=", string(v.Bytes(i)))
				}
			}
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// user = ann
	// page = /
	// city = Berlin
	// user = zoe
	// page = /
	// city is null
}
