package kafka

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"
)

// A broker that has just started, or that lags behind the controller, does not know yet of a
// topic that is there, or of its new partitions. Up to othersAsked other brokers are asked,
// for othersWithin, before anybody hears that they are not there.
const (
	othersAsked  = 3
	othersWithin = 2 * time.Second
)

// find is topicsOnce of topics that ought to be there, with parts of each: of what one
// broker does not know it has what another one tells.
func (c *Client) find(ctx context.Context, parts []int32, names ...string) (told, error) {
	got, err := c.topicsOnce(ctx, names...)
	if err != nil {
		return told{}, err
	}
	var missing []string
	for _, name := range names {
		if !got.knows(name, parts) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 || len(got.brokers) < 2 {
		return got, nil
	}
	got.metas, got.errs = maps.Clone(got.metas), maps.Clone(got.errs) // others have the answer, too
	for _, other := range c.tellOthers(ctx, got.brokers, missing) {
		for _, name := range missing {
			if m := other.metas[name]; m != nil && !got.knows(name, parts) && other.knows(name, parts) {
				got.metas[name] = m
				delete(got.errs, name)
			}
		}
	}
	return got, nil
}

// knows reports whether a broker knows the topic and these of its partitions, or says
// something else of it than that it does not.
func (t *told) knows(name string, parts []int32) bool {
	if t.errs[name] == codeUnknownTopicOrPartition {
		return false
	}
	if m := t.metas[name]; m != nil {
		for _, p := range parts {
			if _, ok := m.leaders[p]; !ok {
				return false
			}
		}
	}
	return true
}

// tellOthers returns what some of brokers tell of the topics, of those that do.
func (c *Client) tellOthers(ctx context.Context, brokers []int32, names []string) []told {
	ctx, cancel := context.WithTimeout(ctx, othersWithin)
	defer cancel()
	var mu sync.Mutex
	var all []told
	var wg sync.WaitGroup
	for i, n := range rand.Perm(len(brokers)) {
		if i == othersAsked {
			break
		}
		wg.Go(func() {
			if got, err := c.metadata(ctx, brokers[n], names); err == nil {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, got)
			}
		})
	}
	wg.Wait()
	return all
}
