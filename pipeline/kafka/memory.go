package kafka

import (
	"sync"

	"sluice/pipeline/memory"
)

// DefaultMemoryBytes is the budget of a Fetcher that is given none: a sixth of it is
// fetched, and as much decoded.
const DefaultMemoryBytes = 512 << 20

// fetchMemory is what a Fetcher allocates from: everything whose size the log decides.
type fetchMemory struct {
	budget  *memory.Budget
	raw     *memory.Pool[byte] // record batches as they were sent
	arenas  *memory.Pool[byte] // decompressed
	records *memory.Pool[Record]
	headers *memory.Pool[Header]
}

// fetchMemoryOf returns the pools of b, the same ones each time: what one Fetcher leaves
// idle is the next one's. nil is a budget of its own.
func fetchMemoryOf(b *memory.Budget) *fetchMemory {
	if b == nil {
		var err error
		if b, err = memory.New(DefaultMemoryBytes); err != nil {
			panic("kafka: the default memory is no budget: " + err.Error())
		}
	}
	return memory.Only(b.Fetched(), func(fetched *memory.Share) *fetchMemory {
		return &fetchMemory{
			budget:  b,
			raw:     memory.NewPool[byte](fetched),
			arenas:  memory.NewPool[byte](b.Decoded()),
			records: memory.NewPool[Record](b.Decoded()),
			headers: memory.NewPool[Header](b.Decoded()),
		}
	})
}

// flight is a fetch request under way, with the memory that its partitions were granted
// for the answer. The transport may give up on a request whose answer is being read:
// then its memory comes back when the reading has ended, and not before.
type flight struct {
	mem    *fetchMemory
	parts  []asked
	open   map[topicPartition]int // → index of parts, of those without an answer
	topics map[[16]byte]string

	mu        sync.Mutex // guards below
	reading   bool
	abandoned bool
}

// begin reports whether the answer may be read: not after abandon.
func (fl *flight) begin() bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.reading = !fl.abandoned
	return fl.reading
}

// end notes that the answer was read, and gives everything back where nobody wants it
// any more.
func (fl *flight) end(resp *fetchResponse) {
	fl.mu.Lock()
	fl.reading = false
	abandoned := fl.abandoned
	fl.mu.Unlock()
	if abandoned {
		fl.drop(resp)
	}
}

// abandon gives the answer up. It reports whether it is being read just now: then end
// gives the memory back, and parts are the flight's own.
func (fl *flight) abandon() (reading bool) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.abandoned = true
	return fl.reading
}

// drop gives back what no reader has taken. resp is nil where there is none.
func (fl *flight) drop(resp *fetchResponse) {
	if resp != nil {
		resp.release(fl.mem)
	}
	giveBack(fl.parts)
}

// giveBack gives back the memory for the answers to parts.
func giveBack(parts []asked) {
	for i := range parts {
		parts[i].grant.Release()
	}
}

// answered returns the partition that p answers for, nil where it was not asked for.
func (fl *flight) answered(p *fetchedPartition) *asked {
	topic := p.topic
	if topic == "" {
		topic = fl.topics[p.topicID]
	}
	if i, ok := fl.open[topicPartition{topic, p.partition}]; ok {
		return &fl.parts[i]
	}
	return nil
}

// room returns a slice for n bytes of records that come for p, nil where they were not
// asked for or take more memory than there is: a broker sends the first batch whole,
// however large it is.
func (fl *flight) room(p *fetchedPartition, n int) []byte {
	a := fl.answered(p)
	if a == nil {
		return nil
	}
	bytes := fl.mem.raw.Bytes(n)
	if !a.grant.Grow(bytes - a.grant.Bytes()) {
		p.refused = n
		return nil
	}
	return fl.mem.raw.Get(n)
}
