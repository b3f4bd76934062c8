package config

import (
	"fmt"
	"maps"
	"slices"

	"sluice/store"
	"sluice/store/hbasestore"
)

// defaultGateway is where HBase's Thrift2 gateway listens by default, beside the process.
const defaultGateway = "127.0.0.1:9090"

// Addresses returns the gateways' host:port, at least one.
func (h *HBase) Addresses() []string {
	if len(h.Gateways) == 0 {
		return []string{defaultGateway}
	}
	return h.Gateways
}

// embeddedSettings are those of store that the embedded engine alone has.
var embeddedSettings = [...]string{"cache", "mem_table", "min_free", "sync", "counter_cache", "rewrite_interval", "rewrite_rate", "region_interval"}

// lintHBase reports what is wrong with store.hbase, and what of the file cannot be
// done on HBase, and warns of what has no effect there.
func (c *Config) lintHBase(d *decoder, report reporter) {
	h := &c.Store.HBase
	h.TLS.lint("store.hbase.tls", report)
	for i, g := range h.Gateways {
		if !isAddress(g) {
			report(fmt.Sprintf("store.hbase.gateways[%d]", i), "write host:port, such as 127.0.0.1:9090", "not the address of a gateway")
		}
	}
	for _, v := range [...]struct {
		name string
		low  bool
	}{{"connections", h.Connections < 1}, {"call_timeout", h.CallTimeout <= 0}, {"retry_timeout", h.RetryTimeout <= 0}, {"counter_cache", h.CounterCache < 1}, {"max_cell", h.MaxCell <= 0}, {"max_frame", h.MaxFrame <= 0}} {
		if v.low {
			report("store.hbase."+v.name, "", "%s must be more than 0", v.name)
		}
	}
	for _, v := range [...]struct {
		name string
		size Size
	}{{"max_cell", h.MaxCell}, {"max_frame", h.MaxFrame}} {
		if v.size > 0 && v.size < hbasestore.MinCellBytes {
			report("store.hbase."+v.name, "", "%s must be %v or more, which rows of the store's own need", v.name, Size(hbasestore.MinCellBytes))
		}
	}
	if c.Store.Engine != "hbase" {
		if len(h.Gateways) > 0 {
			report("store.hbase", "add engine: hbase", "gateways are named and store.engine is %s", c.Store.Engine)
		}
		return
	}
	for _, name := range embeddedSettings {
		if path := "store." + name; d.has(path) {
			hint := ""
			if name == "counter_cache" {
				hint = "write store.hbase.counter_cache"
			}
			d.warn(path, hint, "%s is of engine pebble, and has no effect with hbase", path)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Pipelines)) {
		c.lintHBasePipeline(name, report)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Jobs)) {
		c.lintHBaseJob(name, report)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tables)) {
		c.lintHBaseTable(name, report)
	}
}

// lintHBaseTable reports families that HBase cannot hold as Sluice means them.
func (c *Config) lintHBaseTable(name string, report reporter) {
	t := c.Tables[name]
	path := join("tables", name)
	if t.MaxTimestampSlop > 0 && len(c.Pipelines) > 0 {
		report(join(path, "max_timestamp_slop"), "", "on HBase what becomes of a record must not depend on the clock")
	}
	if d := t.Attributes[store.AttrDurability]; (d == "SKIP_WAL" || d == "ASYNC_WAL") && len(c.Pipelines) > 0 {
		report(join(join(path, "attributes"), store.AttrDurability), "", "on HBase %s acknowledges what the death of a server loses, and the offset would stand behind it", d)
	}
	for _, family := range slices.Sorted(maps.Keys(t.Families)) {
		f := familyOf(t, family)
		at := join(join(path, "families"), family)
		kind := "COUNTER"
		if f.Distinct {
			kind = "DISTINCT"
		}
		switch {
		case !f.InPlace():
		case f.TTL != store.Forever:
			report(at, "", "a %s family has no TTL on HBase, where the timestamps of its cells are offsets", kind)
		case f.NewVersionBehavior || f.KeepDeleted != store.KeepDeletedFalse:
			report(at, "", "a %s family has no NEW_VERSION_BEHAVIOR and no KEEP_DELETED_CELLS on HBase", kind)
		}
	}
}

// familyOf returns a family of the file, without the attributes at fault, which
// lintTables reports.
func familyOf(t Table, name string) store.FamilyDescriptor {
	f := store.NewFamily(name)
	for attribute, value := range t.Families[name] {
		_ = f.SetAttribute(attribute, value)
	}
	return f
}

// lintHBasePipeline reports what a pipeline cannot do exactly on HBase, whose batches
// are not atomic: what looks at what is stored, or at the clock.
func (c *Config) lintHBasePipeline(name string, report reporter) {
	p := c.Pipelines[name]
	path := join("pipelines", name)
	const why = "on HBase a batch is not atomic, and what is written must be the same however often it is written"
	if p.Dedup.ID != "" {
		report(join(path, "dedup"), "", "event ids are not remembered: %s", why)
	}
	if p.Backfill.Lag > 0 {
		report(join(path, "backfill"), "", "there are no bulk commits on HBase")
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		at := fmt.Sprintf("%s[%d]", join(path, "map"), i)
		if r.Check != nil {
			report(join(at, "check"), "", "a rule has no condition: %s", why)
		}
		t := c.tableOf(r.Table)
		for _, family := range slices.Sorted(maps.Keys(r.Append)) {
			if f := familyOf(t, family); !f.Distinct {
				report(join(join(at, "append"), family), "", "nothing is appended, but to DISTINCT families of tables that the file declares: %s", why)
			}
		}
		for j := range r.Delete {
			c.lintHBaseDelete(fmt.Sprintf("%s[%d]", join(at, "delete"), j), r.Table, r.Delete[j].What, r.Delete[j].Family, report)
		}
	}
}

// tableOf returns what the file declares of a table that a rule or job names, nothing where
// it declares nothing.
func (c *Config) tableOf(name string) Table { return c.Tables[c.tableKey(name)] }

func (c *Config) lintHBaseDelete(at, table, what, family string, report reporter) {
	if what == "newest" {
		report(at, "delete the column, or the version at the rule's timestamp", "the newest version is another one when the delete is repeated, as on HBase it may be")
	}
	t := c.tableOf(table)
	for _, name := range slices.Sorted(maps.Keys(t.Families)) {
		if what != "row" && name != family {
			continue
		}
		switch f := familyOf(t, name); {
		case f.InPlace():
			report(at, "", "the counters of family %s are not deleted on HBase: the timestamps of their cells are offsets, and a zombie would bring them back", name)
		case f.NewVersionBehavior:
			report(at, "leave NEW_VERSION_BEHAVIOR out: deletes go by timestamps then", "family %s has NEW_VERSION_BEHAVIOR: a put that HBase is sent again, or late, comes after the delete, and its cell is there again", name)
		}
	}
}

// lintHBaseJob reports a job that asks HBase for what it does not know: increments
// are found by timestamps, which those of COUNTER and DISTINCT families are not.
func (c *Config) lintHBaseJob(name string, report reporter) {
	job := c.Jobs[name]
	c.lintHBaseTimes(name, report)
	if job.Incremental.FullEvery == 0 {
		return
	}
	t := c.tableOf(job.Table)
	for _, family := range slices.Sorted(maps.Keys(t.Families)) {
		if f := familyOf(t, family); f.InPlace() && (len(job.Families) == 0 || slices.Contains(job.Families, family)) {
			report(join(join("jobs", name), "incremental"), "name the job's other families, or make every run full",
				"on HBase it finds what has changed by timestamps, which tell nothing of the COUNTER or DISTINCT family %s", family)
			return
		}
	}
}

// lintHBaseTimes reports a job whose time range is of families that have offsets for
// timestamps on HBase. Of those that it is of nowhere, Compile tells.
func (c *Config) lintHBaseTimes(name string, report reporter) {
	job := c.Jobs[name]
	t := c.tableOf(job.Table)
	d := &store.TableDescriptor{Name: job.Table}
	for _, family := range slices.Sorted(maps.Keys(t.Families)) {
		d.Families = append(d.Families, familyOf(t, family))
	}
	if job.NoTimeRange(d, job.Families, false) != "" {
		return
	}
	if why := job.NoTimeRange(d, job.Families, true); why != "" {
		report(join(join("jobs", name), "time_range"), "", "%s", why)
	}
}
