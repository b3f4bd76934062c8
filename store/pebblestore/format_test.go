package pebblestore

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
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
			Filtered: n(6), Dead: n(7), Control: n(8), Lost: n(9), LeaderEpoch: int32(n(10)), MappingVersion: text(f[11]), MappingFrom: n(0),
		}
		checkProgress(t, &p, strings.Join(f[12:], ""))
	}
	for _, line := range vectors(t, "offsets.md", "progress2") {
		f := strings.Fields(line)
		n := func(i int) int64 { return number(t, f[i]) }
		checkProgress(t, &store.Progress{
			First: n(0), Next: n(1), LastOffset: n(2), LastTime: n(3), Fingerprint: uint64(n(4)), Applied: n(5),
			Filtered: n(6), Dead: n(7), Control: n(8), Lost: n(9), LeaderEpoch: int32(n(10)), MappingVersion: text(f[11]), Dropped: n(12), MappingFrom: n(0),
		}, strings.Join(f[13:], ""))
	}
	for _, line := range vectors(t, "offsets.md", "progress3") {
		f := strings.Fields(line)
		n := func(i int) int64 { return number(t, f[i]) }
		checkProgress(t, &store.Progress{
			First: n(0), Next: n(1), LastOffset: n(2), LastTime: n(3), Fingerprint: uint64(n(4)), Applied: n(5),
			Filtered: n(6), Dead: n(7), Control: n(8), Lost: n(9), LeaderEpoch: int32(n(10)), MappingVersion: text(f[11]), Dropped: n(12),
			Duplicate: n(13), Unmet: n(14), MappingFrom: n(15),
		}, strings.Join(f[16:], ""))
	}
	for _, line := range vectors(t, "offsets.md", "progress4") {
		f := strings.Fields(line)
		n := func(i int) int64 { return number(t, f[i]) }
		p := store.Progress{
			First: n(0), Next: n(1), LastOffset: n(2), LastTime: n(3), Fingerprint: uint64(n(4)), Applied: n(5),
			Filtered: n(6), Dead: n(7), Control: n(8), Lost: n(9), LeaderEpoch: int32(n(10)), MappingVersion: text(f[11]), Dropped: n(12),
			Duplicate: n(13), Unmet: n(14), MappingFrom: n(15), Aborted: n(16), Late: n(17),
		}
		for _, gap := range strings.Split(f[18], ",") {
			from, last, _ := strings.Cut(gap, "-")
			p.Gaps = p.Gaps.With(number(t, from), number(t, last)+1)
		}
		checkProgress(t, &p, strings.Join(f[19:], ""))
	}
	for _, line := range vectors(t, "offsets.md", "progress5") {
		f := strings.Fields(line)
		n := func(i int) int64 { return number(t, f[i]) }
		p := store.Progress{
			First: n(0), Next: n(1), LastOffset: n(2), LastTime: n(3), Fingerprint: uint64(n(4)), Applied: n(5),
			Filtered: n(6), Dead: n(7), Control: n(8), Lost: n(9), LeaderEpoch: int32(n(10)), MappingVersion: text(f[11]), Dropped: n(12),
			Duplicate: n(13), Unmet: n(14), MappingFrom: n(15), Aborted: n(16), Late: n(17), Skipped: n(19),
		}
		for _, gap := range strings.Split(f[18], ",") {
			from, last, _ := strings.Cut(gap, "-")
			p.Gaps = p.Gaps.With(number(t, from), number(t, last)+1)
		}
		for _, skip := range strings.Split(f[20], ",") {
			s := strings.Split(skip, "-")
			reason, err := store.ParseSkipReason(s[2])
			if err != nil {
				t.Fatal(err)
			}
			p.Skips = p.Skips.With(number(t, s[0]), number(t, s[1])+1, reason)
		}
		checkProgress(t, &p, strings.Join(f[21:], ""))
	}
	for _, bad := range []string{"", "00", "01", "02" + strings.Repeat("00", 84), "03" + strings.Repeat("00", 115), "04" + strings.Repeat("00", 133), "04" + strings.Repeat("00", 132) + "0001", "04" + strings.Repeat("00", 132) + "0001" + strings.Repeat("00", 16), "05" + strings.Repeat("00", 142), "05" + strings.Repeat("00", 142) + "01", "05" + strings.Repeat("00", 142) + "0001" + strings.Repeat("00", 17), "06" + strings.Repeat("00", 200)} {
		b, err := hex.DecodeString(bad)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := store.DecodeProgress(b); !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("Got %+v, %v of %s", p, err, bad)
		}
	}
}

func checkProgress(t *testing.T, p *store.Progress, want string) {
	t.Helper()
	if !p.Balanced() {
		t.Errorf("the audit equation of %+v does not hold", p)
	}
	b := store.AppendProgress(nil, p)
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("Got progress\n%s, want\n%s", got, want)
	}
	if back, err := store.DecodeProgress(b); err != nil || back != *p {
		t.Errorf("Got %+v, %v back. Want %+v", back, err, p)
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
	for _, stored := range vectors(t, "regions.md", "regions") { // the last is of format 1
		back, err := decodeRegions("t", []byte(stored))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m.All(), back.All()); d != "" {
			t.Errorf("regions (-want +got):\n%s", d)
		}
	}

	f := store.NewFamily("f")
	f.Versions, f.TTL = 3, 86400
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f, counterFamily("n")}}
	if err := d.SetAttribute(store.AttrMaxFileSize, "1073741824"); err != nil {
		t.Fatal(err)
	}
	if err := d.SetMetadata("team", "web"); err != nil {
		t.Fatal(err)
	}
	tab := &table{id: firstTableID, desc: d, disabled: true, altered: 7}
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
	if d := cmp.Diff(d, got.desc); d != "" || !got.disabled || got.altered != 7 {
		t.Errorf("descriptor, disabled %v, altered by %d (-want +got):\n%s", got.disabled, got.altered, d)
	}

	// Format 1 knew no state, and took any attribute.
	old := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f}, Attributes: map[string]string{"OWNER": "me"}, Metadata: map[string]string{"COLOR": "red"}}
	if got, err = decodeTable("t", []byte(vectors(t, "regions.md", "descriptor")[1])); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(old, got.desc); d != "" || got.disabled {
		t.Errorf("descriptor of format 1, disabled %v (-want +got):\n%s", got.disabled, d)
	}

	// Numbers had no bounds once.
	wild := store.NewFamily("f")
	wild.Versions, wild.TTL, wild.TimeToPurgeDeletes = store.AllVersions+1, 1<<50, -1
	unbounded := &store.TableDescriptor{Name: "w", Families: []store.FamilyDescriptor{wild}, MaxTimestampSlop: -1, MaxCellBytes: -1}
	b, err = encodeTable(&table{id: 17, desc: unbounded, fams: []family{newFamily(1, &unbounded.Families[0])}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err = decodeTable("w", b); err != nil {
		t.Fatal(err)
	}
	tame := store.NewFamily("f")
	tame.Versions = store.AllVersions
	if d := cmp.Diff(&store.TableDescriptor{Name: "w", Families: []store.FamilyDescriptor{tame}}, got.desc); d != "" {
		t.Errorf("descriptor beyond all bounds (-want +got):\n%s", d)
	}

	set, err := store.NamespaceSet{}.Create(&store.Namespace{Name: "web", Properties: map[string]string{"owner": "me"}})
	if err != nil {
		t.Fatal(err)
	}
	if b, err = encodeNamespaces(set); err != nil {
		t.Fatal(err)
	}
	if want := vectors(t, "regions.md", "namespaces")[0]; string(b) != want {
		t.Errorf("Got namespaces\n%s, want\n%s", b, want)
	}
	again, err := decodeNamespaces(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(set.Users(), again.Users()); d != "" {
		t.Errorf("namespaces (-want +got):\n%s", d)
	}

	stored := vectors(t, "regions.md", "holds")[0]
	holds, err := decodeHolds([]byte(stored))
	if err != nil {
		t.Fatal(err)
	}
	wantHolds := []store.ChangeHold{{Name: "nightly", Table: "t", Since: 7, Until: 1_700_000_000_000}, {Name: "weekly", Table: "ns:t"}}
	if d := cmp.Diff(wantHolds, holds); d != "" {
		t.Errorf("holds (-want +got):\n%s", d)
	}
	if b, err = encodeHolds(holds); err != nil || string(b) != stored {
		t.Errorf("Got holds\n%s (%v), want\n%s", b, err, stored)
	}
}

// A directory of format 1 opens, its tables keep their namespaces, and the first
// change of its catalog makes it one of this format.
func TestOlderFormatIsRaised(t *testing.T) {
	t.Parallel()
	o := memory()
	db, err := Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	set := func(row, qualifier string, payload []byte) {
		t.Helper()
		if err := db.pebble.Set(catalogKey(row, qualifier), appendSystemValue(nil, cell.Timestamp(1), 0, payload), nil); err != nil {
			t.Fatal(err)
		}
	}
	set(rowStore, qualFormat, []byte{1})
	set(rowTable+"ns:t", qualDescriptor, []byte(`{"version":1,"id":16,"table":{"name":"ns:t","attributes":{"COLOR":"red"}},"families":[{"id":1,"name":"f","versions":1,"ttl_seconds":1,"keep_deleted_cells":"FALSE","block_size":65536}]}`))
	set(rowTable+"ns:t", qualRegions, []byte(`{"version":1,"regions":[{"id":1}]}`))
	stored := func(qualifier string) []byte {
		t.Helper()
		v, c, err := db.pebble.Get(catalogKey(rowStore, qualifier))
		if errors.Is(err, pebble.ErrNotFound) {
			return nil
		} else if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _, payload, err := decodeSystemValue(v)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Clone(payload)
	}
	for life := range 2 {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if db, err = Open("db", o); err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
		if _, err := store.FindNamespace(t.Context(), db, "ns"); err != nil {
			t.Errorf("life %d: %v", life, err)
		}
		d, err := db.Table(t.Context(), "ns:t")
		if err != nil || d.Metadata["COLOR"] != "red" {
			t.Errorf("life %d: Got %+v, %v. Want COLOR in the metadata", life, d, err)
		}
		if life > 0 {
			break
		}
		if f := stored(qualFormat); f[0] != 1 {
			t.Errorf("opening raised the format to %d", f[0])
		}
		if err := db.SplitRegion(t.Context(), "ns:t", []byte("m")); err != nil {
			t.Fatal(err)
		}
		if f := stored(qualFormat); f[0] != catalogFormat || !bytes.Contains(stored(qualNamespaces), []byte(`"ns"`)) {
			t.Errorf("Got format %d with namespaces %s after a change", f[0], stored(qualNamespaces))
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// Whatever a catalog row holds, it is taken or refused, never trusted.
func FuzzCatalog(f *testing.F) {
	f.Add([]byte(`{"version":1,"regions":[{"id":1,"stop":"bQ=="},{"id":1,"start":"bQ=="}]}`))
	f.Add([]byte(`{"version":1,"id":16,"table":{"name":"t"},"families":[{"id":1,"name":"f","versions":1,"ttl_seconds":1,"keep_deleted_cells":"FALSE","block_size":65536}]}`))
	f.Add([]byte(`{"version":1,"id":16,"table":{"name":"t","attributes":{"COLOR":"red"}},"families":[{"id":1,"name":"f","versions":1,"ttl_seconds":1,"keep_deleted_cells":"FALSE","block_size":65536,"attributes":{"X":"Y"}}]}`))
	f.Add([]byte(`{"version":2,"id":16,"state":"DISABLED","table":{"name":"t","metadata":{"a":"b"}},"families":[{"id":1,"name":"f","versions":1,"ttl_seconds":1,"keep_deleted_cells":"FALSE","block_size":65536}]}`))
	f.Add([]byte(`{"version":2,"namespaces":[{"name":"web","properties":{"owner":"me"}}]}`))
	f.Add([]byte(`{"version":3,"holds":[{"name":"a","table":"t","since":7,"until":9},{"name":"b"}]}`))
	f.Add([]byte(`{"version":4}`))
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
			if back, err := decodeTable("t", again); err != nil || !cmp.Equal(d.desc, back.desc, cmpopts.EquateEmpty()) || back.disabled != d.disabled {
				t.Fatalf("Got %v, %v back from %s", back, err, again)
			}
		}
		if holds, err := decodeHolds(b); err == nil {
			again, err := encodeHolds(holds)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := decodeHolds(again); err != nil || !cmp.Equal(holds, back) {
				t.Fatalf("Got %v, %v back from %s", back, err, again)
			}
		}
		if set, err := decodeNamespaces(b); err == nil {
			again, err := encodeNamespaces(set)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := decodeNamespaces(again); err != nil || !cmp.Equal(set.Users(), back.Users(), cmpopts.EquateEmpty()) {
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
