package pebblestore

import (
	"errors"
	"io/fs"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// logFiles is the file system of an open Pebble, which panics where it cannot begin its
// next write-ahead log, or end the one before. Here the DB fails instead, as where a log
// or the manifest cannot be written.
type logFiles struct {
	vfs.FS
	dir    string // with the logs
	log    *pebbleLog
	opened atomic.Bool // Pebble is open; before that and when it closes it returns such errors
	begun  atomic.Bool // a log has got a name, and the directory was not synced since
}

// isLog reports whether name is that of a log, and not of its copy in a checkpoint.
func (l *logFiles) isLog(name string) bool {
	return strings.HasSuffix(name, ".log") && l.PathDir(name) == l.PathDir(l.PathJoin(l.dir, "log"))
}

// check does not return where err is one.
func (l *logFiles) check(what, name string, err error) {
	if err != nil && l.opened.Load() {
		l.log.Fatalf("%s %s: %v", what, name, err)
	}
}

// Create implements vfs.FS.
func (l *logFiles) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if c == flushCategory && !l.opened.Load() && l.log.failure() != nil {
		select {} // who opens has been told that it failed, and may open the directory anew
	}
	if !l.isLog(name) {
		return createNamed(l.FS, name, c)
	}
	f, err := l.FS.Create(name, c)
	return l.begin(name, f, err)
}

// ReuseForWrite implements vfs.FS.
func (l *logFiles) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := l.FS.ReuseForWrite(old, name, c)
	if !l.isLog(name) {
		return f, err
	}
	return l.begin(name, f, err)
}

func (l *logFiles) begin(name string, f vfs.File, err error) (vfs.File, error) {
	if l.check("begin log", name, err); err != nil {
		return f, err
	}
	l.begun.Store(true)
	return &logFile{f, l, name}, nil
}

// OpenDir implements vfs.FS.
func (l *logFiles) OpenDir(name string) (vfs.File, error) {
	f, err := l.FS.OpenDir(name)
	if err != nil || name != l.dir {
		return f, err
	}
	return &logDir{f, l}, nil
}

// namedFile names itself in errors of its syncs: those of fdatasync and sync_file_range come
// from the system as they are.
type namedFile struct {
	vfs.File
	name string
}

// createNamed is Create of fsys.
func createNamed(fsys vfs.FS, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fsys.Create(name, c)
	if err != nil {
		return nil, err
	}
	return &namedFile{f, name}, nil
}

func (f *namedFile) named(err error) error {
	if at := new(fs.PathError); err == nil || errors.As(err, &at) {
		return err
	}
	return &fs.PathError{Op: "sync", Path: f.name, Err: err}
}

func (f *namedFile) Sync() error     { return f.named(f.File.Sync()) }
func (f *namedFile) SyncData() error { return f.named(f.File.SyncData()) }

func (f *namedFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.named(err)
}

// logFile is a write-ahead log.
type logFile struct {
	vfs.File
	files *logFiles
	name  string
}

func (f *logFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.files.check("write log", f.name, err)
	return n, err
}

func (f *logFile) Sync() error {
	err := f.File.Sync()
	f.files.check("sync log", f.name, err)
	return err
}

func (f *logFile) SyncData() error {
	err := f.File.SyncData()
	f.files.check("sync log", f.name, err)
	return err
}

func (f *logFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	f.files.check("sync log", f.name, err)
	return full, err
}

func (f *logFile) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	f.files.check("look at log", f.name, err)
	return info, err
}

func (f *logFile) Close() error {
	err := f.File.Close()
	f.files.check("close log", f.name, err)
	return err
}

// logDir is the directory. Where a log has just got a name, it is the log's that Pebble syncs.
type logDir struct {
	vfs.File
	files *logFiles
}

func (d *logDir) Sync() error {
	err := d.File.Sync()
	if d.files.begun.Load() {
		d.files.check("sync directory", d.files.dir, err)
	}
	if err == nil {
		d.files.begun.Store(false)
	}
	return err
}
