package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"strings"

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
// as it was then: without what came later, of which it removes the files. names are the
// directory's.
func (db *DB) checkManifest(names []string) (err error) {
	fsys := db.opts.FS
	at, err := pebble.Peek(db.dir, fsys)
	if err != nil {
		return nil // Open says so
	}
	if err := db.checkMarkers(names, at.Exists); err != nil || !at.Exists {
		return err // nil: Open makes a store
	}
	file, err := fsys.Open(at.ManifestFilename)
	if errors.Is(err, fs.ErrNotExist) && !db.opts.ReadOnly && !slices.ContainsFunc(names, ofStore) {
		return db.unmark(names)
	}
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

// unmark removes the marker of a manifest that is not there, nor anything that Pebble makes
// after it: power has failed when the store was made, before the directory was synced, which
// comes before all else. Open makes it then.
func (db *DB) unmark(names []string) error {
	for _, name := range names {
		if !strings.HasPrefix(name, "marker.manifest.") {
			continue
		}
		if err := db.opts.FS.Remove(db.opts.FS.PathJoin(db.dir, name)); err != nil {
			return diskError(err)
		}
	}
	return nil
}

// checkMarkers finds that one of the two empty files is missing whose names say which
// manifest is the store's and which format it has, as in a copy that has left out what is
// empty. Without the first Pebble would make a store in the place of the one that is there,
// and remove the files of that. named is whether it is there.
func (db *DB) checkMarkers(names []string, named bool) error {
	slices.Sort(names)
	missing := func(marker, because string) error {
		return fmt.Errorf("%w: %s: it is missing, and there is %s: copy the directory with its empty files, or restore a backup",
			store.ErrCorrupt, db.opts.FS.PathJoin(db.dir, marker+".*"), because)
	}
	formatted := false
	for _, name := range names {
		// What Pebble makes before the first marker, and may have left in a crash, is a manifest.
		if !named && ofStore(name) {
			return missing("marker.manifest", name)
		}
		formatted = formatted || strings.HasPrefix(name, "marker.format-version.")
	}
	if !named || formatted {
		return nil
	}
	for _, name := range names {
		if strings.HasPrefix(name, "OPTIONS-") { // which it makes after the second
			return missing("marker.format-version", name)
		}
	}
	return nil
}

// ofStore reports whether name is that of a file that Pebble makes in a store which has a
// manifest: a table, a log, its options or its format.
func ofStore(name string) bool {
	return isTable(name) || isNumbered(name, ".log") || strings.HasPrefix(name, "OPTIONS-") || strings.HasPrefix(name, "marker.format-version.")
}

func isTable(name string) bool { return isNumbered(name, ".sst") }

// isNumbered reports whether name is a number as Pebble writes it, and this ending.
func isNumbered(name, ending string) bool {
	number, ok := strings.CutSuffix(name, ending)
	return ok && len(number) >= 6 && strings.Trim(number, "0123456789") == ""
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
	return n, kind, binary.LittleEndian.Uint32(data[at:]) == storedSum(sum)
}

// storedSum is how a checksum is stored in a chunk.
func storedSum(sum uint32) uint32 { return (sum>>15 | sum<<17) + 0xa282ead8 }
