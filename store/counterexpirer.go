package store

import "sluice/cell"

// CounterExpirer is an optional interface of engines whose COUNTER families may have a TTL.
// Increments that are older are left out, so that who sums increments before the engine has
// them keeps these apart.
type CounterExpirer interface {
	// CountsFrom returns the event time from which on an increment of a family of a table
	// counts now; the least time where counters of it do not expire, or it is not there.
	CountsFrom(table, family string) cell.Timestamp
}

// CountsFrom is that of e; nil where it has none.
func CountsFrom(e any) func(table, family string) cell.Timestamp {
	if c, ok := e.(CounterExpirer); ok {
		return c.CountsFrom
	}
	return nil
}
