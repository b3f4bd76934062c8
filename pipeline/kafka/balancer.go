package kafka

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	kafkago "github.com/segmentio/kafka-go"
)

// protocolName is the name of our assignment strategy. It is not one of the
// standard names on purpose: the coordinator refuses members that do not know
// it, such as another program's consumer with the same group id.
const protocolName = "sluice-v1"

// userDataPrefix begins the user data of a member; the store id follows.
const userDataPrefix = "sluice-store:"

// foreignPartition is assigned, of its first topic, to a member of another
// store. kafka-go drops all other ways to tell one member something: it sends
// no user data with an assignment and keeps only the topics it asked for. No
// topic has such a partition, and OffsetFetch answers for it as for any that
// was never committed.
const foreignPartition = -2

// balancer deals the partitions of each topic to its members in turn, and gives
// members of another store than the leader's nothing.
type balancer struct {
	storeID string

	mu    sync.Mutex
	dealt map[string]int // topic → partitions dealt as the leader of the last generation, 0 where none are known; nil of another's
}

var _ kafkago.GroupBalancer = (*balancer)(nil)

// ProtocolName is our own.
func (b *balancer) ProtocolName() string { return protocolName }

// UserData announces the store. kafka-go asks for it before each JoinGroup, so that
// what was dealt in an older generation is forgotten by then.
func (b *balancer) UserData() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dealt = nil
	return []byte(userDataPrefix + b.storeID), nil
}

// leads returns what this member dealt as the leader of the last generation, or nil.
func (b *balancer) leads() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.dealt)
}

// storeOf returns the store id in a member's user data.
func storeOf(userData []byte) (string, bool) {
	return strings.CutPrefix(string(userData), userDataPrefix)
}

// AssignGroups runs at the leader, whose store is the group's: coordinators
// make the longest member the leader, so a newcomer of another store is the one
// that is sent away.
func (b *balancer) AssignGroups(members []kafkago.GroupMember, partitions []kafkago.Partition) kafkago.GroupMemberAssignments {
	members = slices.Clone(members)
	slices.SortFunc(members, func(x, y kafkago.GroupMember) int { return strings.Compare(x.ID, y.ID) })
	byTopic := make(map[string][]string) // topic → members that want it
	out := make(kafkago.GroupMemberAssignments, len(members))
	for _, m := range members {
		out[m.ID] = make(map[string][]int)
		if id, ok := storeOf(m.UserData); !ok || id != b.storeID {
			if len(m.Topics) > 0 {
				out[m.ID][m.Topics[0]] = []int{foreignPartition}
			}
			continue
		}
		for _, t := range m.Topics {
			byTopic[t] = append(byTopic[t], m.ID)
		}
	}
	partitions = slices.Clone(partitions)
	slices.SortFunc(partitions, func(x, y kafkago.Partition) int {
		return cmp.Or(strings.Compare(x.Topic, y.Topic), cmp.Compare(x.ID, y.ID))
	})
	turn := 0 // runs on over topics, so that topics of one partition spread too
	dealt := make(map[string]int)
	for t := range byTopic {
		dealt[t] = 0
	}
	for _, p := range partitions {
		dealt[p.Topic]++
		takers := byTopic[p.Topic]
		if len(takers) == 0 {
			continue
		}
		id := takers[turn%len(takers)]
		turn++
		out[id][p.Topic] = append(out[id][p.Topic], p.ID)
	}
	b.mu.Lock()
	b.dealt = dealt
	b.mu.Unlock()
	return out
}
