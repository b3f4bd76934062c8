package main

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/cell"
	"sluice/store"
)

// TestIncrementsAgree is transcript e of the shell: counting by hand, with
// check-and-put, and by incr, 16 clients at once, comes to the same.
func TestIncrementsAgree(t *testing.T) {
	t.Parallel()
	const clients, each = 16, 4
	for kind := range testStores {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			s := newTestSession(t, kind, &out)
			if failed, err := runScript(s, "create 't', 'f', {NAME => 'c', COUNTER => true}", true); err != nil {
				t.Fatal(failed)
			}
			table, err := store.OpenTable(t.Context(), s.store, "t")
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					var out strings.Builder
					client := newSession(t.Context(), s.store, newPrinter(&out, time.UTC))
					for range each {
						if failed, err := runScript(client, "incr 't', 'r', 'f:incr'; incr 't', 'r', 'c:n'", true); err != nil {
							t.Error(failed)
							return
						}
						if err := incrementByHand(t, table); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			out.Reset()
			if failed, err := runScript(s, "get_counter 't', 'r', 'f:incr'; get_counter 't', 'r', 'f:hand'; get_counter 't', 'r', 'c:n'", true); err != nil {
				t.Fatal(failed)
			}
			line := fmt.Sprintf("COUNTER VALUE = %d\nTook 0.0000 seconds\n", clients*each)
			if want := strings.Repeat(line, 3); out.String() != want {
				t.Errorf("Got\n%swant\n%s", out.String(), want)
			}
		})
	}
}

// incrementByHand reads the number, adds one and writes it where nobody was faster.
func incrementByHand(t *testing.T, table *store.Table) error {
	col := store.Column{Family: "f", Qualifier: []byte("hand")}
	for {
		row, err := table.Get(t.Context(), []byte("r"), &store.Scan{Columns: []store.Column{col}})
		if err != nil {
			return err
		}
		cond := &store.Cond{Family: col.Family, Qualifier: col.Qualifier, Op: store.Equal}
		n := uint64(0)
		if row != nil {
			cond.Value = row.Cells[0].Value
			n = binary.BigEndian.Uint64(cond.Value)
		}
		m := table.NewMutation([]byte("r"))
		m.Put(col.Family, col.Qualifier, cell.Latest, binary.BigEndian.AppendUint64(nil, n+1))
		if done, err := table.CheckAndPut(t.Context(), []byte("r"), cond, m); err != nil || done {
			return err
		}
	}
}
