package config

import "time"

const (
	// minWait is what the protocol's and the brokers' whole milliseconds can say: below it a
	// broker would hold no fetch at all, and be asked thousands of times a second.
	minWait = time.Millisecond
	// maxFetchWait is half of the time after which brokers close connections that are idle
	// (connections.max.idle.ms), such as one whose answer is waited for.
	maxFetchWait = 5 * time.Minute
	// maxWait of all else. The protocol has 24 days.
	maxWait = 24 * time.Hour

	// minLook is what a look at every table may take: with less the store would do nothing else.
	minLook = time.Second

	// The embedded engine takes no commit into a memtable that is smaller, and none is larger
	// than the other.
	minMemTable = 1 << 20
	maxMemTable = 2 << 30
)

// lintBounds reports numbers beyond what they are of use for. The options behind them take 0
// for their default, which whoever wrote it did not mean.
func (c *Config) lintBounds(report reporter) {
	wait := func(path, key string, v, high time.Duration) {
		if v < minWait || v > high {
			report(path, "", "%s is %v, must be %v..%v", key, v, minWait, high)
		}
	}
	k := &c.Kafka
	wait("kafka.dial_timeout", "dial_timeout", k.DialTimeout, maxWait)
	wait("kafka.request_timeout", "request_timeout", k.RequestTimeout, maxWait)
	wait("kafka.session_timeout", "session_timeout", k.SessionTimeout, maxWait)
	wait("kafka.heartbeat_interval", "heartbeat_interval", k.HeartbeatInterval, maxWait)
	wait("kafka.rebalance_timeout", "rebalance_timeout", k.RebalanceTimeout, maxWait)
	for _, name := range c.PipelineNames() {
		p, path := c.Pipelines[name], join("pipelines", name)
		wait(join(path, "fetch.max_wait"), "fetch.max_wait", p.Fetch.MaxWait, maxFetchWait)
		wait(join(path, "flush.age"), "flush.age", p.Flush.Age, maxWait)
	}
	s := &c.Store
	if s.Cache <= 0 {
		report("store.cache", "", "cache must be more than 0")
	}
	if s.CounterCache < 1 {
		report("store.counter_cache", "", "counter_cache must be more than 0")
	}
	for _, look := range []struct {
		key   string
		every time.Duration
	}{{"rewrite_interval", s.RewriteInterval}, {"region_interval", s.RegionInterval}} {
		if look.every > 0 && look.every < minLook {
			report("store."+look.key, "", "%s is %v, must be %v or more, or 0 for never", look.key, look.every, minLook)
		}
	}
	if s.RewriteRate < 0 {
		report("store.rewrite_rate", "", "rewrite_rate is %d, must be 0 or more", s.RewriteRate)
	}
	if s.MemTable < minMemTable || s.MemTable > maxMemTable {
		report("store.mem_table", "", "mem_table is %v, must be %v to %v", s.MemTable, Size(minMemTable), Size(maxMemTable))
	}
}
