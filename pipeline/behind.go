package pipeline

import (
	"time"

	"sluice/pipeline/kafka"
)

// maxStarts bounds what is remembered of the batches of a partition that are fetched and
// not applied, 24 KiB. When they are applied, it is not known how old those behind are.
const maxStarts = 1024

// batchStart is where a fetched batch begins, and when.
type batchStart struct {
	first, next int64 // offsets of its first record, and after its last
	time        int64 // of that record, ms since the Unix epoch
}

// behind is how far in time a partition is behind, under the status's lock.
type behind struct {
	begun  bool         // where it goes on is known, since it was assigned
	even   time.Time    // when nothing was last known to wait, at the earliest since it was assigned
	starts []batchStart // of batches that are not applied as a whole, by offset
}

// fetching notes what b tells of the log, and its first record that is new, before it is
// mapped.
func (p *partitionState) fetching(b *kafka.Batch, position int64) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.LogStart, p.LogEnd = b.LogStart, b.LastStable
	for i := range b.Records {
		r := &b.Records[i]
		if r.Offset < position {
			continue
		}
		n := len(p.starts)
		if n == 0 || n < maxStarts && r.Offset >= p.starts[n-1].next {
			p.starts = append(p.starts, batchStart{r.Offset, b.Next, r.Timestamp})
		}
		return
	}
}

// look notes that the offsets have moved, or the end of the log was looked at. The lock
// is held.
func (p *partitionState) look() {
	if p.Progress.Next >= p.LogEnd {
		p.even = time.Now()
	}
	n := 0
	for n < len(p.starts) && p.starts[n].next <= p.Progress.Next {
		n++
	}
	p.starts = p.starts[n:]
	if n > 0 && len(p.starts) == 0 {
		p.starts = nil
	}
}

// waitsSince returns since when, in ms since the Unix epoch, the oldest record waits that
// is not applied: its timestamp. Where that is not known, as it was not fetched, it is
// later than the newest that is applied, and than the last time that nothing waited. 0 =
// nothing waits. The lock is held.
func (p *partitionState) waitsSince() int64 {
	even := p.even.UnixMilli()
	switch {
	case !p.begun:
		return even
	case p.Progress.Next >= p.LogEnd && p.Paused == "" && !p.Failed:
		return 0
	case p.Progress.Next >= p.LogEnd: // who does not read may not know that more has come
		return even
	}
	since := int64(0)
	if len(p.starts) > 0 && p.Progress.Next <= p.starts[0].first {
		since = p.starts[0].time
	} else if len(p.starts) > 0 {
		since = p.Progress.LastTime // inside one batch
	}
	if since <= 0 { // unknown, or of a producer without a clock
		since = max(p.Progress.LastTime, even)
	}
	return since
}

// own notes what is assigned to this process, and has it shown before it is known where
// it goes on.
func (s *status) own(assignment map[string][]int32, poison *Poison) (leave func()) {
	var all []*partitionState
	for topic, partitions := range assignment {
		for _, n := range partitions {
			p := s.partition(topic, n, poison)
			p.assign(true)
			all = append(all, p)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assigned = all
	return func() {
		for _, p := range all {
			p.assign(false)
		}
	}
}

// fail notes that nobody looks at what was assigned last any more.
func (s *status) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.assigned {
		p.Failed = true
	}
}
