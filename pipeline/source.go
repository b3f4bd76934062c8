package pipeline

import (
	"context"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"sluice/pipeline/kafka"
)

// topicInfo says which topic a name stands for now.
type topicInfo struct {
	id         [16]byte // zero where the broker knows none
	clusterID  string
	partitions []int32
}

// span is the offsets of a log that can be read: [start, end).
type span struct{ start, end int64 }

// broker is what the pipeline needs of Kafka, besides group membership.
type broker interface {
	topic(ctx context.Context, name string) (topicInfo, error)
	offsets(ctx context.Context, topic string, partitions []int32) (map[int32]span, error)
	// logEnds returns the ends of partitions' logs, open transactions included, and beside
	// its error what is known of those that have a leader, as offsets does.
	logEnds(ctx context.Context, topic string, partitions []int32) (map[int32]int64, error)
	// epochEnd returns where the records of leader epochs up to epoch end in a
	// partition's log, -1 where its leader does not know, and the latest of these epochs
	// that the log has.
	epochEnd(ctx context.Context, topic string, partition, epoch int32) (found int32, end int64, err error)
	// startOffsets resolves a start policy that is neither earliest nor latest.
	startOffsets(ctx context.Context, topic string, partitions []int32, s *Start) (map[int32]int64, error)
	// fetcher reads partitions of topics that have these ids.
	fetcher(ids map[string][16]byte) fetcher
}

// fetcher reads partitions while its Run runs.
type fetcher interface {
	reader(topic string, partition int32, offset int64) reader
	Run(ctx context.Context) error
}

// reader is the records of one partition. Next may run in another goroutine
// than Close, which ends it.
type reader interface {
	Next(ctx context.Context) (*kafka.Batch, error)
	// Barren reports whether the broker answers, and has nothing there.
	Barren() bool
	Close()
}

// Fingerprint hashes a record's key and value with xxhash64, each after its
// length (8 bytes big-endian, -1 for Kafka's null), so that they cannot trade
// bytes. It is stored: it must never change.
func Fingerprint(r *kafka.Record) uint64 {
	var d xxhash.Digest
	d.Reset()
	var n [8]byte
	for _, b := range [2][]byte{r.Key, r.Value} {
		length := int64(len(b))
		if b == nil {
			length = -1
		}
		binary.BigEndian.PutUint64(n[:], uint64(length))
		_, _ = d.Write(n[:]) // never fails
		_, _ = d.Write(b)
	}
	return d.Sum64()
}
