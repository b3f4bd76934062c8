package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"sluice/store"
)

// Pebble's manifest is a file of LevelDB's records: chunks of 4 bytes of checksum, 2 of
// length and 1 of kind before their payload, none across a block.
const (
	manifestBlock = 32 << 10
	chunkHeader   = 4 + 2 + 1
	chunkFull     = 1 // all of a record
	chunkFirst    = 2 // its beginning
	chunkLast     = 4 // the highest kind
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkManifest finds a damaged record of the manifest that others follow. Pebble takes the
// first that it cannot read for the last, one that a crash has cut, and would open the store
// as it was then: without what came later, of which it removes the files.
func (db *DB) checkManifest() (err error) {
	fsys := db.opts.FS
	at, err := pebble.Peek(db.dir, fsys)
	if err != nil || !at.Exists {
		return nil // Open says so, or makes one
	}
	file, err := fsys.Open(at.ManifestFilename)
	if err != nil {
		return nil // Open says so
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	data, err := io.ReadAll(file)
	if err != nil {
		return diskError(err)
	}
	if n := damagedRecord(data); n >= 0 {
		return fmt.Errorf("%w: %s: the record at byte %d is damaged, and is not the last: restore a backup", store.ErrCorrupt, at.ManifestFilename, n)
	}
	return nil
}

// damagedRecord returns where the first chunk is that is damaged and before the beginning
// of another record, or -1.
func damagedRecord(data []byte) int {
	at := 0
	for at+chunkHeader <= len(data) {
		if left := manifestBlock - at%manifestBlock; left < chunkHeader {
			at += left
			continue
		}
		n, _, ok := chunk(data, at)
		if !ok {
			break
		}
		at += n
	}
	for next := at + 1; next+chunkHeader <= len(data); next++ {
		if _, kind, ok := chunk(data, next); ok && (kind == chunkFull || kind == chunkFirst) {
			return at
		}
	}
	return -1
}

// chunk returns the length and the kind of the chunk at a byte of a manifest, if there is one.
func chunk(data []byte, at int) (n int, kind byte, ok bool) {
	n = chunkHeader + int(binary.LittleEndian.Uint16(data[at+4:]))
	kind = data[at+6]
	if kind < chunkFull || kind > chunkLast || at%manifestBlock+n > manifestBlock || at+n > len(data) {
		return n, kind, false
	}
	sum := crc32.Checksum(data[at+6:at+n], castagnoli)
	return n, kind, binary.LittleEndian.Uint32(data[at:]) == (sum>>15|sum<<17)+0xa282ead8
}
