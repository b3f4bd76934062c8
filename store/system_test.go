package store_test

import (
	"testing"

	"sluice/cell"
	"sluice/store"
)

// A record that nothing else takes must fit the outbox, or it would stop its
// partition for good (invariant I9).
func TestOutboxTakesTheLargestRecord(t *testing.T) {
	t.Parallel()
	const largest = 256 << 20 // bytes that a record batch unfolds to at most
	for _, d := range store.SystemTables() {
		if d.Name != store.OutboxTable {
			continue
		}
		m := cell.Mutation{Table: d.Name, Row: []byte("r")}
		m.Put(store.OutboxFamily, []byte("headers"), 1, make([]byte, largest/3*4)) // base64
		if err := store.ValidateMutation(d, &m, 1); err != nil {
			t.Error(err)
		}
		return
	}
	t.Error("Got no outbox among the system tables")
}
