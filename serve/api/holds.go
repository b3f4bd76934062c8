package api

import (
	"sluice/cell"
	"sluice/store"
)

// Hold is a store.ChangeHold: who asks the store to know what changes in a table.
type Hold struct {
	Name  string `json:"name"`
	Table string `json:"table"`
	Since uint64 `json:"since"`
	Until int64  `json:"until"` // ms since 1970
	// Expired asks to know in which rows cells were removed that had expired.
	Expired bool `json:"expired,omitempty"`
}

// FromHold converts h.
func FromHold(h store.ChangeHold) Hold {
	return Hold{Name: h.Name, Table: h.Table, Since: h.Since, Until: int64(h.Until), Expired: h.Expired}
}

// Store converts h.
func (h Hold) Store() store.ChangeHold {
	return store.ChangeHold{Name: h.Name, Table: h.Table, Since: h.Since, Until: cell.Timestamp(h.Until), Expired: h.Expired}
}

// HoldRequest is the body of PUT …/holds/{hold}, which makes or renews it.
type HoldRequest struct {
	Table string `json:"table"`
	Since uint64 `json:"since,omitempty"`
	Until int64  `json:"until"` // ms since 1970
	// Expired asks to know in which rows cells were removed that had expired.
	Expired bool `json:"expired,omitempty"`
}

// HoldsResponse is the answer of GET …/holds.
type HoldsResponse struct {
	Holds []Hold `json:"holds"` // by name
}
