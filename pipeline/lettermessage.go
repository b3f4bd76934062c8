package pipeline

import (
	"encoding/hex"
	"fmt"
	"strconv"

	"sluice/pipeline/buffer"
	"sluice/pipeline/kafka"
)

// firstCut is the value that a letter is cut to first. Brokers take record batches
// of 1 MiB (message.max.bytes) unless told otherwise, and a reason takes 2 KiB.
const firstCut = 900 << 10

// letterKey is the key of a dead letter in the dead-letter topic. It names the
// place that the letter came from; the record's own key is a header. Where
// pipelines share the topic, or one was made anew, letters have one key that are
// not copies: the headers x-pipeline and x-orig-topic-id tell these apart.
func letterKey(d *buffer.DeadLetter) []byte {
	return fmt.Appendf(nil, "%s/%d/%d", d.Topic, d.Partition, d.Offset)
}

// letterMessage returns d as it goes to the dead-letter topic.
func letterMessage(d *buffer.DeadLetter) kafka.Message {
	return kafka.Message{Key: letterKey(d), Value: d.Value, Headers: letterHeaders(d), Partition: kafka.AnyPartition}
}

// letterHeaders returns the record's own headers and then those that say where it
// comes from and why it is dead.
func letterHeaders(d *buffer.DeadLetter) []kafka.Header {
	var hs []kafka.Header
	for _, h := range d.Headers {
		hs = append(hs, kafka.Header(h))
	}
	add := func(key, value string) { hs = append(hs, kafka.Header{Key: []byte(key), Value: []byte(value)}) }
	add("x-orig-topic", d.Topic)
	add("x-orig-topic-id", hex.EncodeToString(d.TopicID[:]))
	add("x-orig-partition", strconv.FormatInt(int64(d.Partition), 10))
	add("x-orig-offset", strconv.FormatInt(d.Offset, 10))
	add("x-orig-timestamp", strconv.FormatInt(d.Time, 10))
	if d.Key != nil {
		hs = append(hs, kafka.Header{Key: []byte("x-orig-key"), Value: d.Key})
	}
	add("x-stage", d.Stage)
	add("x-error-class", d.Class)
	add("x-error-message", d.Reason)
	add("x-attempts", strconv.Itoa(max(d.Attempts, 1)))
	add("x-pipeline", d.Pipeline)
	add("x-mapping-version", d.MappingVersion)
	return hs
}

// cutMessage returns what is left of d with a value of size bytes, and headers that
// say so and where the whole is. A negative size leaves out the record's own
// headers and key, too, which may be what is large.
func cutMessage(d *buffer.DeadLetter, size int) kafka.Message {
	short := *d
	what := "value"
	if size < 0 {
		size, short.Headers, short.Key, what = 0, nil, nil, "value, headers and key"
	}
	if d.Value != nil {
		short.Value = d.Value[:min(size, len(d.Value))]
	}
	m := letterMessage(&short)
	add := func(key, value string) {
		m.Headers = append(m.Headers, kafka.Header{Key: []byte(key), Value: []byte(value)})
	}
	add("x-truncated", what)
	add("x-orig-value-bytes", strconv.Itoa(len(d.Value)))
	add("x-orig-headers", strconv.Itoa(len(d.Headers)))
	add("x-outbox-row", hex.EncodeToString(d.AppendRow(nil)))
	return m
}
