package pebblestore

import (
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// vectors returns the lines of a page's fenced block with this name.
func vectors(t *testing.T, page, name string) []string {
	t.Helper()
	b, err := os.ReadFile("../../docs/format/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "```"+name+"\n")
	block, _, closed := strings.Cut(rest, "\n```")
	if !ok || !closed || block == "" {
		t.Fatalf("%s has no block %q", page, name)
	}
	return strings.Split(block, "\n")
}

// number parses a decimal of a vector; text turns - into nothing.
func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func text(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

func TestOffsetsFormat(t *testing.T) {
	t.Parallel()
	for _, line := range vectors(t, "offsets.md", "rows") {
		f := strings.Fields(line)
		s := store.Source{Pipeline: text(f[0]), Topic: text(f[1]), ClusterID: text(f[2])}
		if _, err := hex.Decode(s.TopicID[:], []byte(f[3])); err != nil {
			t.Fatal(err)
		}
		partition := int32(number(t, f[4]))
		row := store.AppendSourceRow(nil, &s, partition)
		if got, want := hex.EncodeToString(row), strings.Join(f[5:], ""); got != want {
			t.Errorf("Got row %s, want %s", got, want)
		}
		back, p, err := store.DecodeSourceRow(row)
		if err != nil || back != s || p != partition {
			t.Errorf("Got %+v, %d, %v back. Want %+v, %d", back, p, err, s, partition)
		}
	}
	for _, line := range vectors(t, "offsets.md", "progress") {
		f := strings.Fields(line)
		n := func(i int) int64 { return number(t, f[i]) }
		p := store.Progress{
			First: n(0), Next: n(1), LastOffset: n(2), LastTime: n(3), Fingerprint: uint64(n(4)), Applied: n(5),
			Filtered: n(6), Dead: n(7), Control: n(8), Lost: n(9), LeaderEpoch: int32(n(10)), MappingVersion: text(f[11]),
		}
		if !p.Balanced() {
			t.Errorf("the audit equation of %+v does not hold", p)
		}
		b := store.AppendProgress(nil, &p)
		if got, want := hex.EncodeToString(b), strings.Join(f[12:], ""); got != want {
			t.Errorf("Got progress\n%s, want\n%s", got, want)
		}
		if back, err := store.DecodeProgress(b); err != nil || back != p {
			t.Errorf("Got %+v, %v back. Want %+v", back, err, p)
		}
	}
}

func TestCatalogFormat(t *testing.T) {
	t.Parallel()
	m, err := region.Create("t", [][]byte{[]byte("m")}, 1_700_000_000_000)
	if err != nil {
		t.Fatal(err)
	}
	if m, err = m.Split([]byte("t"), 1_700_000_000_001); err != nil {
		t.Fatal(err)
	}
	b, err := encodeRegions(m)
	if err != nil {
		t.Fatal(err)
	}
	if want := vectors(t, "regions.md", "regions")[0]; string(b) != want {
		t.Errorf("Got regions\n%s, want\n%s", b, want)
	}
	back, err := decodeRegions("t", b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m.All(), back.All()); d != "" {
		t.Errorf("regions (-want +got):\n%s", d)
	}

	f := store.NewFamily("f")
	f.Versions, f.TTL = 3, 86400
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f, counterFamily("n")}}
	tab := &table{id: firstTableID, desc: d}
	if tab.fams, tab.removed, err = assignFamilies(d, nil); err != nil {
		t.Fatal(err)
	}
	if b, err = encodeTable(tab); err != nil {
		t.Fatal(err)
	}
	want := vectors(t, "regions.md", "descriptor")[0]
	if string(b) != want {
		t.Errorf("Got descriptor\n%s, want\n%s", b, want)
	}
	got, err := decodeTable("t", b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(d, got.desc); d != "" {
		t.Errorf("descriptor (-want +got):\n%s", d)
	}
}

// Whatever a catalog row holds, it is taken or refused, never trusted.
func FuzzCatalog(f *testing.F) {
	f.Add([]byte(`{"version":1,"regions":[{"id":1,"stop":"bQ=="},{"id":1,"start":"bQ=="}]}`))
	f.Add([]byte(`{"version":1,"id":16,"table":{"name":"t"},"families":[{"id":1,"name":"f","versions":1,"ttl_seconds":1,"keep_deleted_cells":"FALSE","block_size":65536}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeRegions("t", b); err == nil {
			again, err := encodeRegions(m)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := decodeRegions("t", again); err != nil || !cmp.Equal(m.All(), back.All(), cmpopts.EquateEmpty()) {
				t.Fatalf("Got %v, %v back from %s", back, err, again)
			}
		}
		if d, err := decodeTable("t", b); err == nil {
			again, err := encodeTable(d)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := decodeTable("t", again); err != nil || !cmp.Equal(d.desc, back.desc, cmpopts.EquateEmpty()) {
				t.Fatalf("Got %v, %v back from %s", back, err, again)
			}
		}
		if at, sequence, payload, err := decodeSystemValue(b); err == nil {
			if got := appendSystemValue(nil, at, sequence, payload); string(got) != string(b) {
				t.Fatalf("Got %x back, want %x", got, b)
			}
		}
	})
}

// A directory of a newer program is refused by name, not misread.
func TestNewerFormatIsRefused(t *testing.T) {
	t.Parallel()
	o := memory()
	db, err := Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.pebble.Set(catalogKey(rowStore, qualFormat), appendSystemValue(nil, cell.Timestamp(1), 0, []byte{catalogFormat + 1}), nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("db", o); err == nil || !strings.Contains(err.Error(), "use a newer one") {
		t.Fatalf("Got %v, want a refusal that names the way out", err)
	}
}
