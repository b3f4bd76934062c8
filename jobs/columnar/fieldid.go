package columnar

import (
	"crypto/sha256"
	"encoding/binary"
)

// maxFieldID is the largest FieldID: Iceberg keeps those near the end of 31 bits for
// itself, and what others add to a table is numbered from the largest on.
const maxFieldID = 1<<30 - 1

// FieldID returns the number, from 1 to 2³⁰-1, by which files and tables know a column of
// this name and type whatever else they have, and in which order: a hash of both, so that
// a column keeps its number from run to run, and one of another type is another column.
// Two columns of a file have one number once in some 10⁹ pairs.
func FieldID(name string, t Type) int32 { return fieldID(name, t.String()) }

// EntryIDs is FieldID of the keys and of the values of a column of maps.
func EntryIDs(name string, t Type) (key, value int32) {
	return fieldID(name, t.String(), "key"), fieldID(name, t.String(), "value")
}

func fieldID(parts ...string) int32 {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(p))))
		h.Write([]byte(p))
	}
	return int32(binary.BigEndian.Uint32(h.Sum(nil))%maxFieldID) + 1
}
