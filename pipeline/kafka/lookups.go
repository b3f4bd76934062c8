package kafka

import (
	"bytes"
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// lookups follows the requests that kafka-go's group writes to a connection. Its Metadata
// requests, in which its leader looks partitions up, have AllowAutoTopicCreation set: a
// topic that was deleted would come back, where brokers make topics (as they do unless told
// otherwise), with other partitions.
type lookups struct {
	requests frames
	metadata bool // the request that is being written is one
}

// edit returns what to write in the place of b, which is a request or a part of one.
func (l *lookups) edit(b []byte) []byte {
	if !l.requests.within() {
		// Size, key and version. The flag ends the request in versions 4 to 7.
		l.metadata = len(b) >= 8 && binary.BigEndian.Uint16(b[4:]) == uint16(kmsg.Metadata) &&
			b[6] == 0 && b[7] >= 4 && b[7] <= 7
	}
	if _, ended := l.requests.add(b); ended == 0 || !l.metadata {
		return b
	}
	b = bytes.Clone(b)
	b[len(b)-1] = 0
	return b
}
