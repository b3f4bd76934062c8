package mapping

import (
	"fmt"

	"sluice/internal/spelling"
	"sluice/pipeline/decode"
)

// tombstones says what becomes of records without a payload: DecodeSpec.Tombstones.
type tombstones uint8

const (
	tombstonesDecoded tombstones = iota // as the format has it: refused, but by raw
	tombstonesSkipped
	tombstonesMapped // the rules see a document that has no field
)

// tombstoneNames are the values of DecodeSpec.Tombstones, by tombstones.
var tombstoneNames = []string{"refuse", "skip", "map"}

// tombstones compiles what becomes of them, which is part of the version.
func (c *compilation) tombstones(s *DecodeSpec) tombstones {
	for i, name := range tombstoneNames {
		if s.Tombstones == name {
			if i > 0 {
				c.note("tombstones %q", name)
			}
			return tombstones(i)
		}
	}
	if s.Tombstones != "" {
		c.report("decode.tombstones", 0, fmt.Errorf("there is no %q; there are refuse, skip and map", s.Tombstones), spelling.Hint(s.Tombstones, tombstoneNames))
	}
	return tombstonesDecoded
}

// payload decodes the record's, and maps its documents.
func (m *Mapper) payload(r *Record) error {
	if r.Value == nil {
		switch m.plan.tombstones {
		case tombstonesSkipped:
			return nil
		case tombstonesMapped:
			return m.document(decode.NoDocument(m.plan.fields))
		}
	}
	return m.decoder.Decode(r.Value, m.emit)
}
