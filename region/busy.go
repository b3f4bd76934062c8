package region

import "cmp"

// Defaults of BusyPolicy, HBase's.
const (
	DefaultBusyShare  = 0.2
	DefaultBusyMinAge = 10 * 60_000
	DefaultBusyWindow = 5 * 60_000
)

// BusyPolicy says which regions BusyRegionSplitPolicy calls busy. HBase's counts,
// of a region's writes, those that a full memstore has blocked. Nothing here
// blocks the writes of one region, so what is counted is the region's share of
// its table's writes; under hotRate a second no region is busy.
type BusyPolicy struct {
	// Share is the share of the table's writes from which on a region is busy
	// (hbase.busy.policy.blockedRequests). 0 = DefaultBusyShare.
	Share float64
	// MinAge is the age in ms below which a region is not split for it
	// (hbase.busy.policy.minAge). 0 = DefaultBusyMinAge, negative = any.
	MinAge int64
	// Window is the time in ms over which writes are counted
	// (hbase.busy.policy.aggWindow). 0 = DefaultBusyWindow.
	Window int64
}

// BusyWatch finds the busy regions of one table by looking at its counts from time
// to time. The zero value has not looked yet. It is not safe for concurrent use.
type BusyWatch struct {
	looked bool
	since  int64            // ms since the Unix epoch
	writes map[string]int64 // in all, at since, by the region's name
}

// Look returns the indexes of the regions that are busy, ascending: writes[i] is
// what the region at infos[i] has taken since it came to be, now is in ms since the
// Unix epoch. It returns none before a window has passed since the last look that
// ended one.
func (w *BusyWatch) Look(p *BusyPolicy, infos []Info, writes []int64, now int64) (busy []int) {
	share := p.Share
	if share <= 0 {
		share = DefaultBusyShare
	}
	took := now - w.since
	if w.looked && took < cmp.Or(p.Window, DefaultBusyWindow) && took >= 0 {
		return nil
	}
	seen := make(map[string]int64, len(infos))
	taken := make([]int64, len(infos))
	var total int64
	for i := range infos {
		name := infos[i].Name()
		seen[name] = writes[i]
		if taken[i] = writes[i] - w.writes[name]; taken[i] < 0 {
			taken[i] = writes[i] // counted anew: the store was opened again
		}
		total += taken[i]
	}
	if w.looked && took > 0 {
		for i, n := range taken {
			if now-infos[i].ID >= cmp.Or(p.MinAge, DefaultBusyMinAge) &&
				float64(n) >= hotRate*float64(took)/1000 && float64(n) >= share*float64(total) {
				busy = append(busy, i)
			}
		}
	}
	w.looked, w.since, w.writes = true, now, seen
	return busy
}
