package mapping

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"weak"
)

// each returns a record with a text of so many bytes and an array of elements 0, 1, ….
func each(text, elements int) *Record {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"user": %q, "items": [0`, strings.Repeat("u", text))
	for i := 1; i < elements; i++ {
		fmt.Fprintf(&b, ",%d", i)
	}
	b.WriteString("]}")
	return &Record{Value: b.Bytes(), Timestamp: 1700000000000}
}

// What is made for one record is bounded, whoever makes it: a text of 32 KB and 100,000
// elements of 2 bytes would be 3 GB of rows.
func TestMadeIsBounded(t *testing.T) {
	t.Parallel()
	one := map[string]map[string]string{"f": {"q": "i"}}
	for name, tc := range map[string]struct {
		spec Spec
		want string // begins the error
	}{
		"row":       {Spec{Rules: []RuleSpec{{Table: "t", ForEach: []string{"i in items"}, Row: `user + "/" + i`, Put: one}}}, "map[0].row: "},
		"value":     {Spec{Rules: []RuleSpec{{Table: "t", ForEach: []string{"i in items"}, Row: `i`, Put: map[string]map[string]string{"f": {"q": "upper(user)"}}}}}, "map[0].put.f.q: "},
		"qualifier": {Spec{Rules: []RuleSpec{{Table: "t", ForEach: []string{"i in items"}, Row: `i`, Increment: []IncrementSpec{{Family: "f", Qualifier: "lower(user)"}}}}}, "map[0].increment[0]: "},
		"machine":   {Spec{Rules: []RuleSpec{{Table: "t", ForEach: []string{"i in items"}, Row: `i`, Put: map[string]map[string]string{"f": {"q": `i == "x" ? "b" : user + "z"`}}}}}, "map[0].put.f.q: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.spec.Decode.Format = "json"
			p, err := Compile(&tc.spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			m := p.NewMapper()
			// 2,100 times 32,000 bytes are more than 64 MiB, 2,000 times are less.
			_, err = m.Map(each(32_000, 2_100))
			var e *Error
			if !errors.As(err, &e) || e.Class != classTooMany || !strings.HasPrefix(e.Err.Error(), tc.want) {
				t.Errorf("Got %v, want a %s of %s", err, classTooMany, tc.want)
			}
			m.Release()
			if out, err := m.Map(each(32_000, 2_000)); err != nil || len(out.Mutations) != 2_000 {
				t.Errorf("Got %v for what is within the bound", err)
			}
			m.Release()
		})
	}
}

// An array that is gone through crosswise is read as often as the other one has elements,
// and its escaped texts are made each time. They count where mutations refer to them.
func TestMadeIsBoundedOfCrossedArrays(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ bound, elements int }{ // texts of 20 KB
		"lowered": {1 << 20, 64},
		"real":    {maxMade, 4_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "real" && testing.Short() {
				t.Skip("short: gigabytes are read, slowly under -race; the lowered bound stands for it")
			}
			for when, bounded := range map[string]bool{`a == "never"`: false, `a == "1"`: true} {
				p, err := Compile(&Spec{Decode: DecodeSpec{Format: "json"}, Rules: []RuleSpec{{
					Table: "t", ForEach: []string{"a in as", "b in bs"}, When: when, Row: "a", Put: map[string]map[string]string{"f": {"q": "b"}},
				}}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if p.maxMade != maxMade {
					t.Fatalf("Got a bound of %d bytes, want %d", p.maxMade, maxMade)
				}
				p.maxMade = tc.bound
				m := p.NewMapper()
				record := func(text string) *Record {
					return &Record{Timestamp: 1, Value: []byte(`{"as": ["1"` + strings.Repeat(`,"1"`, tc.elements-1) + `], "bs": ["` + text + `"]}`)}
				}
				long := strings.Repeat("x", 20_000)
				var e *Error
				_, err = m.Map(record(long + `\n`))
				if refused := errors.As(err, &e) && e.Class == classTooMany && strings.HasPrefix(e.Err.Error(), "map[0].for_each[1]: "); refused != bounded || !refused && err != nil {
					t.Errorf("Got %v where %s, want a %s: %v", err, when, classTooMany, bounded)
				}
				m.Release()
				if _, err := m.Map(record(long)); err != nil { // as it is, it is made of nothing
					t.Errorf("Got %v without an escape", err)
				}
				m.Release()
				if _, err := m.Map(record(long[:10_000] + `\n`)); err != nil {
					t.Errorf("Got %v for half of it", err)
				}
				m.Release()
			}
		})
	}
}

// Rollups of the lines of one payload make rows, too.
func TestMadeIsBoundedOfRollups(t *testing.T) {
	t.Parallel()
	p, err := Compile(&Spec{
		Decode: DecodeSpec{Format: "ndjson"},
		Rollups: []RollupSpec{{
			Name: "users", Table: "t", Buckets: []string{"total"}, Dimensions: map[string]string{"user": "user"}, Sets: [][]string{{"user"}},
		}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := p.NewMapper()
	lines := []byte(strings.Repeat(fmt.Sprintf(`{"user": %q}`+"\n", strings.Repeat("u", 32_000)), 2_200))
	var e *Error
	if _, err := m.Map(&Record{Value: lines}); !errors.As(err, &e) || e.Class != classTooMany {
		t.Errorf("Got %v, want a %s", err, classTooMany)
	}
}

// Values that are made for one record are right wherever in the mapper's memory they lie,
// each is in memory once, and nothing of them is kept.
func TestMadeInParts(t *testing.T) {
	p, err := Compile(&Spec{
		Decode: DecodeSpec{Format: "json"},
		Rules: []RuleSpec{{
			Table: "t", ForEach: []string{"i in items"}, Row: `i + "/" + user`,
			Put: map[string]map[string]string{"f": {"q": `upper(user) + i`}},
		}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const text, elements = 30_000, 500
	r := each(text, elements)
	m := p.NewMapper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	out, err := m.Map(r)
	if err != nil || len(out.Mutations) != elements {
		t.Fatalf("Got %v", err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	// 30 MB are made; a slice that grows would leave some five times of that behind.
	if n := int64(after.HeapAlloc) - int64(before.HeapAlloc); n > 2*2*text*elements {
		t.Errorf("Got %d bytes held of %d that are made", n, 2*text*elements)
	}
	for i := range out.Mutations {
		mut := &out.Mutations[i]
		if got, want := string(mut.Row), fmt.Sprintf("%d/%s", i, strings.Repeat("u", text)); got != want {
			t.Fatalf("Got the row %.20q of %d bytes at %d", got, len(got), i)
		}
		if got, want := string(mut.Ops[0].Value), strings.Repeat("U", text)+fmt.Sprint(i); got != want {
			t.Fatalf("Got the value %.20q of %d bytes at %d", got, len(got), i)
		}
	}
	first := weak.Make(&out.Mutations[0].Row[0])
	m.Release()
	runtime.GC()
	if first.Value() != nil {
		t.Error("Got what was made first held on to after Release")
	}
	runtime.KeepAlive(m)
}

// Pairs of elements that a condition refuses make nothing, and take time all the same.
func TestCrossedIsBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ bound, over, within int }{
		"lowered": {10_000, 101, 75}, // twice 5,625 pairs are more than the bound: it is of each record
		"real":    {maxCrossed, 3_200, 2_300},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "real" && testing.Short() {
				t.Skip("short: 20 million pairs are gone through, slowly under -race; the lowered bound stands for it")
			}
			spec := Spec{Rules: []RuleSpec{{
				Table: "t", ForEach: []string{"i in items", "j in items"}, When: `i == "no"`, Row: `i`, Put: map[string]map[string]string{"f": {"q": "j"}},
			}}}
			spec.Decode.Format = "json"
			p, err := Compile(&spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			if p.maxCrossed != maxCrossed {
				t.Fatalf("Got a bound of %d pairs, want %d", p.maxCrossed, maxCrossed)
			}
			p.maxCrossed = tc.bound
			m := p.NewMapper()
			_, err = m.Map(each(1, tc.over))
			var e *Error
			if want := fmt.Sprintf("map[0].for_each[1]: more than %d elements", tc.bound); !errors.As(err, &e) || e.Class != classTooMany || !strings.HasPrefix(e.Err.Error(), want) {
				t.Errorf("Got %v, want a %s of the second loop", err, classTooMany)
			}
			m.Release()
			// Each record has all of it.
			for range 2 {
				if out, err := m.Map(each(1, tc.within)); err != nil || len(out.Mutations) != 0 {
					t.Errorf("Got %v for what is within the bound", err)
				}
				m.Release()
			}
		})
	}
}

// Elements that are few and large take as much time as those that are many, and so does a
// field that is read for each element.
func TestSpentIsBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rule RuleSpec
		want string // begins the error
	}{
		"pairs":        {RuleSpec{ForEach: []string{"i in items", "j in large"}, When: `i == "no"`}, "map[0].for_each[1]: more than 100000 bytes"},
		"array":        {RuleSpec{ForEach: []string{"i in items"}, When: `i in large`}, "map[0].when: more than 100000 bytes"},
		"text":         {RuleSpec{ForEach: []string{"i in items"}, When: `user contains "no"`}, "map[0].when: more than 100000 bytes"},
		"length":       {RuleSpec{ForEach: []string{"i in items"}, When: `len(large) > 2`}, "map[0].when: more than 100000 bytes"},
		"direct":       {RuleSpec{ForEach: []string{"i in items"}, When: `upper(user) == "no"`}, "map[0].when: more than 100000 bytes"},
		"joined":       {RuleSpec{ForEach: []string{"i in items"}, When: `user + "x" == "no"`}, "map[0].when: more than 100000 bytes"},
		"inside":       {RuleSpec{When: `any(items, user contains "no")`}, "map[0].when: more than 100000 bytes"},
		"text of text": {RuleSpec{When: `any(items, upper(user) == "no")`}, "map[0].when: more than 100000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := Spec{Decode: DecodeSpec{Format: "json"}, Rules: []RuleSpec{tc.rule}}
			spec.Rules[0].Table, spec.Rules[0].Row, spec.Rules[0].Put = "t", `"r"`, map[string]map[string]string{"f": {"q": `"v"`}}
			p, err := Compile(&spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			if p.maxSpent != maxSpent {
				t.Fatalf("Got a bound of %d bytes, want %d", p.maxSpent, maxSpent)
			}
			p.maxSpent = 100_000
			m := p.NewMapper()
			record := func(items int) *Record {
				r := each(500, items)
				r.Value = append(r.Value[:len(r.Value)-1], fmt.Sprintf(`, "large": [%q, %q]}`, strings.Repeat("x", 250), strings.Repeat("y", 250))...)
				return r
			}
			_, err = m.Map(record(210))
			var e *Error
			if !errors.As(err, &e) || e.Class != classTooMany || !strings.HasPrefix(e.Err.Error(), tc.want) {
				t.Errorf("Got %v, want a %s: %s", err, classTooMany, tc.want)
			}
			m.Release()
			for range 2 { // each record has all of it
				if _, err := m.Map(record(15)); err != nil {
					t.Errorf("Got %v for what is within the bound", err)
				}
				m.Release()
			}
		})
	}
}
