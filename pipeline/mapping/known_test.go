package mapping_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"sluice/pipeline/mapping"
)

var decimalForm = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// unlike says in what a value is not as what is known of it, "" where it is.
func unlike(v *mapping.Value, b []byte) string {
	if v.Width > 0 && len(b) != v.Width {
		return "it has not " + strconv.Itoa(v.Width) + " bytes"
	}
	for i := range b {
		if !v.MayHold(string(b[i : i+1])) {
			return "it holds " + strconv.Quote(string(b[i:i+1]))
		}
	}
	if v.IsText() && !utf8.Valid(b) {
		return "it is not UTF-8"
	}
	ok := true
	switch v.Kind {
	case mapping.KindBytes, mapping.KindText, mapping.KindFixed, mapping.KindReversed:
	case mapping.KindInt, mapping.KindMillis:
		_, err := strconv.ParseInt(string(b), 10, 64)
		ok = err == nil
	case mapping.KindFloat:
		_, err := strconv.ParseFloat(string(b), 64)
		ok = err == nil
	case mapping.KindDecimal:
		ok = decimalForm.Match(b)
	case mapping.KindBool:
		ok = string(b) == "true" || string(b) == "false"
	case mapping.KindJSON:
		ok = json.Valid(b)
	case mapping.KindU16:
		ok = len(b) == 2
	case mapping.KindU32:
		ok = len(b) == 4
	case mapping.KindU64, mapping.KindReverseTime, mapping.KindReverseInt:
		ok = len(b) == 8 && b[0] < 0x80
	case mapping.KindI64, mapping.KindInt64:
		ok = len(b) == 8
	default:
		return "it is of no kind"
	}
	if !ok {
		return "it is not " + v.Kind.String()
	}
	return ""
}

// checkKnown compares what is known of the value of a rule's one column, put or not, with
// what the rule makes of a record: as a whole, and part by part as a row key.
func checkKnown(t *testing.T, s *mapping.Spec, r *mapping.Record) {
	t.Helper()
	p, err := mapping.Compile(s, nil)
	if err != nil {
		return
	}
	written, err := s.Written()
	if err != nil || len(written) != 1 || len(written[0].Columns) != 1 {
		t.Fatalf("%+v: got %+v, %v", s.Rules, written, err)
	}
	w := &written[0]
	out, err := p.NewMapper().Map(r)
	if err != nil || out.Filtered() {
		return
	}
	m := &out.Mutations[0]
	if why := unlike(&w.Columns[0].Value, m.Ops[0].Value); why != "" {
		t.Errorf("%s: of %q %s; it is known to be %+v", w.Columns[0].Text, m.Ops[0].Value, why, w.Columns[0].Value)
	}
	whole := w.RowValue()
	if why := unlike(&whole, m.Row); why != "" {
		t.Errorf("row %s: of %q %s; it is known to be %+v", w.RowText, m.Row, why, whole)
	}
	// From both ends, as far as there are widths.
	row := m.Row
	for i := 0; i < len(w.Row) && (w.Row[i].Literal != "" || w.Row[i].Value.Width > 0); i++ {
		row = checkPart(t, w, &w.Row[i], row, func(n int) ([]byte, []byte) { return row[:n], row[n:] })
	}
	row = m.Row
	for i := len(w.Row) - 1; i >= 0 && (w.Row[i].Literal != "" || w.Row[i].Value.Width > 0); i-- {
		row = checkPart(t, w, &w.Row[i], row, func(n int) ([]byte, []byte) { return row[len(row)-n:], row[:len(row)-n] })
	}
}

// checkPart compares a part of a row key, and returns what take leaves.
func checkPart(t *testing.T, w *mapping.Written, p *mapping.Part, row []byte, take func(n int) (part, left []byte)) []byte {
	t.Helper()
	n := max(p.Value.Width, len(p.Literal))
	if n > len(row) {
		t.Errorf("row %s: %q has no part %+v", w.RowText, row, p)
		return nil
	}
	part, left := take(n)
	if p.Literal != "" && !bytes.Equal(part, []byte(p.Literal)) {
		t.Errorf("row %s: %q stands at the place of %q", w.RowText, part, p.Literal)
	} else if why := unlike(&p.Value, part); p.Literal == "" && why != "" {
		t.Errorf("row %s: of part %q %s; it is known to be %+v", w.RowText, part, why, p.Value)
	}
	return left
}

// knownSpec is a rule that puts the expression's value, and one of its key.
func knownSpec(expression, row string) *mapping.Spec {
	return &mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "json"}, EventTime: mapping.EventTimeSpec{Field: "ts", Format: "unix_ms"},
		Rules: []mapping.RuleSpec{{Table: "t", Row: row, Put: columns{"f": {"q": expression}}}},
	}
}

// TestGuideIsKnown: what is known of each expression of the guides is true of its value; so
// it is of keys that are made of it.
func TestGuideIsKnown(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, name := range guides {
		_, blocks := guide(t, name)
		payload := blocks["json"][0]
		for line := range strings.Lines(strings.Join(blocks["expressions"], "")) {
			expression, _, _ := strings.Cut(line, "=> ")
			expression = strings.TrimSpace(expression)
			for _, row := range []string{`"r"`, expression, `"a|" + (` + expression + `) + "|" + u16(partition)`} {
				checkKnown(t, knownSpec(expression, row), guideRecord(payload))
				tried++
			}
		}
	}
	if tried < 300 {
		t.Errorf("Got %d expressions", tried)
	}
}

// TestKnownOfManyTimes: what is known of an expression takes no longer for names that stand
// in it again and again.
func TestKnownOfManyTimes(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"v%d ?? v%d", "v%d + \"\" + v%d", "[v%d, v%d]", "v%d + v%d", "concat(v%d, v%d)"} {
		text := `let v0 = "a";`
		for i := range 400 {
			text += fmt.Sprintf("let v%d = "+form+";", i+1, i, i)
		}
		w, err := knownSpec(text+"v400", text+"v400").Written()
		if err != nil || len(w) != 1 || len(w[0].Columns[0].Value.Name) > 100 {
			t.Errorf("%s: got %v, %v", form, w, err)
		}
	}
}
