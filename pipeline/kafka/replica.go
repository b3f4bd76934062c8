package kafka

import (
	"context"
	"time"
)

// replicaLease is how long a partition is fetched from a replica before its leader
// is asked again for the best one, as Java's metadata.max.age.ms.
const replicaLease = 5 * time.Minute

// toReplica fetches the partition of a from the replica that its leader prefers
// for our rack (KIP-392). Nothing of the partition came with that answer.
func (f *Fetcher) toReplica(ctx context.Context, a *asked, node int32) {
	a.r.mu.Lock()
	ok := a.r.gen == a.gen && a.r.node != anyNode && a.r.node != node
	if ok {
		a.r.replica, a.r.replicaUntil = node, time.Now().Add(replicaLease)
		a.r.failures = 0
	} else if a.r.gen == a.gen {
		a.r.backoff(time.Now()) // itself: then it should have answered
	}
	a.r.mu.Unlock()
	if !ok {
		return
	}
	f.logger.Debug("partition is fetched from a replica", "topic", a.r.topic, "partition", a.r.partition, "node", node)
	f.mu.Lock()
	f.node(ctx, node).signal()
	f.mu.Unlock()
}

// toLeader goes back to the leader, after a wait: a replica that fails and that the
// leader goes on to name must not make the two busy.
func (f *Fetcher) toLeader(a *asked) {
	a.r.mu.Lock()
	leader := anyNode
	if a.r.gen == a.gen {
		a.r.replica = anyNode
		a.r.backoff(time.Now())
		leader = a.r.node
	}
	a.r.mu.Unlock()
	f.wakeNode(leader)
}
