package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// answering answers a request with a body.
type answering struct {
	liar
	body []byte
}

func (a *answering) Write(p []byte) (int, error) {
	a.size = int32(4 + len(a.body))
	n, err := a.liar.Write(p)
	a.reply.Write(a.body)
	return n, err
}

// metadataOf is the body, with its header, of metadata of so many brokers and topics with
// so many partitions each.
func metadataOf(version int16, brokers, topics, partitions int) []byte {
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = version
	resp.ClusterID = kmsg.StringPtr("cluster")
	for n := range brokers {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = int32(n), "broker.example", 9092, kmsg.StringPtr("rack")
		resp.Brokers = append(resp.Brokers, b)
	}
	for range topics {
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = kmsg.StringPtr("topic")
		topic.UnknownTags.Set(7, []byte("later"))
		for n := range partitions {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Replicas, p.ISR = int32(n), []int32{1, 2, 3}, []int32{1, 2}
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return append([]byte{0}, resp.AppendTo(nil)...)
}

func askMetadata(version int16, body []byte) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = version
	msg, err := (&exchange{clientID: "test", req: req}).RawExchange(&answering{body: body})
	if err != nil {
		return nil, err
	}
	return msg.(*exchange).resp.(*kmsg.MetadataResponse), nil
}

// TestMetadataIsRead: metadata of every version that is asked for passes, and no part of
// it does.
func TestMetadataIsRead(t *testing.T) {
	t.Parallel()
	for version := int16(10); version <= 12; version++ {
		body := metadataOf(version, 3, 2, 4)
		resp, err := askMetadata(version, body)
		if err != nil || len(resp.Brokers) != 3 || len(resp.Topics) != 2 || len(resp.Topics[1].Partitions) != 4 {
			t.Fatalf("v%d: Got %+v, %v", version, resp, err)
		}
		if d := cmp.Diff(body[1:], resp.AppendTo(nil)); d != "" {
			t.Errorf("v%d: %s", version, d)
		}
		for n := range len(body) - 1 {
			if _, err := askMetadata(version, body[:n+1]); !errors.Is(err, errProtocol) {
				t.Errorf("v%d: Got %v of %d bytes of %d", version, err, n+1, len(body))
			}
		}
	}
}

// TestMetadataLies: the length of an array is not believed before all of its elements were
// seen: an answer takes no more than some times its size. It is alone, as it looks at all
// that is allocated.
func TestMetadataLies(t *testing.T) {
	const size = 4 << 20
	claim := func(before []byte) []byte { // an array of as many elements as there are bytes
		body := binary.AppendUvarint(bytes.Clone(before), size+1)
		return append(body, make([]byte, size)...)
	}
	throttle, null := []byte{0, 0, 0, 0, 0}, []byte{0, 0, 0, 0, 0} // header and throttle; cluster and controller
	for name, body := range map[string][]byte{
		"brokers":    claim(throttle),
		"topics":     claim(append(append(bytes.Clone(throttle), 1), null...)),
		"partitions": claim(append(append(append(bytes.Clone(throttle), 1), null...), append([]byte{2}, make([]byte, 2+1+16+1)...)...)),
		// One takes 2 bytes, and a place in a map.
		"tags": append(binary.AppendUvarint(append(append(bytes.Clone(throttle), 1), append(null, 1)...), size/2), make([]byte, size)...),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := askMetadata(12, body)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, errProtocol) || took > 8*size {
			t.Errorf("%s: Got %v and %d MiB of an answer of %d", name, err, took>>20, size>>20)
		}
	}
}

// FuzzCheckMetadata: garbage never panics, and of what passes kmsg makes no more elements
// than there are.
func FuzzCheckMetadata(f *testing.F) {
	for version := int16(10); version <= 12; version++ {
		f.Add(metadataOf(version, 1, 1, 2)[1:], version)
	}
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		version = 10 + int16(uint16(version)%3)
		resp := kmsg.NewPtrMetadataResponse()
		resp.Version = version
		if checkMetadata(body, version) != nil {
			return
		}
		err := resp.ReadFrom(body) // it refuses more, such as a host that is null
		least := 11*len(resp.Brokers) + 26*len(resp.Topics)
		for i := range resp.Topics {
			least += 18 * len(resp.Topics[i].Partitions)
		}
		if least > len(body) {
			t.Errorf("v%d: Got elements of %d bytes at least, and %v, of %d that have passed", version, least, err, len(body))
		}
	})
}
