package inverse_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/inverse"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
	"sluice/jobs/jobstest"
	"sluice/pipeline/mapping"
	"sluice/store"
	"sluice/store/memstore"
)

// fatal is what testing.T and rapid.T share.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// family returns a family, which counts as kind says: COUNTER, DISTINCT or nothing.
func family(name, kind string) store.FamilyDescriptor {
	f := store.NewFamily(name)
	f.Counter, f.Distinct = kind == "COUNTER", kind == "DISTINCT"
	return f
}

// roundTrip maps records by the rules of pipeline p, stores what becomes of them in a table,
// and returns the jobs that inverse makes of the rules with the rows that each reads: by
// column, as columnartest spells values.
func roundTrip(t fatal, spec *mapping.Spec, table *store.TableDescriptor, records []mapping.Record) (derived []inverse.Job, rows [][]map[string]string) {
	t.Helper()
	ctx := context.Background()
	plan, err := mapping.Compile(spec, func(string) *store.TableDescriptor { return table })
	if err != nil {
		t.Fatalf("compile: %v", err)
	}
	e, err := memstore.New(nil)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	if err := e.CreateTable(ctx, table.Clone(), nil); err != nil {
		t.Fatalf("%v", err)
	}
	m := plan.NewMapper()
	for i := range records {
		out, err := m.Map(&records[i])
		var refused *mapping.Error
		if errors.As(err, &refused) { // a row key that is too long, or a value that fixed does not take
			continue
		}
		if err != nil {
			t.Fatalf("map %q: %v", records[i].Value, err)
		}
		for k := range out.Mutations {
			if _, err := e.MutateRow(ctx, nil, &out.Mutations[k]); err != nil {
				t.Fatalf("%v", err)
			}
		}
	}
	if derived, err = inverse.Jobs(table, []inverse.Rules{{Pipeline: "p", Spec: spec}}); err != nil {
		t.Fatalf("%v", err)
	}
	for i := range derived {
		rows = append(rows, read(t, e, table, &derived[i]))
	}
	return derived, rows
}

// read returns the rows that a derived job reads, by column.
func read(t fatal, e store.Snapshotter, table *store.TableDescriptor, derived *inverse.Job) (rows []map[string]string) {
	t.Helper()
	ctx := context.Background()
	derived.Spec.Out = "./out"
	job, err := jobs.Compile(derived.Name, &derived.Spec, table)
	if err != nil {
		t.Fatalf("%s\n%v", inverse.AppendYAML(nil, []inverse.Job{*derived}), err)
	}
	s, err := e.Snapshot(ctx)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	r, err := jobs.OpenReading(ctx, &jobs.ReadOptions{Job: job, Source: s})
	if err != nil {
		t.Fatalf("%v", err)
	}
	for part := range r.Parts() {
		err := r.Read(ctx, part, func(b *columnar.Batch) error {
			for _, texts := range columnartest.Texts(b) {
				row := map[string]string{}
				for c, column := range b.Columns() {
					row[column.Name] = texts[c]
				}
				rows = append(rows, row)
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%s\n%v", inverse.AppendYAML(nil, []inverse.Job{*derived}), err)
		}
	}
	return rows
}

// event is a record's document, and what of the record the rules read.
type event struct {
	User, Page, Code string
	Country, City    *string
	Clicks           int64
	Price            string // a number as JSON spells it
	Bot              bool
	TS               int64
	Tags             []string
	Bytes            []byte

	Partition int32
	Offset    int64
	Key       []byte
}

func drawEvent(t *rapid.T, offset int64) *event {
	text := rapid.OneOf(rapid.StringMatching(`[a-z/|äß-]{1,8}`), rapid.StringN(1, 8, -1))
	perhaps := func(name string) *string {
		if !rapid.Bool().Draw(t, "has "+name) {
			return nil
		}
		s := text.Draw(t, name)
		return &s
	}
	return &event{
		User: text.Draw(t, "user"), Page: text.Draw(t, "page"), Code: rapid.StringMatching(`[a-zäß]{0,6}`).Draw(t, "code"),
		Country: perhaps("country"), City: perhaps("city"),
		Clicks: rapid.Int64Range(-1_000_000, 1_000_000).Draw(t, "clicks"),
		Price:  rapid.StringMatching(`(0|-?[1-9][0-9]{0,6})(\.[0-9]{1,6})?(e[0-9])?`).Draw(t, "price"), // -0 is 0 where it is whole
		Bot:    rapid.Bool().Draw(t, "bot"), TS: rapid.Int64Range(0, 253402300799999).Draw(t, "ts"),
		Tags: rapid.SliceOfN(text, 1, 3).Draw(t, "tags"), Bytes: rapid.SliceOfN(rapid.Byte(), 1, 12).Draw(t, "bytes"),
		Partition: int32(rapid.Uint16().Draw(t, "partition")), Offset: offset,
		Key: rapid.SliceOfN(rapid.Byte(), 1, 5).Draw(t, "key"),
	}
}

// record returns the record of e, in JSON.
func (e *event) record(t fatal) mapping.Record {
	t.Helper()
	doc := map[string]any{
		"user": e.User, "page": e.Page, "code": e.Code, "clicks": e.Clicks, "price": json.RawMessage(e.Price), "is_bot": e.Bot, "ts": e.TS,
		"tags": e.Tags, "b64": base64.StdEncoding.EncodeToString(e.Bytes), "geo": map[string]any{"city": e.City},
	}
	if e.Country != nil {
		doc["country"] = e.Country
	}
	value, err := json.Marshal(doc)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return mapping.Record{
		Topic: "page-views", Partition: e.Partition, Offset: e.Offset, Timestamp: e.TS + 1, Key: e.Key, Value: value,
		Headers: []mapping.Header{{Key: []byte("h"), Value: e.Bytes}},
	}
}

// How columnartest spells values.
func quoted[T string | []byte](s T) string { return fmt.Sprintf("%q", []byte(s)) }
func float(f float64) string               { return fmt.Sprintf("%x", math.Float64bits(f)) }
func micros(ms int64) string               { return strconv.FormatInt(ms*1000, 10) }

func orNull(s *string) string {
	if s == nil {
		return "null"
	}
	return quoted(*s)
}

func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return quoted(b)
}

func number(text string) float64 {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return f
}

// expressions are what rules put, with the type and the coding of the column, and what it
// holds of an event.
var expressions = []struct {
	text, typ, coding string
	want              func(e *event) string
}{
	// What a document has is any value, and as text what the payload spells.
	{`user`, "string", "", func(e *event) string { return quoted(e.User) }},
	{`country`, "string", "", func(e *event) string { return orNull(e.Country) }},
	{`geo.city`, "string", "", func(e *event) string { return orNull(e.City) }},
	{`geo["city"]`, "string", "", func(e *event) string { return orNull(e.City) }},
	{`tags[0]`, "string", "", func(e *event) string { return quoted(e.Tags[0]) }},
	{`tags`, "string", "", func(e *event) string { return jsonOf(e.Tags) }},
	{`clicks`, "string", "", func(e *event) string { return quoted(fmt.Sprint(e.Clicks)) }},
	{`price`, "string", "", func(e *event) string { return quoted(e.Price) }},
	{`is_bot`, "string", "", func(e *event) string { return quoted(fmt.Sprint(e.Bot)) }},
	{`nothing`, "string", "", func(*event) string { return "null" }},
	{`country ?? "none"`, "string", "", func(e *event) string {
		if e.Country == nil {
			return quoted("none")
		}
		return quoted(*e.Country)
	}},
	{`coalesce(geo.city, country, "none")`, "string", "", func(e *event) string {
		none := "none"
		return quoted(*cmp.Or(e.City, e.Country, &none))
	}},
	{`string(clicks)`, "string", "", func(e *event) string { return quoted(fmt.Sprint(e.Clicks)) }},
	{`let u = user; u`, "string", "", func(e *event) string { return quoted(e.User) }},
	// Text.
	{`user + "/" + page`, "string", "", func(e *event) string { return quoted(e.User + "/" + e.Page) }},
	{`user + "/" + clicks`, "string", "", func(e *event) string { return quoted(fmt.Sprint(e.User, "/", e.Clicks)) }},
	{`"web"`, "string", "", func(*event) string { return quoted("web") }},
	{`upper(code)`, "string", "", func(e *event) string { return quoted(strings.Map(simpleUpper, e.Code)) }},
	{`clicks > 3 ? "many" : "few"`, "string", "", func(e *event) string {
		if e.Clicks > 3 {
			return quoted("many")
		}
		return quoted("few")
	}},
	{`trim(code)`, "string", "", func(e *event) string { return quoted(e.Code) }},
	{`replace(code, "a", "ä")`, "string", "", func(e *event) string { return quoted(strings.ReplaceAll(e.Code, "a", "ä")) }},
	{`date(time, "yyyy-MM-dd HH:mm")`, "string", "", func(e *event) string {
		return quoted(time.UnixMilli(e.TS).UTC().Format("2006-01-02 15:04"))
	}},
	{`topic`, "string", "", func(*event) string { return quoted("page-views") }},
	{`pad(code, 12)`, "string", "", func(e *event) string { return quoted(strings.Repeat("0", 12-len(e.Code)) + e.Code) }},
	{`toBase64(user)`, "string", "", func(e *event) string { return quoted(base64.StdEncoding.EncodeToString([]byte(e.User))) }},
	{`decimal(fromBase64(b64), 2)`, "string", "", func(e *event) string { return quoted(decimalText(e.Bytes, 2)) }},
	// Numbers.
	{`int(clicks)`, "int64", "", func(e *event) string { return fmt.Sprint(e.Clicks) }},
	{`int(clicks) + 1`, "int64", "", func(e *event) string { return fmt.Sprint(e.Clicks + 1) }},
	{`-int(clicks)`, "int64", "", func(e *event) string { return fmt.Sprint(-e.Clicks) }},
	{`let n = int(clicks); n * n`, "int64", "", func(e *event) string { return fmt.Sprint(e.Clicks * e.Clicks) }},
	{`clicks % 7`, "int64", "", func(e *event) string { return fmt.Sprint(e.Clicks % 7) }},
	{`coalesce(len(nothing), int(clicks), 0)`, "int64", "", func(e *event) string { return fmt.Sprint(e.Clicks) }},
	{`is_bot ? 1 : 0`, "int64", "", func(e *event) string {
		if e.Bot {
			return "1"
		}
		return "0"
	}},
	{`clicks * 2`, "float64", "", func(e *event) string { return float(float64(e.Clicks * 2)) }},
	{`clicks / 4`, "float64", "", func(e *event) string { return float(float64(e.Clicks) / 4) }},
	{`float(price)`, "float64", "", func(e *event) string { return float(number(e.Price)) }},
	{`max(int(clicks), 10)`, "int64", "", func(e *event) string { return fmt.Sprint(max(e.Clicks, 10)) }},
	{`len(user)`, "int64", "", func(e *event) string { return fmt.Sprint(len(e.User)) }},
	{`count(tags, # != "")`, "int64", "", func(e *event) string { return fmt.Sprint(len(e.Tags)) }},
	{`partition`, "int64", "", func(e *event) string { return fmt.Sprint(e.Partition) }},
	{`offset`, "int64", "", func(e *event) string { return fmt.Sprint(e.Offset) }},
	{`pad(offset, 12)`, "int64", "", func(e *event) string { return fmt.Sprint(e.Offset) }},
	{`minute_of_day(time)`, "int64", "", func(e *event) string { return fmt.Sprint(e.TS / 60_000 % 1440) }},
	{`u16(partition)`, "int64", "u16", func(e *event) string { return fmt.Sprint(e.Partition) }},
	{`u32(ms_of_day(time))`, "int64", "u32", func(e *event) string { return fmt.Sprint(e.TS % 86_400_000) }},
	{`u64(offset)`, "int64", "u64", func(e *event) string { return fmt.Sprint(e.Offset) }},
	{`i64(clicks)`, "int64", "i64", func(e *event) string { return fmt.Sprint(e.Clicks) }},
	{`int64(clicks)`, "int64", "int64be", func(e *event) string { return fmt.Sprint(e.Clicks) }},
	{`reverse_ts(ts)`, "int64", "reverse_ts", func(e *event) string { return fmt.Sprint(e.TS) }},
	// Times.
	{`time`, "timestamp", "", func(e *event) string { return micros(e.TS) }},
	{`timestamp`, "timestamp", "", func(e *event) string { return micros(e.TS + 1) }},
	{`reverse_ts(time)`, "timestamp", "reverse_ts", func(e *event) string { return micros(e.TS) }},
	{`i64(time)`, "timestamp", "i64", func(e *event) string { return micros(e.TS) }},
	{`int64(timestamp)`, "timestamp", "int64be", func(e *event) string { return micros(e.TS + 1) }},
	// True and false.
	{`not is_bot`, "bool", "", func(e *event) string { return fmt.Sprint(!e.Bot) }},
	{`clicks > 3 and clicks < 9`, "bool", "", func(e *event) string { return fmt.Sprint(e.Clicks > 3 && e.Clicks < 9) }},
	{`country == nil`, "bool", "", func(e *event) string { return fmt.Sprint(e.Country == nil) }},
	{`any(tags, # == "x")`, "bool", "", func(e *event) string {
		return fmt.Sprint(strings.Contains("\x00"+strings.Join(e.Tags, "\x00")+"\x00", "\x00x\x00"))
	}},
	// JSON.
	{`[page, int(clicks), nothing]`, "json", "", func(e *event) string { return jsonOf([]any{e.Page, e.Clicks, nil}) }},
	{`{"user": user}`, "json", "", func(e *event) string { return jsonOf(map[string]any{"user": e.User}) }},
	{`split(user, "-")`, "json", "", func(e *event) string { return jsonOf(strings.Split(e.User, "-")) }},
	{`map(tags, # + "!")`, "json", "", func(e *event) string {
		var all []string
		for _, tag := range e.Tags {
			all = append(all, tag+"!")
		}
		return jsonOf(all)
	}},
	// Texts that are filled up, or backwards.
	{`fixed(code, 16)`, "string", "fixed", func(e *event) string { return quoted(e.Code) }},
	{`reverse(user)`, "string", "reverse", func(e *event) string { return quoted(e.User) }},
	{`reverse(clicks)`, "string", "reverse", func(e *event) string { return quoted(fmt.Sprint(e.Clicks)) }},
	// Bytes.
	{`key`, "bytes", "", func(e *event) string { return quoted(e.Key) }},
	{`header("h")`, "bytes", "", func(e *event) string { return quoted(e.Bytes) }},
	{`header("other")`, "bytes", "", func(*event) string { return "null" }},
	{`fromBase64(b64)`, "bytes", "", func(e *event) string { return quoted(e.Bytes) }},
	{`user[0:1]`, "bytes", "", func(e *event) string { return quoted(e.User[:1]) }},
	{`user + "/" + key`, "bytes", "", func(e *event) string { return quoted(e.User + "/" + string(e.Key)) }},
	{`is_bot ? u16(partition) : user`, "bytes", "", func(e *event) string {
		if e.Bot {
			return quoted([]byte{byte(e.Partition >> 8), byte(e.Partition)})
		}
		return quoted(e.User)
	}},
}

// simpleUpper is upper of the characters that events have.
func simpleUpper(r rune) rune {
	if r == 'ß' {
		return r
	}
	return []rune(strings.ToUpper(string(r)))[0]
}

// decimalText is the number that b is in two's complement.
func decimalText(b []byte, scale int) string {
	v := new(big.Int).SetBytes(b)
	if b[0]&0x80 != 0 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	digits := new(big.Int).Abs(v).String()
	digits = strings.Repeat("0", max(0, scale+1-len(digits))) + digits
	sign := ""
	if v.Sign() < 0 {
		sign = "-"
	}
	return sign + digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
}

func eventSpec(row string) *mapping.Spec {
	s := &mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "json"}, EventTime: mapping.EventTimeSpec{Field: "ts", Format: "unix_ms"},
		Rules: []mapping.RuleSpec{{Table: "t", Row: row, Put: map[string]map[string]string{"f": {}}}},
	}
	return s
}

func eventTable() *store.TableDescriptor {
	return &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{family("f", "")}}
}

// TestValuesComeBack: what the rules put of records, the derived job reads as it was: with
// the types that the expressions tell.
func TestValuesComeBack(t *testing.T) {
	t.Parallel()
	spec := eventSpec("u64(offset)")
	for i := range expressions {
		spec.Rules[0].Put["f"][fmt.Sprintf("c%d", i)] = expressions[i].text
	}
	jobstest.Check(t, func(t *rapid.T) {
		var events []*event
		var records []mapping.Record
		for offset := range rapid.Int64Range(1, 4).Draw(t, "events") {
			events = append(events, drawEvent(t, offset))
			records = append(records, events[offset].record(t))
		}
		derived, rows := roundTrip(t, spec, eventTable(), records)
		if len(derived) != 1 || len(rows[0]) != len(events) {
			t.Fatalf("Got %d jobs, %d rows of %d", len(derived), len(rows[0]), len(events))
		}
		columns := map[string]columnar.ColumnSpec{}
		for _, c := range derived[0].Spec.Columns {
			columns[c.Name] = c
		}
		for i := range expressions {
			x, name := &expressions[i], fmt.Sprintf("c%d", i)
			if c := columns[name]; c.Type != x.typ || c.Coding != x.coding || c.From != "f:"+name {
				t.Errorf("%s: got %+v, want %s in %s", x.text, c, x.typ, x.coding)
			}
			for k, e := range events {
				if got, want := rows[0][k][name], x.want(e); got != want {
					t.Errorf("%s of %q: got %s, want %s", x.text, records[k].Value, got, want)
				}
			}
		}
		for k, e := range events {
			if got := rows[0][k]; got["offset"] != fmt.Sprint(e.Offset) || got["timestamp"] != micros(e.TS) {
				t.Errorf("offset %d: got %v", e.Offset, got)
			}
		}
	})
}

// keys are the row keys of rules, and the columns of their parts: what they hold of an event.
var keys = []struct {
	row  string
	want map[string]func(e *event) string
}{
	{`user`, map[string]func(e *event) string{"user": userOf}},
	{`u64(offset)`, map[string]func(e *event) string{"offset": offsetOf}},
	{`offset`, map[string]func(e *event) string{"offset": offsetOf, "row": func(e *event) string { return quoted(fmt.Sprint(e.Offset)) }}},
	{`reverse(user)`, map[string]func(e *event) string{"user": userOf}},
	{`key`, map[string]func(e *event) string{"row": func(e *event) string { return quoted(e.Key) }, "key": func(e *event) string { return quoted(e.Key) }}},
	{`"u/" + user`, map[string]func(e *event) string{"user": userOf}},
	// What the end of the key tells may hold what stands behind it.
	{`user + "/" + reverse_ts(time) + u16(partition) + u64(offset)`, map[string]func(e *event) string{"user": userOf, "time": timeOf, "partition": partitionOf, "offset": offsetOf}},
	{`user + reverse_ts(time) + u64(offset)`, map[string]func(e *event) string{"user": userOf, "time": timeOf, "offset": offsetOf}},
	{`hash16_hex(user) + "/" + user + "/" + date(time, "yyyyMMdd") + "#"`, map[string]func(e *event) string{
		"user": userOf, "date": func(e *event) string { return quoted(time.UnixMilli(e.TS).UTC().Format("20060102")) },
	}},
	{`salt(16, user) + user`, map[string]func(e *event) string{"user": userOf}},
	{`salt(4, user) + fixed(code, 16) + reverse_ts(ts) + pad(offset, 9)`, map[string]func(e *event) string{
		"code": func(e *event) string { return quoted(e.Code) }, "ts": func(e *event) string { return fmt.Sprint(e.TS) }, "offset": offsetOf,
	}},
	{`hash32(user) + i64(clicks) + user`, map[string]func(e *event) string{"user": userOf, "clicks": clicksOf}},
	{`hash64_hex(user)`, map[string]func(e *event) string{"user_hash": nil}}, // nothing else tells whose it is
	// What cannot hold what stands behind it is found by that.
	{`topic + "/" + int(clicks) + "|" + user`, map[string]func(e *event) string{"topic": func(*event) string { return quoted("page-views") }, "clicks": clicksOf, "user": userOf}},
	{`hash16(page) + is_bot + ":" + (not is_bot) + ":" + user`, nil},
	// Nothing tells where one ends.
	{`user + page + u64(offset)`, map[string]func(e *event) string{"user_page": func(e *event) string { return quoted(e.User + e.Page) }, "offset": offsetOf}},
	{`user + u16(partition) + page`, map[string]func(e *event) string{"user_partition_page": func(e *event) string {
		return quoted(e.User + string([]byte{byte(e.Partition >> 8), byte(e.Partition)}) + e.Page)
	}}},
}

func userOf(e *event) string      { return quoted(e.User) }
func offsetOf(e *event) string    { return fmt.Sprint(e.Offset) }
func timeOf(e *event) string      { return micros(e.TS) }
func partitionOf(e *event) string { return fmt.Sprint(e.Partition) }
func clicksOf(e *event) string    { return fmt.Sprint(e.Clicks) }

// TestKeysComeBack: of every design of row keys the derived job takes the parts that went
// in, whatever these hold.
func TestKeysComeBack(t *testing.T) {
	t.Parallel()
	for _, k := range keys {
		t.Run(k.row, func(t *testing.T) {
			t.Parallel()
			spec := eventSpec(k.row)
			spec.Rules[0].Put["f"]["id"] = "u64(offset)"
			jobstest.Check(t, func(t *rapid.T) {
				e := drawEvent(t, rapid.Int64Range(0, 1e9-1).Draw(t, "offset"))
				derived, rows := roundTrip(t, spec, eventTable(), []mapping.Record{e.record(t)})
				if len(derived) != 1 || len(rows[0]) != 1 || rows[0][0]["id"] != fmt.Sprint(e.Offset) {
					t.Fatalf("Got %d jobs: %v", len(derived), rows)
				}
				for name, want := range k.want {
					got, ok := rows[0][0][name]
					if !ok || want != nil && got != want(e) {
						t.Errorf("%s: got %v, want %s\n%s", name, rows[0][0], want(e), inverse.AppendYAML(nil, derived))
					}
				}
			})
		})
	}
}
