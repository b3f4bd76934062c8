package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
)

// logKeeper is the operating system's file system, with a copy in memory of every
// write-ahead log that is written: what a store committed, batch by batch, as
// Pebble has it. Logs that Pebble recycles later are kept, too.
type logKeeper struct {
	vfs.FS

	mu   sync.Mutex // guards below
	logs []*keptLog // in order of creation
}

// keptLog is one log; Pebble writes it from one goroutine.
type keptLog struct {
	vfs.File
	number uint64
	data   bytes.Buffer
}

func newLogKeeper() *logKeeper { return &logKeeper{FS: vfs.Default} }

// Create creates a file and, where it is a log, keeps what is written to it.
func (k *logKeeper) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := k.FS.Create(name, category)
	return k.keep(name, f, err)
}

// ReuseForWrite is Create on an old file's blocks.
func (k *logKeeper) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := k.FS.ReuseForWrite(oldname, newname, category)
	return k.keep(newname, f, err)
}

func (k *logKeeper) keep(name string, f vfs.File, err error) (vfs.File, error) {
	base, isLog := strings.CutSuffix(filepath.Base(name), ".log")
	number, perr := strconv.ParseUint(base, 10, 64)
	if err != nil || !isLog || perr != nil {
		return f, err
	}
	l := &keptLog{File: f, number: number}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.logs = append(k.logs, l)
	return l, nil
}

// Write writes p and keeps it.
func (l *keptLog) Write(p []byte) (int, error) {
	l.data.Write(p) // first: File may change p
	return l.File.Write(p)
}

// logReader calls open, which is record.NewReader: the type of its number is in a
// package that only Pebble can name.
func logReader[N ~uint64](open func(io.Reader, N) *record.Reader, r io.Reader, number uint64) *record.Reader {
	return open(r, N(number))
}

// tally is what writeBatches has written.
type tally struct {
	written, keyValues, rows, counters, bytes int
}

// writeBatches writes every commit that has rows, each as its length, 4 bytes
// big-endian, and its bytes. What the store wrote before its first rows (catalog,
// tables) is left out.
func (k *logKeeper) writeBatches(w io.Writer) (tally, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var t tally
	for _, l := range k.logs {
		r := logReader(record.NewReader, bytes.NewReader(l.data.Bytes()), l.number)
		for {
			next, err := r.Next()
			if errors.Is(err, io.EOF) || record.IsInvalidRecord(err) {
				break // the end of what was synced: the log was closed here
			}
			if err != nil {
				return t, fmt.Errorf("log %d: %w", l.number, err)
			}
			repr, err := io.ReadAll(next)
			if err != nil {
				return t, fmt.Errorf("log %d: %w", l.number, err)
			}
			if err := t.write(w, repr); err != nil {
				return t, fmt.Errorf("log %d: %w", l.number, err)
			}
		}
	}
	return t, nil
}

func (t *tally) write(w io.Writer, repr []byte) error {
	var b pebble.Batch
	if err := b.SetRepr(repr); err != nil {
		return err
	}
	var rows, counters, keyValues int
	for r := b.Reader(); ; {
		kind, key, _, ok, err := r.Next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if kind == pebble.InternalKeyKindLogData { // what waits for a sync of all that was written before
			continue
		}
		keyValues++
		switch {
		case len(key) == 0:
			return errors.New("empty key")
		case key[0] == cell.TagData:
			rows++
		case key[0] == cell.TagCounter:
			counters++
		}
	}
	if rows == 0 {
		return nil
	}
	t.written++
	t.keyValues += keyValues
	t.rows += rows
	t.counters += counters
	t.bytes += len(repr)
	if _, err := w.Write(binary.BigEndian.AppendUint32(nil, uint32(len(repr)))); err != nil {
		return err
	}
	_, err := w.Write(repr)
	return err
}

// splitBatches returns the batches that writeBatches wrote, as slices of data.
func splitBatches(data []byte) ([][]byte, error) {
	var all [][]byte
	for len(data) > 0 {
		if len(data) < 4 || uint64(len(data)-4) < uint64(binary.BigEndian.Uint32(data)) {
			return nil, errors.New("file of batches: it ends in the middle of one")
		}
		n := int(binary.BigEndian.Uint32(data))
		all = append(all, data[4:4+n:4+n])
		data = data[4+n:]
	}
	if len(all) == 0 {
		return nil, errors.New("file of batches: it is empty")
	}
	return all, nil
}
