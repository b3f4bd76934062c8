package jobs

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// BackupVersion is the format version of the manifests of backups that this package
// writes, and the only one that it reads.
const BackupVersion = 1

// BackupManifestName is the file in a backup's directory that is no file of the
// store.
const BackupManifestName = "_backup.json"

// BackupManifest describes one backup of a store: what it is, and every file of it.
// docs/format/backup.md has the JSON.
type BackupManifest struct {
	FormatVersion int          `json:"format_version"`
	BackupID      string       `json:"backup_id"`
	StartedAt     time.Time    `json:"started_at"`
	FinishedAt    time.Time    `json:"finished_at"`
	StoreID       string       `json:"store_id"`     // of the store; a restored one gets its own
	StoreFormat   int          `json:"store_format"` // version of the layout of its directory
	Engine        string       `json:"engine"`
	Sequence      uint64       `json:"sequence"` // last commit in the data
	Offsets       []Offset     `json:"offsets"`  // what the data is complete to
	Files         []BackupFile `json:"files"`    // by path
	Bytes         int64        `json:"bytes"`    // of all files
	Version       string       `json:"sluice_version"`
}

// BackupFile is one file of a backup.
type BackupFile struct {
	Path   string `json:"path"` // one element: a data directory is flat
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // 64 hex digits
}

// Dir is the backup's directory below its target.
func (m *BackupManifest) Dir() string {
	return backupPrefix + m.StartedAt.UTC().Format(runTime) + "-" + m.BackupID
}

// Encode returns m as JSON with a newline at the end.
func (m *BackupManifest) Encode() ([]byte, error) { return encodeJSON(m) }

// DecodeBackupManifest reads the manifest of a backup and checks that it is
// consistent in itself. Its error wraps ErrManifest.
func DecodeBackupManifest(data []byte) (*BackupManifest, error) {
	m := new(BackupManifest)
	if err := decodeVersion(data, BackupVersion, m); err != nil {
		return nil, err
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	return m, nil
}

// validate checks what must hold between the fields.
func (m *BackupManifest) validate() error {
	if !isHex(m.BackupID, 12) || m.StoreID == "" || m.StoreFormat < 1 || len(m.Files) == 0 {
		return fmt.Errorf("backup %q of store %q, format %d, %d files", m.BackupID, m.StoreID, m.StoreFormat, len(m.Files))
	}
	for i := range m.Offsets {
		if err := m.Offsets[i].validate(); err != nil {
			return fmt.Errorf("offsets[%d]: %w", i, err)
		}
	}
	var sum int64
	for i := range m.Files {
		f := &m.Files[i]
		switch {
		case !isStoreFile(f.Path):
			return fmt.Errorf("files[%d]: %q is not the name of a store's file", i, f.Path)
		case i > 0 && f.Path <= m.Files[i-1].Path:
			return fmt.Errorf("files[%d]: %s is listed after %s", i, f.Path, m.Files[i-1].Path)
		case f.Bytes < 0 || f.Bytes > maxFileRows:
			return fmt.Errorf("files[%d]: %s has %d bytes", i, f.Path, f.Bytes)
		case !isHex(f.SHA256, 64):
			return fmt.Errorf("files[%d]: %s has sha256 %q", i, f.Path, f.SHA256)
		}
		if sum += f.Bytes; sum > maxFileRows {
			return errors.New("its files are too many bytes")
		}
	}
	if sum != m.Bytes {
		return fmt.Errorf("it has %d bytes, its files sum to %d", m.Bytes, sum)
	}
	return nil
}

// isStoreFile reports whether name may be a file of a data directory: one plain
// element of a path, which neither is hidden nor one of a backup's own names.
func isStoreFile(name string) bool {
	return fs.ValidPath(name) && !strings.ContainsAny(name, `/\:`) && !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "_")
}
