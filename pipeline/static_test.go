package pipeline

import (
	"strings"
	"testing"
	"time"

	"sluice/pipeline/kafka"
)

func static(partitions ...int32) testOption {
	return func(o *Options) {
		o.Static, o.Group, o.PartitionWatch = true, "g", 50*time.Millisecond
		if len(partitions) > 0 {
			o.Partitions = partitions
		}
	}
}

// Two replicas, each with a store of its own and all partitions, in no group: each
// has everything, once, over a restart as well.
func TestStaticReplicas(t *testing.T) {
	t.Parallel()
	c, one, two := newCluster(t, map[string]int{"pages": 3}), newPebble(t), newEngine(t)
	c.produce("pages", 1000)
	a := c.run(one, static())
	b := c.run(two, static())
	a.wait(c.ends("pages"))
	a.close()
	c.produce("pages", 500)
	a = c.run(one, static())
	for _, m := range []*member{a, b} {
		m.wait(c.ends("pages"))
		m.close()
	}
	c.check(one)
	c.check(two)
	// The offsets are in Kafka for lag tools.
	got, err := c.client.CommittedOffsets(t.Context(), "g", "pages", []int32{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	for n, end := range c.ends("pages") {
		if got[n] != end {
			t.Errorf("Got offset %d of partition %d shown, want %d", got[n], n, end)
		}
	}
}

// Fixed places on one store, two of which overlap: the compare-and-set decides.
func TestStaticPartitionsOfOneStore(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 3}), newPebble(t)
	var members []*member
	for _, partitions := range [][]int32{{0}, {1, 2}, {2, 0}} {
		members = append(members, c.run(e, static(partitions...)))
	}
	for range 5 {
		c.produce("pages", 300)
	}
	waitFor(t, func() bool { return readProgress(t, e) == c.total })
	for _, m := range members {
		m.close()
	}
	c.check(e)
}

func TestStaticOptions(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 2}), newEngine(t)
	o := Options{Name: "p", Topics: []string{"pages"}, Client: c.client, Plan: testPlan(t, e), Engine: e, Partitions: []int32{0}}
	if _, err := New(&o); err == nil || !strings.Contains(err.Error(), "a group assigns them") {
		t.Errorf("Got %v for partitions of a group", err)
	}
	m := c.run(e, static(0, 7))
	err := <-m.done
	m.done <- nil
	if err == nil || !strings.Contains(err.Error(), kafka.ErrTopicNotFound.Error()+": pages has no partition 7: it has 2, numbered from 0") {
		t.Errorf("Got %v for a partition that is not there", err)
	}
}
