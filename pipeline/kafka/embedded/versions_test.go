package embedded

import (
	"context"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Java's clients ask for Metadata where a broker does not know DescribeTopicPartitions,
// and die of kfake's answer to it.
func TestVersions(t *testing.T) {
	t.Parallel()
	b, err := Start(&Options{Topics: map[string]int{"views": 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	ctx := context.WithoutCancel(t.Context())
	conn, err := (&loopback{}).DialContext(ctx, "tcp", b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	m := &member{t: t, conn: conn}
	r := kmsg.NewPtrApiVersionsRequest()
	r.Version = 2
	m.send(r)
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = r.Version
	m.receive(resp)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[kmsg.Key]bool{
		kmsg.DescribeTopicPartitions: false,
		kmsg.Metadata:                true, kmsg.Fetch: true, kmsg.Produce: true, kmsg.ConsumerGroupHeartbeat: true, kmsg.EndTxn: true,
	} {
		if got := slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == int16(key) }); got != want {
			t.Errorf("%s is spoken: %t, want %t", key.Name(), got, want)
		}
	}
}
