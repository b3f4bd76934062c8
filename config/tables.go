package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/region"
	"sluice/store"
)

// Table is the schema of one table and how it is cut when it is created.
type Table struct {
	// Families are the column families, by name, each with HBase's attributes
	// (VERSIONS, TTL, COUNTER, …).
	Families map[string]Family `yaml:"families" required:"true"`
	// Split cuts a new table into regions; without it, it has one.
	Split Split `yaml:"split,omitempty"`
	// MaxCell is the largest cell, key included.
	MaxCell Size `yaml:"max_cell" default:"10MiB"`
	// MaxTimestampSlop is how far in the future a put's timestamp may lie; 0
	// allows any.
	MaxTimestampSlop time.Duration `yaml:"max_timestamp_slop" default:"0s"`
	// ReadOnly refuses all writes. Without it the table may be made READONLY in the
	// shell, for a while: pipelines wait meanwhile, also those of a daemon that is started.
	ReadOnly bool `yaml:"read_only"`
	// Metadata are texts of your own, kept and shown, and the settings of the
	// split policies that keep prefixes together.
	Metadata map[string]string `yaml:"metadata,omitempty"`
	// Attributes are HBase's other table attributes: MAX_FILESIZE, SPLIT_POLICY,
	// SPLIT_ENABLED, NORMALIZATION_ENABLED, OWNER and the others of
	// store.TableAttributeNames.
	Attributes map[string]string `yaml:"attributes,omitempty"`
}

// Family is a column family's attributes by HBase's names, as written: VERSIONS,
// MIN_VERSIONS, TTL, KEEP_DELETED_CELLS, NEW_VERSION_BEHAVIOR, COUNTER and the
// others of store.FamilyAttributeNames.
type Family map[string]string

// Split cuts a new table into regions: by an algorithm of HBase's RegionSplitter
// into equal ones, or at given keys.
type Split struct {
	// Algorithm is HexStringSplit (8 hex digits), UniformSplit (bytes) or
	// DecimalStringSplit (8 digits).
	Algorithm string `yaml:"algorithm,omitempty"`
	// Regions is how many regions the algorithm makes, at least 2.
	Regions int `yaml:"regions,omitempty"`
	// Keys are the first rows of all regions but the first, in any order;
	// \xNN stands for a byte.
	Keys []string `yaml:"keys,omitempty"`
}

// TableSpec is a table as the file wants it.
type TableSpec struct {
	Descriptor *store.TableDescriptor
	Splits     [][]byte // sorted first rows of the regions after the first
}

// TableSpecs returns the tables of the file, by name, without its templates.
func (c *Config) TableSpecs() []TableSpec {
	var specs []TableSpec
	for _, name := range slices.Sorted(maps.Keys(c.Tables)) {
		if isTemplate(name) {
			continue
		}
		// lint has reported what is wrong; a Config that Parse returned has
		// no error here.
		if spec, err := c.tableSpec(name); err == nil {
			specs = append(specs, spec)
		}
	}
	return specs
}

// TableDescriptors returns the schemas of the file, by name of the table.
func (c *Config) TableDescriptors() []*store.TableDescriptor {
	var all []*store.TableDescriptor
	for _, spec := range c.TableSpecs() {
		all = append(all, spec.Descriptor)
	}
	return all
}

// pathError is an error of the setting at a path.
type pathError struct {
	path string
	err  error
}

func (e *pathError) Error() string { return e.err.Error() }
func (e *pathError) Unwrap() error { return e.err }

// tableSpec returns the table, or the template, which is named by its key.
func (c *Config) tableSpec(key string) (TableSpec, error) {
	switch {
	case key == templateMark:
		return TableSpec{}, &pathError{join("tables", key), errors.New("a template for every name: write how the names begin, such as events_*")}
	case !isTemplate(key):
		return c.tableSpecAs(key, key)
	}
	spec, err := c.tableSpecAs(key, strings.TrimSuffix(key, templateMark)+"x")
	if err == nil {
		spec.Descriptor.Name = key // for messages
	}
	return spec, err
}

// tableSpecAs returns the table of a key under a name.
func (c *Config) tableSpecAs(key, name string) (TableSpec, error) {
	t := c.Tables[key]
	path := join("tables", key)
	at := func(path string, err error) (TableSpec, error) { return TableSpec{}, &pathError{path, err} }
	if ns, _, ok := strings.Cut(name, ":"); ok && ns == store.SystemNamespace {
		return at(path, fmt.Errorf("namespace %s belongs to the store", store.SystemNamespace))
	}
	d := &store.TableDescriptor{
		Name: name, MaxTimestampSlop: t.MaxTimestampSlop.Milliseconds(), MaxCellBytes: int(t.MaxCell),
		ReadOnly: t.ReadOnly,
	}
	for _, name := range slices.Sorted(maps.Keys(t.Attributes)) {
		if err := d.SetAttribute(name, t.Attributes[name]); err != nil {
			return at(join(join(path, "attributes"), name), err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Metadata)) {
		if err := d.SetMetadata(name, t.Metadata[name]); err != nil {
			return at(join(join(path, "metadata"), name), err)
		}
	}
	for _, family := range slices.Sorted(maps.Keys(t.Families)) {
		f := store.NewFamily(family)
		attributes := t.Families[family]
		for _, attribute := range slices.Sorted(maps.Keys(attributes)) {
			if err := f.SetAttribute(attribute, attributes[attribute]); err != nil {
				return at(join(join(join(path, "families"), family), attribute), err)
			}
		}
		d.Families = append(d.Families, f)
	}
	if err := d.Validate(); err != nil {
		return at(path, err)
	}
	splits, err := t.Split.points()
	if err != nil {
		return at(join(path, "split"), err)
	}
	return TableSpec{Descriptor: d, Splits: splits}, nil
}

// points returns the sorted split keys, or nil where the table is not cut.
func (s *Split) points() ([][]byte, error) {
	switch {
	case len(s.Keys) > 0 && (s.Algorithm != "" || s.Regions != 0):
		return nil, errors.New("give either keys or an algorithm with regions, not both")
	case len(s.Keys) > 0:
		keys := make([][]byte, len(s.Keys))
		for i, k := range s.Keys {
			key, err := unescape(k)
			if err != nil {
				return nil, err
			}
			keys[i] = key
		}
		return region.SplitKeys(keys)
	case s.Algorithm == "" && s.Regions != 0:
		return nil, errors.New("regions needs an algorithm: HexStringSplit, UniformSplit or DecimalStringSplit")
	case s.Algorithm != "":
		return region.SplitPoints(s.Algorithm, s.Regions)
	}
	return nil, nil
}

// unescape replaces \xNN by its byte, as HBase's shell prints bytes.
func unescape(s string) ([]byte, error) {
	var out []byte
	for {
		i := strings.Index(s, `\x`)
		if i < 0 {
			return append(out, s...), nil
		}
		if len(s) < i+4 {
			return nil, fmt.Errorf(`%q ends within \xNN`, s)
		}
		b, err := strconv.ParseUint(s[i+2:i+4], 16, 8)
		if err != nil {
			return nil, fmt.Errorf(`%q: \x needs two hex digits`, s)
		}
		out = append(append(out, s[:i]...), byte(b))
		s = s[i+4:]
	}
}
