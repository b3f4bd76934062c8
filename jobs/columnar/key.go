package columnar

import (
	"bytes"
	"fmt"
	"strings"

	"sluice/cell"
	"sluice/internal/spelling"
	"sluice/rowkey"
)

// KeySpec says how the row keys of a table are made, so that columns can be filled
// from parts of them ($row.NAME). The zero value says nothing.
type KeySpec struct {
	// Salt is how many buckets the salt has with which keys begin, one byte
	// (docs/row-keys.md): at most 256. Default: 0, there is none.
	Salt int `yaml:"salt,omitempty" json:"salt,omitempty"`
	// Fields are the parts of the key, or of what is behind the salt, in order
	// and without a gap.
	Fields []KeyField `yaml:"fields,omitempty" json:"fields,omitempty"`
}

// KeyField is a part of a row key. It has a Width, or an Until, or both. Of one field,
// behind which all have a Width, the end of the key tells where it ends, so that it may
// have neither, and hold its own Until.
type KeyField struct {
	// Name is by what columns take the field: $row.NAME. Letters, digits and _.
	// Default: none does.
	Name string `yaml:"name,omitempty" json:"name,omitempty"`
	// Width is how many bytes the field has. Default: all up to what the fields behind
	// it take, if each of them has a Width, or there are none; else all up to Until.
	Width int `yaml:"width,omitempty" json:"width,omitempty"`
	// Until is what stands behind the field and is in no field, with HBase's \xNN
	// escapes; without a Width, the field ends where it first stands, if a field behind
	// it has no Width. Default: nothing stands there.
	Until string `yaml:"until,omitempty" json:"until,omitempty"`
}

// isZero reports whether k says nothing.
func (k *KeySpec) isZero() bool { return k == nil || k.Salt == 0 && len(k.Fields) == 0 }

// behind returns how many bytes stand behind field i, its Until among them, and -1 where a
// field behind it has no Width.
func (k *KeySpec) behind(i int) int {
	n := 0
	for ; i < len(k.Fields); i++ {
		until, _ := UnescapeKey(k.Fields[i].Until)
		n += len(until)
		if i+1 < len(k.Fields) {
			if k.Fields[i+1].Width <= 0 {
				return -1
			}
			n += k.Fields[i+1].Width
		}
	}
	return n
}

// keyLayout is a compiled KeySpec.
type keyLayout struct {
	salted bool
	salt   rowkey.Salt
	fields []keyField
}

// keyField is a compiled KeyField, with what is said of keys that end in it.
type keyField struct {
	name          string
	width         int // 0 = up to behindIt, or to until
	until         []byte
	behindIt      int // how many bytes stand behind the field, until among them; -1 = they differ
	short, behind string
}

// Why a key cannot be split.
const (
	keyUnlike = "the row key is not as row_key says: "
	keyNoSalt = keyUnlike + "it does not begin with the salt"
	keyLonger = keyUnlike + "there are bytes behind the last field"
)

// split cuts key into the fields, which share its memory, and returns why it cannot,
// or "" where it has.
func (k *keyLayout) split(key []byte, fields [][]byte) string {
	if k.salted {
		var err error
		if _, key, err = k.salt.Split(key); err != nil {
			return keyNoSalt
		}
	}
	for i := range k.fields {
		f := &k.fields[i]
		n := f.width
		switch {
		case n > len(key):
			return f.short
		case n == 0 && f.behindIt >= 0:
			if n = len(key) - f.behindIt; n < 0 {
				return f.short
			}
		case n == 0:
			if n = bytes.Index(key, f.until); n < 0 {
				return f.behind
			}
		}
		fields[i], key = key[:n:n], key[n:]
		if !bytes.HasPrefix(key, f.until) {
			return f.behind
		}
		key = key[len(f.until):]
	}
	if len(key) > 0 {
		return keyLonger
	}
	return ""
}

// key compiles spec, nil for a zero one.
func (c *compiler) key(spec *KeySpec) *keyLayout {
	if spec.isZero() {
		return nil
	}
	bad := func(path, format string, args ...any) {
		c.errs = append(c.errs, &SpecError{Path: "row_key." + path, Problem: fmt.Sprintf(format, args...)})
	}
	k := &keyLayout{salted: spec.Salt != 0}
	if k.salted {
		var err error
		if k.salt, err = rowkey.NewSalt(spec.Salt); err != nil {
			bad("salt", "it has 1 to %d buckets, not %d", rowkey.MaxBuckets, spec.Salt)
		}
	}
	if len(spec.Fields) == 0 {
		bad("fields", "row_key.fields names none; a row key has at least one field")
	}
	for i := range spec.Fields {
		s := &spec.Fields[i]
		at := fmt.Sprintf("fields[%d]", i)
		until, err := UnescapeKey(s.Until)
		if err != nil {
			bad(at+".until", "%v", err)
		}
		switch {
		case s.Width < 0 || s.Width > cell.MaxRowLength:
			bad(at+".width", "%d is not from 1 to %d bytes", s.Width, cell.MaxRowLength)
		case s.Width == 0 && s.Until == "" && spec.behind(i) < 0:
			bad(at, "where does it end? Give it a width, or until what; only the last field, or one behind which all have widths, is all that is left")
		}
		switch {
		case s.Name != "" && strings.ContainsFunc(s.Name, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
		}):
			bad(at+".name", "%q has something else than letters, digits and _", s.Name)
		case s.Name != "" && k.field(s.Name) >= 0:
			bad(at+".name", "%q is also the name of fields[%d]", s.Name, k.field(s.Name))
		}
		name := s.Name
		if name == "" {
			name = fmt.Sprintf("%d", i+1)
		}
		f := keyField{
			name: s.Name, width: s.Width, until: until, behindIt: spec.behind(i),
			short:  fmt.Sprintf("%sfield %s has not %d bytes", keyUnlike, name, s.Width),
			behind: fmt.Sprintf("%s%q does not stand behind field %s", keyUnlike, s.Until, name),
		}
		if s.Width == 0 {
			f.short = fmt.Sprintf("%sthere are not %d bytes behind field %s", keyUnlike, f.behindIt, name)
		}
		k.fields = append(k.fields, f)
	}
	return k
}

// field returns the number of the field with this name, or -1.
func (k *keyLayout) field(name string) int {
	for i := range k.fields {
		if k.fields[i].name == name {
			return i
		}
	}
	return -1
}

// fromKey fills in the field of the row key that col comes from.
func (c *compiler) fromKey(i int, name string, col *column) {
	if c.layout == nil {
		c.bad(i, "from", "%q is a field of the row key: row_key is missing, which says how keys are made", col.from)
		return
	}
	n := c.layout.field(name)
	if name == "" || n < 0 {
		var names []string
		for _, f := range c.layout.fields {
			if f.name != "" {
				names = append(names, f.name)
			}
		}
		c.bad(i, "from", "row_key has no field %q%s; it has %s", name, spelling.Aside(name, names), strings.Join(names, ", "))
		return
	}
	col.source, col.field = sourceField, n
}

// EscapeKey writes a row key as HBase's shell does: printable ASCII as it is, and
// \xNN for the rest and for the backslash (Bytes.toStringBinary).
func EscapeKey(key []byte) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(key))
	for _, c := range key {
		if c >= ' ' && c <= '~' && c != '\\' {
			b.WriteByte(c)
		} else {
			b.WriteString(`\x`)
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

// UnescapeKey reads bytes as HBase's shell writes them: \xNN for those that are no
// printable ASCII and for the backslash (Bytes.toStringBinary); it also takes bytes
// beyond ASCII as they are. An empty s is nil.
func UnescapeKey(s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b = append(b, s[i])
			continue
		}
		if i+3 >= len(s) || s[i+1] != 'x' {
			return nil, fmt.Errorf(`%q: a backslash begins \xNN, two hex digits; itself it is \x5C`, s)
		}
		high, low := hexDigit(s[i+2]), hexDigit(s[i+3])
		if high > 15 || low > 15 {
			return nil, fmt.Errorf(`%q: \x%s is not two hex digits`, s, s[i+2:i+4])
		}
		b = append(b, high<<4|low)
		i += 3
	}
	return b, nil
}

// hexDigit returns the value of a hex digit, and 255 of anything else.
func hexDigit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}
