package cell

import (
	"bytes"
	"cmp"
	"errors"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// compareKeys is the order that the code must keep, field by field.
func compareKeys(a, b *Key) int {
	if c := cmp.Or(
		cmp.Compare(a.Tag, b.Tag),
		cmp.Compare(a.Table, b.Table),
		cmp.Compare(a.Family, b.Family),
		bytes.Compare(a.Row, b.Row),
		bytes.Compare(a.Qualifier, b.Qualifier),
	); c != 0 || a.Tag < TagData {
		return c
	}
	return cmp.Or(
		cmp.Compare(b.Time, a.Time),
		cmp.Compare(b.Kind, a.Kind),
		cmp.Compare(b.Sequence, a.Sequence),
	)
}

// drawBytes draws strings that are mostly made of the bytes that the escaping is
// about, so that common prefixes and ties are frequent.
func drawBytes(t *rapid.T, label string) []byte {
	special := rapid.SampledFrom([]byte{0, 0, 1, 2, 'a', 0xFE, 0xFF})
	return rapid.OneOf(rapid.SliceOfN(special, 0, 6), rapid.SliceOfN(rapid.Byte(), 0, 20)).Draw(t, label)
}

func drawKey(t *rapid.T, label string) *Key {
	k := &Key{
		Tag:       rapid.ByteRange(TagSystem, TagChange).Draw(t, label+" tag"),
		Table:     rapid.SampledFrom([]uint32{0, 1, 256, 1<<32 - 1}).Draw(t, label+" table"),
		Family:    rapid.SampledFrom([]uint8{0, 1, 255}).Draw(t, label+" family"),
		Row:       drawBytes(t, label+" row"),
		Qualifier: drawBytes(t, label+" qualifier"),
		Kind:      KindPut,
	}
	switch k.Tag {
	case TagChange:
		k.Qualifier = []byte{}
		k.Sequence = rapid.OneOf(rapid.Uint64Range(0, 2), rapid.Uint64()).Draw(t, label+" sequence")
	case TagData:
		k.Time = Timestamp(rapid.OneOf(rapid.Int64Range(0, 2), rapid.Int64Min(0)).Draw(t, label+" time"))
		k.Kind = rapid.SampledFrom(kinds).Draw(t, label+" kind")
		k.Sequence = rapid.OneOf(rapid.Uint64Range(0, 2), rapid.Uint64()).Draw(t, label+" sequence")
	}
	return k
}

// drawNear draws a key that often shares fields with k.
func drawNear(t *rapid.T, k *Key) *Key {
	n := drawKey(t, "near")
	same := rapid.IntRange(0, 7).Draw(t, "shared fields")
	if same > 0 {
		n.Tag = k.Tag
	}
	if same > 1 {
		n.Table = k.Table
	}
	if same > 2 {
		n.Family = k.Family
	}
	if same > 3 {
		n.Row = k.Row
	}
	if same > 4 {
		n.Qualifier = k.Qualifier
	}
	if same > 5 {
		n.Time = k.Time
	}
	if same > 6 {
		n.Kind = k.Kind
	}
	// What keys of its tag do not have.
	if n.Tag != TagData {
		n.Time, n.Kind = 0, KindPut
	}
	switch n.Tag {
	case TagChange:
		n.Qualifier = []byte{}
	case TagSystem, TagCounter:
		n.Sequence = 0
	}
	return n
}

func TestKeyRoundTripAndOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := drawKey(t, "key")
		b := drawNear(t, a)
		checkKeys(t, a, b)
	})
}

// fataler is what checkKeys needs of *rapid.T and *testing.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkKeys checks every promise of the code on two keys.
func checkKeys(t fataler, a, b *Key) {
	t.Helper()
	ka, kb := AppendKey([]byte("before"), a)[len("before"):], AppendKey(nil, b)
	for _, c := range []struct {
		fields *Key
		key    []byte
	}{{a, ka}, {b, kb}} {
		original := bytes.Clone(c.key)
		var got Key
		scratch, err := DecodeKey(&got, c.key, []byte("kept"))
		if err != nil {
			t.Fatalf("DecodeKey(%x): %v", c.key, err)
		}
		if got.Row == nil || got.Qualifier == nil || compareKeys(c.fields, &got) != 0 || got.Kind != c.fields.Kind && got.Tag == TagData {
			t.Fatalf("DecodeKey(%x) = %+v, want %+v", c.key, got, c.fields)
		}
		// Appending to what was handed out must not write into key or scratch.
		_ = append(got.Row, "tail"...)
		_ = append(got.Qualifier, "tail"...)
		if !bytes.HasPrefix(scratch, []byte("kept")) || !bytes.Equal(c.key, original) || compareKeys(c.fields, &got) != 0 {
			t.Fatalf("slices of %x overlap", c.key)
		}
		prefix := AppendRowPrefix(nil, c.fields.Tag, c.fields.Table, c.fields.Family, c.fields.Row)
		if n := SplitKey(c.key); n != len(prefix) || !bytes.Equal(prefix, c.key[:n]) {
			t.Fatalf("SplitKey(%x) = %d, want %d", c.key, n, len(prefix))
		}
		checkSplit(t, c.key)
		bound := AppendEscaped(AppendFamilyPrefix(nil, c.fields.Tag, c.fields.Table, c.fields.Family), c.fields.Row)
		if !bytes.HasPrefix(c.key, bound) {
			t.Fatalf("%x does not start with its escaped row %x", c.key, bound)
		}
		if end := PrefixEnd(bound); end != nil && bytes.Compare(c.key, end) >= 0 {
			t.Fatalf("%x is not below the end of its prefix, %x", c.key, end)
		}
	}
	if want, got := compareKeys(a, b), bytes.Compare(ka, kb); got != want {
		t.Fatalf("%+v and %+v compare %d, their keys %x and %x %d", a, b, want, ka, kb, got)
	}
	// A row's prefix bounds the rows that begin with it, and no others.
	in := bytes.HasPrefix(b.Row, a.Row) && a.Tag == b.Tag && a.Table == b.Table && a.Family == b.Family
	bound := AppendEscaped(AppendFamilyPrefix(nil, a.Tag, a.Table, a.Family), a.Row)
	end := PrefixEnd(bound)
	if got := bytes.Compare(kb, bound) >= 0 && (end == nil || bytes.Compare(kb, end) < 0); got && !in {
		t.Fatalf("row %x lies in the bounds of prefix %x", b.Row, a.Row)
	} else if !got && in {
		t.Fatalf("row %x does not lie in the bounds of its prefix %x", b.Row, a.Row)
	}
}

// checkSplit checks what Pebble's Comparer documents of Split, on any bytes.
func checkSplit(t fataler, key []byte) {
	t.Helper()
	n := SplitKey(key)
	if n < 0 || n > len(key) {
		t.Fatalf("SplitKey(%x) = %d", key, n)
	}
	if m := SplitKey(key[:n]); m != n {
		t.Fatalf("SplitKey(%x) = %d, but of that prefix %d", key, n, m)
	}
	for i := n; i <= len(key); i++ {
		// What follows a whole prefix never changes it.
		if n < len(key) && SplitKey(key[:i]) != n {
			t.Fatalf("SplitKey(%x) = %d, of its first %d bytes %d", key, n, i, SplitKey(key[:i]))
		}
	}
}

func TestSplitKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key  string
		want int
	}{
		{"", 0},
		{"\x03", 1},
		{"\x03\x00\x00\x00\x01\x00", 6},
		{"\x03\x00\x00\x00\x01\x00a", 7},
		{"\x03\x00\x00\x00\x01\x00a\x00", 8},
		{"\x03\x00\x00\x00\x01\x00a\x00\x01", 9},
		{"\x03\x00\x00\x00\x01\x00a\x00\x01q\x00\x01", 9},
		{"\x03\x00\x00\x00\x01\x00\x00\x01\x00\x01", 8},
		{"\x03\x00\x00\x00\x01\x00a\x00\xffb\x00\x01q", 12},
		// No stored key, whatever follows: only 00 01 ends a row.
		{"\x03\x00\x00\x00\x01\x00a\x00\x00b\x00\x01q", 12},
		{"\x03\x00\x00\x00\x01\x00a\x00\x02b", 10},
	} {
		if got := SplitKey([]byte(c.key)); got != c.want {
			t.Errorf("SplitKey(%q) = %d, want %d", c.key, got, c.want)
		}
	}
}

func TestSplitOrdersPrefixesFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawBytes(t, "a"), drawBytes(t, "b")
		if rapid.Bool().Draw(t, "long") {
			head := []byte{TagData, 0, 0, 0, 1, 0}
			a, b = append(bytes.Clone(head), a...), append(bytes.Clone(head), b...)
		}
		checkSplitOrder(t, a, b)
	})
}

func checkSplitOrder(t fataler, a, b []byte) {
	t.Helper()
	pa, pb := a[:SplitKey(a)], b[:SplitKey(b)]
	c, p := bytes.Compare(a, b), bytes.Compare(pa, pb)
	if c <= 0 && p > 0 || p < 0 && c >= 0 {
		t.Fatalf("%x and %x compare %d, their prefixes %x and %x %d", a, b, c, pa, pb, p)
	}
	if p == 0 && c != bytes.Compare(a[len(pa):], b[len(pb):]) {
		t.Fatalf("%x and %x have one prefix and compare %d, unlike their suffixes", a, b, c)
	}
}

func FuzzDecodeKey(f *testing.F) {
	f.Add(AppendKey(nil, &Key{Tag: TagData, Table: 1, Family: 2, Row: []byte("r\x00w"), Qualifier: []byte{}, Time: 5, Kind: KindPut, Sequence: 9}))
	f.Add(AppendKey(nil, &Key{Tag: TagCounter, Table: 1, Row: []byte("\x00\x00"), Qualifier: []byte("q\x00")}))
	f.Add([]byte{TagSystem, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1})
	f.Add([]byte{TagSystem, 0, 0, 0, 1, 0, 0, 1, 0, 0xFE, 0, 1})
	f.Fuzz(func(t *testing.T, key []byte) {
		checkSplit(t, key)
		var k Key
		if _, err := DecodeKey(&k, key, nil); err != nil {
			if !errors.Is(err, ErrCorruptKey) {
				t.Fatalf("DecodeKey(%x): %v does not wrap ErrCorruptKey", key, err)
			}
			return
		}
		if again := AppendKey(nil, &k); !bytes.Equal(again, key) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", key, k, again)
		}
		if _, err := DecodeKey(&k, append(bytes.Clone(key), 0), nil); err == nil {
			t.Fatalf("%x is a key with a byte more", key)
		}
	})
}

func FuzzKeyOrder(f *testing.F) {
	f.Add([]byte("a"), []byte("q"), []byte("a\x00"), []byte(""), uint32(1), uint8(0), int64(1), int64(2), uint64(3), uint64(4), uint8(40), uint8(3))
	f.Add([]byte("\x00\xff"), []byte("\x00"), []byte("\x00\x00"), []byte("\x01"), uint32(1), uint8(3), int64(0), int64(1<<62), uint64(0), uint64(1<<63), uint8(2), uint8(20))
	f.Fuzz(func(t *testing.T, row1, qualifier1, row2, qualifier2 []byte, table uint32, shape uint8, time1, time2 int64, sequence1, sequence2 uint64, kind1, kind2 uint8) {
		build := func(row, qualifier []byte, shape uint8, time int64, sequence uint64, kind uint8) *Key {
			k := &Key{Tag: TagSystem + shape%4, Table: table + uint32(shape>>2&1), Family: shape >> 3 & 1, Row: row, Qualifier: qualifier, Kind: KindPut}
			switch k.Tag {
			case TagChange:
				k.Qualifier, k.Sequence = []byte{}, sequence
			case TagData:
				k.Time, k.Kind, k.Sequence = Timestamp(time&(1<<63-1)), kinds[int(kind)%len(kinds)], sequence
			}
			return k
		}
		// The shapes differ where bits of kind2 say so, so that the rest of
		// the fields decides in most runs.
		checkKeys(t, build(row1, qualifier1, shape, time1, sequence1, kind1), build(row2, qualifier2, shape^kind2>>5, time2, sequence2, kind2))
		checkSplitOrder(t, row1, row2)
	})
}

func FuzzDecodePart(f *testing.F) {
	f.Add([]byte("a\x00\xffb\x00\x01rest"))
	f.Add([]byte("\x00\x01"))
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		part, rest, _, err := DecodePart(b, nil)
		if err != nil {
			if !errors.Is(err, ErrCorruptKey) || part != nil || rest != nil {
				t.Fatalf("DecodePart(%x) = %x, %x, %v", b, part, rest, err)
			}
			return
		}
		if again := append(AppendPart(nil, part), rest...); !bytes.Equal(again, b) {
			t.Fatalf("%x decodes to %x and %x, which encode to %x", b, part, rest, again)
		}
	})
}

func TestPrefixEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ prefix, want []byte }{
		{nil, nil},
		{[]byte{0xFF}, nil},
		{[]byte{0xFF, 0xFF}, nil},
		{[]byte{0}, []byte{1}},
		{[]byte{'a'}, []byte{'b'}},
		{[]byte{'a', 0xFF, 0xFF}, []byte{'b'}},
		{[]byte{3, 0, 0, 0, 0xFF, 0xFF}, []byte{3, 0, 0, 1}},
	} {
		before := bytes.Clone(c.prefix)
		if diff := gocmp.Diff(c.want, PrefixEnd(c.prefix)); diff != "" {
			t.Errorf("PrefixEnd(%x) (-want +got)\n%s", c.prefix, diff)
		}
		if !bytes.Equal(before, c.prefix) {
			t.Errorf("PrefixEnd changed %x to %x", before, c.prefix)
		}
	}
}

var sink int

// TestUnescapedIsTheInverse draws bytes that are escaped often, and those that no
// escaping has made: they must not end the process.
func TestUnescapedIsTheInverse(t *testing.T) {
	t.Parallel()
	drawn := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0, 0xff, 1, 'a'}), 0, 80)
	rapid.Check(t, func(t *rapid.T) {
		want := drawn.Draw(t, "bytes")
		if got := AppendUnescaped([]byte("x"), AppendEscaped(nil, want)); !bytes.Equal(got[1:], want) || got[0] != 'x' {
			t.Fatalf("Got %x of %x", got, want)
		}
		AppendUnescaped(nil, want)
	})
}

func BenchmarkAppendKey(b *testing.B) {
	k := &Key{Tag: TagData, Table: 7, Family: 1, Row: []byte("3fa9/user-0001234/\x7f\xff\xfe\x74"), Qualifier: []byte("country"), Time: 1_700_000_000_000, Kind: KindPut, Sequence: 1 << 40}
	buf := make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendKey(buf[:0], k)
	}
	sink = len(buf)
}

func BenchmarkDecodeKey(b *testing.B) {
	for _, c := range []struct{ name, row string }{
		{"plain", "3fa9/user-0001234/\x7f\xff\xfe\x74"},
		{"escaped", "3fa9/user-0001234/\x7f\xff\x00\x00\x74"},
	} {
		b.Run(c.name, func(b *testing.B) {
			key := AppendKey(nil, &Key{Tag: TagData, Table: 7, Family: 1, Row: []byte(c.row), Qualifier: []byte("country"), Time: 1_700_000_000_000, Kind: KindPut, Sequence: 1 << 40})
			scratch := make([]byte, 0, 256)
			var k Key
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DecodeKey(&k, key, scratch); err != nil {
					b.Fatal(err)
				}
			}
			sink = len(k.Row)
		})
	}
}

func BenchmarkSplitKey(b *testing.B) {
	key := AppendKey(nil, &Key{Tag: TagData, Table: 7, Family: 1, Row: []byte("3fa9/user-0001234/\x7f\xff\x00\x74"), Qualifier: []byte("country"), Kind: KindPut})
	b.ReportAllocs()
	for b.Loop() {
		sink = SplitKey(key)
	}
}

// TestCodecAllocations keeps the codecs free of allocation: they run for every
// cell that is written or read.
func TestCodecAllocations(t *testing.T) {
	k := &Key{Tag: TagData, Table: 7, Family: 1, Row: []byte("row\x00key"), Qualifier: []byte("qualifier"), Time: 1, Kind: KindPut, Sequence: 1}
	key := AppendKey(nil, k)
	packed := appendPacked(5, true, []column{{[]byte("a"), []byte("1"), 1}, {[]byte("b"), []byte("2"), 2}})
	buf, scratch := make([]byte, 0, 256), make([]byte, 0, 256)
	var got Key
	var p Packed
	for name, f := range map[string]func(){
		"AppendKey": func() { buf = AppendKey(buf[:0], k) },
		"DecodeKey": func() {
			if _, err := DecodeKey(&got, key, scratch); err != nil {
				t.Error(err)
			}
		},
		"SplitKey":    func() { sink = SplitKey(key) },
		"AppendValue": func() { buf = AppendValue(buf[:0], 5, key) },
		"Packed": func() {
			if err := p.Reset(packed, 7); err != nil {
				t.Error(err)
			}
			for p.Next() {
				sink += len(p.Value)
			}
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
