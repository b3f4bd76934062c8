package api

import "time"

// PipelineLag is of one of …/pipelines what tells how far it is behind.
type PipelineLag struct {
	Name       string         `json:"name"`
	Partitions []PartitionLag `json:"partitions"`
}

// PartitionLag is one of its partitions.
type PartitionLag struct {
	State string `json:"state"`
	Begun bool   `json:"begun"` // Floor and End are known
	Since int64  `json:"since"` // timestamp of the oldest record that waits, ms since the Unix epoch; 0 = none waits
	Floor int64  `json:"floor"` // all before it is applied
	End   int64  `json:"end"`   // of what may be read
}

// Behind returns how old the oldest record is that waits, by the clock now, and how many
// do, of the partitions that are being applied (state running): what waits for a broker, a
// breaker or a disk nobody catches up with.
func (p *PipelineLag) Behind(now time.Time) (age time.Duration, records int64) {
	for i := range p.Partitions {
		t := &p.Partitions[i]
		if t.State != "running" {
			continue
		}
		if t.Since > 0 {
			age = max(age, now.Sub(time.UnixMilli(t.Since)))
		}
		if t.Begun {
			records += max(0, t.End-t.Floor)
		}
	}
	return age, records
}
