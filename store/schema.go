package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Forever is the TTL, in seconds, of a family whose cells never expire (HBase
// HConstants.FOREVER).
const Forever = 1<<31 - 1

// KeepDeleted is HBase's KEEP_DELETED_CELLS.
type KeepDeleted uint8

// The values of KEEP_DELETED_CELLS.
const (
	KeepDeletedFalse KeepDeleted = iota
	KeepDeletedTrue
	KeepDeletedTTL
)

// String returns the value as HBase spells it.
func (k KeepDeleted) String() string {
	if k > KeepDeletedTTL {
		return fmt.Sprintf("KeepDeleted(%d)", uint8(k))
	}
	return [...]string{"FALSE", "TRUE", "TTL"}[k]
}

// FamilyDescriptor is the schema of one column family, with HBase's attributes.
// Make one with NewFamily, which fills in HBase's defaults.
type FamilyDescriptor struct {
	Name               string
	Versions           int // VERSIONS, ≥ 1
	MinVersions        int // MIN_VERSIONS, 0..Versions
	TTL                int // seconds; Forever = none
	KeepDeleted        KeepDeleted
	NewVersionBehavior bool
	TimeToPurgeDeletes int64 // ms for which a major compaction keeps delete markers
	Counter            bool  // COUNTER: takes only increments and deletes (design D7)
	Distinct           bool  // DISTINCT: takes only appends, each an element to count, and deletes
	BlockSize          int   // bytes; stored and shown, the engine chooses its own
	// Attributes are the family's other attributes, by HBase's names, as
	// given; nil = none.
	Attributes map[string]string
	// Metadata are the user's own texts (HBase METADATA); nil = none.
	Metadata map[string]string
	// Configuration are HBase's settings for the family (HBase CONFIGURATION)
	// that a store keeps and does not act upon; nil = none.
	Configuration map[string]string
}

// NewFamily returns a family with HBase's default attributes.
func NewFamily(name string) FamilyDescriptor {
	return FamilyDescriptor{Name: name, Versions: 1, TTL: Forever, BlockSize: 65536}
}

// InPlace reports that the family keeps one cell a column, which is overwritten: a
// count (COUNTER) or a sketch of how many different elements were appended
// (DISTINCT, docs/format/distinct.md). A delete there takes effect in the order of
// commits, and what is written after it begins anew.
func (f *FamilyDescriptor) InPlace() bool { return f.Counter || f.Distinct }

// TableDescriptor is the schema of one table. Families are sorted by name.
type TableDescriptor struct {
	Name             string // "table" or "namespace:table"
	Families         []FamilyDescriptor
	MaxTimestampSlop int64 // ms a put may lie in the future; 0 = any
	MaxCellBytes     int   // largest cell, key included; 0 = DefaultMaxCellBytes
	ReadOnly         bool
	// Attributes are the table's other attributes, by HBase's names, as
	// SetAttribute checks them; nil = none.
	Attributes map[string]string
	// Metadata are the user's own texts (HBase METADATA), and HBase's settings
	// for the table but those that are fields here; nil = none.
	Metadata map[string]string
}

// DefaultMaxCellBytes is hbase.server.keyvalue.maxsize's default.
const DefaultMaxCellBytes = 10 << 20

// MaxFamilies is the most families a table can have: a key holds one in a byte.
const MaxFamilies = 255

// Family returns the family with this name, or nil.
func (t *TableDescriptor) Family(name string) *FamilyDescriptor {
	// A table has a handful of families: a loop beats a map here.
	for i := range t.Families {
		if t.Families[i].Name == name {
			return &t.Families[i]
		}
	}
	return nil
}

// Clone returns a deep copy.
func (t *TableDescriptor) Clone() *TableDescriptor {
	c := *t
	c.Families = append([]FamilyDescriptor(nil), t.Families...)
	for i := range c.Families {
		f := &c.Families[i]
		f.Attributes, f.Metadata, f.Configuration = maps.Clone(f.Attributes), maps.Clone(f.Metadata), maps.Clone(f.Configuration)
	}
	c.Attributes, c.Metadata = maps.Clone(t.Attributes), maps.Clone(t.Metadata)
	return &c
}

// Validate checks the schema by HBase's rules (TableDescriptorChecker), sorts the
// families and makes the name canonical. Its error wraps ErrInvalidSchema and names
// the attribute, or ErrInvalidArgument where a name is wrong.
func (t *TableDescriptor) Validate() error {
	if err := CheckTableName(t.Name); err != nil {
		return err
	}
	t.Name = CanonicalName(t.Name)
	bad := func(f string, a ...any) error {
		return fmt.Errorf("%w: table %s: %s", ErrInvalidSchema, t.Name, fmt.Sprintf(f, a...))
	}
	if len(t.Families) == 0 {
		return bad("Table must have at least one column family")
	}
	if len(t.Families) > MaxFamilies {
		return bad("%d column families, at most %d", len(t.Families), MaxFamilies)
	}
	slices.SortFunc(t.Families, func(a, b FamilyDescriptor) int { return strings.Compare(a.Name, b.Name) })
	for i := range t.Families {
		f := &t.Families[i]
		if err := CheckFamilyName(f.Name); err != nil {
			return fmt.Errorf("table %s: %w", t.Name, err)
		}
		if i > 0 && f.Name == t.Families[i-1].Name {
			return bad("column family %s is given twice", f.Name)
		}
		if err := f.validate(); err != nil {
			return bad("family %s: %v", f.Name, err)
		}
	}
	if t.MaxTimestampSlop < 0 || t.MaxCellBytes < 0 {
		return bad("%s is %d, %s is %d, must not be negative", MetaTimestampSlop, t.MaxTimestampSlop, MetaMaxCellBytes, t.MaxCellBytes)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Attributes)) {
		a, ok := tableAttributes[name]
		if !ok {
			return bad("unknown attribute %s", name)
		}
		if _, err := a.check(t.Attributes[name]); err != nil {
			return bad("%s => %q: %v", name, t.Attributes[name], err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Metadata)) {
		if name == MetaTimestampSlop || name == MetaMaxCellBytes {
			return bad("METADATA %q: it is a field of the descriptor", name)
		}
		if check, ok := configured[name]; ok {
			if _, err := check(t.Metadata[name]); err != nil {
				return bad("%s => %q: %v", name, t.Metadata[name], err)
			}
		}
	}
	return nil
}

// validate checks all of a family but its name.
func (f *FamilyDescriptor) validate() error {
	switch {
	case f.Versions < 1 || f.Versions > AllVersions:
		return fmt.Errorf("VERSIONS is %d, must be 1..%d", f.Versions, AllVersions)
	case f.MinVersions < 0 || f.MinVersions > f.Versions:
		return fmt.Errorf("MIN_VERSIONS is %d, must be 0..VERSIONS (%d)", f.MinVersions, f.Versions)
	case f.TTL <= 0 || f.TTL > Forever:
		return fmt.Errorf("TTL is %d, must be 1..%d", f.TTL, Forever)
	case f.KeepDeleted > KeepDeletedTTL:
		return fmt.Errorf("KEEP_DELETED_CELLS is %d, unknown", uint8(f.KeepDeleted))
	case f.TimeToPurgeDeletes < 0:
		return fmt.Errorf("%s is %d, must not be negative", ConfPurgeDeletes, f.TimeToPurgeDeletes)
	case f.BlockSize < 1<<10 || f.BlockSize > 16<<20:
		return fmt.Errorf("BLOCKSIZE is %d, must be 1 KiB..16 MiB", f.BlockSize)
	case f.Counter && f.Distinct:
		return errors.New("COUNTER and DISTINCT exclude each other")
	case f.Counter && (f.Versions != 1 || f.MinVersions != 0):
		return errors.New("a COUNTER family keeps one version")
	case f.Distinct && (f.Versions != 1 || f.MinVersions != 0):
		return errors.New("a DISTINCT family keeps one version")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Attributes)) {
		if err := checkPassive(name, f.Attributes[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Metadata)) {
		if err := checkMetadata(name); err != nil {
			return fmt.Errorf("METADATA %q: %w", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Configuration)) {
		if err := checkConfiguration(name); err != nil {
			return fmt.Errorf("CONFIGURATION %q: %w", name, err)
		}
	}
	return nil
}

// CheckTableName applies HBase's TableName rules to "table" or
// "namespace:table". Its error wraps ErrInvalidArgument.
func CheckTableName(name string) error {
	bad := func(why string) error { return fmt.Errorf("%w: table name %q: %s", ErrInvalidArgument, name, why) }
	ns, q, ok := strings.Cut(name, ":")
	if !ok {
		ns, q = "", name
	} else if err := CheckNamespace(ns); err != nil {
		return fmt.Errorf("table name %q: %w", name, err)
	}
	switch {
	case q == "":
		return bad("it is empty")
	case !utf8.ValidString(q):
		return bad("it is not UTF-8")
	case q[0] == '.' || q[0] == '-':
		return bad("it must not start with . or -")
	case q == "zookeeper":
		return bad("it is reserved")
	}
	for _, r := range q {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-' && r != '.' {
			return bad(fmt.Sprintf("%q is not allowed; letters, digits, _, - and . are", r))
		}
	}
	return nil
}

// CheckFamilyName applies HBase's rules for family names, and asks for UTF-8. Its error
// wraps ErrInvalidArgument.
func CheckFamilyName(name string) error {
	bad := func(why string) error {
		return fmt.Errorf("%w: column family name %q: %s", ErrInvalidArgument, name, why)
	}
	switch {
	case name == "":
		return bad("it is empty")
	case len(name) > 127:
		return bad("it is longer than 127 bytes")
	case !utf8.ValidString(name):
		return bad("it is not UTF-8")
	case name[0] == '.':
		return bad("it must not start with .")
	case name == "recovered.edits":
		return bad("it is reserved")
	}
	for _, r := range name {
		if unicode.IsControl(r) || r == ':' || r == '/' || r == '\\' {
			return bad(fmt.Sprintf("%q is not allowed", r))
		}
	}
	return nil
}
