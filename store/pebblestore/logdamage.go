package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"sluice/store"
)

// Chunks of a write-ahead log have behind the header of those of the manifest (manifest.go)
// the log's number, and how much of it was on disk when they were written; both under the
// checksum.
const (
	logChunkHeader = chunkHeader + 4 + 8
	logChunkFull   = 9  // all of a record
	logChunkLast   = 12 // the highest kind
)

// checkLog finds a damaged record of the last log that others follow which were written when
// it was on disk. Pebble looks for these from the next block of 32 KiB on alone, and otherwise
// takes the first record that it cannot read for one that a crash has cut: the store would be
// opened without it and without all commits behind it.
// names are the directory's.
func (db *DB) checkLog(names []string) error {
	fsys := db.opts.FS
	last, number := "", uint64(0)
	for _, name := range names {
		digits, isLog := strings.CutSuffix(name, ".log")
		if n, err := strconv.ParseUint(digits, 10, 64); isLog && err == nil && n >= number {
			last, number = fsys.PathJoin(db.dir, name), n
		}
	}
	if last == "" {
		return nil
	}
	file, err := fsys.Open(last)
	if err != nil {
		return diskError(err)
	}
	at, err := damagedLogRecord(file, uint32(number))
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("read %s: %w", last, diskError(err))
	}
	if at >= 0 {
		return fmt.Errorf("%w: %s: the record at byte %d is damaged, and later commits stand behind it: restore a backup", store.ErrCorrupt, last, at)
	}
	return nil
}

// damagedLogRecord returns where the first damaged chunk of the log of this number is, if
// one behind it says that it was on disk, or -1.
func damagedLogRecord(r io.Reader, number uint32) (int64, error) {
	block := make([]byte, manifestBlock)
	damaged := int64(-1)
	for begin := int64(0); ; begin += manifestBlock {
		n, err := io.ReadFull(r, block)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			return -1, err
		}
		at := 0
		for damaged < 0 && at+logChunkHeader <= n {
			size, _, ok := logChunk(block[:n], at, number)
			if !ok {
				damaged = begin + int64(at)
				break
			}
			at += size
		}
		for ; damaged >= 0 && at+logChunkHeader <= n; at++ {
			if _, synced, ok := logChunk(block[:n], at, number); ok && synced > uint64(damaged) {
				return damaged, nil
			}
		}
		if n < len(block) {
			return -1, nil
		}
	}
}

// logChunk returns the length of the chunk at a byte of a block of a log, and how much of the
// log was on disk when it was written, if there is one.
func logChunk(block []byte, at int, number uint32) (n int, synced uint64, ok bool) {
	header := block[at:]
	n = logChunkHeader + int(binary.LittleEndian.Uint16(header[4:]))
	if kind := header[6]; kind < logChunkFull || kind > logChunkLast || binary.LittleEndian.Uint32(header[7:]) != number || n > len(header) {
		return n, 0, false
	}
	sum := crc32.Checksum(header[6:n], castagnoli)
	return n, binary.LittleEndian.Uint64(header[11:]), binary.LittleEndian.Uint32(header) == storedSum(sum)
}
