package inverse

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// AppendYAML appends jobs as the section of a configuration file that they are, with their
// notes as comments. It has what Jobs fills in of a Spec, and Out.
func AppendYAML(dst []byte, jobs []Job) []byte {
	dst = append(dst, "jobs:\n"...)
	for i := range jobs {
		dst = jobs[i].appendYAML(dst)
	}
	return dst
}

func (j *Job) appendYAML(dst []byte) []byte {
	line := func(format string, args ...any) { dst = fmt.Appendf(dst, format+"\n", args...) }
	for _, note := range j.Notes {
		line("  # %s", comment(note))
	}
	s := &j.Spec
	line("  %s:", scalar(j.Name))
	line("    table: %s", scalar(s.Table))
	if s.Rows != "" {
		line("    rows: %s", s.Rows)
	}
	if len(s.Families) > 0 {
		var names []string
		for _, f := range s.Families {
			names = append(names, scalar(f))
		}
		line("    families: [%s]", strings.Join(names, ", "))
	}
	for _, bound := range []struct{ key, row string }{{"start_row", s.StartRow}, {"stop_row", s.StopRow}} {
		if bound.row != "" {
			line("    %s: %s", bound.key, scalar(bound.row))
		}
	}
	if len(s.RowKey.Fields) > 0 {
		line("    row_key:")
		if s.RowKey.Salt > 0 {
			line("      salt: %d", s.RowKey.Salt)
		}
		line("      fields:")
		for i, f := range s.RowKey.Fields {
			var keys []string
			if f.Name != "" {
				keys = append(keys, "name: "+scalar(f.Name))
			}
			if f.Width > 0 {
				keys = append(keys, "width: "+strconv.Itoa(f.Width))
			}
			if f.Until != "" {
				keys = append(keys, "until: "+scalar(f.Until))
			}
			line("        - {%s}%s", strings.Join(keys, ", "), behind(j.Fields[i]))
		}
	}
	line("    columns:")
	for i, c := range s.Columns {
		coding := ""
		if c.Coding != "" {
			coding = ", coding: " + c.Coding
		}
		typ := c.Type
		if strings.Contains(typ, "(") {
			typ = `"` + typ + `"`
		}
		line("      - {name: %s, from: %s, type: %s%s}%s", scalar(c.Name), scalar(c.From), typ, coding, behind(j.Columns[i]))
	}
	line("    out: %s", scalar(s.Out))
	return dst
}

// behind returns a note as a comment behind a line, "" where there is none.
func behind(note string) string {
	if note == "" {
		return ""
	}
	return " # " + comment(note)
}

// comment returns a note that is one line of YAML.
func comment(note string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, note)
}

// plain is what needs no quotes: a name that is no number, and no word of YAML's.
var (
	plain = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_-]*|\$[a-z]+(\.[A-Za-z0-9_]+)?)$`)
	path  = regexp.MustCompile(`^(\.{0,2}/)?[A-Za-z0-9_./-]*[A-Za-z_/][A-Za-z0-9_./-]*$`)
	words = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null|nan|inf)$`)
)

// scalar spells a text of the configuration: in quotes where it needs them, and with two
// dollar signs in place of one where that would begin a reference.
func scalar(text string) string {
	if strings.Contains(text, "${") || strings.Contains(text, "$$") {
		text = strings.ReplaceAll(text, "$", "$$")
	}
	if (plain.MatchString(text) || strings.HasPrefix(text, ".") && path.MatchString(text)) && !words.MatchString(text) {
		return text
	}
	if !strings.ContainsFunc(text, func(r rune) bool { return r == '\'' || !unicode.IsPrint(r) }) {
		if !strings.ContainsAny(text, `"\`) {
			return `"` + text + `"`
		}
		return "'" + text + "'"
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
