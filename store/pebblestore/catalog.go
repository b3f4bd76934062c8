package pebblestore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// Ids of the system tables; user tables count from firstTableID. They are in
// keys for ever.
const (
	catalogID    uint32 = 1
	offsetsID    uint32 = 2
	outboxID     uint32 = 3
	onceID       uint32 = 4
	jobsID       uint32 = 5
	recentID     uint32 = 6
	firstTableID uint32 = 16
)

// systemFamily is the family id of every system table.
const systemFamily uint8 = 1

// catalogFormat is the version of the layout of the whole directory. A newer one
// is refused; an older one is read, and becomes this one when its catalog changes.
const catalogFormat = 3

// Rows and qualifiers of the catalog.
const (
	rowStore       = "store"
	rowRedo        = "redo"   // what a rewrite has put aside: see DB.redo
	rowTable       = "table:" // and the table's name
	qualFormat     = "format"
	qualBatch      = "batch"
	qualIdentity   = "identity"
	qualSequence   = "sequence"
	qualNextTable  = "next_table"
	qualNamespaces = "namespaces"
	qualHolds      = "holds"
	qualDescriptor = "descriptor"
	qualRegions    = "regions"
)

// table is one table's schema with its ids and regions. Immutable.
type table struct {
	id      uint32
	desc    *store.TableDescriptor
	fams    []family // as desc.Families
	regions *region.Map
	load    *region.Load // of regions; the only part that changes
	removed []uint8      // ids of families that were removed, not to be used again before freeFamilies
	system  bool         // one of ours: users cannot change it
	tag     byte         // of its keys where no family says otherwise

	disabled bool   // out of service
	altered  uint64 // the commit that made it, or changed its schema last; 0 = before format 3
}

// served reports with store.ErrTableNotEnabled that the table is disabled.
func (t *table) served() error {
	if t.disabled {
		return &store.DisabledError{Table: t.desc.Name}
	}
	return nil
}

// idle reports with store.ErrTableNotDisabled that the table is enabled.
func (t *table) idle() error {
	if !t.disabled {
		return fmt.Errorf("%w: %s", store.ErrTableNotDisabled, t.desc.Name)
	}
	return nil
}

// reshaped returns t with other regions.
func (t *table) reshaped(m *region.Map) *table {
	n := *t
	n.regions, n.load = m, t.load.Follow(m)
	return &n
}

// family is one column family with its id. Immutable.
type family struct {
	id   uint8
	tag  byte // cell.TagData, cell.TagCounter or cell.TagSystem
	desc *store.FamilyDescriptor
}

// family returns the family with this name and its index, or nil.
func (t *table) family(name string) (*family, int) {
	for i := range t.desc.Families {
		if t.desc.Families[i].Name == name {
			return &t.fams[i], i
		}
	}
	return nil, -1
}

// catalog is every table at one commit. Immutable; replaced as a whole.
type catalog struct {
	tables    map[string]*table
	nextTable uint32
	spaces    store.NamespaceSet
	format    int                // of the directory
	holds     []store.ChangeHold // by name
	held      map[uint32]uint64  // heldTables of holds
}

// lookup returns a table; its error wraps store.ErrTableNotFound.
func (c *catalog) lookup(name string) (*table, error) {
	t, ok := c.tables[store.CanonicalName(name)]
	if !ok {
		return nil, fmt.Errorf("%w: %s", store.ErrTableNotFound, name)
	}
	return t, nil
}

// with returns a catalog in which name is t, or gone where t is nil.
func (c *catalog) with(name string, t *table) *catalog {
	n := &catalog{tables: make(map[string]*table, len(c.tables)+1), nextTable: c.nextTable, spaces: c.spaces, format: c.format, holds: c.holds}
	for k, v := range c.tables {
		n.tables[k] = v
	}
	if t == nil {
		delete(n.tables, name)
	} else {
		n.tables[name] = t
	}
	return n
}

// newCatalog returns the catalog of an empty store: the system tables.
func newCatalog() (*catalog, error) {
	c := &catalog{tables: map[string]*table{}, nextTable: firstTableID, format: catalogFormat}
	for _, d := range store.SystemTables() {
		t := &table{desc: d, system: true}
		switch d.Name {
		case store.OffsetsTable:
			t.id, t.tag = offsetsID, cell.TagSystem
		case store.OutboxTable:
			t.id, t.tag = outboxID, cell.TagData
		case store.JobsTable:
			t.id, t.tag = jobsID, cell.TagData
		default:
			return nil, fmt.Errorf("pebblestore: system table %s has no id", d.Name)
		}
		t.fams = []family{{id: systemFamily, tag: t.tag, desc: &d.Families[0]}}
		m, err := region.NewMap(d.Name, []region.Info{{Table: d.Name, ID: 1}})
		if err != nil {
			return nil, err
		}
		t.regions, t.load = m, region.NewLoad(m)
		c.tables[d.Name] = t
	}
	return c, nil
}

// Stored forms: JSON, so that a person can read a broken catalog.
type (
	storedTable struct {
		Version  int            `json:"version"`
		ID       uint32         `json:"id"`
		State    string         `json:"state,omitempty"`
		Altered  uint64         `json:"altered,omitempty"`
		Table    storedSchema   `json:"table"`
		Families []storedFamily `json:"families"`
		Removed  []int          `json:"removed,omitempty"`
	}
	storedSchema struct {
		Name             string            `json:"name"`
		MaxTimestampSlop int64             `json:"max_timestamp_slop_ms,omitempty"`
		MaxCellBytes     int               `json:"max_cell_bytes,omitempty"`
		ReadOnly         bool              `json:"read_only,omitempty"`
		Attributes       map[string]string `json:"attributes,omitempty"`
		Metadata         map[string]string `json:"metadata,omitempty"`
	}
	storedFamily struct {
		ID                 uint8             `json:"id"`
		Name               string            `json:"name"`
		Versions           int               `json:"versions"`
		MinVersions        int               `json:"min_versions,omitempty"`
		TTL                int               `json:"ttl_seconds"`
		KeepDeleted        string            `json:"keep_deleted_cells"`
		NewVersionBehavior bool              `json:"new_version_behavior,omitempty"`
		TimeToPurgeDeletes int64             `json:"time_to_purge_deletes_ms,omitempty"`
		Counter            bool              `json:"counter,omitempty"`
		Distinct           bool              `json:"distinct,omitempty"`
		BlockSize          int               `json:"block_size"`
		Attributes         map[string]string `json:"attributes,omitempty"`
		Metadata           map[string]string `json:"metadata,omitempty"`
		Configuration      map[string]string `json:"configuration,omitempty"`
	}
	storedRegions struct {
		Version int            `json:"version"`
		Regions []storedRegion `json:"regions"`
	}
	storedRegion struct {
		ID    int64  `json:"id"`
		Start []byte `json:"start,omitempty"` // base64
		Stop  []byte `json:"stop,omitempty"`
	}
	storedNamespaces struct {
		Version    int               `json:"version"`
		Namespaces []storedNamespace `json:"namespaces"`
	}
	storedNamespace struct {
		Name       string            `json:"name"`
		Properties map[string]string `json:"properties,omitempty"`
	}
)

// stateDisabled is the stored state of a disabled table; none = enabled.
const stateDisabled = "DISABLED"

// checkTexts refuses texts that JSON cannot hold: they would be others once the store is
// opened again.
func checkTexts(class error, of string, texts ...map[string]string) error {
	for _, m := range texts {
		for name, value := range m {
			if !utf8.ValidString(name) || !utf8.ValidString(value) {
				return fmt.Errorf("%w: %s: %q => %q is not UTF-8", class, of, name, value)
			}
		}
	}
	return nil
}

// encodeTable returns the descriptor row's value.
func encodeTable(t *table) ([]byte, error) {
	d := t.desc
	if err := checkTexts(store.ErrInvalidSchema, "table "+d.Name, d.Attributes, d.Metadata); err != nil {
		return nil, err
	}
	s := storedTable{Version: catalogFormat, ID: t.id, Altered: t.altered, Table: storedSchema{
		Name: d.Name, MaxTimestampSlop: d.MaxTimestampSlop, MaxCellBytes: d.MaxCellBytes, ReadOnly: d.ReadOnly,
		Attributes: d.Attributes, Metadata: d.Metadata,
	}}
	if t.disabled {
		s.State = stateDisabled
	}
	for _, id := range t.removed {
		s.Removed = append(s.Removed, int(id))
	}
	for i := range t.fams {
		f := t.fams[i].desc
		if err := checkTexts(store.ErrInvalidSchema, "table "+d.Name+", family "+f.Name, f.Attributes, f.Metadata, f.Configuration); err != nil {
			return nil, err
		}
		s.Families = append(s.Families, storedFamily{
			ID: t.fams[i].id, Name: f.Name, Versions: f.Versions, MinVersions: f.MinVersions, TTL: f.TTL,
			KeepDeleted: f.KeepDeleted.String(), NewVersionBehavior: f.NewVersionBehavior,
			TimeToPurgeDeletes: f.TimeToPurgeDeletes, Counter: f.Counter, Distinct: f.Distinct, BlockSize: f.BlockSize,
			Attributes: f.Attributes, Metadata: f.Metadata, Configuration: f.Configuration,
		})
	}
	b, err := json.Marshal(&s)
	if err != nil {
		return nil, fmt.Errorf("encode table %s: %w", d.Name, err)
	}
	return b, nil
}

// decodeTable reads what encodeTable wrote; the regions are missing.
func decodeTable(name string, b []byte) (*table, error) {
	corrupt := func(f string, a ...any) error {
		return fmt.Errorf("%w: catalog row of table %s: %s", store.ErrCorrupt, name, fmt.Sprintf(f, a...))
	}
	var s storedTable
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, corrupt("%v", err)
	}
	switch {
	case s.Version > catalogFormat:
		return nil, newerFormat("table "+name, s.Version)
	case s.Version < 1 || s.ID < firstTableID || s.Table.Name != name:
		return nil, corrupt("version %d, id %d, name %s", s.Version, s.ID, s.Table.Name)
	case s.State != "" && s.State != stateDisabled:
		return nil, corrupt("state %q", s.State)
	}
	d := &store.TableDescriptor{
		// Programs from before these numbers had bounds took any.
		Name: name, MaxTimestampSlop: max(s.Table.MaxTimestampSlop, 0), MaxCellBytes: max(s.Table.MaxCellBytes, 0),
		ReadOnly: s.Table.ReadOnly, Attributes: s.Table.Attributes, Metadata: s.Table.Metadata,
	}
	t := &table{id: s.ID, desc: d, tag: cell.TagData, disabled: s.State == stateDisabled, altered: s.Altered}
	for i := range s.Families {
		f := &s.Families[i]
		keep, ok := keepDeleted(f.KeepDeleted)
		if !ok {
			return nil, corrupt("family %s: KEEP_DELETED_CELLS %q", f.Name, f.KeepDeleted)
		}
		d.Families = append(d.Families, store.FamilyDescriptor{
			Name: f.Name, Versions: min(f.Versions, store.AllVersions), MinVersions: min(f.MinVersions, store.AllVersions),
			TTL: min(f.TTL, store.Forever), KeepDeleted: keep,
			NewVersionBehavior: f.NewVersionBehavior, TimeToPurgeDeletes: max(f.TimeToPurgeDeletes, 0), Counter: f.Counter, Distinct: f.Distinct,
			BlockSize: f.BlockSize, Attributes: f.Attributes, Metadata: f.Metadata, Configuration: f.Configuration,
		})
	}
	if s.Version == 1 {
		adoptAttributes(d)
	}
	names := make([]string, len(d.Families))
	for i := range names {
		names[i] = d.Families[i].Name
	}
	if err := d.Validate(); err != nil {
		return nil, corrupt("%v", err)
	}
	var used [256]bool
	for _, id := range s.Removed {
		if id < 1 || id > 255 || used[id] {
			return nil, corrupt("removed family %d", id)
		}
		used[id] = true
		t.removed = append(t.removed, uint8(id))
	}
	for i := range d.Families {
		if names[i] != d.Families[i].Name {
			return nil, corrupt("families are not sorted")
		}
		id := s.Families[i].ID
		if id == 0 || used[id] {
			return nil, corrupt("family %s has the number %d", names[i], id)
		}
		used[id] = true
		t.fams = append(t.fams, newFamily(s.Families[i].ID, &d.Families[i]))
	}
	return t, nil
}

// adoptAttributes makes metadata of what is no attribute: format 1 took any name
// and any text.
func adoptAttributes(d *store.TableDescriptor) {
	aside := map[string]string{}
	attributes := d.Attributes
	d.Attributes = nil
	for name, value := range attributes {
		if strings.EqualFold(name, store.AttrReadOnly) || d.SetAttribute(name, value) != nil {
			aside[name] = value
		}
	}
	for i := range d.Families {
		f := &d.Families[i]
		attributes := f.Attributes
		f.Attributes = nil
		for name, value := range attributes {
			if f.SetAttribute(name, value) != nil {
				aside[f.Name+"."+name] = value
			}
		}
	}
	for name, value := range aside {
		if d.SetMetadata(name, value) != nil {
			aside[name] = "" // no name, or no number for a split policy: it did nothing
		}
	}
}

func newFamily(id uint8, d *store.FamilyDescriptor) family {
	f := family{id: id, tag: cell.TagData, desc: d}
	if d.InPlace() {
		f.tag = cell.TagCounter
	}
	return f
}

func keepDeleted(s string) (store.KeepDeleted, bool) {
	for _, k := range []store.KeepDeleted{store.KeepDeletedFalse, store.KeepDeletedTrue, store.KeepDeletedTTL} {
		if k.String() == s {
			return k, true
		}
	}
	return 0, false
}

// encodeRegions returns the region map row's value.
func encodeRegions(m *region.Map) ([]byte, error) {
	s := storedRegions{Version: catalogFormat}
	for i := range m.Len() {
		r := m.At(i)
		s.Regions = append(s.Regions, storedRegion{ID: r.ID, Start: r.Start, Stop: r.Stop})
	}
	b, err := json.Marshal(&s)
	if err != nil {
		return nil, fmt.Errorf("encode regions of %s: %w", m.Table(), err)
	}
	return b, nil
}

// decodeRegions reads what encodeRegions wrote.
func decodeRegions(name string, b []byte) (*region.Map, error) {
	var s storedRegions
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%w: regions of table %s: %w", store.ErrCorrupt, name, err)
	}
	if s.Version > catalogFormat {
		return nil, newerFormat("the region map of table "+name, s.Version)
	}
	infos := make([]region.Info, len(s.Regions))
	for i, r := range s.Regions {
		infos[i] = region.Info{Table: name, ID: r.ID, Start: r.Start, Stop: r.Stop}
	}
	m, err := region.NewMap(name, infos)
	if err != nil {
		return nil, fmt.Errorf("%w: regions of table %s: %w", store.ErrCorrupt, name, err)
	}
	return m, nil
}

// encodeNamespaces returns the value of the users' namespaces.
func encodeNamespaces(set store.NamespaceSet) ([]byte, error) {
	s := storedNamespaces{Version: catalogFormat, Namespaces: []storedNamespace{}}
	for _, n := range set.Users() {
		if err := checkTexts(store.ErrInvalidArgument, "namespace "+n.Name, n.Properties); err != nil {
			return nil, err
		}
		s.Namespaces = append(s.Namespaces, storedNamespace(n))
	}
	b, err := json.Marshal(&s)
	if err != nil {
		return nil, fmt.Errorf("encode namespaces: %w", err)
	}
	return b, nil
}

// decodeNamespaces reads what encodeNamespaces wrote.
func decodeNamespaces(b []byte) (set store.NamespaceSet, err error) {
	var s storedNamespaces
	if err := json.Unmarshal(b, &s); err != nil {
		return set, fmt.Errorf("%w: namespaces: %w", store.ErrCorrupt, err)
	}
	if s.Version > catalogFormat {
		return set, newerFormat("the list of namespaces", s.Version)
	}
	for _, n := range s.Namespaces {
		space := store.Namespace(n)
		if set, err = set.Create(&space); err != nil {
			return set, fmt.Errorf("%w: namespaces: %w", store.ErrCorrupt, err)
		}
	}
	return set, nil
}

// adoptNamespaces makes the namespaces of tables that were made before namespaces
// were.
func (c *catalog) adoptNamespaces() error {
	for name, t := range c.tables {
		if t.system || c.spaces.Check(name) == nil {
			continue
		}
		set, err := c.spaces.Create(&store.Namespace{Name: store.NamespaceOf(name)})
		if err != nil {
			return fmt.Errorf("%w: table %s: %w", store.ErrCorrupt, name, err)
		}
		c.spaces = set
	}
	return nil
}

func newerFormat(what string, version int) error {
	return fmt.Errorf("%w: %s has format %d, this program knows up to %d: use a newer one", store.ErrUnsupported, what, version, catalogFormat)
}

// assignFamilies gives the families of d their ids: those that old has keep
// theirs, new ones get an id that no cell can still have. old may be nil.
func assignFamilies(d *store.TableDescriptor, old *table) ([]family, []uint8, error) {
	var used [256]bool
	var removed []uint8
	if old != nil {
		removed = slices.Clone(old.removed)
		for _, id := range removed {
			used[id] = true
		}
		for i := range old.fams {
			used[old.fams[i].id] = true
			if d.Family(old.fams[i].desc.Name) == nil {
				removed = append(removed, old.fams[i].id)
			}
		}
	}
	next := 1
	fams := make([]family, len(d.Families))
	for i := range d.Families {
		f := &d.Families[i]
		if old != nil {
			if o, _ := old.family(f.Name); o != nil {
				if o.desc.Counter != f.Counter {
					return nil, nil, fmt.Errorf("%w: table %s: family %s: COUNTER cannot be changed", store.ErrInvalidSchema, d.Name, f.Name)
				}
				if o.desc.Distinct != f.Distinct {
					return nil, nil, fmt.Errorf("%w: table %s: family %s: DISTINCT cannot be changed", store.ErrInvalidSchema, d.Name, f.Name)
				}
				fams[i] = newFamily(o.id, f)
				continue
			}
		}
		for next < 256 && used[next] {
			next++
		}
		if next == 256 {
			return nil, nil, fmt.Errorf("%w: table %s: all %d family ids have been used: those of families that were removed are free again when the store is opened again", store.ErrInvalidSchema, d.Name, store.MaxFamilies)
		}
		used[next] = true
		fams[i] = newFamily(uint8(next), f)
	}
	return fams, removed, nil
}
