package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/store"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"list", "list []"},
		{"  # nothing", ""},
		{" ; ;\n\n", ""},
		{"put 't', 'r', 'f:q', 'v', 5 # late", `put ["t", "r", "f:q", "v", 5]`},
		{`get "t", "\x00\xffA\n\"\u00e9\u{1F600}"`, `get ["t", "\x00\xffA\n\"é😀"]`},
		{`put 't','it''s'`, "13: syntax error: unexpected \"'s'\""},
		{`get 't', 'a\'b\\c\d'`, `get ["t", "a'b\\c\\d"]`},
		{"scan 't', {LIMIT => 3, COLUMNS => ['a', 'b:c']}", `scan ["t", {"LIMIT"=>3, "COLUMNS"=>["a", "b:c"]}]`},
		{"scan 't', LIMIT => -1, RAW => true", `scan ["t", {"LIMIT"=>-1, "RAW"=>true}]`},
		{"alter 't', {NAME => 'f'}, NAME => 'g', 'delete' => :h", `alter ["t", {"NAME"=>"f"}, {"NAME"=>"g", "delete"=>h}]`},
		{"incr('t', 'r', 'c:n', 1_000)", `incr ["t", "r", "c:n", 1000]`},
		{"x 0x1F, 1.5e3, -2E-1, nil, FOREVER", "x [31, 1500.0, -0.2, nil, FOREVER]"},
		{"put 't', 'a'; scan 't';", `put ["t", "a"] scan ["t"]`},
		{"list\nlist 'a'", `list [] list ["a"]`},
		{"scan 't', {\n  LIMIT => 3, # rows\n  RAW => true\n}", `scan ["t", {"LIMIT"=>3, "RAW"=>true}]`},
		{"put 't',\n 'r'", `put ["t", "r"]`},
		{"t = get_table 't'; t.scan LIMIT => 1", `t=get_table ["t"] t.scan [{"LIMIT"=>1}]`},
		{"put 't',", "9: syntax error: the line ends too early…"},
		{"t =", "4: syntax error: the line ends too early…"},
		{"put 't", "5: syntax error: the string that begins here has no end…"},
		{`put "t\`, "5: syntax error: the string that begins here has no end…"},
		{"scan 't', {A => [1, 2", "17: syntax error: the [ here is not closed…"},
		{"scan('t'", "5: syntax error: the ( here is not closed…"},
		{"scan 't', {LIMIT 3}", "18: syntax error: expected =>"},
		{"scan 't', [1 2]", "14: syntax error: expected , or ]"},
		{"scan('t' 3)", "10: syntax error: expected , or )"},
		{"put 't' 'r'", "9: syntax error: unexpected \"'r'\""},
		{"put 1x2", "5: syntax error: \"1x2\" is not a number of 64 bits"},
		{"put 9223372036854775808", "5: syntax error: \"9223372036854775808\" is not a number of 64 bits"},
		{`put 't', "r#{i}"`, `12: syntax error: "#{…}" is for Ruby to compute, and this is no Ruby; write "\#{", or single quotes, for the text`},
		{`put 't', "r\#{i}", "#", "a#b", '#{i}', "#"`, `put ["t", "r#{i}", "#", "a#b", "#{i}", "#"]`},
		{`put "\xg"`, `7: syntax error: escape without digits`},
		{"scan " + strings.Repeat("[", 100), "70: syntax error: too many brackets within brackets"},
	} {
		calls, err := parse(c.in)
		var parts []string
		for _, call := range calls {
			name := call.name
			if call.assign != "" {
				name = call.assign + "=" + name
			}
			parts = append(parts, name+" "+inspect(call.args))
		}
		got := strings.Join(parts, " ")
		if err != nil {
			got = fmt.Sprintf("%d: %v", err.(*syntaxError).pos+1, err)
			if incomplete(err) {
				got += "…"
			}
		}
		if got != c.want {
			t.Errorf("parse(%q)\n Got %s\nwant %s", c.in, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("scan 't', {COLUMNS => ['f:a', \"\\x00\"], LIMIT => 5}")
	f.Add("put 't','r','f:q','v', -1.5e3, {TTL=>1}; t = get_table 'x'\nt.put \"\\u{1F600}\"")
	f.Add("alter('t', {NAME => :f, \n METADATA => {'a' => \"b\\\nc\"}}) # end")
	f.Fuzz(func(t *testing.T, line string) {
		calls, err := parse(line)
		if err != nil {
			if e, ok := err.(*syntaxError); !ok || e.pos < 0 || e.pos > len(line) || calls != nil {
				t.Fatalf("%q: %v, %v", line, calls, err)
			}
			// Whatever may be completed must not be an error that a line end
			// makes worse.
			return
		}
		for _, c := range calls {
			if c.name == "" || c.pos < 0 || c.pos >= len(line) || !strings.HasPrefix(line[c.pos:], c.name) {
				t.Fatalf("%q: call %+v", line, c)
			}
			for _, a := range c.args {
				_, _ = text(a), inspect(a)
			}
		}
		// Calls do not depend on what stands behind them.
		again, err := parse(line + "\n;list")
		if err != nil || len(again) != len(calls)+1 {
			t.Fatalf("%q and another call: %d calls, %v; want %d", line, len(again), err, len(calls)+1)
		}
	})
}

// FuzzSchema feeds the strings of create and alter: whatever is accepted is a valid
// schema whose description is accepted again.
func FuzzSchema(f *testing.F) {
	f.Add("f1", "TTL", "1 DAY 2 HOURS", "MAX_FILESIZE", "1073741824")
	f.Add("f", "VERSIONS", "MAX", "READONLY", "TRUE")
	f.Add("ü", "NEW_VERSION_BEHAVIOR", "true", "SPLIT_POLICY", "ConstantSizeRegionSplitPolicy")
	f.Add("f", "BLOOMFILTER", "rowcol", "owner", "me")
	f.Fuzz(func(t *testing.T, family, attribute, value, tableAttribute, tableValue string) {
		var out strings.Builder
		s := &session{commands: newCommandTable(), print: newPrinter(&out, time.UTC)}
		d := &store.TableDescriptor{Name: "t"}
		fam := store.NewFamily(family)
		if err := setFamily(&fam, hash{{symbol("NAME"), family}, {attribute, value}}); err != nil {
			return
		}
		if err := setTable(d, pair{tableAttribute, tableValue}); err != nil {
			return
		}
		if err := s.alterBy(d, hash{{symbol("NAME"), family}, {attribute, value}}); err != nil {
			t.Fatalf("create takes %q => %q, alter does not: %v", attribute, value, err)
		}
		if d.Validate() != nil {
			return
		}
		again := store.NewFamily(family)
		for _, a := range append(fam.List(), fam.ListMetadata()...) {
			if a.Name == "NAME" || a.Name == "BLOCKSIZE" || a.Name == "TTL" { // shown for people
				continue
			}
			if err := again.SetAttribute(a.Name, a.Value); err != nil {
				t.Fatalf("described %s => %q: %v", a.Name, a.Value, err)
			}
		}
		again.TTL, again.BlockSize = fam.TTL, fam.BlockSize
		if got, want := fmt.Sprint(again.List()), fmt.Sprint(fam.List()); got != want {
			t.Fatalf("Got %s\nwant %s", got, want)
		}
	})
}

// Numbers are stored as Ruby's Float#to_s has them.
func TestFloats(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"1.0": "1.0", "-2.0": "-2.0", "0.0": "0.0", "1.50": "1.5", "1e3": "1000.0", "0.0001": "0.0001", "123456789012345.5": "123456789012345.5",
		"0.00001": "1.0e-05", "-1.25e-7": "-1.25e-07", "1e15": "1000000000000000.0", "1e16": "1.0e+16", "1.5e300": "1.5e+300",
	} {
		calls, err := parse("put " + in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got := text(calls[0].args[0]); got != want {
			t.Errorf("%s: Got %s, want %s", in, got, want)
		}
	}
}

func TestConverters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spec, bytes, want string
	}{
		{"f:q:toLong", "\xff\xff\xff\xff\xff\xff\xff\xfe", "-2"},
		{"f:q:toLong", "short", "short"},
		{"f:q:toInt", "\x00\x00\x01\x00", "256"},
		{"f:q:toShort", "\xff\xff", "-1"},
		{"f:q:toDouble", "\x3f\xf8\x00\x00\x00\x00\x00\x00", "1.5"},
		{"f:q:toDouble", "\x7f\xf8\x00\x00\x00\x00\x00\x00", `\x7F\xF8\x00\x00\x00\x00\x00\x00`},
		{"f:q:toDouble", "\x40\x00\x00\x00\x00\x00\x00\x00", "2.0"},
		{"f:q:toFloat", "\xbf\x00\x00\x00", "-0.5"},
		{"f:q:toBoolean", "\x01", "true"},
		{"f:q:toString", "é", "é"},
		{"f:q:toStringBinary", "é", `\xC3\xA9`},
		{"f:q:c(org.apache.hadoop.hbase.util.Bytes).toInt", "\x00\x00\x00\x07", "7"},
		{"f:a:b", "v", "v"},
	} {
		col, name, err := column(c.spec)
		if err != nil || col.Family != "f" || col.All {
			t.Errorf("%s: %+v, %v", c.spec, col, err)
			continue
		}
		got := escape([]byte(c.bytes))
		if name != "" {
			got = text(converters[name]([]byte(c.bytes)))
			if b, ok := converters[name]([]byte(c.bytes)).([]byte); ok {
				got = escape(b)
			}
		}
		if got != c.want {
			t.Errorf("%s of %q: Got %s, want %s", c.spec, c.bytes, got, c.want)
		}
	}
	for _, spec := range []string{":q", "", "f:q:c(java.lang.Math).abs", "f:q:c(Bytes).toNothing"} {
		if _, _, err := column(spec); err == nil {
			t.Errorf("column(%q) has no error", spec)
		}
	}
	if col, _, err := column("f:a:b"); err != nil || string(col.Qualifier) != "a:b" {
		t.Errorf("f:a:b: qualifier %q, %v", col.Qualifier, err)
	}
}
