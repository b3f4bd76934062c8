package store

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"sluice/cell"
	"sluice/region"
)

// Attributes of tables, by HBase's names, that a store acts upon.
const (
	AttrReadOnly      = "READONLY"           // writes are refused
	AttrMaxFileSize   = "MAX_FILESIZE"       // bytes; region.SplitPolicy.MaxBytes
	AttrFlushSize     = "MEMSTORE_FLUSHSIZE" // bytes; region.SplitPolicy.FlushBytes
	AttrSplitPolicy   = "SPLIT_POLICY"       // one of package region's
	AttrSplit         = "SPLIT_ENABLED"
	AttrMerge         = "MERGE_ENABLED"
	AttrCompaction    = "COMPACTION_ENABLED"
	AttrNormalization = "NORMALIZATION_ENABLED"
	AttrTargetRegions = "NORMALIZER_TARGET_REGION_COUNT"
	AttrTargetSize    = "NORMALIZER_TARGET_REGION_SIZE_MB"
	AttrDurability    = "DURABILITY" // of mutations that name none
)

// Metadata that a store acts upon: HBase's settings of a table, which HBase keeps
// among its metadata.
const (
	MetaTimestampSlop = "hbase.hregion.keyvalue.timestamp.slop.millisecs" // MaxTimestampSlop
	MetaMaxCellBytes  = "hbase.server.keyvalue.maxsize"                   // MaxCellBytes

	// Of split policies and restrictions.
	MetaPrefixLength           = "KeyPrefixRegionSplitPolicy.prefix_length"
	MetaDelimiter              = "DelimitedKeyPrefixRegionSplitPolicy.delimiter"
	MetaRestriction            = "hbase.regionserver.region.split_restriction.type" // one of package region's
	MetaRestrictedPrefixLength = "hbase.regionserver.region.split_restriction.prefix_length"
	MetaRestrictedDelimiter    = "hbase.regionserver.region.split_restriction.delimiter"
	MetaBusyShare              = "hbase.busy.policy.blockedRequests" // region.BusyPolicy.Share
	MetaBusyMinAge             = "hbase.busy.policy.minAge"          // ms
	MetaBusyWindow             = "hbase.busy.policy.aggWindow"       // ms
)

// tableAttribute is one attribute of tables.
type tableAttribute struct {
	check func(value string) (canonical string, err error)
	// reserved names stand by themselves in HBase's describe; others are
	// printed inside METADATA.
	reserved bool
	standard string // HBase's default
}

var tableAttributes = map[string]tableAttribute{
	AttrMaxFileSize:               {numberIn(2<<20, math.MaxInt64), true, ""},
	AttrFlushSize:                 {numberIn(1<<20, math.MaxInt64), true, ""},
	AttrDurability:                {oneOf("USE_DEFAULT", "SKIP_WAL", "ASYNC_WAL", "SYNC_WAL", "FSYNC_WAL"), true, "USE_DEFAULT"},
	"REGION_REPLICATION":          {onlyOne, true, "1"},
	"PRIORITY":                    {numberIn(0, math.MaxInt32), true, "0"},
	"ERASURE_CODING_POLICY":       {anyText, true, ""},
	"REGION_MEMSTORE_REPLICATION": {boolean, false, "true"},
	"OWNER":                       {anyText, false, ""},
	"FLUSH_POLICY":                {anyText, false, ""},
	AttrSplitPolicy:               {splitPolicy, false, ""},
	AttrSplit:                     {boolean, false, "true"},
	AttrMerge:                     {boolean, false, "true"},
	AttrCompaction:                {boolean, false, "true"},
	AttrNormalization:             {boolean, false, "false"},
	AttrTargetRegions:             {numberIn(1, region.MaxRegions), false, ""},
	AttrTargetSize:                {numberIn(1, math.MaxInt64>>20), false, ""},
}

// configured is metadata with a meaning.
var configured = map[string]func(string) (string, error){
	MetaTimestampSlop:          numberIn(0, math.MaxInt64),
	MetaMaxCellBytes:           numberIn(0, math.MaxInt32),
	MetaPrefixLength:           numberIn(1, math.MaxInt16),
	MetaDelimiter:              anyText,
	MetaRestriction:            oneOf(region.NoSplitRestriction, region.KeyPrefixSplitRestriction, region.DelimitedKeyPrefixSplitRestriction),
	MetaRestrictedPrefixLength: numberIn(1, math.MaxInt16),
	MetaRestrictedDelimiter:    anyText,
	MetaBusyShare:              share,
	MetaBusyMinAge:             numberIn(0, math.MaxInt64),
	MetaBusyWindow:             numberIn(1, math.MaxInt64),
	ConfPurgeDeletes:           ofFamilies,
}

func anyText(v string) (string, error) { return v, nil }

// ofFamilies refuses what HBase lets a table set for all its families.
func ofFamilies(string) (string, error) {
	return "", fmt.Errorf("%w: it is a setting of families: NAME => 'f', CONFIGURATION => {…}", ErrUnsupported)
}

// share checks HBase's bounds of a share; HBase itself takes its default beyond
// them.
func share(v string) (string, error) {
	f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
	if err != nil || !(f >= 0.00001 && f <= 0.99999) {
		return "", errors.New("want a number, 0.00001..0.99999")
	}
	return strconv.FormatFloat(f, 'f', -1, 64), nil
}

func boolean(v string) (string, error) {
	b, err := strconv.ParseBool(strings.ToLower(v))
	if err != nil {
		return "", errors.New("want true or false")
	}
	return strconv.FormatBool(b), nil
}

func onlyOne(v string) (string, error) {
	if strings.TrimSpace(v) != "1" {
		return "", fmt.Errorf("%w: a region has one copy", ErrUnsupported)
	}
	return "1", nil
}

func splitPolicy(v string) (string, error) {
	if _, err := region.PolicyName(v); err != nil {
		return "", err
	}
	return v, nil
}

func numberIn(low, high int64) func(string) (string, error) {
	return func(v string) (string, error) {
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		if err != nil || n < low || n > high {
			return "", fmt.Errorf("want a number, %d..%d", low, high)
		}
		return strconv.FormatInt(n, 10), nil
	}
}

func oneOf(values ...string) func(string) (string, error) {
	return func(v string) (string, error) {
		if i := slices.IndexFunc(values, func(s string) bool { return strings.EqualFold(s, v) }); i >= 0 {
			return values[i], nil
		}
		return "", fmt.Errorf("want %s", strings.Join(values, ", "))
	}
}

// SetAttribute sets a table attribute by HBase's name, in any case, from its
// written form. Its error wraps ErrInvalidArgument and says what the attribute
// takes, or which are known; ErrUnsupported where HBase could and Sluice cannot.
func (t *TableDescriptor) SetAttribute(name, value string) error {
	name = strings.ToUpper(name)
	a, ok := tableAttributes[name]
	if name == AttrReadOnly {
		a, ok = tableAttribute{check: boolean}, true
	}
	if !ok {
		return fmt.Errorf("%w: table %s: unknown attribute %s; known are %s", ErrInvalidArgument, t.Name, name, strings.Join(TableAttributeNames(), ", "))
	}
	canonical, err := a.check(value)
	if err != nil {
		return fmt.Errorf("%w: table %s: %s => %q: %w", ErrInvalidArgument, t.Name, name, value, err)
	}
	if name == AttrReadOnly {
		t.ReadOnly = canonical == "true"
		return nil
	}
	if t.Attributes == nil {
		t.Attributes = map[string]string{}
	}
	t.Attributes[name] = canonical
	return nil
}

// SetMetadata sets a text of the user's own, or one of HBase's settings: of the
// constants that begin with Meta those are checked, any other is kept and shown.
// An empty value unsets it. It stands for HBase's setConfiguration, too, which
// puts settings of tables among their metadata. Its error wraps ErrInvalidArgument,
// or ErrUnsupported for a setting of families.
func (t *TableDescriptor) SetMetadata(name, value string) error {
	if value == "" && name != "" {
		t.UnsetMetadata(name)
		return nil
	}
	check := configured[name]
	if check == nil {
		check = anyText
	}
	canonical, err := check(value)
	if name == "" {
		err = errors.New("the name is empty")
	}
	if err != nil {
		return fmt.Errorf("%w: table %s: METADATA %q => %q: %w", ErrInvalidArgument, t.Name, name, value, err)
	}
	switch name {
	case MetaTimestampSlop:
		t.MaxTimestampSlop, _ = strconv.ParseInt(canonical, 10, 64) // checked
		return nil
	case MetaMaxCellBytes:
		t.MaxCellBytes, _ = strconv.Atoi(canonical)
		return nil
	}
	if t.Metadata == nil {
		t.Metadata = map[string]string{}
	}
	t.Metadata[name] = canonical
	return nil
}

// UnsetMetadata removes what SetMetadata has set (HBase table_conf_unset), and
// reports whether it was.
func (t *TableDescriptor) UnsetMetadata(name string) bool {
	var was bool
	switch name {
	case MetaTimestampSlop:
		was, t.MaxTimestampSlop = t.MaxTimestampSlop != 0, 0
	case MetaMaxCellBytes:
		was, t.MaxCellBytes = t.MaxCellBytes != 0, 0
	default:
		if _, was = t.Metadata[name]; was {
			delete(t.Metadata, name)
		}
		if len(t.Metadata) == 0 {
			t.Metadata = nil
		}
	}
	return was
}

// UnsetAttribute gives an attribute, in any case, or metadata its default again
// (HBase table_att_unset) and reports whether it was set.
func (t *TableDescriptor) UnsetAttribute(name string) bool {
	upper := strings.ToUpper(name)
	if upper == AttrReadOnly {
		was := t.ReadOnly
		t.ReadOnly = false
		return was
	}
	_, attribute := t.Attributes[upper]
	delete(t.Attributes, upper)
	return t.UnsetMetadata(name) || attribute
}

// TableAttributeNames returns the names that TableDescriptor.SetAttribute takes,
// sorted.
func TableAttributeNames() []string {
	names := append(slices.Collect(maps.Keys(tableAttributes)), AttrReadOnly)
	slices.Sort(names)
	return names
}

// List returns the attributes that HBase's describe prints by themselves inside
// TABLE_ATTRIBUTES, sorted by name: those that differ from HBase's default.
func (t *TableDescriptor) List() []Attribute {
	var list []Attribute
	if t.ReadOnly {
		list = append(list, Attribute{AttrReadOnly, "true"})
	}
	for name, value := range t.Attributes {
		a := tableAttributes[name]
		if !a.reserved || a.standard != "" && value == a.standard {
			continue
		}
		if name == AttrMaxFileSize || name == AttrFlushSize {
			if n, err := strconv.Atoi(value); err == nil {
				value = formatBytes(n)
			}
		}
		list = append(list, Attribute{name, value})
	}
	slices.SortFunc(list, compareAttributes)
	return list
}

// ListMetadata returns what HBase's describe prints inside METADATA, sorted by
// name: the attributes and settings that HBase keeps there, and Metadata.
func (t *TableDescriptor) ListMetadata() []Attribute {
	var list []Attribute
	for name, value := range t.Attributes {
		if !tableAttributes[name].reserved {
			list = append(list, Attribute{name, value})
		}
	}
	for name, value := range t.Metadata {
		list = append(list, Attribute{name, value})
	}
	if t.MaxTimestampSlop != 0 {
		list = append(list, Attribute{MetaTimestampSlop, strconv.FormatInt(t.MaxTimestampSlop, 10)})
	}
	if t.MaxCellBytes != 0 {
		list = append(list, Attribute{MetaMaxCellBytes, strconv.Itoa(t.MaxCellBytes)})
	}
	slices.SortFunc(list, compareAttributes)
	return list
}

func compareAttributes(a, b Attribute) int { return strings.Compare(a.Name, b.Name) }

// Enabled returns a boolean attribute, such as AttrSplit, or HBase's default.
func (t *TableDescriptor) Enabled(attribute string) bool {
	if v, ok := t.Attributes[attribute]; ok {
		return strings.EqualFold(v, "true")
	}
	return tableAttributes[attribute].standard == "true"
}

func (t *TableDescriptor) integer(attribute string) int64 {
	// Validate has checked it; what is not set is 0.
	n, _ := strconv.ParseInt(t.Attributes[attribute], 10, 64)
	return n
}

// Durability is how safe a mutation is that says UseDefault: SyncWAL or more, but
// where the table's DURABILITY is SKIP_WAL or ASYNC_WAL.
func (t *TableDescriptor) Durability() cell.Durability {
	d, err := cell.ParseDurability(t.Attributes[AttrDurability])
	if err != nil || d == cell.UseDefault {
		return cell.SyncWAL
	}
	return d
}

// SplitPolicy returns when and where the table's regions split. SPLIT_ENABLED is
// the caller's business.
func (t *TableDescriptor) SplitPolicy() region.SplitPolicy {
	p := region.SplitPolicy{
		MaxBytes: t.integer(AttrMaxFileSize), FlushBytes: t.integer(AttrFlushSize),
		Restriction: t.Metadata[MetaRestriction], Delimiter: []byte(t.Metadata[MetaDelimiter]),
	}
	if name, ok := t.Attributes[AttrSplitPolicy]; ok {
		p.Name, _ = region.PolicyName(name) // Validate has checked it, and the numbers
	}
	p.PrefixBytes, _ = strconv.Atoi(t.Metadata[MetaPrefixLength])
	switch p.Restriction {
	case region.KeyPrefixSplitRestriction:
		p.PrefixBytes, _ = strconv.Atoi(t.Metadata[MetaRestrictedPrefixLength])
	case region.DelimitedKeyPrefixSplitRestriction:
		p.Delimiter = []byte(t.Metadata[MetaRestrictedDelimiter])
	}
	p.Busy.Share, _ = strconv.ParseFloat(t.Metadata[MetaBusyShare], 64)
	p.Busy.Window, _ = strconv.ParseInt(t.Metadata[MetaBusyWindow], 10, 64)
	if age, ok := t.Metadata[MetaBusyMinAge]; ok {
		if p.Busy.MinAge, _ = strconv.ParseInt(age, 10, 64); p.Busy.MinAge == 0 {
			p.Busy.MinAge = -1 // any
		}
	}
	return p
}

// Normalizer returns how the table's regions are evened out. NORMALIZATION_ENABLED
// is the caller's business.
func (t *TableDescriptor) Normalizer() region.Normalizer {
	return region.Normalizer{
		TargetRegions: int(t.integer(AttrTargetRegions)), TargetBytes: t.integer(AttrTargetSize) << 20,
		NoSplits: !t.Enabled(AttrSplit), NoMerges: !t.Enabled(AttrMerge),
	}
}
