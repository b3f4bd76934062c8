package hbasestore

// base is the cell of a counter that a batch builds on: of one source and partition.
type base struct {
	count
	at int64 // its timestamp: the offset after the last increment in it; 0 = the cell is absent
}

// baseCache keeps the cells of a partition's counters. Those that were not asked for
// since the last limit are dropped first. The zero value is empty.
type baseCache struct {
	young, old map[string]base
}

func (b *baseCache) get(key string) (base, bool) {
	v, ok := b.young[key]
	if !ok {
		if v, ok = b.old[key]; ok {
			b.put(key, v)
		}
	}
	return v, ok
}

func (b *baseCache) put(key string, v base) {
	if b.young == nil {
		b.young = map[string]base{}
	}
	b.young[key] = v
}

// limit bounds what is kept to n, but for what the batch before has touched.
func (b *baseCache) limit(n int) {
	if len(b.young)+len(b.old) > n {
		b.old, b.young = b.young, nil
	}
	if len(b.old) > n {
		b.old = nil
	}
}
