package mapping

import "slices"

// Hidden is a name in an expression that is of the record, where the document has a field
// that is named so, too.
type Hidden struct {
	Name string // as time or value
	Path string // of the expression in the Spec, as map[0].row
}

// Hidden returns those of the rules, where the format has a fixed set of fields: they read the
// record where the field may be meant, which is doc.NAME. The time is none of them where it is
// that of a field.
func (p *Plan) Hidden() []Hidden {
	return slices.DeleteFunc(slices.Clone(p.hidden), func(h Hidden) bool { return h.Name == "time" && p.event.field >= 0 })
}
