package api

import (
	"encoding/hex"
	"fmt"

	"sluice/cell"
	"sluice/store"
)

// Source is store.Source; TopicID is 32 hex digits, or empty where the broker
// knows none.
type Source struct {
	Pipeline  string `json:"pipeline"`
	Topic     string `json:"topic"`
	ClusterID string `json:"cluster_id,omitempty"`
	TopicID   string `json:"topic_id,omitempty"`
}

// Progress is store.Progress. Fingerprint is a decimal number in a string.
type Progress struct {
	First          int64  `json:"first"`
	Next           int64  `json:"next"`
	LeaderEpoch    int32  `json:"leader_epoch"`
	LastOffset     int64  `json:"last_offset"`
	LastTime       int64  `json:"last_time"`
	Fingerprint    uint64 `json:"fingerprint,string"`
	MappingVersion string `json:"mapping_version,omitempty"`
	MappingFrom    int64  `json:"mapping_from"`
	Applied        int64  `json:"applied"`
	Filtered       int64  `json:"filtered"`
	Duplicate      int64  `json:"duplicate"`
	Unmet          int64  `json:"unmet"`
	Dead           int64  `json:"dead"`
	Control        int64  `json:"control"`
	Lost           int64  `json:"lost"`
	Dropped        int64  `json:"dropped"`
	Aborted        int64  `json:"aborted,omitempty"`
	Late           int64  `json:"late,omitempty"`

	Gaps    store.Gaps  `json:"gaps,omitempty"` // [[from, to], …]
	Skipped int64       `json:"skipped,omitempty"`
	Skips   store.Skips `json:"skips,omitempty"` // [{from, to, reason}, …]
}

// PartitionProgress is one row of …/offsets.
type PartitionProgress struct {
	Source    Source   `json:"source"`
	Partition int32    `json:"partition"`
	Progress  Progress `json:"progress"`
	Balanced  bool     `json:"balanced"` // the audit equation holds
}

// OffsetsResponse is the answer of …/offsets.
type OffsetsResponse struct {
	Partitions []PartitionProgress `json:"partitions"`
}

func fromSource(s *store.Source) Source {
	a := Source{Pipeline: s.Pipeline, Topic: s.Topic, ClusterID: s.ClusterID}
	if s.TopicID != [16]byte{} {
		a.TopicID = hex.EncodeToString(s.TopicID[:])
	}
	return a
}

func (a *Source) store() (store.Source, error) {
	s := store.Source{Pipeline: a.Pipeline, Topic: a.Topic, ClusterID: a.ClusterID}
	if a.TopicID == "" {
		return s, nil
	}
	id, err := hex.DecodeString(a.TopicID)
	if err != nil || len(id) != len(s.TopicID) {
		return s, fmt.Errorf("%w: topic id %q, want 32 hex digits", store.ErrInvalidArgument, a.TopicID)
	}
	copy(s.TopicID[:], id)
	return s, nil
}

// FromPartitionProgress converts p.
func FromPartitionProgress(p *store.PartitionProgress) PartitionProgress {
	return PartitionProgress{Source: fromSource(&p.Source), Partition: p.Partition, Progress: Progress(p.Progress), Balanced: p.Progress.Balanced()}
}

// Store converts a. Its error wraps store.ErrInvalidArgument.
func (a *PartitionProgress) Store() (store.PartitionProgress, error) {
	s, err := a.Source.store()
	return store.PartitionProgress{Source: s, Partition: a.Partition, Progress: store.Progress(a.Progress)}, err
}

// BatchMutation is store.Mutation.
type BatchMutation struct {
	Offset int64 `json:"offset"`
	Mutation
}

// CounterDelta is store.CounterDelta.
type CounterDelta struct {
	Table     string `json:"table"`
	Family    string `json:"family"`
	Row       []byte `json:"row"`
	Qualifier []byte `json:"qualifier"`
	Delta     int64  `json:"delta"`
	Time      int64  `json:"time"`
	Offset    int64  `json:"offset"`
}

// Record is store.Record.
type Record struct {
	Offset    int64      `json:"offset"`
	Once      []byte     `json:"once,omitempty"`
	OnceTTL   int64      `json:"once_ttl,omitempty"` // ms
	Cond      *Cond      `json:"cond,omitempty"`
	Checks    []*Cond    `json:"checks,omitempty"` // null = always; none, or one a mutation
	Mutations []Mutation `json:"mutations"`
	Asides    []int      `json:"asides,omitempty"`
}

// Advance is store.Advance.
type Advance struct {
	Source    Source   `json:"source"`
	Partition int32    `json:"partition"`
	From      int64    `json:"from"`
	Progress  Progress `json:"progress"`
}

// Batch is store.Batch, the body of …/batch.
type Batch struct {
	Mutations []BatchMutation `json:"mutations,omitempty"`
	Counters  []CounterDelta  `json:"counters,omitempty"`
	Records   []Record        `json:"records,omitempty"`
	Advances  []Advance       `json:"advances,omitempty"`
	Bulk      bool            `json:"bulk,omitempty"`
}

// BatchResponse is store.Unapplied, the answer of …/batch.
type BatchResponse struct {
	Unmet     int64 `json:"unmet"`
	Duplicate int64 `json:"duplicate"`
}

// FromBatch converts b. Its error is that of FromCond.
func FromBatch(b *store.Batch) (*Batch, error) {
	b = b.Unpacked()
	a := &Batch{Bulk: b.Bulk}
	for i := range b.Mutations {
		m := &b.Mutations[i]
		a.Mutations = append(a.Mutations, BatchMutation{Offset: m.Offset, Mutation: FromMutation(&m.Mutation)})
	}
	for _, c := range b.Counters {
		a.Counters = append(a.Counters, CounterDelta{Table: c.Table, Family: c.Family, Row: c.Row, Qualifier: c.Qualifier, Delta: c.Delta, Time: int64(c.Time), Offset: c.Offset})
	}
	for i := range b.Records {
		r := &b.Records[i]
		cond, err := FromCond(r.Cond)
		if err != nil {
			return nil, err
		}
		ar := Record{Offset: r.Offset, Once: r.Once, OnceTTL: r.OnceTTL, Cond: cond, Asides: r.Asides}
		for _, check := range r.Checks {
			ac, err := FromCond(check)
			if err != nil {
				return nil, err
			}
			ar.Checks = append(ar.Checks, ac)
		}
		for j := range r.Mutations {
			ar.Mutations = append(ar.Mutations, FromMutation(&r.Mutations[j]))
		}
		a.Records = append(a.Records, ar)
	}
	for i := range b.Advances {
		v := &b.Advances[i]
		a.Advances = append(a.Advances, Advance{Source: fromSource(&v.Source), Partition: v.Partition, From: v.From, Progress: Progress(v.Progress)})
	}
	return a, nil
}

// Store converts a. Its error wraps store.ErrInvalidArgument.
func (a *Batch) Store() (*store.Batch, error) {
	b := &store.Batch{Bulk: a.Bulk}
	for i := range a.Mutations {
		m, err := a.Mutations[i].Cell()
		if err != nil {
			return nil, err
		}
		b.Add(a.Mutations[i].Offset, m)
	}
	for _, c := range a.Counters {
		b.Counters = append(b.Counters, store.CounterDelta{Table: c.Table, Family: c.Family, Row: c.Row, Qualifier: c.Qualifier, Delta: c.Delta, Time: cell.Timestamp(c.Time), Offset: c.Offset})
	}
	for i := range a.Records {
		r := &a.Records[i]
		cond, err := r.Cond.Store()
		if err != nil {
			return nil, err
		}
		ms := make([]cell.Mutation, len(r.Mutations))
		for j := range r.Mutations {
			if ms[j], err = r.Mutations[j].Cell(); err != nil {
				return nil, err
			}
		}
		var checks []*store.Cond
		for _, ac := range r.Checks {
			check, err := ac.Store()
			if err != nil {
				return nil, err
			}
			checks = append(checks, check)
		}
		b.Records = append(b.Records, store.Record{Offset: r.Offset, Once: r.Once, OnceTTL: r.OnceTTL, Cond: cond, Checks: checks, Mutations: ms, Asides: r.Asides})
	}
	for i := range a.Advances {
		v := &a.Advances[i]
		s, err := v.Source.store()
		if err != nil {
			return nil, err
		}
		b.Advance(s, v.Partition, v.From, store.Progress(v.Progress))
	}
	return b, nil
}
