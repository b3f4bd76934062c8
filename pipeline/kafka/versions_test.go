package kafka

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// oldBrokers makes those nodes of the cluster that old names be of Kafka 3.0, which has no
// fetch by topic id, and ends the connection at a request of a version that it does not know.
func oldBrokers(cluster *kfake.Cluster, old func(node int32) bool) {
	released := kversion.V3_0_0()
	cluster.Control(func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if !old(cluster.CurrentNode()) {
			return nil, nil, false
		}
		if most, ok := released.LookupMaxKeyVersion(kreq.Key()); !ok || kreq.GetVersion() > most {
			return nil, errors.New("no such version"), true
		}
		if kreq.Key() != int16(kmsg.ApiVersions) {
			return nil, nil, false
		}
		resp := kreq.ResponseKind().(*kmsg.ApiVersionsResponse)
		released.EachMaxKeyVersion(func(key, version int16) {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MaxVersion = key, version
			resp.ApiKeys = append(resp.ApiKeys, k)
		})
		return resp, nil, true
	})
}

// Brokers are upgraded, and set back to an older version, one after another, while
// everybody goes on: each is asked what it takes.
func TestBrokersOfSeveralVersions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, c := startCluster(t, kfake.SeedTopics(3, "t"))
		var old [3]atomic.Bool
		oldBrokers(cluster, func(node int32) bool { return old[node].Load() })
		read := make([]*PartitionReader, 3)
		f := startFetcher(t, c, nil)
		next := 0
		all := func(what string) {
			t.Helper()
			for p := range read {
				msgs := numbered(next, next+1)
				for i := range msgs {
					msgs[i].Partition = int32(p)
				}
				produce(t, c, "t", msgs...)
				if read[p] == nil {
					read[p] = f.Add("t", int32(p), 0)
				}
				if got := readTo(t, read[p], int64(next+1)); !slices.Equal(got, values(next, next+1)) {
					t.Errorf("%s: Got %v", what, got)
				}
			}
			next++
		}
		old[1].Store(true)
		all("one is old")
		old[0].Store(true)
		old[2].Store(true)
		all("all are old")
		old[2].Store(false)
		all("one is new")
	})
}

// Brokers that fetch by topic id may know none: those of Kafka 3.1 and later that work as of
// a version before 2.8 (inter.broker.protocol.version), as amid an upgrade.
func TestFetchWithoutTopicIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, o := startBroker(t)
		cluster.ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			resp := kreq.ResponseKind().(*kmsg.MetadataResponse)
			b := kmsg.NewMetadataResponseBroker()
			b.Host, b.Port = "127.0.0.1", 1
			resp.Brokers = append(resp.Brokers, b)
			m := kmsg.NewMetadataResponseTopic()
			m.Topic = kmsg.StringPtr("t")
			m.Partitions = append(m.Partitions, kmsg.NewMetadataResponseTopicPartition())
			resp.Topics = append(resp.Topics, m)
			return resp, nil, true
		})
		c := newTestClient(t, o)
		produce(t, c, "t", numbered(0, 1)...)
		r := startFetcher(t, c, nil).Add("t", 0, 0)
		if got := readTo(t, r, 1); !slices.Equal(got, values(0, 1)) {
			t.Errorf("Got %v", got)
		}
	})
}

// Metadata that lack the id of a topic for a while, as those of a broker that was set back to a
// version before 2.8, do not say that it is another topic.
func TestVanishedTopicIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
		var without atomic.Bool
		cluster.ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			if !without.Load() || kreq.GetVersion() < 10 { // kafka-go's own are not looked at
				return nil, nil, false
			}
			resp := kreq.ResponseKind().(*kmsg.MetadataResponse)
			m := kmsg.NewMetadataResponseTopic()
			m.Topic = kmsg.StringPtr("t")
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Leader, p.LeaderEpoch = cluster.LeaderFor("t", 0), 100
			m.Partitions = append(m.Partitions, p)
			resp.Topics = append(resp.Topics, m)
			return resp, nil, true
		})
		produce(t, c, "t", numbered(0, 1)...)
		r := startFetcher(t, c, nil).Add("t", 0, 0)
		readTo(t, r, 1)

		without.Store(true)
		time.Sleep(metadataInterval + time.Second)
		without.Store(false)
		produce(t, c, "t", numbered(1, 2)...)
		if got := readTo(t, r, 2); !slices.Equal(got, values(1, 2)) {
			t.Errorf("Got %v", got)
		}

		without.Store(true)
		_, err := r.Next(testContext(t))
		if err == nil || !strings.Contains(err.Error(), "no topic id") || errors.Is(err, ErrTopicChanged) {
			t.Errorf("Got %v where ids do not come back, want that none is told", err)
		}
		without.Store(false)
		produce(t, c, "t", numbered(2, 3)...)
		r.SeekTo(2)
		if got := readTo(t, r, 3); !slices.Equal(got, values(2, 3)) {
			t.Errorf("Got %v", got)
		}
	})
}

// apis is the answer of a broker that takes the named requests up to a version.
func apis(kreq kmsg.Request, takes map[kmsg.Key][2]int16) kmsg.Response {
	resp := kreq.ResponseKind().(*kmsg.ApiVersionsResponse)
	for key, v := range takes {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = int16(key), v[0], v[1]
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	return resp
}

// Brokers that no longer take the metadata they took when they were asked first are asked again.
func TestMetadataOfNewerBrokers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
		var newer atomic.Bool
		cluster.Control(func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			switch key := kmsg.Key(kreq.Key()); {
			case newer.Load() && key == kmsg.Metadata && kreq.GetVersion() == 10:
				return nil, errors.New("no such version"), true
			case newer.Load() && key == kmsg.ApiVersions:
				return apis(kreq, map[kmsg.Key][2]int16{
					kmsg.ApiVersions: {0, 0}, kmsg.Metadata: {11, 12}, kmsg.Fetch: {4, 13}, kmsg.ListOffsets: {0, 6}, kmsg.CreateTopics: {0, 5},
				}), nil, true
			}
			return nil, nil, false
		})
		if _, err := c.Topic(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		newer.Store(true)
		if _, err := c.Topic(t.Context(), "t"); err != nil {
			t.Error(err)
		}
		newer.Store(false)
		if err := c.CreateTopic(t.Context(), "a", 1); err != nil {
			t.Fatal(err)
		}
		newer.Store(true)
		if err := c.CreateTopic(t.Context(), "b", 1); err != nil {
			t.Error(err)
		}
	})
}

// A broker that is too old is named, where it became so amid a run, too.
func TestTooOldNamesTheBroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, o := startBroker(t)
		log := new(logs)
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		var old atomic.Bool
		cluster.Control(func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			switch key := kmsg.Key(kreq.Key()); {
			case old.Load() && key == kmsg.Fetch:
				return nil, errors.New("restart"), true
			case old.Load() && key == kmsg.ApiVersions:
				return apis(kreq, map[kmsg.Key][2]int16{kmsg.ApiVersions: {0, 0}, kmsg.Metadata: {0, 12}, kmsg.ListOffsets: {0, 6}}), nil, true
			}
			return nil, nil, false
		})
		c := newTestClient(t, o)
		produce(t, c, "t", numbered(0, 1)...)
		r := startFetcher(t, c, nil).Add("t", 0, 0)
		readTo(t, r, 1)
		old.Store(true)
		_, err := r.Next(testContext(t))
		if !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), "broker 0") {
			t.Errorf("Got %v, want ErrTooOld and which broker", err)
		}
		if !strings.Contains(log.String(), "too old") {
			t.Errorf("Got the log\n%s\nwithout what ends the reader", log)
		}
	})
}

// Brokers that have given up every version of a request that is known here are not too old.
func TestTooNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
		cluster.ControlKey(int16(kmsg.ApiVersions), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			return apis(kreq, map[kmsg.Key][2]int16{kmsg.ApiVersions: {0, 4}, kmsg.Metadata: {10, 13}, kmsg.Fetch: {14, 18}}), nil, true
		})
		_, err := c.Topic(t.Context(), "t")
		if !errors.Is(err, ErrTooNew) || errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), "Fetch from version 14 on, and 13 is the last") {
			t.Errorf("Got %v, want ErrTooNew and why", err)
		}
	})
}
