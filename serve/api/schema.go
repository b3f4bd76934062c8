package api

import (
	"sluice/region"
	"sluice/store"
)

// Family is store.FamilyDescriptor.
type Family struct {
	Name               string            `json:"name"`
	Versions           int               `json:"versions"`
	MinVersions        int               `json:"min_versions"`
	TTL                int               `json:"ttl"` // seconds; 2147483647 = forever
	KeepDeleted        uint8             `json:"keep_deleted_cells,omitempty"`
	NewVersionBehavior bool              `json:"new_version_behavior,omitempty"`
	TimeToPurgeDeletes int64             `json:"time_to_purge_deletes,omitempty"`
	Counter            bool              `json:"counter,omitempty"`
	Distinct           bool              `json:"distinct,omitempty"`
	BlockSize          int               `json:"block_size"`
	Attributes         map[string]string `json:"attributes,omitempty"`
	Metadata           map[string]string `json:"metadata,omitempty"`
	Configuration      map[string]string `json:"configuration,omitempty"`
}

// Table is store.TableDescriptor.
type Table struct {
	Name             string            `json:"name"`
	Families         []Family          `json:"families"`
	MaxTimestampSlop int64             `json:"max_timestamp_slop,omitempty"`
	MaxCellBytes     int               `json:"max_cell_bytes,omitempty"`
	ReadOnly         bool              `json:"read_only,omitempty"`
	Attributes       map[string]string `json:"attributes,omitempty"`
	Metadata         map[string]string `json:"metadata,omitempty"`
}

// FromTable converts t.
func FromTable(t *store.TableDescriptor) Table {
	a := Table{
		Name: t.Name, MaxTimestampSlop: t.MaxTimestampSlop, MaxCellBytes: t.MaxCellBytes,
		ReadOnly: t.ReadOnly, Attributes: t.Attributes, Metadata: t.Metadata, Families: make([]Family, len(t.Families)),
	}
	for i := range t.Families {
		f := &t.Families[i]
		a.Families[i] = Family{
			Name: f.Name, Versions: f.Versions, MinVersions: f.MinVersions, TTL: f.TTL, KeepDeleted: uint8(f.KeepDeleted),
			NewVersionBehavior: f.NewVersionBehavior, TimeToPurgeDeletes: f.TimeToPurgeDeletes, Counter: f.Counter, Distinct: f.Distinct,
			BlockSize: f.BlockSize, Attributes: f.Attributes, Metadata: f.Metadata, Configuration: f.Configuration,
		}
	}
	return a
}

// Store converts a. It checks nothing: engines validate schemas.
func (a *Table) Store() *store.TableDescriptor {
	t := &store.TableDescriptor{
		Name: a.Name, MaxTimestampSlop: a.MaxTimestampSlop, MaxCellBytes: a.MaxCellBytes,
		ReadOnly: a.ReadOnly, Attributes: a.Attributes, Metadata: a.Metadata,
	}
	for i := range a.Families {
		f := &a.Families[i]
		t.Families = append(t.Families, store.FamilyDescriptor{
			Name: f.Name, Versions: f.Versions, MinVersions: f.MinVersions, TTL: f.TTL, KeepDeleted: store.KeepDeleted(f.KeepDeleted),
			NewVersionBehavior: f.NewVersionBehavior, TimeToPurgeDeletes: f.TimeToPurgeDeletes, Counter: f.Counter, Distinct: f.Distinct,
			BlockSize: f.BlockSize, Attributes: f.Attributes, Metadata: f.Metadata, Configuration: f.Configuration,
		})
	}
	return t
}

// CreateRequest is the body of POST …/tables.
type CreateRequest struct {
	Table
	Splits [][]byte `json:"splits,omitempty"`
}

// Region is region.Info without its table.
type Region struct {
	ID    int64  `json:"id"`
	Start []byte `json:"start"`
	Stop  []byte `json:"stop"` // exclusive; empty = unbounded
}

// TableResponse is one table with its regions.
type TableResponse struct {
	Table   Table    `json:"table"`
	Regions []Region `json:"regions"`
}

// FromRegions converts m.
func FromRegions(m *region.Map) []Region {
	out := make([]Region, m.Len())
	for i := range out {
		r := m.At(i)
		out[i] = Region{ID: r.ID, Start: r.Start, Stop: r.Stop}
	}
	return out
}

// RegionMap converts regions back.
func RegionMap(table string, regions []Region) (*region.Map, error) {
	infos := make([]region.Info, len(regions))
	for i, r := range regions {
		infos[i] = region.Info{Table: table, ID: r.ID, Start: r.Start, Stop: r.Stop}
	}
	return region.NewMap(table, infos)
}

// TablesResponse is the answer of GET …/tables.
type TablesResponse struct {
	Tables []string `json:"tables"`
}

// Namespace is store.Namespace.
type Namespace struct {
	Name       string            `json:"name"`
	Properties map[string]string `json:"properties,omitempty"`
}

// NamespacesResponse is the answer of GET …/namespaces.
type NamespacesResponse struct {
	Namespaces []Namespace `json:"namespaces"`
}

// StateResponse is the answer of GET …/tables/{table}/state.
type StateResponse struct {
	Enabled bool `json:"enabled"`
}

// StateRequest is the body of PUT …/tables/{table}/state, which switches the table. It
// must say to what.
type StateRequest struct {
	Enabled *bool `json:"enabled"`
}

// TruncateRequest is the body of …/tables/{table}/truncate.
type TruncateRequest struct {
	PreserveSplits bool `json:"preserve_splits"`
}

// RegionStats is store.RegionStats.
type RegionStats struct {
	Region
	Bytes     int64   `json:"bytes"`
	Reads     int64   `json:"reads"`
	Writes    int64   `json:"writes"`
	ReadRate  float64 `json:"read_rate"`  // a second
	WriteRate float64 `json:"write_rate"` // a second
	Hot       bool    `json:"hot,omitempty"`
}

// RegionsResponse is the answer of GET …/tables/{table}/regions.
type RegionsResponse struct {
	Regions []RegionStats `json:"regions"`
}

// FromRegionStats converts stats.
func FromRegionStats(stats []store.RegionStats) []RegionStats {
	out := make([]RegionStats, len(stats))
	for i := range stats {
		s := &stats[i]
		out[i] = RegionStats{
			Region: Region{ID: s.Region.ID, Start: s.Region.Start, Stop: s.Region.Stop},
			Bytes:  s.Bytes, Reads: s.Reads, Writes: s.Writes, ReadRate: s.ReadRate, WriteRate: s.WriteRate, Hot: s.Hot,
		}
	}
	return out
}

// Store converts r back.
func (r *RegionStats) Store(table string) store.RegionStats {
	return store.RegionStats{
		Region: region.Info{Table: table, ID: r.ID, Start: r.Start, Stop: r.Stop},
		Bytes:  r.Bytes, Reads: r.Reads, Writes: r.Writes, ReadRate: r.ReadRate, WriteRate: r.WriteRate, Hot: r.Hot,
	}
}

// PointRequest is the body of …/tables/{table}/split_point.
type PointRequest struct {
	Row []byte `json:"row"`
}

// PointResponse is its answer.
type PointResponse struct {
	At []byte `json:"at"`
}

// SplitRequest is the body of …/tables/{table}/split.
type SplitRequest struct {
	At []byte `json:"at"`
}

// MergeRequest is the body of …/tables/{table}/merge: a row of each region.
type MergeRequest struct {
	Rows [][]byte `json:"rows"`
}
