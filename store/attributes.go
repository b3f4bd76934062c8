package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// SetAttribute sets a family attribute by HBase's name, in any case, from its
// written form: VERSIONS, MIN_VERSIONS, TTL, KEEP_DELETED_CELLS,
// NEW_VERSION_BEHAVIOR, BLOCKSIZE, COUNTER, DISTINCT, and those that describe HBase's
// own files, which are kept and shown and change nothing here. Its error wraps
// ErrInvalidArgument and says what the attribute takes, or which are known.
func (f *FamilyDescriptor) SetAttribute(name, value string) error {
	name = strings.ToUpper(name)
	bad := func(want string) error {
		return fmt.Errorf("%w: family %s: %s => %q: want %s", ErrInvalidArgument, f.Name, name, value, want)
	}
	number := func(dst *int, low, high int) error {
		n, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil || n < low || n > high {
			return bad(fmt.Sprintf("a number, %d..%d", low, high))
		}
		*dst = n
		return nil
	}
	boolean := func(dst *bool) error {
		b, err := strconv.ParseBool(strings.ToLower(value))
		if err != nil {
			return bad("true or false")
		}
		*dst = b
		return nil
	}
	switch name {
	case "VERSIONS":
		if strings.EqualFold(value, "MAX") {
			f.Versions = AllVersions
			return nil
		}
		return number(&f.Versions, 1, math.MaxInt32)
	case "MIN_VERSIONS":
		return number(&f.MinVersions, 0, math.MaxInt32)
	case "TTL":
		ttl, err := ParseTTL(value)
		if err != nil {
			return bad("seconds, FOREVER, or a text like '1 DAY 2 HOURS'")
		}
		f.TTL = ttl
		return nil
	case "KEEP_DELETED_CELLS":
		for _, k := range []KeepDeleted{KeepDeletedFalse, KeepDeletedTrue, KeepDeletedTTL} {
			if strings.EqualFold(value, k.String()) {
				f.KeepDeleted = k
				return nil
			}
		}
		return bad("FALSE, TRUE or TTL")
	case "NEW_VERSION_BEHAVIOR":
		return boolean(&f.NewVersionBehavior)
	case "COUNTER":
		return boolean(&f.Counter)
	case "DISTINCT":
		return boolean(&f.Distinct)
	case "BLOCKSIZE":
		return number(&f.BlockSize, 1, math.MaxInt32)
	}
	if _, ok := passiveAttributes[name]; !ok {
		return fmt.Errorf("%w: family %s: unknown attribute %s; known are %s", ErrInvalidArgument, f.Name, name, strings.Join(FamilyAttributeNames(), ", "))
	}
	if err := checkPassive(name, value); err != nil {
		return fmt.Errorf("%w: family %s: %w", ErrInvalidArgument, f.Name, err)
	}
	if f.Attributes == nil {
		f.Attributes = map[string]string{}
	}
	f.Attributes[name] = value
	return nil
}

// ConfPurgeDeletes is HBase's name of TimeToPurgeDeletes, in ms: the setting of a
// family's CONFIGURATION that a store acts upon.
const ConfPurgeDeletes = "hbase.hstore.time.to.purge.deletes"

// SetConfiguration sets one of HBase's settings for the family (CONFIGURATION in
// the shell). ConfPurgeDeletes is checked and acted upon, a setting of tables is
// refused, any other is kept and shown. An empty value unsets it. Its error wraps
// ErrInvalidArgument.
func (f *FamilyDescriptor) SetConfiguration(name, value string) error {
	bad := func(want string) error {
		return fmt.Errorf("%w: family %s: CONFIGURATION %q => %q: %s", ErrInvalidArgument, f.Name, name, value, want)
	}
	if name == ConfPurgeDeletes {
		if value == "" {
			f.TimeToPurgeDeletes = 0
			return nil
		}
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err != nil || n < 0 {
			return bad("want milliseconds, 0 or more")
		}
		f.TimeToPurgeDeletes = n
		return nil
	}
	if err := checkConfiguration(name); err != nil {
		return bad(err.Error())
	}
	f.Configuration = setText(f.Configuration, name, value)
	return nil
}

// checkConfiguration reports why name cannot be in a family's Configuration.
func checkConfiguration(name string) error {
	switch _, ofTables := configured[name]; {
	case name == "":
		return errors.New("the name is empty")
	case name == ConfPurgeDeletes:
		return errors.New("it is TimeToPurgeDeletes")
	case ofTables:
		return errors.New("it is a setting of tables")
	}
	return nil
}

// SetMetadata sets a text of the user's own; an empty one unsets it. Its error
// wraps ErrInvalidArgument where the name is empty or an attribute's.
func (f *FamilyDescriptor) SetMetadata(name, value string) error {
	if err := checkMetadata(name); err != nil {
		return fmt.Errorf("%w: family %s: METADATA %q => %q: %w", ErrInvalidArgument, f.Name, name, value, err)
	}
	f.Metadata = setText(f.Metadata, name, value)
	return nil
}

// checkMetadata reports why name cannot be in a family's Metadata.
func checkMetadata(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case slices.Contains(FamilyAttributeNames(), strings.ToUpper(name)):
		return errors.New("it is an attribute")
	}
	return nil
}

// setText returns texts, nil where it is empty, with one set or, empty, removed.
func setText(texts map[string]string, name, value string) map[string]string {
	if value == "" {
		if delete(texts, name); len(texts) == 0 {
			return nil
		}
		return texts
	}
	if texts == nil {
		texts = map[string]string{}
	}
	texts[name] = value
	return texts
}

// passiveAttributes are attributes of HBase families that say how HBase lays out
// its files. They are kept, so that a schema moves to HBase and back unchanged.
// The value is HBase's default; "" = shown only when set.
var passiveAttributes = map[string]string{
	"BLOOMFILTER": "ROW", "COMPRESSION": "NONE", "DATA_BLOCK_ENCODING": "NONE", "INDEX_BLOCK_ENCODING": "NONE",
	"BLOCKCACHE": "true", "IN_MEMORY": "false", "REPLICATION_SCOPE": "0",
	"CACHE_DATA_ON_WRITE": "", "CACHE_INDEX_ON_WRITE": "", "CACHE_BLOOMS_ON_WRITE": "", "EVICT_BLOCKS_ON_CLOSE": "",
	"PREFETCH_BLOCKS_ON_OPEN": "", "COMPRESS_TAGS": "", "IN_MEMORY_COMPACTION": "", "IS_MOB": "", "MOB_THRESHOLD": "",
	"STORAGE_POLICY": "", "DFS_REPLICATION": "",
}

// passiveChecks are the values that HBase takes; names without one take any text.
var passiveChecks = map[string]func(string) (string, error){
	"BLOOMFILTER":          oneOf("NONE", "ROW", "ROWCOL", "ROWPREFIX_FIXED_LENGTH"),
	"COMPRESSION":          oneOf("NONE", "GZ", "SNAPPY", "LZ4", "LZO", "ZSTD", "BZIP2", "LZMA", "BROTLI"),
	"DATA_BLOCK_ENCODING":  oneOf("NONE", "PREFIX", "DIFF", "FAST_DIFF", "ROW_INDEX_V1"),
	"INDEX_BLOCK_ENCODING": oneOf("NONE", "PREFIX_TREE"),
	"BLOCKCACHE":           boolean, "IN_MEMORY": boolean, "CACHE_DATA_ON_WRITE": boolean, "CACHE_INDEX_ON_WRITE": boolean,
	"CACHE_BLOOMS_ON_WRITE": boolean, "EVICT_BLOCKS_ON_CLOSE": boolean, "PREFETCH_BLOCKS_ON_OPEN": boolean,
	"COMPRESS_TAGS": boolean, "IS_MOB": boolean,
	"IN_MEMORY_COMPACTION": oneOf("NONE", "BASIC", "EAGER", "ADAPTIVE"),
	"REPLICATION_SCOPE":    numberIn(0, 1), "DFS_REPLICATION": numberIn(0, math.MaxInt16), "MOB_THRESHOLD": numberIn(0, math.MaxInt64),
}

// checkPassive reports what is wrong with a passive attribute.
func checkPassive(name, value string) error {
	if _, ok := passiveAttributes[name]; !ok {
		return fmt.Errorf("unknown attribute %s", name)
	}
	if check := passiveChecks[name]; check != nil {
		if _, err := check(value); err != nil {
			return fmt.Errorf("%s => %q: %w", name, value, err)
		}
	}
	return nil
}

// FamilyAttributeNames returns the names that SetAttribute takes, sorted.
func FamilyAttributeNames() []string {
	names := []string{"VERSIONS", "MIN_VERSIONS", "TTL", "KEEP_DELETED_CELLS", "NEW_VERSION_BEHAVIOR", "COUNTER", "DISTINCT", "BLOCKSIZE"}
	for n := range passiveAttributes {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Attribute is one attribute with its value as HBase's shell prints it.
type Attribute struct{ Name, Value string }

// List returns the family's attributes in the order in which HBase's shell
// prints them (the Java hash order of its defaults), then those that are shown
// only when set.
func (f *FamilyDescriptor) List() []Attribute {
	passive := func(name string) Attribute {
		if v, ok := f.Attributes[name]; ok {
			return Attribute{name, v}
		}
		return Attribute{name, passiveAttributes[name]}
	}
	list := []Attribute{
		{"NAME", f.Name},
		passive("INDEX_BLOCK_ENCODING"),
		{"VERSIONS", strconv.Itoa(f.Versions)},
		{"KEEP_DELETED_CELLS", f.KeepDeleted.String()},
		passive("DATA_BLOCK_ENCODING"),
		{"TTL", FormatTTL(f.TTL)},
		{"MIN_VERSIONS", strconv.Itoa(f.MinVersions)},
		passive("REPLICATION_SCOPE"),
		passive("BLOOMFILTER"),
		passive("IN_MEMORY"),
		passive("COMPRESSION"),
		passive("BLOCKCACHE"),
		{"BLOCKSIZE", formatBytes(f.BlockSize)},
	}
	var set []string
	for n := range f.Attributes {
		if passiveAttributes[n] == "" {
			set = append(set, n)
		}
	}
	sort.Strings(set)
	for _, n := range set {
		list = append(list, Attribute{n, f.Attributes[n]})
	}
	return list
}

// ListMetadata returns what HBase's shell prints inside METADATA, sorted by name:
// NEW_VERSION_BEHAVIOR, COUNTER, which HBase does not know, and Metadata.
func (f *FamilyDescriptor) ListMetadata() []Attribute {
	list := listTexts(f.Metadata)
	if f.Counter {
		list = append(list, Attribute{"COUNTER", "true"})
	}
	if f.Distinct {
		list = append(list, Attribute{"DISTINCT", "true"})
	}
	if f.NewVersionBehavior {
		list = append(list, Attribute{"NEW_VERSION_BEHAVIOR", "true"})
	}
	slices.SortFunc(list, compareAttributes)
	return list
}

// ListConfiguration returns what HBase's shell prints inside CONFIGURATION, sorted
// by name.
func (f *FamilyDescriptor) ListConfiguration() []Attribute {
	list := listTexts(f.Configuration)
	if f.TimeToPurgeDeletes != 0 {
		list = append(list, Attribute{ConfPurgeDeletes, strconv.FormatInt(f.TimeToPurgeDeletes, 10)})
	}
	slices.SortFunc(list, compareAttributes)
	return list
}

func listTexts(texts map[string]string) (list []Attribute) {
	for name, value := range texts {
		list = append(list, Attribute{name, value})
	}
	return list
}

var ttlUnits = []struct {
	name    string
	seconds int
}{{"DAY", 86400}, {"HOUR", 3600}, {"MINUTE", 60}, {"SECOND", 1}}

// ParseTTL reads a TTL in seconds as HBase's shell takes it: a number,
// "FOREVER", or a text like "1 DAY 2 HOURS". The result is 1..Forever.
func ParseTTL(s string) (int, error) {
	s = strings.ToUpper(strings.TrimSpace(s))
	if s == "FOREVER" {
		return Forever, nil
	}
	bad := fmt.Errorf("%w: TTL %q", ErrInvalidArgument, s)
	if n, err := strconv.Atoi(s); err == nil {
		if n < 1 || n > Forever {
			return 0, bad
		}
		return n, nil
	}
	words := strings.Fields(s)
	if len(words) == 0 || len(words)%2 != 0 {
		return 0, bad
	}
	total := 0
	for i := 0; i < len(words); i += 2 {
		n, err := strconv.Atoi(words[i])
		unit := 0
		for _, u := range ttlUnits {
			if words[i+1] == u.name || words[i+1] == u.name+"S" {
				unit = u.seconds
			}
		}
		if err != nil || n < 0 || unit == 0 || n > (Forever-total)/unit {
			return 0, bad
		}
		total += n * unit
	}
	if total == 0 {
		return 0, bad
	}
	return total, nil
}

// FormatTTL prints a TTL as HBase's shell does: "FOREVER", "60 SECONDS (1
// MINUTE)".
func FormatTTL(seconds int) string {
	if seconds == Forever {
		return "FOREVER"
	}
	plural := func(n int, unit string) string {
		if n == 1 {
			return "1 " + unit
		}
		return strconv.Itoa(n) + " " + unit + "S"
	}
	var parts []string
	rest := seconds
	for _, u := range ttlUnits {
		if n := rest / u.seconds; n > 0 {
			parts = append(parts, plural(n, u.name))
			rest %= u.seconds
		}
	}
	if seconds < 60 {
		return plural(seconds, "SECOND")
	}
	return plural(seconds, "SECOND") + " (" + strings.Join(parts, " ") + ")"
}

// formatBytes prints a size as HBase's PrettyPrinter does: "65536 B (64KB)".
func formatBytes(n int) string {
	var parts []string
	rest := n
	for _, u := range []struct {
		name string
		size int
	}{{"GB", 1 << 30}, {"MB", 1 << 20}, {"KB", 1 << 10}} {
		if k := rest / u.size; k > 0 {
			parts = append(parts, strconv.Itoa(k)+u.name)
			rest %= u.size
		}
	}
	if len(parts) == 0 {
		return strconv.Itoa(n) + " B"
	}
	if rest > 0 {
		parts = append(parts, strconv.Itoa(rest)+"B")
	}
	return strconv.Itoa(n) + " B (" + strings.Join(parts, " ") + ")"
}
