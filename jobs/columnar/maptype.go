package columnar

import (
	"slices"
	"strings"
)

// Entries is the Storage of maps: keys and values. It is no type of columns.
const Entries = decimal + 1

// mapValues are the types of values that maps may have. What a map without one is has
// Bytes, which take every cell.
var mapValues = []Type{Bytes, String, Int64, Float64}

// Map returns the type of maps from text to values of this type, which is one of
// Bytes, String, Int64 and Float64; ok is false for others. No key of a map and no
// value is null, though readers of others' files may find such values.
func Map(value Type) (t Type, ok bool) {
	if !slices.Contains(mapValues, value) {
		return 0, false
	}
	return Entries | value<<8, true
}

// Map returns the type of the values of a type of maps; ok is false for others.
func (t Type) Map() (value Type, ok bool) {
	if t&0xff != Entries {
		return 0, false
	}
	return t >> 8, true
}

// mapName returns the type of maps of these values as job files spell it.
func mapName(value Type) string {
	if value == Bytes {
		return "map"
	}
	return "map(" + value.String() + ")"
}

// parseMapType reads map and map(TYPE).
func parseMapType(s string) (Type, bool) {
	for _, value := range mapValues {
		if s == mapName(value) {
			return Map(value)
		}
	}
	return 0, false
}

// mapNames returns the types of maps as an error lists them.
func mapNames() string {
	names := make([]string, len(mapValues))
	for i, value := range mapValues {
		names[i] = mapName(value)
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
