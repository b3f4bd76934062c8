package mapping

// Unlike is a comparison by == or != of a field that is a text in all records of the format
// with a number or a boolean, which no text is equal to: it says the same of every record.
type Unlike struct {
	Operator string // == or !=
	Field    string // its path
	Number   bool   // it is compared with a number, else with a boolean
	Path     string // of the expression in the Spec, as map[0].when
}

// Unlike returns those of the rules, in their order. They are most often meant for what
// the text says, as in int(clicks) == 1. The result is the plan's.
func (p *Plan) Unlike() []Unlike { return p.unlike }

// allTexts says whether all values of a format are texts.
func allTexts(format string) bool { return format == "csv" || format == "tsv" || format == "logfmt" }

// unlike notes a comparison of a and b by == or != that is one of those.
func (r *resolver) unlike(operator string, a, b *term) {
	if a.op != opSource {
		a, b = b, a
	}
	if a.op != opSource || !allTexts(r.c.format) || !b.typ.numeric() && b.typ != typBool {
		return
	}
	if s := r.c.sources[a.source]; s.kind == sourceField {
		r.c.unlike = append(r.c.unlike, Unlike{Operator: operator, Field: r.c.paths[s.field], Number: b.typ.numeric(), Path: r.path})
	}
}
