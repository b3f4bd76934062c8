// Package kafka gets records out of Kafka exactly as the log has them: which
// partitions this process owns (consumer group generations), what a topic is
// (cluster id, topic id, partitions, offsets), and the records of a partition
// from a given offset on.
//
// Membership is segmentio/kafka-go's ConsumerGroup, or there is none (Assign).
// Every other request goes through its Transport, over connections that this
// package encrypts and authenticates, with this package's own coding of the
// request, because kafka-go's Reader delivers aborted records and control markers,
// panics on empty batches and skips lost data silently (design D12). Fetches are
// incremental (fetch sessions, KIP-227). The record-batch decoder is this package's
// own: it checks the CRC, fills an arena, leaves out control batches and aborted
// transactions as the Java client does, and knows through lastOffsetDelta where a
// batch ends even when compaction has taken its tail.
//
// Offsets committed to Kafka are for lag tools only; the offset to start at is
// the store's (design D4).
package kafka

import "sluice/pipeline/memory"

// Header is one record header. Its slices live as long as their Batch.
type Header struct {
	Key   []byte
	Value []byte
}

// Record is one record of a partition. Its slices live until its Batch is
// released. A nil Key or Value is Kafka's null.
type Record struct {
	Offset    int64
	Timestamp int64 // ms since the Unix epoch
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Aborted are the records of an aborted transaction that one record batch held. No
// record that may be seen lies between them.
type Aborted struct {
	Last    int64 // the last of their offsets
	Records int64 // at most as many as their offsets; fewer after compaction
}

// Batch is what one fetch of one partition brought, or a part of it when that
// unfolds to much: every record that a read_committed consumer may see, in
// offset order. It covers the offsets [From, Next) completely; those without a
// record in Records are control markers, aborted, or compacted away. Records
// may be empty: then the batch only moves the offset on.
type Batch struct {
	Topic       string
	Partition   int32
	From        int64 // the offset that was asked for
	Next        int64 // the offset to ask for next; > From
	Records     []Record
	Aborted     []Aborted // between Records, in offset order
	LeaderEpoch int32     // of the last record batch; -1 = unknown
	LastStable  int64     // end of what read_committed may see: lag = LastStable - Next
	LogStart    int64     // first offset that the broker still has
	Bytes       int       // memory that the batch holds until Release

	headers    []Header   // of the last records
	filled     [][]Header // of those before
	maxHeaders int        // that the record batch being decoded may still have
	raw        *chunk     // that records lie in, where they were not compressed
	arenas     [][]byte   // that records lie in, where they were
	release    func(*Batch)

	reader *PartitionReader
	mem    *fetchMemory // nil = none: what is allocated is not counted
	grant  memory.Grant // covers Records, headers, filled and arenas
	taken  int64        // of grant: what they take
	held   int64        // of the reader's decoded bytes
	target int64        // of taken: then the batch is full
	hint   int          // how many records there may be
	ratio  float64      // of decompressed to compressed bytes; 0 = unknown
}

// Release gives the batch's memory back for reuse. Records and their slices are
// invalid afterwards. It is called once.
func (b *Batch) Release() {
	if b.release != nil {
		b.release(b)
	}
}

// OnRelease makes f what Release calls, of a batch that no Fetcher has made: another
// source gets its memory back there.
func (b *Batch) OnRelease(f func(*Batch)) { b.release = f }
