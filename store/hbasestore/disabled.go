package hbasestore

import (
	"context"
	"sync"
	"time"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// off are the tables that were found disabled. HBase's client, in the gateway, tries calls of
// several rows of such a table for minutes, so that these are not made before it is enabled.
type off struct {
	mu     sync.Mutex
	tables map[string]bool

	asking sync.Mutex // one watch asks at a time
}

func (o *off) known(table string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tables[table]
}

func (o *off) set(table string, disabled bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !disabled {
		delete(o.tables, table)
		return
	}
	if o.tables == nil {
		o.tables = map[string]bool{}
	}
	o.tables[table] = true
}

// disabled reports whether a table is known to be disabled. One that is being made, or
// enabled, is not, though it is not enabled either.
func (s *Store) disabled(ctx context.Context, table string) (yes bool) {
	_, err := s.try(ctx, request{}, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		yes, err = c.IsTableDisabled(ctx, tableName(table))
		return err
	})
	yes = err == nil && yes
	s.off.set(table, yes)
	return yes
}

// watch returns a context for a call of g's of rows of a table. Where no answer has come for a
// while and the table is disabled, it ends with store.ErrTableNotEnabled: nothing is wrong with
// the gateway. done is to be called when the call has ended.
func (s *Store) watch(ctx context.Context, g *gateway, table string) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(s.o.silence, func() {
		s.off.asking.Lock()
		defer s.off.asking.Unlock()
		if ctx.Err() == nil && s.ask(ctx, g, table) {
			s.off.set(table, true)
			cancel(ownCause{&store.DisabledError{Table: table}})
		}
	})
	return ctx, func() {
		late.Stop()
		cancel(nil)
	}
}

// ask is disabled on a connection of its own: those of the pool may all wait for such tables.
func (s *Store) ask(ctx context.Context, g *gateway, table string) (yes bool) {
	c, err := s.pool.dial(ctx, g)
	if err != nil {
		return false
	}
	defer c.wire.Close()
	_, _, err = c.call(ctx, s.o.CallTimeout, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		yes, err = c.IsTableDisabled(ctx, tableName(table))
		return err
	})
	return err == nil && yes
}
