package pipeline

import (
	"errors"
	"log/slog"

	"sluice/pipeline/kafka"
)

// LogPlace returns where in Kafka err is, for a structured log: the keys topic, partition
// and offset with their values, as many of them as the error of a Pipeline, or of its
// client, knows. The offset is that of the record, or the first one that is lost or cannot
// be read.
func LogPlace(err error) []any {
	var (
		poison  *PoisonError
		lost    *DataLossError
		changed *TopicChangedError
		bad     *UnreadableError
		read    *kafka.PartitionError
		topic   *kafka.TopicError
	)
	switch {
	case errors.As(err, &poison):
		return []any{"topic", poison.Topic, "partition", poison.Partition, "offset", poison.Offset}
	case errors.As(err, &lost):
		return []any{"topic", lost.Topic, "partition", lost.Partition, "offset", lost.From}
	case errors.As(err, &bad):
		return []any{"topic", bad.Topic, "partition", bad.Partition, "offset", bad.From}
	case errors.As(err, &changed) && changed.Partition >= 0:
		return []any{"topic", changed.Topic, "partition", changed.Partition}
	case errors.As(err, &changed):
		return []any{"topic", changed.Topic}
	case errors.As(err, &read):
		return []any{"topic", read.Topic, "partition", read.Partition}
	case errors.As(err, &topic):
		return []any{"topic", topic.Topic}
	}
	return nil
}

// at is the offset that a partition stands at because of err, for a structured log: that
// of a record or the stored one. It is empty, which a log leaves out, where neither is known yet.
func (w *worker) at(err error) slog.Attr {
	var again *retryError
	var tripped *tripError
	switch {
	case errors.As(err, &again):
		return slog.Int64("offset", again.offset)
	case errors.As(err, &tripped):
		return slog.Int64("offset", tripped.offset)
	}
	if next, known := w.state.stored(); known {
		return slog.Int64("offset", next)
	}
	return slog.Attr{}
}
