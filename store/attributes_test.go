package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTTL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in      string
		seconds int
		out     string
	}{
		{"FOREVER", Forever, "FOREVER"},
		{"60", 60, "60 SECONDS (1 MINUTE)"},
		{"1", 1, "1 SECOND"},
		{"59", 59, "59 SECONDS"},
		{"1 day 2 hours", 93600, "93600 SECONDS (1 DAY 2 HOURS)"},
		{"30 DAYS", 2592000, "2592000 SECONDS (30 DAYS)"},
		{" 1 DAY 1 HOUR 1 MINUTE 1 SECOND ", 90061, "90061 SECONDS (1 DAY 1 HOUR 1 MINUTE 1 SECOND)"},
	} {
		got, err := ParseTTL(c.in)
		if err != nil || got != c.seconds {
			t.Errorf("ParseTTL(%q) = %d, %v; want %d", c.in, got, err, c.seconds)
		}
		if out := FormatTTL(got); out != c.out {
			t.Errorf("FormatTTL(%d) = %q; want %q", got, out, c.out)
		}
	}
	for _, in := range []string{"", "0", "-1", "DAY", "1 FORTNIGHT", "1 DAY 2", "99999999999", "99999 DAYS", "0 DAYS", "1.5 DAYS"} {
		if got, err := ParseTTL(in); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("ParseTTL(%q) = %d, %v; want ErrInvalidArgument", in, got, err)
		}
	}
}

func TestSetAttribute(t *testing.T) {
	t.Parallel()
	f := NewFamily("f")
	for name, value := range map[string]string{
		"versions": "5", "MIN_VERSIONS": "2", "TTL": "1 HOUR", "KEEP_DELETED_CELLS": "ttl", "NEW_VERSION_BEHAVIOR": "true",
		"BLOCKSIZE": "8192", "COMPRESSION": "ZSTD", "IS_MOB": "true",
	} {
		if err := f.SetAttribute(name, value); err != nil {
			t.Errorf("SetAttribute(%s, %s): %v", name, value, err)
		}
	}
	var b strings.Builder
	for _, a := range append(f.List(), f.ListMetadata()...) {
		b.WriteString(a.Name + "=" + a.Value + "\n")
	}
	want := `NAME=f
INDEX_BLOCK_ENCODING=NONE
VERSIONS=5
KEEP_DELETED_CELLS=TTL
DATA_BLOCK_ENCODING=NONE
TTL=3600 SECONDS (1 HOUR)
MIN_VERSIONS=2
REPLICATION_SCOPE=0
BLOOMFILTER=ROW
IN_MEMORY=false
COMPRESSION=ZSTD
BLOCKCACHE=true
BLOCKSIZE=8192 B (8KB)
IS_MOB=true
NEW_VERSION_BEHAVIOR=true
`
	if b.String() != want {
		t.Errorf("List:\n%swant:\n%s", b.String(), want)
	}
	for name, value := range map[string]string{
		"VERSIONS": "0", "TTL": "soon", "KEEP_DELETED_CELLS": "MAYBE", "COUNTER": "2", "BLOCKSIZE": "big", "VERSION": "1",
	} {
		if err := f.SetAttribute(name, value); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("SetAttribute(%s, %s): %v; want ErrInvalidArgument", name, value, err)
		}
	}
}

func TestFamilySettings(t *testing.T) {
	t.Parallel()
	f := NewFamily("f")
	for _, err := range []error{
		f.SetConfiguration(ConfPurgeDeletes, "60000"), f.SetConfiguration("hbase.hstore.compaction.min", "5"),
		f.SetConfiguration("gone", "x"), f.SetConfiguration("gone", ""), f.SetMetadata("owner", "me"), f.SetMetadata("nobody", ""),
		(&TableDescriptor{Name: "t", Families: []FamilyDescriptor{f}}).Validate(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	f.NewVersionBehavior = true
	if d := cmp.Diff([]Attribute{{"hbase.hstore.compaction.min", "5"}, {ConfPurgeDeletes, "60000"}}, f.ListConfiguration()); d != "" {
		t.Errorf("ListConfiguration (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]Attribute{{"NEW_VERSION_BEHAVIOR", "true"}, {"owner", "me"}}, f.ListMetadata()); d != "" {
		t.Errorf("ListMetadata (-want +got):\n%s", d)
	}
	if f.TimeToPurgeDeletes != 60000 {
		t.Errorf("TimeToPurgeDeletes = %d", f.TimeToPurgeDeletes)
	}
	for what, err := range map[string]error{
		"a negative time": f.SetConfiguration(ConfPurgeDeletes, "-1"), "no number": f.SetConfiguration(ConfPurgeDeletes, "1 DAY"),
		"a table's setting": f.SetConfiguration(MetaMaxCellBytes, "5"), "no name": f.SetConfiguration("", "5"),
		"metadata without a name": f.SetMetadata("", "x"), "an attribute": f.SetMetadata("versions", "5"),
	} {
		if !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%s: %v; want ErrInvalidArgument", what, err)
		}
	}
	for _, broken := range []FamilyDescriptor{
		{Metadata: map[string]string{"TTL": "5"}}, {Configuration: map[string]string{ConfPurgeDeletes: "5"}}, {Configuration: map[string]string{"": "5"}},
	} {
		g := NewFamily("f")
		g.Metadata, g.Configuration = broken.Metadata, broken.Configuration
		if err := (&TableDescriptor{Name: "t", Families: []FamilyDescriptor{g}}).Validate(); !errors.Is(err, ErrInvalidSchema) {
			t.Errorf("%+v: %v; want ErrInvalidSchema", broken, err)
		}
	}
}

// TestValidateFields: what a program or the HTTP API can say and no attribute's text can
// is refused, not stored.
func TestValidateFields(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(*TableDescriptor){
		"KEEP_DELETED_CELLS": func(d *TableDescriptor) { d.Families[0].KeepDeleted = KeepDeletedTTL + 1 },
		"TTL":                func(d *TableDescriptor) { d.Families[0].TTL = Forever + 1 },
		"VERSIONS":           func(d *TableDescriptor) { d.Families[0].Versions = AllVersions + 1 },
		"time to purge":      func(d *TableDescriptor) { d.Families[0].TimeToPurgeDeletes = -1 },
		"timestamp slop":     func(d *TableDescriptor) { d.MaxTimestampSlop = -1 },
		"largest cell":       func(d *TableDescriptor) { d.MaxCellBytes = -1 },
	} {
		d := &TableDescriptor{Name: "t", Families: []FamilyDescriptor{NewFamily("f")}}
		if err := d.Validate(); err != nil {
			t.Fatal(err)
		}
		spoil(d)
		if err := d.Validate(); !errors.Is(err, ErrInvalidSchema) {
			t.Errorf("%s: %v; want ErrInvalidSchema", what, err)
		}
	}
	if err := CheckFamilyName("f\xff"); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("a name that is not UTF-8: %v; want ErrInvalidArgument", err)
	}
	if got := KeepDeleted(7).String(); got != "KeepDeleted(7)" {
		t.Errorf("Got %s", got)
	}
}
