package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// liar answers a request with a size, and nothing behind it.
type liar struct {
	size  int32
	asked []byte
	reply bytes.Buffer
}

func (l *liar) Write(p []byte) (int, error) {
	l.asked = append(l.asked, p...)
	l.reply.Write(binary.BigEndian.AppendUint32(nil, uint32(l.size)))
	l.reply.Write(l.asked[8:12]) // its number: behind size, key and version
	return len(p), nil
}

func (l *liar) Read(p []byte) (int, error) { return l.reply.Read(p) }

// The size of an answer is bounded by what was asked for, before any of it is read.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	offsets := kmsg.NewPtrListOffsetsRequest()
	offsets.Version = 5
	large := kmsg.NewPtrListOffsetsRequest()
	large.Version = 5
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Partitions = make([]kmsg.ListOffsetsRequestTopicPartition, 10_000)
	large.Topics = append(large.Topics, topic)
	for name, tc := range map[string]struct {
		req  kmsg.Request
		size int32
		ok   bool // it is read, and then cut off
	}{
		"within":            {offsets, 1 << 20, true},
		"of one topic":      {offsets, 2 << 20, false},
		"of more":           {large, 2 << 20, true},
		"beyond all":        {large, 33 << 20, false},
		"metadata":          {kmsg.NewPtrMetadataRequest(), 30 << 20, true},
		"too much metadata": {kmsg.NewPtrMetadataRequest(), 33 << 20, false},
		"the largest":       {offsets, 1<<31 - 1, false},
		"negative":          {offsets, -1, false},
	} {
		_, err := (&exchange{clientID: "test", req: tc.req}).RawExchange(&liar{size: tc.size})
		if tc.ok && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || !tc.ok && !errors.Is(err, errProtocol) {
			t.Errorf("%s: Got %v of %d bytes", name, err, tc.size)
		}
		if tc.size > 0 && !tc.ok && !strings.Contains(err.Error(), "bytes, more than") {
			t.Errorf("%s: Got %v, want the bound", name, err)
		}
	}
}

// teller answers a request with a body, behind a header that it gives.
type teller struct {
	header, body []byte
	reply        bytes.Buffer
}

func (l *teller) Write(p []byte) (int, error) {
	l.reply.Write(binary.BigEndian.AppendUint32(nil, uint32(4+len(l.header)+len(l.body))))
	l.reply.Write(p[8:12]) // its number
	l.reply.Write(l.header)
	l.reply.Write(l.body)
	return len(p), nil
}

func (l *teller) Read(p []byte) (int, error) { return l.reply.Read(p) }

// Tagged fields of a response's header are passed over, as those of its body are: a broker may
// say more than this client knows of (KIP-482).
func TestHeaderTags(t *testing.T) {
	t.Parallel()
	want := kmsg.NewPtrMetadataResponse()
	want.Version, want.ControllerID = 12, 7
	for name, tc := range map[string]struct {
		header []byte
		ok     bool
	}{
		"none":         {[]byte{0}, true},
		"one":          {[]byte{1, 5, 3, 'a', 'b', 'c'}, true},
		"two":          {[]byte{2, 0, 0, 0x80, 1, 1, 'x'}, true},
		"cut off":      {[]byte{1, 5, 0x80, 0x80, 4}, false},
		"without them": {nil, false},
	} {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 12
		x := &exchange{clientID: "test", req: req}
		conn := &teller{header: tc.header, body: want.AppendTo(nil)}
		if tc.header == nil {
			conn.body = nil
		}
		_, err := x.RawExchange(conn)
		switch {
		case tc.ok && (err != nil || x.resp.(*kmsg.MetadataResponse).ControllerID != 7):
			t.Errorf("%s: Got %+v, %v", name, x.resp, err)
		case !tc.ok && !errors.Is(err, errProtocol):
			t.Errorf("%s: Got %v", name, err)
		}
	}
}
