package mapping

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice/cell"
)

func TestAppendText(t *testing.T) {
	t.Parallel()
	put := cell.Mutation{Table: "events", Row: []byte("u1\x00\xff'\"#\\é")}
	put.Put("e", []byte("page"), 1700000000000, []byte("/a é"))
	put.Put("e", nil, cell.Latest, []byte("it's"))
	add := cell.Mutation{Table: "counts", Row: []byte("/a"), Ops: []cell.Op{{Type: cell.OpIncrement, Family: "day", Qualifier: []byte("20231114"), Delta: -2, Time: 5}}}
	got := string(AppendText([]byte("# "), []cell.Mutation{put, add}))
	want := `# put 'events', "u1\x00\xff'\"\#\\é", 'e:page', '/a é', 1700000000000
put 'events', "u1\x00\xff'\"\#\\é", 'e:', "it's"
incr 'counts', '/a', 'day:20231114', -2, 5
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Different bytes have different texts, and each can be read back.
func TestAppendQuoted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SliceOf(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte(`'"\#xé`)))).Draw(t, "bytes")
		text := string(appendQuoted(nil, s))
		if strings.ContainsAny(text, "\n\r") {
			t.Fatalf("%q is more than a line", text)
		}
		var back []byte
		if text[0] == '\'' {
			back = []byte(text[1 : len(text)-1])
		} else {
			plain, err := strconv.Unquote(strings.ReplaceAll(text, `\#`, `#`))
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			back = []byte(plain)
		}
		if !bytes.Equal(s, back) {
			t.Fatalf("%q became %s, which is %q", s, text, back)
		}
	})
}
