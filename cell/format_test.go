package cell

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// block returns the lines of the fenced block with this name in
// docs/format/key.md.
func block(t *testing.T, name string) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/format/key.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "\n```"+name+"\n")
	text, _, closed := strings.Cut(rest, "\n```")
	if !ok || !closed {
		t.Fatalf("docs/format/key.md has no block %s", name)
	}
	return strings.Split(text, "\n")
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	if s == "-" {
		return []byte{}
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return b
}

func number(t *testing.T, s string, bits int) uint64 {
	t.Helper()
	if s == "-" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, bits)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var kinds = []Kind{KindPacked, KindPut, KindDelete, KindDeleteFamilyVersion, KindDeleteColumn, KindDeleteFamily}

func TestKeyVectors(t *testing.T) {
	t.Parallel()
	var before []byte
	seen := map[Kind]bool{}
	for _, line := range block(t, "keys") {
		f := strings.Fields(line)
		want := Key{
			Tag: byte(number(t, f[0], 8)), Table: uint32(number(t, f[1], 32)), Family: uint8(number(t, f[2], 8)),
			Row: unhex(t, f[3]), Qualifier: unhex(t, f[4]),
			Time: Timestamp(number(t, f[5], 63)), Kind: KindPut, Sequence: number(t, f[7], 64),
		}
		for _, k := range kinds {
			if k.String() == f[6] {
				want.Kind = k
				seen[k] = true
			}
		}
		key := unhex(t, strings.Join(f[8:], ""))
		if got := AppendKey(nil, &want); !bytes.Equal(got, key) {
			t.Errorf("AppendKey(%s)\n got %x\nwant %x", line, got, key)
		}
		var got Key
		if _, err := DecodeKey(&got, key, nil); err != nil {
			t.Errorf("DecodeKey(%x): %v", key, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("DecodeKey(%x) (-want +got)\n%s", key, diff)
		}
		if bytes.Compare(before, key) >= 0 {
			t.Errorf("%x does not sort after %x", key, before)
		}
		before = key
	}
	if len(seen) != len(kinds) {
		t.Errorf("vectors have kinds %v, want all of %v", seen, kinds)
	}
}

func TestCorruptKeyVectors(t *testing.T) {
	t.Parallel()
	for _, line := range block(t, "corrupt-keys") {
		field, why, _ := strings.Cut(line, " ")
		var k Key
		if _, err := DecodeKey(&k, unhex(t, field), nil); !errors.Is(err, ErrCorruptKey) {
			t.Errorf("DecodeKey(%s) (%s): %v; want ErrCorruptKey", field, strings.TrimSpace(why), err)
		}
	}
}

// ttlOf reads a TTL of the vectors.
func ttlOf(t *testing.T, s string) int64 {
	t.Helper()
	if s == "zero" {
		return NoLife
	}
	return int64(number(t, s, 63))
}

func TestValueVectors(t *testing.T) {
	t.Parallel()
	for _, line := range block(t, "values") {
		f := strings.Fields(line)
		ttl, value, stored := ttlOf(t, f[0]), unhex(t, f[1]), unhex(t, f[2])
		if got := AppendValue(nil, ttl, value); !bytes.Equal(got, stored) {
			t.Errorf("AppendValue(%s) = %x", line, got)
		}
		gotTTL, got, err := DecodeValue(stored)
		if err != nil || gotTTL != ttl || !bytes.Equal(got, value) {
			t.Errorf("DecodeValue(%s) = %d, %x, %v", line, gotTTL, got, err)
		}
	}
}

// column is one column of a packed value in a test.
type column struct {
	Qualifier, Value []byte
	Sequence         uint64
}

func appendPacked(ttl int64, perColumn bool, columns []column) []byte {
	b := AppendPackedHeader(nil, ttl, perColumn)
	for _, c := range columns {
		b = AppendPackedColumn(b, c.Qualifier, c.Value)
		if perColumn {
			b = AppendPackedSequence(b, c.Sequence)
		}
	}
	return b
}

// decodePacked decodes by Next, and checks that AppendCells, with Next before it or
// without, finds the same columns or the same corruption.
func decodePacked(b []byte, sequence uint64) (ttl int64, columns []column, err error) {
	var p Packed
	if err := p.Reset(b, sequence); err != nil {
		return 0, nil, err
	}
	var cells []Cell
	for p.Next() {
		columns = append(columns, column{p.Qualifier, p.Value, p.Sequence})
		cells = append(cells, Cell{Family: "f", Qualifier: p.Qualifier, Time: 7, Kind: KindPut, Value: p.Value, TTL: p.TTL})
	}
	for skip := range min(2, len(cells)+1) {
		var q Packed
		if err := q.Reset(b, sequence); err != nil {
			return 0, nil, err
		}
		for range skip {
			q.Next()
		}
		if got := q.AppendCells(nil, "f", 7); !cmp.Equal(got, cells[skip:], cmpopts.EquateEmpty()) || fmt.Sprint(q.Err()) != fmt.Sprint(p.Err()) {
			return 0, nil, fmt.Errorf("AppendCells after %d columns: %v, %w; Next: %v, %w", skip, got, q.Err(), cells, p.Err())
		}
	}
	if n, err := PackedColumns(b); n != len(columns) || fmt.Sprint(err) != fmt.Sprint(p.Err()) {
		return 0, nil, fmt.Errorf("PackedColumns: %d, %w; Next: %d, %w", n, err, len(columns), p.Err())
	}
	return p.TTL, columns, p.Err()
}

func TestPackedVectors(t *testing.T) {
	t.Parallel()
	for _, line := range block(t, "packed") {
		f := strings.Fields(line)
		ttl, sequence, perColumn := ttlOf(t, f[0]), number(t, f[1], 64), f[2] == "yes"
		var want []column
		for _, c := range strings.Split(f[3], ",") {
			q, rest, _ := strings.Cut(c, "=")
			v, s, _ := strings.Cut(rest, "@")
			want = append(want, column{unhex(t, q), unhex(t, v), number(t, s, 64)})
		}
		stored := unhex(t, strings.Join(f[4:], ""))
		if got := appendPacked(ttl, perColumn, want); !bytes.Equal(got, stored) {
			t.Errorf("encode %s: got %x", line, got)
		}
		gotTTL, got, err := decodePacked(stored, sequence)
		if err != nil || gotTTL != ttl {
			t.Errorf("decode %s: TTL %d, %v", line, gotTTL, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("decode %s (-want +got)\n%s", line, diff)
		}
	}
}

func TestCorruptPackedVectors(t *testing.T) {
	t.Parallel()
	for _, line := range block(t, "corrupt-packed") {
		// The bytes come in groups, the reason in words: the bytes end where
		// a field is no hex.
		digits := ""
		for _, f := range strings.Fields(line) {
			if f == "-" {
				break
			}
			if _, err := hex.DecodeString(f); err != nil {
				break
			}
			digits += f
		}
		b, _ := hex.DecodeString(digits)
		if _, columns, err := decodePacked(b, 7); !errors.Is(err, ErrCorruptValue) {
			t.Errorf("decode %s: %v, %v; want ErrCorruptValue", line, columns, err)
		}
	}
}

func TestCorruptValue(t *testing.T) {
	t.Parallel()
	for _, b := range [][]byte{nil, {4}, {1}, {1, 0, 0, 0, 0, 0, 0, 0}, {1, 0x80, 0, 0, 0, 0, 0, 0, 0}, {2}, {2, 1}} {
		ttl, value, err := DecodeValue(b)
		if !errors.Is(err, ErrCorruptValue) || ttl != 0 || value != nil {
			t.Errorf("DecodeValue(%x) = %d, %x, %v; want ErrCorruptValue", b, ttl, value, err)
		}
	}
}

func TestKindAndOpNames(t *testing.T) {
	t.Parallel()
	for k := range 256 {
		known := false
		for _, want := range kinds {
			known = known || want == Kind(k)
		}
		if got := Kind(k).String() == fmt.Sprintf("Kind(%d)", k); got == known {
			t.Errorf("Kind(%d) prints as %s", k, Kind(k))
		}
		if want := known && k >= 8; Kind(k).IsDelete() != want {
			t.Errorf("Kind(%d).IsDelete() = %v", k, !want)
		}
	}
	names := map[string]bool{}
	for o := OpPut; o <= OpAppend; o++ {
		names[o.String()] = true
	}
	if len(names) != 8 || names["OpType(9)"] || OpType(9).String() != "OpType(9)" {
		t.Errorf("names of operations: %v", names)
	}
}
