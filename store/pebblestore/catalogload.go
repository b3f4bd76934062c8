package pebblestore

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// load reads the catalog, or writes the first one, where the directory may be new.
func (db *DB) load(unused bool) error {
	c, err := newCatalog()
	if err != nil {
		return err
	}
	low := cell.AppendFamilyPrefix(nil, cell.TagSystem, catalogID, systemFamily)
	it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: cell.PrefixEnd(low)})
	if err != nil {
		return engineError(err)
	}
	defer it.Close()
	found := false
	var key cell.Key
	for ok := it.First(); ok; ok = it.Next() {
		if _, err := cell.DecodeKey(&key, it.Key(), nil); err != nil {
			return fmt.Errorf("%w: catalog: %w", store.ErrCorrupt, err)
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return engineError(err)
		}
		_, sequence, payload, err := decodeSystemValue(value)
		if err != nil {
			return err
		}
		if err := db.loadRow(c, string(key.Row), string(key.Qualifier), payload, sequence, &found); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return engineError(err)
	}
	for name, t := range c.tables {
		if t.regions == nil || t.desc == nil {
			return fmt.Errorf("%w: the catalog has half of table %s", store.ErrCorrupt, name)
		}
		t.load = region.NewLoad(t.regions)
		if !db.opts.ReadOnly {
			if err := db.freeFamilies(t); err != nil {
				return err
			}
		}
	}
	if err := c.adoptNamespaces(); err != nil {
		return err
	}
	db.publish(c)
	if found {
		db.loadFlushed()
		return nil
	}
	switch {
	case db.opts.ReadOnly:
		return fmt.Errorf("%w: it holds no store", store.ErrCorrupt)
	case !unused: // a store has its catalog before its first table
		return fmt.Errorf("%w: its manifest names no table with the catalog, and there are tables: restore a backup", store.ErrCorrupt)
	}
	db.id = rand.Text()
	b := db.pebble.NewBatch()
	defer b.Close()
	if err := errors.Join(
		b.Set(catalogKey(rowStore, qualIdentity), appendSystemValue(nil, db.opts.Now(), 0, []byte(db.id)), nil),
		b.Set(catalogKey(rowStore, qualFormat), appendSystemValue(nil, db.opts.Now(), 0, []byte{catalogFormat}), nil),
		b.Set(catalogKey(rowStore, qualNextTable), appendSystemValue(nil, db.opts.Now(), 0, binary.BigEndian.AppendUint32(nil, firstTableID)), nil),
		b.Set(sequenceKey(), db.sequenceValue(db.opts.Now(), 0), nil),
	); err != nil {
		return err
	}
	if err := db.pebble.Apply(b, pebble.Sync); err != nil {
		return diskError(err)
	}
	// Pebble has begun the first log before it had the format in which damage shows (checkLog):
	// the next one has it.
	db.making.Store(true)
	defer db.making.Store(false)
	return diskError(db.pebble.Flush())
}

// loadRow takes one cell of the stored catalog.
func (db *DB) loadRow(c *catalog, row, qualifier string, payload []byte, sequence uint64, found *bool) error {
	if row == rowStore {
		switch qualifier {
		case qualFormat:
			*found = true
			if len(payload) != 1 {
				return fmt.Errorf("%w: catalog format of %d bytes", store.ErrCorrupt, len(payload))
			}
			if c.format = int(payload[0]); c.format > catalogFormat {
				return newerFormat("the directory", c.format)
			}
		case qualNamespaces:
			var err error
			c.spaces, err = decodeNamespaces(payload)
			return err
		case qualHolds:
			var err error
			c.holds, err = decodeHolds(payload)
			return err
		case qualSequence:
			if len(payload) != 8 {
				return fmt.Errorf("%w: flushed sequence of %d bytes", store.ErrCorrupt, len(payload))
			}
			db.sequence.Store(sequence)
			db.loop.flushed = binary.BigEndian.Uint64(payload)
		case qualIdentity:
			db.id = string(payload)
		case qualNextTable:
			if len(payload) != 4 {
				return fmt.Errorf("%w: next table id of %d bytes", store.ErrCorrupt, len(payload))
			}
			c.nextTable = binary.BigEndian.Uint32(payload)
		}
		return nil
	}
	name, ok := bytes.CutPrefix([]byte(row), []byte(rowTable))
	if !ok {
		return fmt.Errorf("%w: unknown catalog row %q", store.ErrCorrupt, row)
	}
	t := c.tables[string(name)]
	if t == nil {
		t = &table{}
		c.tables[string(name)] = t
	}
	switch qualifier {
	case qualDescriptor:
		d, err := decodeTable(string(name), payload)
		if err != nil {
			return err
		}
		d.regions = t.regions
		*t = *d
	case qualRegions:
		m, err := decodeRegions(string(name), payload)
		if err != nil {
			return err
		}
		t.regions = m
	}
	return nil
}

func catalogKey(row, qualifier string) []byte {
	key := cell.AppendRowPrefix(nil, cell.TagSystem, catalogID, systemFamily, []byte(row))
	return cell.AppendPart(key, []byte(qualifier))
}

func sequenceKey() []byte { return catalogKey(rowStore, qualSequence) }
