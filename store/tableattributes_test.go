package store

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/region"
)

func TestTableAttributes(t *testing.T) {
	t.Parallel()
	d := &TableDescriptor{Name: "t", Families: []FamilyDescriptor{NewFamily("f")}}
	for _, a := range [][2]string{
		{"max_filesize", " 1073741824 "},
		{"MEMSTORE_FLUSHSIZE", "134217728"},
		{"ReadOnly", "TRUE"},
		{"Durability", "async_wal"},
		{"REGION_REPLICATION", "1"},
		{"PRIORITY", "7"},
		{"OWNER", "me"},
		{"split_policy", "DelimitedKeyPrefixRegionSplitPolicy"},
		{"SPLIT_ENABLED", "false"},
		{"NORMALIZATION_ENABLED", "true"},
		{"NORMALIZER_TARGET_REGION_SIZE_MB", "64"},
		{"NORMALIZER_TARGET_REGION_COUNT", "9"},
	} {
		if err := d.SetAttribute(a[0], a[1]); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(d.SetMetadata(MetaDelimiter, "_"), d.SetMetadata("team", "web"), d.Validate()); err != nil {
		t.Error(err)
	}
	want := []Attribute{
		{"DURABILITY", "ASYNC_WAL"},
		{"MAX_FILESIZE", "1073741824 B (1GB)"},
		{"MEMSTORE_FLUSHSIZE", "134217728 B (128MB)"},
		{"PRIORITY", "7"},
		{"READONLY", "true"},
	}
	if diff := cmp.Diff(want, d.List()); diff != "" {
		t.Errorf("List (-want +got)\n%s", diff)
	}
	want = []Attribute{
		{MetaDelimiter, "_"},
		{"NORMALIZATION_ENABLED", "true"},
		{"NORMALIZER_TARGET_REGION_COUNT", "9"},
		{"NORMALIZER_TARGET_REGION_SIZE_MB", "64"},
		{"OWNER", "me"},
		{"SPLIT_ENABLED", "false"},
		{"SPLIT_POLICY", "DelimitedKeyPrefixRegionSplitPolicy"},
		{"team", "web"},
	}
	if diff := cmp.Diff(want, d.ListMetadata()); diff != "" {
		t.Errorf("ListMetadata (-want +got)\n%s", diff)
	}
	policy := region.SplitPolicy{Name: region.DelimitedKeyPrefixRegionSplitPolicy, MaxBytes: 1 << 30, FlushBytes: 128 << 20, Delimiter: []byte("_")}
	if diff := cmp.Diff(policy, d.SplitPolicy()); diff != "" {
		t.Errorf("SplitPolicy (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(region.Normalizer{TargetRegions: 9, TargetBytes: 64 << 20, NoSplits: true}, d.Normalizer()); diff != "" {
		t.Errorf("Normalizer (-want +got)\n%s", diff)
	}
	for attribute, want := range map[string]bool{AttrSplit: false, AttrMerge: true, AttrCompaction: true, AttrNormalization: true} {
		if d.Enabled(attribute) != want {
			t.Errorf("%s is %v, want %v", attribute, !want, want)
		}
	}
	for _, name := range []string{"readonly", "max_filesize", "team"} {
		if !d.UnsetAttribute(name) || d.UnsetAttribute(name) {
			t.Errorf("UnsetAttribute(%s) does not say what was set", name)
		}
	}
	if d.ReadOnly || d.SplitPolicy().MaxBytes != 0 {
		t.Errorf("unset attributes stay: %+v", d)
	}
}

func TestTableAttributesAreChecked(t *testing.T) {
	t.Parallel()
	d := &TableDescriptor{Name: "t"}
	for _, a := range [][2]string{
		{"NOPE", "1"},
		{"MAX_FILESIZE", "2097151"},
		{"MAX_FILESIZE", "1e9"},
		{"MEMSTORE_FLUSHSIZE", "1048575"},
		{"DURABILITY", "MAYBE"},
		{"PRIORITY", "-1"},
		{"SPLIT_POLICY", "IdleRegionSplitPolicy"},
		{"MERGE_ENABLED", "yes"},
		{"NORMALIZER_TARGET_REGION_COUNT", "0"},
		{"REGION_REPLICATION", "2"},
		{"READONLY", ""},
	} {
		if err := d.SetAttribute(a[0], a[1]); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("SetAttribute(%s, %s): %v; want ErrInvalidArgument", a[0], a[1], err)
		}
	}
	if err := d.SetAttribute("REGION_REPLICATION", "2"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a second copy of regions: %v; want ErrUnsupported", err)
	}
	if err := errors.Join(d.SetMetadata("", "x"), nil); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("metadata without a name: %v", err)
	}
	if err := d.SetMetadata(MetaPrefixLength, "many"); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("a prefix length of many: %v", err)
	}
	for _, m := range [][2]string{
		{MetaTimestampSlop, "-1"},
		{MetaMaxCellBytes, "1e6"},
		{MetaRestriction, "Prefix"},
		{MetaRestrictedPrefixLength, "0"},
		{MetaBusyShare, "1"},
		{MetaBusyShare, "NaN"},
		{MetaBusyMinAge, "soon"},
		{MetaBusyWindow, "0"},
	} {
		if err := d.SetMetadata(m[0], m[1]); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("SetMetadata(%s, %s): %v; want ErrInvalidArgument", m[0], m[1], err)
		}
	}
	if err := d.SetMetadata(ConfPurgeDeletes, "5"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a setting of families: %v; want ErrUnsupported", err)
	}
	if d.Attributes != nil || d.Metadata != nil {
		t.Errorf("refused attributes stay: %+v", d)
	}
	f := NewFamily("f")
	for _, a := range [][2]string{{"BLOOMFILTER", "COLUMN"}, {"COMPRESSION", "RAR"}, {"DATA_BLOCK_ENCODING", "X"}, {"IN_MEMORY", "2"}, {"REPLICATION_SCOPE", "5"}} {
		if err := f.SetAttribute(a[0], a[1]); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("family SetAttribute(%s, %s): %v; want ErrInvalidArgument", a[0], a[1], err)
		}
	}
	if err := f.SetAttribute("bloomfilter", "rowcol"); err != nil {
		t.Error(err)
	}
	f.Attributes["NOPE"] = "1"
	if err := (&TableDescriptor{Name: "t", Families: []FamilyDescriptor{f}}).Validate(); !errors.Is(err, ErrInvalidSchema) {
		t.Errorf("an unknown family attribute: %v; want ErrInvalidSchema", err)
	}
}

// TestTableSettings: HBase's settings of a table are metadata; some are fields.
func TestTableSettings(t *testing.T) {
	t.Parallel()
	d := &TableDescriptor{Name: "t", Families: []FamilyDescriptor{NewFamily("f")}}
	for _, m := range [][2]string{
		{MetaTimestampSlop, "1000"},
		{MetaMaxCellBytes, " 2048 "},
		{"hbase.hstore.blockingStoreFiles", "32"},
		{MetaRestriction, "keyprefix"},
		{MetaRestrictedPrefixLength, "3"},
		{MetaPrefixLength, "9"},
		{MetaBusyShare, "0.50"},
		{MetaBusyMinAge, "0"},
		{MetaBusyWindow, "60000"},
		{"gone", "x"},
		{"gone", ""},
	} {
		if err := d.SetMetadata(m[0], m[1]); err != nil {
			t.Error(err)
		}
	}
	if err := d.Validate(); err != nil {
		t.Error(err)
	}
	if d.MaxTimestampSlop != 1000 || d.MaxCellBytes != 2048 {
		t.Errorf("slop %d, cells %d", d.MaxTimestampSlop, d.MaxCellBytes)
	}
	want := []Attribute{
		{"KeyPrefixRegionSplitPolicy.prefix_length", "9"},
		{"hbase.busy.policy.aggWindow", "60000"},
		{"hbase.busy.policy.blockedRequests", "0.5"},
		{"hbase.busy.policy.minAge", "0"},
		{"hbase.hregion.keyvalue.timestamp.slop.millisecs", "1000"},
		{"hbase.hstore.blockingStoreFiles", "32"},
		{"hbase.regionserver.region.split_restriction.prefix_length", "3"},
		{"hbase.regionserver.region.split_restriction.type", "KeyPrefix"},
		{"hbase.server.keyvalue.maxsize", "2048"},
	}
	if diff := cmp.Diff(want, d.ListMetadata()); diff != "" {
		t.Errorf("ListMetadata (-want +got)\n%s", diff)
	}
	policy := region.SplitPolicy{Restriction: region.KeyPrefixSplitRestriction, PrefixBytes: 3, Delimiter: []byte{}, Busy: region.BusyPolicy{Share: 0.5, MinAge: -1, Window: 60000}}
	if diff := cmp.Diff(policy, d.SplitPolicy()); diff != "" {
		t.Errorf("SplitPolicy (-want +got)\n%s", diff)
	}
	for _, a := range want {
		if !d.UnsetMetadata(a.Name) || d.UnsetMetadata(a.Name) {
			t.Errorf("UnsetMetadata(%s) does not say what was set", a.Name)
		}
	}
	if diff := cmp.Diff(&TableDescriptor{Name: "t", Families: []FamilyDescriptor{NewFamily("f")}}, d); diff != "" {
		t.Errorf("what was unset stays (-want +got)\n%s", diff)
	}
	d.Metadata = map[string]string{MetaMaxCellBytes: "5"}
	if err := d.Validate(); !errors.Is(err, ErrInvalidSchema) {
		t.Errorf("a field among the metadata: %v; want ErrInvalidSchema", err)
	}
}

// FuzzAttribute: whatever is written as an attribute is refused, or makes a schema
// that is valid and says the same when it is set again.
func FuzzAttribute(f *testing.F) {
	for _, name := range append(TableAttributeNames(), FamilyAttributeNames()...) {
		for _, value := range []string{"", "0", "1", "-1", "true", "NONE", "9223372036854775808", "4294967296"} {
			f.Add(name, value)
		}
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		d := &TableDescriptor{Name: "t", Families: []FamilyDescriptor{NewFamily("f")}}
		if d.SetAttribute(name, value) == nil {
			if err := d.Validate(); err != nil {
				t.Fatalf("%s => %q is taken, and then: %v", name, value, err)
			}
			again := &TableDescriptor{Name: "t", Families: []FamilyDescriptor{NewFamily("f")}}
			for n, v := range d.Attributes {
				if err := again.SetAttribute(n, v); err != nil {
					t.Fatal(err)
				}
			}
			if again.ReadOnly = d.ReadOnly; !cmp.Equal(d, again) {
				t.Fatal(cmp.Diff(d, again))
			}
			d.SplitPolicy()
			d.Normalizer()
			d.List()
			if !d.UnsetAttribute(name) && !(d.ReadOnly || len(d.Attributes) == 0) {
				t.Fatalf("%s cannot be unset", name)
			}
		}
		fam := NewFamily("f")
		if fam.SetAttribute(name, value) == nil {
			fam.List()
		}
	})
}

// FuzzTableName: a name that is taken has a namespace that is taken, and its
// canonical form is taken and stays.
func FuzzTableName(f *testing.F) {
	for _, name := range []string{"t", "ns:t", "default:t", "default:", ":t", "a:b:c", "-t", ".t", "zookeeper", "ns:zookeeper", "\xff", "表", "default:default:t"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if CheckTableName(name) != nil {
			return
		}
		if err := CheckNamespace(NamespaceOf(name)); err != nil {
			t.Fatalf("%q is taken, its namespace is not: %v", name, err)
		}
		c := CanonicalName(name)
		if err := CheckTableName(c); err != nil || CanonicalName(c) != c || NamespaceOf(c) != NamespaceOf(name) {
			t.Fatalf("%q is %q, of namespace %s: %v", name, c, NamespaceOf(c), err)
		}
	})
}
