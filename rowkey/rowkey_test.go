package rowkey_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/rowkey"
)

// The hashes never change: stored keys are made of them.
func TestHashes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":       "ef46db3751d8e999 ef46db37 ef46 ef46",
		"a":      "d24ec4f1a98c6e5b d24ec4f1 d24e d24e",
		"user-1": "a173746b114c6be8 a173746b a173 a173",
	} {
		x := []byte(text)
		if got := fmt.Sprintf("%016x %08x %04x %x", rowkey.Hash64(x), rowkey.Hash32(x), rowkey.Hash16(x), rowkey.AppendHash16(nil, x)); got != want {
			t.Errorf("hashes of %q: %s, want %s", text, got, want)
		}
	}
}

func TestReversed(t *testing.T) {
	t.Parallel()
	for x, want := range map[string]string{"": "", "abc": "cba", "aé…": "…éa", "a\xffb\xc3": "\xc3b\xffa"} {
		if got := string(rowkey.AppendReversed([]byte("-"), []byte(x))); got != "-"+want {
			t.Errorf("reversed %q: %q, want %q", x, got, want)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		x := rapid.SliceOf(rapid.Byte()).Draw(rt, "x")
		if rapid.Bool().Draw(rt, "valid") {
			x = []byte(strings.ToValidUTF8(string(x), "é"))
		}
		once := rowkey.AppendReversed(nil, x)
		if len(once) != len(x) {
			rt.Fatalf("%q reversed is %q", x, once)
		}
		if twice := rowkey.AppendReversed(nil, once); utf8.Valid(x) && !bytes.Equal(x, twice) {
			rt.Fatalf("%q twice reversed is %q", x, twice)
		}
	})
}

func TestDayParts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		t      cell.Timestamp
		ms     uint32
		minute uint16
	}{
		{0, 0, 0},
		{86_399_999, 86_399_999, 1439},
		{86_400_000, 0, 0},
		{1431857103123, 36303123, 605},
		{-1, 86_399_999, 1439},
		{math.MaxInt64, 25_975_807, 432},
		{math.MinInt64, 60_424_192, 1007},
	} {
		if ms, minute := rowkey.MsOfDay(test.t), rowkey.MinuteOfDay(test.t); ms != test.ms || minute != test.minute {
			t.Errorf("%d: ms %d, minute %d, want %d, %d", test.t, ms, minute, test.ms, test.minute)
		}
	}
}

// fields are one value of every field of a composite key.
type fields struct {
	u8   uint8
	text string
	i    int64
	back cell.Timestamp
	at   cell.Timestamp
	u16  uint16
	u32  uint32
	raw  [3]byte
	u64  uint64
	rest string
}

func drawFields(rt *rapid.T, name string) fields {
	integer := rapid.OneOf(rapid.Int64Range(-2, 2), rapid.Int64(), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64}))
	small := rapid.SampledFrom([]uint64{0, 1, 255, 256, math.MaxUint64})
	return fields{
		u8:   uint8(small.Draw(rt, name+" u8")),
		text: strings.TrimRight(rapid.StringOfN(rapid.SampledFrom([]rune("\x00ab")), 0, 4, 4).Draw(rt, name+" text"), "\x00"),
		i:    integer.Draw(rt, name+" i"), back: cell.Timestamp(integer.Draw(rt, name+" back")), at: cell.Timestamp(integer.Draw(rt, name+" at")),
		u16: uint16(small.Draw(rt, name+" u16")), u32: uint32(small.Draw(rt, name+" u32")), u64: small.Draw(rt, name+" u64"),
		raw:  [3]byte{byte(rapid.IntRange(0, 1).Draw(rt, name+" raw"))},
		rest: rapid.StringOfN(rapid.SampledFrom([]rune("\x00b")), 0, 3, 3).Draw(rt, name+" rest"),
	}
}

func (f *fields) key(t interface{ Fatal(...any) }) []byte {
	var e rowkey.Encoder
	e.Uint8(f.u8).Text(f.text, 4).Int64(f.i).ReverseTime(f.back).Time(f.at).Uint16(f.u16).Uint32(f.u32).Bytes(f.raw[:], 3).Uint64(f.u64).Rest([]byte(f.rest))
	key, err := e.Key()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func compareFields(a, b fields) int {
	return cmp.Or(cmp.Compare(a.u8, b.u8), cmp.Compare(a.text, b.text), cmp.Compare(a.i, b.i), cmp.Compare(b.back, a.back), cmp.Compare(a.at, b.at),
		cmp.Compare(a.u16, b.u16), cmp.Compare(a.u32, b.u32), bytes.Compare(a.raw[:], b.raw[:]), cmp.Compare(a.u64, b.u64), cmp.Compare(a.rest, b.rest))
}

// Keys sort as their fields do, and give them back.
func TestCompositeProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		a, b := drawFields(rt, "a"), drawFields(rt, "b")
		// Where the first fields are equal the later ones decide.
		if n := rapid.IntRange(0, 4).Draw(rt, "equal"); n > 0 {
			b.u8, b.text = a.u8, a.text
			if n > 1 {
				b.i, b.back = a.i, a.back
			}
			if n > 2 {
				b.at, b.u16, b.u32 = a.at, a.u16, a.u32
			}
			if n > 3 {
				b.raw, b.u64 = a.raw, a.u64
			}
		}
		ka, kb := a.key(rt), b.key(rt)
		if got, want := bytes.Compare(ka, kb), compareFields(a, b); got != want {
			rt.Fatalf("keys of %+v and %+v compare as %d, want %d", a, b, got, want)
		}
		d := rowkey.NewDecoder(ka)
		got := fields{u8: d.Uint8(), text: d.Text(4), i: d.Int64(), back: d.ReverseTime(), at: d.Time(), u16: d.Uint16(), u32: d.Uint32()}
		copy(got.raw[:], d.Bytes(3))
		got.u64, got.rest = d.Uint64(), string(d.Rest())
		if err := d.End(); err != nil || got != a {
			rt.Fatalf("%+v became %+v, %v", a, got, err)
		}
	})
}

func TestCompositeErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		make func(e *rowkey.Encoder)
		want error
	}{
		"long text":       {func(e *rowkey.Encoder) { e.Text("abcd", 3) }, rowkey.ErrValue},
		"zero at the end": {func(e *rowkey.Encoder) { e.Text("a\x00", 3) }, rowkey.ErrValue},
		"short bytes":     {func(e *rowkey.Encoder) { e.Bytes([]byte("ab"), 3) }, rowkey.ErrValue},
		"long bytes":      {func(e *rowkey.Encoder) { e.Bytes([]byte("abcd"), 3) }, rowkey.ErrValue},
		"behind the rest": {func(e *rowkey.Encoder) { e.Rest([]byte("a")).Uint8(1) }, rowkey.ErrValue},
		"the first error": {func(e *rowkey.Encoder) { e.Text("abcd", 3).Uint64(1).Rest(nil) }, rowkey.ErrValue},
		"negative width":  {func(e *rowkey.Encoder) { e.Text("", -1) }, rowkey.ErrValue},
		"empty":           {func(*rowkey.Encoder) {}, cell.ErrRowEmpty},
		"too long":        {func(e *rowkey.Encoder) { e.Rest(make([]byte, cell.MaxRowLength+1)) }, cell.ErrRowTooLong},
	} {
		var e rowkey.Encoder
		test.make(&e)
		if key, err := e.Key(); !errors.Is(err, test.want) || key != nil {
			t.Errorf("%s: %q, %v, want %v", name, key, err, test.want)
		}
	}
	var e rowkey.Encoder
	first, err := e.Uint8(1).Key()
	if err != nil {
		t.Fatal(err)
	}
	longer := append(first, 'x')
	second, err := e.Uint8(2).Key() // what was returned stays the caller's
	if err != nil || string(longer) != "\x01x" || string(second) != "\x01\x02" {
		t.Errorf("got %q and %q, %v", longer, second, err)
	}

	d := rowkey.NewDecoder([]byte("abc"))
	if n := d.Uint16(); n != 'a'<<8|'b' || d.Err() != nil {
		t.Errorf("got %d, %v", n, d.Err())
	}
	if err := rowkey.NewDecoder([]byte("abc")).End(); !errors.Is(err, rowkey.ErrKey) {
		t.Errorf("bytes left: %v", err)
	}
	for _, read := range []func(){func() { d.Uint32() }, func() { d.Uint8() }, func() { d.Rest() }} {
		read() // the first fails, so all do
		if !errors.Is(d.Err(), rowkey.ErrKey) || !errors.Is(d.End(), rowkey.ErrKey) {
			t.Errorf("error %v", d.Err())
		}
	}
	d = rowkey.NewDecoder([]byte("abc"))
	if b := d.Bytes(-1); b != nil || !errors.Is(d.Err(), rowkey.ErrKey) {
		t.Errorf("negative width: %q, %v", b, d.Err())
	}
}

// FuzzDecoder reads any bytes as any fields: what was read makes the same key.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), []byte("\x00\x01\x02\x03"))
	f.Add([]byte("ab\x00\x00\x80\xff"), []byte("\x07\x05\x16\x08"))
	f.Add([]byte{}, []byte{9})
	f.Fuzz(func(t *testing.T, key, kinds []byte) {
		d := rowkey.NewDecoder(key)
		var e rowkey.Encoder
		for _, k := range kinds {
			switch width := int(k >> 4); k & 15 {
			case 0:
				e.Uint8(d.Uint8())
			case 1:
				e.Uint16(d.Uint16())
			case 2:
				e.Uint32(d.Uint32())
			case 3:
				e.Uint64(d.Uint64())
			case 4:
				e.Int64(d.Int64())
			case 5:
				e.Time(d.Time())
			case 6:
				e.ReverseTime(d.ReverseTime())
			case 7:
				e.Text(d.Text(width), width)
			case 8:
				e.Bytes(d.Bytes(width), width)
			}
			if d.Err() != nil {
				if !errors.Is(d.Err(), rowkey.ErrKey) || len(d.Rest()) != 0 {
					t.Errorf("error %v", d.Err())
				}
				return
			}
		}
		got, err := e.Rest(d.Rest()).Key()
		if err != nil && cell.CheckRow(key) == nil || err == nil && !bytes.Equal(got, key) {
			t.Errorf("%q became %q, %v", key, got, err)
		}
		if err := d.End(); err != nil {
			t.Errorf("End after Rest: %v", err)
		}
	})
}

func TestSalt(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1, 0, 257} {
		if _, err := rowkey.NewSalt(n); !errors.Is(err, rowkey.ErrValue) {
			t.Errorf("NewSalt(%d): %v", n, err)
		}
	}
	salt, err := rowkey.NewSalt(16)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(salt.Append([]byte("-"), []byte("user-1"))); got != "-\buser-1" {
		t.Errorf("salted key %q", got)
	}
	for _, key := range []string{"", "\x10a", "\xffa"} {
		if _, _, err := salt.Split([]byte(key)); !errors.Is(err, rowkey.ErrKey) {
			t.Errorf("Split(%q): %v", key, err)
		}
	}
	var one rowkey.Salt
	if one.Buckets() != 1 || one.Of([]byte("x")) != 0 || len(one.SplitPoints()) != 0 {
		t.Error("the zero salt has not one bucket")
	}
	most, err := rowkey.NewSalt(rowkey.MaxBuckets)
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff([]cell.Range{{Start: []byte{254}, Stop: []byte{255}}, {Start: []byte{255}}}, most.Ranges(cell.Range{})[254:]); d != "" {
		t.Errorf("last ranges (-want +got):\n%s", d)
	}
	four, err := rowkey.NewSalt(4)
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff([][]byte{{1}, {2}, {3}}, four.SplitPoints()); d != "" {
		t.Errorf("split points (-want +got):\n%s", d)
	}
}

// A key is found in its bucket, its bucket alone has the range that contains it,
// and the buckets of many keys are even.
func TestSaltProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		salt, err := rowkey.NewSalt(rapid.OneOf(rapid.IntRange(1, 256), rapid.SampledFrom([]int{1, 255, 256})).Draw(rt, "buckets"))
		if err != nil {
			rt.Fatal(err)
		}
		text := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 0xff}), 0, 4)
		key, r := text.Draw(rt, "key"), cell.Range{Start: text.Draw(rt, "start"), Stop: text.Draw(rt, "stop")}
		salted := salt.Append(nil, key)
		bucket, back, err := salt.Split(salted)
		if err != nil || bucket != salt.Of(key) || !bytes.Equal(back, key) {
			rt.Fatalf("%q became %q in bucket %d, %v", key, back, bucket, err)
		}
		ranges := salt.Ranges(r)
		if len(ranges) != salt.Buckets() {
			rt.Fatalf("%d ranges", len(ranges))
		}
		for b, one := range ranges {
			if want := b == int(bucket) && r.Contains(key); one.Contains(salted) != want {
				rt.Fatalf("range %d, %q, contains %q: %v, want %v", b, one, salted, !want, want)
			}
		}
	})
	salt, err := rowkey.NewSalt(7)
	if err != nil {
		t.Fatal(err)
	}
	var counts [7]int
	for i := range 7000 {
		counts[salt.Of(fmt.Append(nil, 20150517000000+i))]++
	}
	for b, n := range counts {
		if n < 900 || n > 1100 {
			t.Errorf("bucket %d of 7 has %d of 7000 keys", b, n)
		}
	}
}

func TestSixByteKeys(t *testing.T) {
	t.Parallel()
	for _, k := range []rowkey.TransactionKey{{MsOfDay: 86_400_000}, {MsOfDay: math.MaxUint32}} {
		if b, err := k.Append(nil); !errors.Is(err, rowkey.ErrValue) || len(b) != 0 {
			t.Errorf("%+v: %x, %v", k, b, err)
		}
	}
	if b, err := (rowkey.StatisticsKey{Minute: 1440}).Append(nil); !errors.Is(err, rowkey.ErrValue) || len(b) != 0 {
		t.Errorf("minute 1440: %x, %v", b, err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		at := func(name string) cell.Timestamp {
			return cell.Timestamp(rapid.OneOf(rapid.Int64Range(0, 4*86_400_000), rapid.Int64()).Draw(rt, name))
		}
		account := rapid.SampledFrom([]string{"a", "b", "c"})
		x, y := rowkey.NewTransactionKey([]byte(account.Draw(rt, "a")), at("t")), rowkey.NewTransactionKey([]byte(account.Draw(rt, "b")), at("u"))
		kx, errX := x.Append(nil)
		ky, errY := y.Append([]byte{})
		if errX != nil || errY != nil || len(kx) != rowkey.TransactionKeySize {
			rt.Fatal(kx, errX, errY)
		}
		if got, want := bytes.Compare(kx, ky), cmp.Or(cmp.Compare(x.Hash, y.Hash), cmp.Compare(x.MsOfDay, y.MsOfDay)); got != want {
			rt.Fatalf("%+v and %+v compare as %d", x, y, got)
		}
		if back, err := rowkey.ParseTransactionKey(kx); err != nil || back != x {
			rt.Fatalf("%+v became %+v, %v", x, back, err)
		}
		p, q := rowkey.NewStatisticsKey(rapid.Uint32().Draw(rt, "p"), at("v")), rowkey.NewStatisticsKey(rapid.Uint32().Draw(rt, "q"), at("w"))
		kp, errX := p.Append(nil)
		kq, errY := q.Append(nil)
		if errX != nil || errY != nil || len(kp) != rowkey.StatisticsKeySize {
			rt.Fatal(kp, errX, errY)
		}
		if got, want := bytes.Compare(kp, kq), cmp.Or(cmp.Compare(p.Sequence, q.Sequence), cmp.Compare(p.Minute, q.Minute)); got != want {
			rt.Fatalf("%+v and %+v compare as %d", p, q, got)
		}
		if back, err := rowkey.ParseStatisticsKey(kp); err != nil || back != p {
			rt.Fatalf("%+v became %+v, %v", p, back, err)
		}
	})
}

// FuzzSixByteKeys takes any bytes apart: what is a key makes the same bytes.
func FuzzSixByteKeys(f *testing.F) {
	f.Add([]byte("\xd4\x0d\x02\x29\xf1\x13"))
	f.Add([]byte("\x00\x00\x00\x07\x02\x5d"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, key []byte) {
		k, err := rowkey.ParseTransactionKey(key)
		if err == nil {
			if back, err := k.Append(nil); err != nil || !bytes.Equal(back, key) {
				t.Errorf("%x became %x, %v", key, back, err)
			}
		} else if !errors.Is(err, rowkey.ErrKey) {
			t.Errorf("%x: %v", key, err)
		}
		s, err := rowkey.ParseStatisticsKey(key)
		if err == nil {
			if back, err := s.Append(nil); err != nil || !bytes.Equal(back, key) {
				t.Errorf("%x became %x, %v", key, back, err)
			}
		} else if !errors.Is(err, rowkey.ErrKey) {
			t.Errorf("%x: %v", key, err)
		}
	})
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func at(t testing.TB, text string) cell.Timestamp {
	t.Helper()
	x, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return cell.Timestamp(x.UnixMilli())
}

func TestDayTables(t *testing.T) {
	t.Parallel()
	utc, india := rowkey.DayTables{Prefix: "ns:e_"}, rowkey.DayTables{Prefix: "e_", Zone: zone(t, "Asia/Kolkata")}
	saoPaulo := rowkey.DayTables{Prefix: "e_", Zone: zone(t, "America/Sao_Paulo")} // midnight of 2018-11-04 was left out
	for _, test := range []struct {
		d        rowkey.DayTables
		from, to string
		want     []string
	}{
		{utc, "2015-05-17T10:05:03.123Z", "2015-05-17T10:05:03.124Z", []string{"ns:e_20150517"}},
		{utc, "2015-05-17T00:00:00Z", "2015-05-18T00:00:00Z", []string{"ns:e_20150517"}},
		{utc, "2016-02-28T23:59:59.999Z", "2016-03-01T00:00:00.001Z", []string{"ns:e_20160228", "ns:e_20160229", "ns:e_20160301"}},
		{utc, "2015-05-17T00:00:00Z", "2015-05-17T00:00:00Z", nil},
		{utc, "2015-05-18T00:00:00Z", "2015-05-17T00:00:00Z", nil},
		{india, "2015-05-17T18:29:59.999Z", "2015-05-17T18:30:00.001Z", []string{"e_20150517", "e_20150518"}},
		{saoPaulo, "2018-11-04T02:59:59.999Z", "2018-11-05T02:00:00Z", []string{"e_20181103", "e_20181104"}},
	} {
		got, err := test.d.Between(at(t, test.from), at(t, test.to))
		if err != nil {
			t.Error(err)
		}
		if d := gocmp.Diff(test.want, got); d != "" {
			t.Errorf("from %s to %s (-want +got):\n%s", test.from, test.to, d)
		}
	}
	for _, test := range []struct {
		d    rowkey.DayTables
		name string
		want string
	}{
		{utc, "ns:e_20150517", "2015-05-17T00:00:00Z"},
		{india, "e_20150517", "2015-05-16T18:30:00Z"},
		{saoPaulo, "e_20181104", "2018-11-04T03:00:00Z"},
	} {
		if got, err := test.d.Start(test.name); err != nil || got != at(t, test.want) {
			t.Errorf("start of %s: %d, %v, want %d", test.name, got, err, at(t, test.want))
		}
	}
	for _, name := range []string{"", "ns:e_", "ns:e_2015051", "ns:e_201505170", "ns:e_20150532", "ns:e_20150229", "e_20150517", "ns:e_2015-5-7", "ns:e_ 2015051"} {
		if got, err := utc.Start(name); !errors.Is(err, rowkey.ErrKey) {
			t.Errorf("start of %q: %d, %v", name, got, err)
		}
	}
	if got, err := (rowkey.DayTables{Zone: zone(t, "Pacific/Apia")}).Start("20111230"); !errors.Is(err, rowkey.ErrKey) {
		t.Errorf("start of a day that Samoa left out: %d, %v", got, err)
	}
	for _, far := range []cell.Timestamp{math.MinInt64, math.MaxInt64, 253402300800001} {
		if name, err := utc.Name(far); !errors.Is(err, rowkey.ErrValue) {
			t.Errorf("table of %d: %s, %v", far, name, err)
		}
		for _, r := range [][2]cell.Timestamp{{min(0, far), max(1, far)}, {far, math.MaxInt64}} {
			if names, err := utc.Between(r[0], r[1]); r[0] < r[1] && !errors.Is(err, rowkey.ErrValue) {
				t.Errorf("tables of %v: %d, %v", r, len(names), err)
			}
		}
	}
}

// A table holds the rows from its start to the next one's, and Between finds it.
func TestDayTablesProperties(t *testing.T) {
	t.Parallel()
	zones := []*time.Location{nil, zone(t, "Europe/Berlin"), zone(t, "America/Sao_Paulo"), zone(t, "Asia/Beirut"), zone(t, "Australia/Lord_Howe")}
	rapid.Check(t, func(rt *rapid.T) {
		d := rowkey.DayTables{Prefix: "e_", Zone: rapid.SampledFrom(zones).Draw(rt, "zone")}
		x := cell.Timestamp(rapid.Int64Range(0, 4e12).Draw(rt, "t"))
		name, err := d.Name(x)
		if err != nil {
			rt.Fatal(err)
		}
		start, err := d.Start(name)
		if err != nil || start > x {
			rt.Fatalf("%s, the table of %d, starts at %d, %v", name, x, start, err)
		}
		before, errBefore := d.Name(start - 1)
		again, errAgain := d.Name(start)
		if errBefore != nil || errAgain != nil || again != name || before == name {
			rt.Fatalf("%s starts at %d, which is of %s after %s, %v, %v", name, start, again, before, errBefore, errAgain)
		}
		names, err := d.Between(start-1, x+1)
		if diff := gocmp.Diff([]string{before, name}, names); err != nil || diff != "" {
			rt.Fatalf("%v (-want +got):\n%s", err, diff)
		}
	})
}

// FuzzDayTable reads any name: what is a day's table is the table of its start.
func FuzzDayTable(f *testing.F) {
	f.Add("e_20150517", "e_")
	f.Add("20111230", "")
	f.Fuzz(func(t *testing.T, name, prefix string) {
		d := rowkey.DayTables{Prefix: prefix}
		start, err := d.Start(name)
		if err != nil {
			if !errors.Is(err, rowkey.ErrKey) {
				t.Errorf("%q: %v", name, err)
			}
			return
		}
		if back, err := d.Name(start); err != nil || back != name {
			t.Errorf("%q became %q, %v", name, back, err)
		}
	})
}

// Clocks that go back over midnight, as in Newfoundland at 00:01, make a day come once more:
// every time of a range, however short, is in one of its tables, each there once.
func TestDaysThatComeTwice(t *testing.T) {
	t.Parallel()
	d := rowkey.DayTables{Prefix: "t_", Zone: zone(t, "America/St_Johns")}
	change := cell.Timestamp(time.Date(2006, 10, 29, 2, 31, 0, 0, time.UTC).UnixMilli()) // 00:01, then 23:01
	const step = 30_000
	for from := change - 3*step; from < change+130*step; from += step {
		for to := from + step; to < change+133*step; to += step {
			var want []string
			for at := from; at < to; at += step {
				name, err := d.Name(at)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, name)
			}
			slices.Sort(want)
			want = slices.Compact(want)
			if got, err := d.Between(from, to); err != nil || !slices.Equal(got, want) {
				t.Fatalf("[%d, %d): got %v, %v, want %v", from-change, to-change, got, err, want)
			}
		}
	}
	year := cell.Timestamp(365 * 24 * time.Hour / time.Millisecond)
	if got, err := d.Between(change-year, change+year); err != nil || len(got) != 2*365+1 && len(got) != 2*365 {
		t.Errorf("two years: got %d tables, %v", len(got), err)
	}
}

// The last day of a leap year behind the zone's table, where time.Time.ZoneBounds ends a stretch
// before its own time.
func TestDayTablesBehindTheTable(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	d := rowkey.DayTables{Prefix: "e_", Zone: zone}
	got, err := d.Between(at(t, "2040-12-31T12:00:00Z"), at(t, "2041-01-01T12:00:00Z"))
	if want := []string{"e_20401231", "e_20410101"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Got %v, %v, want %v", got, err, want)
	}
}

// A day starts at its first ms, also where clocks go back to midnight, which comes twice
// then: of Amman's time.Date takes the second. And where they leave midnight out, also by two
// hours, as in Córdoba, or by less than one, as on Pitcairn.
func TestStartOfDaysThatComeTwice(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Asia/Amman", "Asia/Gaza", "America/Havana", "America/St_Johns", "America/Argentina/Cordoba", "Pacific/Pitcairn"} {
		d := rowkey.DayTables{Zone: zone(t, name)}
		for day := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2005; day = day.AddDate(0, 0, 1) {
			table := day.Format("20060102")
			start, err := d.Start(table)
			if err != nil {
				t.Fatal(err)
			}
			for back, want := range map[cell.Timestamp]bool{0: true, 1: false, 1_800_000: false, 3_600_000: false} {
				if got, err := d.Name(start - back); err != nil || (got == table) != want {
					t.Errorf("%s: %d ms before the start of %s it is %s, %v", name, back, table, got, err)
				}
			}
		}
	}
}
