package config

import (
	"fmt"
	"maps"
	"net"
	"slices"

	"sluice/store"
)

// lintHBase reports what is wrong with store.hbase, and what of the file cannot be
// done on HBase.
func (c *Config) lintHBase(report reporter) {
	h := &c.Store.HBase
	h.TLS.lint("store.hbase.tls", report)
	for i, g := range h.Gateways {
		if _, _, err := net.SplitHostPort(g); err != nil {
			report(fmt.Sprintf("store.hbase.gateways[%d]", i), "write host:port, such as 127.0.0.1:9090", "not the address of a gateway")
		}
	}
	for _, v := range [...]struct {
		name string
		low  bool
	}{{"connections", h.Connections < 1}, {"call_timeout", h.CallTimeout <= 0}, {"retry_timeout", h.RetryTimeout <= 0}} {
		if v.low {
			report("store.hbase."+v.name, "", "%s must be more than 0", v.name)
		}
	}
	if c.Store.Engine != "hbase" {
		if len(h.Gateways) > 0 {
			report("store.hbase", "add engine: hbase", "gateways are named and store.engine is %s", c.Store.Engine)
		}
		return
	}
	if len(h.Gateways) == 0 {
		report("store.engine", "", "store.hbase.gateways is empty: name at least one Thrift2 gateway")
	}
	const later = "is not built on HBase yet: use engine pebble"
	for _, name := range slices.Sorted(maps.Keys(c.Pipelines)) {
		report(join("pipelines", name), "", "ingest %s", later)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Jobs)) {
		report(join("jobs", name), "", "an export %s", later)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tables)) {
		for family, attributes := range c.Tables[name].Families {
			f := store.NewFamily(family)
			for attribute, value := range attributes {
				_ = f.SetAttribute(attribute, value) // lintTables reports it
			}
			if f.InPlace() {
				report(join(join(join("tables", name), "families"), family), "", "a COUNTER or DISTINCT family %s", later)
			}
		}
	}
}
