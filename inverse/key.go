package inverse

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sluice/jobs/columnar"
	"sluice/pipeline/mapping"
)

// keyParts is how the row keys of a table are made.
type keyParts struct {
	whole mapping.Value  // of keys as they are
	parts []mapping.Part // nil = nothing is known, or they are made in several ways
	note  string         // why parts is nil
}

// unify returns how rules make the keys of their table, if all do it alike.
func unify(rules, rollups []written) *keyParts {
	k := &keyParts{}
	for i, w := range slices.Concat(rules, rollups) {
		k.whole = mapping.Either(k.whole, w.RowValue())
		k.whole.Note = ""
		switch {
		case i == 0:
			k.parts = slices.Clone(w.Row)
		case k.parts == nil:
		case w.Rollup != nil || !alike(k.parts, w.Row):
			k.parts = nil
			k.note = fmt.Sprintf("%s and %s make keys in different ways, so that they are not taken apart", rules[0].at, w.at)
		default:
			k.join(w.Row)
		}
	}
	return k
}

// alike reports whether two keys can be taken apart by one layout.
func alike(a, b []mapping.Part) bool {
	return slices.EqualFunc(a, b, func(a, b mapping.Part) bool {
		return a.Literal == b.Literal && a.Salt == b.Salt && a.Value.Width == b.Value.Width
	})
}

// join takes other's parts for what k's may be, too.
func (k *keyParts) join(other []mapping.Part) {
	for i := range k.parts {
		p, o := &k.parts[i], &other[i]
		if p.Literal != "" || p.Text == o.Text {
			continue
		}
		note := fmt.Sprintf("made of %s, or of %s", p.Text, o.Text)
		p.Value = mapping.Either(p.Value, o.Value)
		p.Value.Note, p.Text, p.Of, p.Tells = note, p.Text+" or "+o.Text, "", nil
	}
}

// key adds the columns of the row key, and how it is made; columns are those that rules
// write by name.
func (b *builder) key(k *keyParts, columns []cellColumn) {
	if k.note != "" {
		b.note("%s", k.note)
	}
	parts := k.parts
	if len(parts) == 1 && parts[0].Literal == "" && parts[0].Value.Kind == mapping.KindText && parts[0].Of == "" {
		p := &parts[0].Value
		b.value(b.name(cmp.Or(p.Name, "row"), "row", "row_key"), columnar.FromRow, p)
		return
	}
	v := mapping.Value{Kind: mapping.KindBytes}
	if k.whole.IsText() {
		v.Kind = mapping.KindText
	}
	b.value(b.name("row", "row_key"), columnar.FromRow, &v)
	if slices.ContainsFunc(parts, func(p mapping.Part) bool { return p.Literal == "" && p.Salt == 0 }) {
		b.fields(parts, columns)
	}
}

// fields adds row_key and the columns of its fields.
func (b *builder) fields(parts []mapping.Part, columns []cellColumn) {
	spec := &b.job.Spec.RowKey
	if parts[0].Salt > 0 {
		spec.Salt = parts[0].Salt
		parts = parts[1:]
	}
	named := map[string]bool{}
	for i := 0; i < len(parts); {
		if lit := parts[i].Literal; lit != "" { // at the beginning
			b.field(columnar.KeyField{Until: columnar.EscapeKey([]byte(lit))}, "")
			i++
			continue
		}
		p := parts[i]
		run := 1
		if p.Value.Width == 0 {
			for i+run < len(parts) && parts[i+run].Literal == "" && !fixed(parts[i+run:]) {
				p.Value = mapping.Joined(p.Value, parts[i+run].Value)
				p.Value.Note = "nothing between its parts tells where one ends"
				p.Text += " + " + parts[i+run].Text
				p.Of = ""
				run++
			}
		}
		i += run
		f := columnar.KeyField{Width: p.Value.Width}
		lit := ""
		if i < len(parts) {
			if lit = parts[i].Literal; lit != "" {
				f.Until = columnar.EscapeKey([]byte(lit))
				i++
			}
		}
		if skipped(&p, parts, columns) {
			b.field(f, p.Text)
			continue
		}
		f.Name = cmp.Or(p.Value.Name, fmt.Sprintf("part_%d", len(spec.Fields)+1))
		for n := 2; named[f.Name]; n++ {
			f.Name = fmt.Sprintf("%s_%d", cmp.Or(p.Value.Name, "part"), n)
		}
		named[f.Name] = true
		note := p.Text
		if f.Width == 0 && lit != "" && !fixed(parts[i:]) && p.Value.MayHold(lit) {
			note += fmt.Sprintf(": one that holds %q itself is cut there, and what follows is read wrongly, or ends the run", lit)
		}
		b.field(f, note)
		b.value(b.name(f.Name, "row_"+f.Name), columnar.FromRow+"."+f.Name, &p.Value)
	}
}

func (b *builder) field(f columnar.KeyField, note string) {
	b.job.Spec.RowKey.Fields = append(b.job.Spec.RowKey.Fields, f)
	b.job.Fields = append(b.job.Fields, note)
}

// fixed reports whether all parts have a width, so that the end of the key tells where they
// begin.
func fixed(parts []mapping.Part) bool {
	return !slices.ContainsFunc(parts, func(p mapping.Part) bool { return p.Literal == "" && p.Value.Width == 0 })
}

// skipped reports whether a part is a hash of what another part, or a column, tells, or a
// salt, which nobody wants to read.
func skipped(p *mapping.Part, parts []mapping.Part, columns []cellColumn) bool {
	switch {
	case p.Of == "":
		return false
	case p.Salt > 0:
		return true
	}
	return slices.ContainsFunc(parts, func(o mapping.Part) bool { return slices.Contains(o.Tells, p.Of) }) ||
		slices.ContainsFunc(columns, func(c cellColumn) bool { return len(c.texts) == 1 && strings.TrimSpace(c.texts[0]) == p.Of })
}
