package jobs

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"sluice/jobs/columnar"
	"sluice/jobs/target"
)

// writeBufferBytes gathers the small writes of the encoders: headers, padding.
const writeBufferBytes = 256 << 10

// fileWriter writes files of one format into an upload, one after the other, and
// counts and hashes their bytes on the way.
type fileWriter struct {
	upload   target.Upload
	layout   *layout
	format   *format
	metadata map[string]string

	path   string
	writer columnar.FileWriter // nil = there is no current file
	size   int64               // of what it was given
	filled bool                // its format wants no more
	file   io.WriteCloser
	buffer *bufio.Writer
	hash   hash.Hash
}

// partName is the name of a file of a region.
func partName(region, chunk int, format string) string {
	return fmt.Sprintf("part-%06d-%04d.%s", region, chunk, format)
}

// comparePaths compares the paths of two files of one format by the numbers of their
// region and chunk (partName), of which the latter may have more than four digits.
func comparePaths(a, b string) int {
	regionA, regionB := a[:strings.LastIndexByte(a, '-')+1], b[:strings.LastIndexByte(b, '-')+1]
	if regionA == regionB && len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// create begins a file.
func (w *fileWriter) create(ctx context.Context, path string) (err error) {
	w.path = path
	if w.file, err = w.upload.Create(ctx, path); err != nil {
		return err
	}
	w.hash = sha256.New()
	w.buffer = bufio.NewWriterSize(io.MultiWriter(w.file, w.hash), writeBufferBytes)
	f, err := w.format.write(w.buffer, w.layout, w.metadata)
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	w.writer, w.size, w.filled = f, 0, false
	return nil
}

// add appends a batch to the current file.
func (w *fileWriter) add(b *columnar.Batch) error {
	if err := w.writer.Write(b); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	w.size = w.writer.Size() // a tenth of an export, if it were asked for at each row
	if f, ok := w.writer.(interface{ Full() bool }); ok {
		w.filled = f.Full()
	}
	return nil
}

// full reports that the current file has reached its target size, or what its format
// holds.
func (w *fileWriter) full() bool {
	return w.writer != nil && (w.size >= w.layout.targetFileBytes || w.filled)
}

// close ends the current file and returns what is known of it here.
func (w *fileWriter) close() (File, error) {
	stats, err := w.writer.Close()
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", w.path, err)
	}
	if err := errors.Join(w.buffer.Flush(), w.file.Close()); err != nil {
		return File{}, err
	}
	w.writer = nil
	return File{Path: w.path, Format: w.format.name, Rows: stats.Rows, Bytes: stats.Bytes, SHA256: hex.EncodeToString(w.hash.Sum(nil))}, nil
}
