package kafka

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// lagging makes nodes of the cluster answer metadata requests for topics by name as of a
// time when each topic had that many of its partitions; 0 = it was not there. The function
// returns how many such answers there were.
func lagging(t *testing.T, cluster *kfake.Cluster, partitions int, nodes ...int32) (answers func() int64) {
	t.Helper()
	var n atomic.Int64
	cluster.ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		topics := kreq.(*kmsg.MetadataRequest).Topics
		if len(topics) == 0 || !slices.Contains(nodes, cluster.CurrentNode()) {
			return nil, nil, false
		}
		n.Add(1)
		resp := kreq.ResponseKind().(*kmsg.MetadataResponse)
		for n := range int32(3) {
			b := kmsg.NewMetadataResponseBroker()
			b.NodeID, b.Host, b.Port = n, "127.0.0.1", n+1
			resp.Brokers = append(resp.Brokers, b)
		}
		for _, asked := range topics {
			rt := kmsg.NewMetadataResponseTopic()
			rt.Topic = asked.Topic
			info := cluster.TopicInfo(*asked.Topic)
			if info == nil || partitions == 0 {
				rt.ErrorCode = kerr.UnknownTopicOrPartition.Code
			} else {
				rt.TopicID = info.TopicID
				for p := range int32(partitions) {
					rp := kmsg.NewMetadataResponseTopicPartition()
					rp.Partition, rp.Leader = p, cluster.LeaderFor(*asked.Topic, p)
					rt.Partitions = append(rt.Partitions, rp)
				}
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	return n.Load
}

// Brokers that lag behind the controller do not know yet of a topic that was just created,
// or of its new partitions: what only one of them says is not there, is.
func TestBrokersLagBehind(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		partitions int // that the lagging brokers know of
		use        func(t *testing.T, c *Client) error
	}{
		"Topics": {0, func(t *testing.T, c *Client) error {
			got, err := c.Topics(t.Context(), "t", "u")
			if err == nil && (len(got) != 2 || !slices.Equal(got["t"].Partitions, []int32{0, 1, 2})) {
				t.Errorf("Got %+v", got)
			}
			return err
		}},
		"ListOffsets": {0, func(t *testing.T, c *Client) error {
			_, err := c.ListOffsets(t.Context(), "t", []int32{0, 1, 2})
			return err
		}},
		"ListOffsets of a new partition": {2, func(t *testing.T, c *Client) error {
			_, err := c.ListOffsets(t.Context(), "t", []int32{0, 1, 2})
			return err
		}},
		"EpochEnd": {0, func(t *testing.T, c *Client) error {
			_, _, err := c.EpochEnd(t.Context(), "t", 0, 0)
			return err
		}},
		"EpochEnd of a new partition": {2, func(t *testing.T, c *Client) error {
			_, _, err := c.EpochEnd(t.Context(), "t", 2, 0)
			return err
		}},
		"Produce": {0, func(t *testing.T, c *Client) error {
			return c.NewProducer(nil).Produce(t.Context(), "t", Message{Partition: 1})
		}},
		"Produce to a new partition": {2, func(t *testing.T, c *Client) error {
			return c.NewProducer(nil).Produce(t.Context(), "t", Message{Partition: 2})
		}},
		"Assign": {0, func(t *testing.T, c *Client) error {
			_, err := c.Assign(t.Context(), &AssignOptions{Topics: []string{"t", "u"}})
			return err
		}},
		"Assign a new partition": {2, func(t *testing.T, c *Client) error {
			_, err := c.Assign(t.Context(), &AssignOptions{Topics: []string{"t"}, Partitions: []int32{2}})
			return err
		}},
		"JoinGroup": {0, func(t *testing.T, c *Client) error {
			g, err := c.JoinGroup(t.Context(), &GroupOptions{ID: "g", StoreID: "s", Topics: []string{"t", "u"}})
			if err != nil {
				return err
			}
			return g.Close()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for node := range int32(3) { // which one answers first is drawn
				synctest.Test(t, func(t *testing.T) {
					cluster, c := startCluster(t, kfake.SeedTopics(3, "t", "u"))
					answers := lagging(t, cluster, tc.partitions, node, (node+1)%3)
					if err := tc.use(t, c); err != nil {
						t.Errorf("Got %v", err)
					}
					if answers() == 0 {
						t.Log("no broker that lags behind was asked")
					}
				})
			}
		})
	}
}

// What no broker knows of is not there, with the names that are near, also while one of the
// brokers has no answer.
func TestNoBrokerKnows(t *testing.T) {
	t.Parallel()
	for name, deaf := range map[string]bool{"all answer": false, "one ends the connection": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cluster, c := startCluster(t, kfake.SeedTopics(3, "topic"))
				if _, err := c.Topic(t.Context(), "topic"); err != nil {
					t.Fatal(err)
				}
				if deaf {
					cluster.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
						cluster.KeepControl()
						return nil, errors.New("no answer"), cluster.CurrentNode() == 2
					})
				}
				_, err := c.Topic(t.Context(), "topics")
				if !errors.Is(err, ErrTopicNotFound) || !strings.Contains(err.Error(), "did you mean topic?") {
					t.Errorf("Got %v, want ErrTopicNotFound", err)
				}
				if _, err := c.ListOffsets(t.Context(), "topic", []int32{7}); !errors.Is(err, ErrTopicNotFound) {
					t.Errorf("Got %v for a partition that is not there", err)
				}
			})
		})
	}
}

// A broker that lags behind, and tells of fewer partitions than were dealt, ends no
// generation: others know them, and nothing has changed.
func TestLaggingBrokerEndsNoGeneration(t *testing.T) {
	t.Parallel()
	for node := range int32(3) { // which one is asked is drawn
		synctest.Test(t, func(t *testing.T) {
			cluster, c := startCluster(t, kfake.SeedTopics(3, "t"))
			m := join(t, c, "s", "t")
			gen := m.await(t, owns(3))
			rebalances := c.Metrics().Rebalances
			answers := lagging(t, cluster, 2, node, (node+1)%3)
			time.Sleep(time.Second) // virtual, of many times PartitionWatch
			if got := c.Metrics().Rebalances; got != rebalances || len(m.gens) > 0 {
				t.Errorf("Got %d rebalances after generation %d, %d answers of brokers that lag behind", got-rebalances, gen.ID, answers())
			}
		})
	}
}

// A topic that comes between the answer that it is not there and the list of those that are
// is asked for again, and not taken for another one that was meant.
func TestTopicComesMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, c := startCluster(t, kfake.SeedTopics(3, "t"))
		var unknown atomic.Int64
		cluster.ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			topics := kreq.(*kmsg.MetadataRequest).Topics
			if len(topics) == 0 || unknown.Add(1) > 5 { // of a broker, and of the others, and once more
				return nil, nil, false
			}
			resp := kreq.ResponseKind().(*kmsg.MetadataResponse)
			rt := kmsg.NewMetadataResponseTopic()
			rt.Topic, rt.ErrorCode = topics[0].Topic, kerr.UnknownTopicOrPartition.Code
			resp.Topics = append(resp.Topics, rt)
			return resp, nil, true
		})
		if _, err := c.Topic(t.Context(), "t"); err != nil || unknown.Load() <= 5 {
			t.Errorf("Got %v after %d answers", err, unknown.Load())
		}
	})
}
