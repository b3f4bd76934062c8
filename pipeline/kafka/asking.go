package kafka

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// asksAtOnce is how many of the requests that a partition makes when it is opened a
// client has on their way to a broker at one time. kafka-go makes a connection for each;
// a broker has a short queue for new ones (50 of Kafka's listeners, unless
// socket.listen.backlog.size says otherwise), and who finds it full times out.
const asksAtOnce = 4

// asking gives the requests to one broker turns.
type asking struct {
	mu    sync.Mutex
	turns map[int32]chan struct{} // by node; as many elements as requests are on their way
}

// begin waits until one more request may go to node, and returns what ends it. Its
// error is ctx's. What is asked for a group or a pipeline, what a broker answers late on
// purpose, and what is produced or fetched, has no turns.
func (a *asking) begin(ctx context.Context, node int32, req kmsg.Request) (end func(), err error) {
	switch kmsg.Key(req.Key()) {
	case kmsg.ApiVersions: // of one broker: before a fetch, by its loops, which are few
		if node != anyNode {
			return func() {}, nil
		}
	case kmsg.Metadata, kmsg.ListOffsets, kmsg.OffsetForLeaderEpoch:
	default:
		return func() {}, nil
	}
	a.mu.Lock()
	turns := a.turns[node]
	if turns == nil {
		if a.turns == nil {
			a.turns = make(map[int32]chan struct{})
		}
		turns = make(chan struct{}, asksAtOnce)
		a.turns[node] = turns
	}
	a.mu.Unlock()
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
