package store_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
	"sluice/store/memstore"
)

// tended is a store with one table of 40 rows of a MiB or so, in files.
func tended(t *testing.T, attributes map[string]string, splits ...string) (*memstore.Store, *store.RegionTender, *bytes.Buffer) {
	t.Helper()
	const now = 1_000_000_000_000
	s, err := memstore.New(&memstore.Options{Now: func() cell.Timestamp { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	for name, value := range attributes {
		if err := d.SetAttribute(name, value); err != nil {
			t.Fatal(err)
		}
	}
	var keys [][]byte
	for _, k := range splits {
		keys = append(keys, []byte(k))
	}
	if err := s.CreateTable(t.Context(), d, keys); err != nil {
		t.Fatal(err)
	}
	value := make([]byte, 256<<10)
	for i := range 40 {
		m := &cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "r%02d", i)}
		m.Put("f", []byte("q"), cell.Latest, value)
		if _, err := s.MutateRow(t.Context(), nil, m); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	o := &store.RegionTenderOptions{Now: func() int64 { return now + 4*24*3600*1000 }, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	return s, store.NewRegionTender(s, o), &log
}

func splitsOf(t *testing.T, s store.Engine) []string {
	t.Helper()
	m, err := s.Regions(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{}
	for _, k := range m.Splits() {
		keys = append(keys, string(k))
	}
	return keys
}

func TestRegionTenderSplits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		attributes map[string]string
		want       [][]string // splits after each pass
	}{
		{"small", nil, [][]string{{}}},
		{"stepping", map[string]string{"MEMSTORE_FLUSHSIZE": "1048576"}, [][]string{{"r20"}, {"r20"}}},
		{"constant", map[string]string{"SPLIT_POLICY": "ConstantSizeRegionSplitPolicy", "MAX_FILESIZE": "3000000"}, [][]string{{"r20"}, {"r10", "r20", "r30"}, {"r10", "r20", "r30"}}},
		{"increasing", map[string]string{"SPLIT_POLICY": "IncreasingToUpperBoundRegionSplitPolicy", "MEMSTORE_FLUSHSIZE": "1048576"}, [][]string{{"r20"}, {"r20"}}},
		{"disabled policy", map[string]string{"SPLIT_POLICY": "DisabledRegionSplitPolicy", "MEMSTORE_FLUSHSIZE": "1048576"}, [][]string{{}}},
		{"not enabled", map[string]string{"SPLIT_ENABLED": "false", "MEMSTORE_FLUSHSIZE": "1048576"}, [][]string{{}}},
	} {
		s, tender, _ := tended(t, c.attributes)
		for pass, want := range c.want {
			if _, err := tender.Tend(t.Context()); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if d := cmp.Diff(want, splitsOf(t, s)); d != "" {
				t.Errorf("%s: splits after pass %d (-want +got)\n%s", c.name, pass, d)
			}
		}
	}
}

// TestRegionTenderSplitsBusyRegions: BusyRegionSplitPolicy splits for what is
// written in a window, and for nothing that was written before or in another
// policy's table.
func TestRegionTenderSplitsBusyRegions(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string][]string{"BusyRegionSplitPolicy": {"r30"}, "IncreasingToUpperBoundRegionSplitPolicy": {}} {
		s, _, log := tended(t, map[string]string{"SPLIT_POLICY": policy})
		table, err := store.OpenTable(t.Context(), s, "t")
		if err != nil {
			t.Fatal(err)
		}
		d, err := table.Descriptor(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		d = d.Clone()
		for name, value := range map[string]string{store.MetaBusyWindow: "1000", store.MetaBusyMinAge: "0"} {
			if err := d.SetMetadata(name, value); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.AlterTable(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if err := s.SplitRegion(t.Context(), "t", []byte("r20")); err != nil {
			t.Fatal(err)
		}
		now := int64(2_000_000_000_000)
		tender := store.NewRegionTender(s, &store.RegionTenderOptions{Now: func() int64 { return now }, Logger: slog.New(slog.NewTextHandler(log, nil))})
		tend := func(want ...string) {
			t.Helper()
			if _, err := tender.Tend(t.Context()); err != nil {
				t.Error(err)
			}
			if d := cmp.Diff(append([]string{}, want...), splitsOf(t, s)); d != "" {
				t.Errorf("%s: splits (-want +got)\n%s", policy, d)
			}
		}
		write := func(n int) {
			t.Helper()
			for range n {
				if err := table.Put(t.Context(), []byte("r25"), "f", []byte("n"), nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		write(150)
		tend("r20")
		now += 1000
		tend("r20")
		write(150)
		now += 999
		tend("r20")
		now++
		tend(append([]string{"r20"}, want...)...)
		if got := strings.Contains(log.String(), "busier than BusyRegionSplitPolicy allows"); got != (len(want) > 0) {
			t.Errorf("%s: log %s", policy, log)
		}
	}
}

func TestRegionTenderNormalizes(t *testing.T) {
	t.Parallel()
	uneven := []string{"r01", "r02", "r03", "r20"} // 1, 1, 1, 17 and 20 rows: 8 on average
	for _, c := range []struct {
		name       string
		attributes map[string]string
		want       []string
		done       store.Tended
	}{
		{"off", nil, uneven, store.Tended{}},
		{"on", map[string]string{"NORMALIZATION_ENABLED": "true"}, []string{"r03", "r12", "r20", "r30"}, store.Tended{Splits: 2, Merges: 1}},
		{"no merges", map[string]string{"NORMALIZATION_ENABLED": "true", "MERGE_ENABLED": "false"}, []string{"r01", "r02", "r03", "r12", "r20", "r30"}, store.Tended{Splits: 2}},
		{"no splits", map[string]string{"NORMALIZATION_ENABLED": "true", "SPLIT_ENABLED": "false"}, []string{"r03", "r20"}, store.Tended{Merges: 1}},
	} {
		s, tender, log := tended(t, c.attributes, uneven...)
		done, err := tender.Tend(t.Context())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if d := cmp.Diff(c.done, done); d != "" {
			t.Errorf("%s: done (-want +got)\n%s", c.name, d)
		}
		if d := cmp.Diff(c.want, splitsOf(t, s)); d != "" {
			t.Errorf("%s: splits (-want +got)\n%s", c.name, d)
		}
		if got := strings.Count(log.String(), "\n"); got != done.Splits+done.Merges {
			t.Errorf("%s: %d lines for %+v:\n%s", c.name, got, done, log)
		}
	}
}

func TestRegionTenderWarnsOnce(t *testing.T) {
	t.Parallel()
	s, tender, log := tended(t, nil, "r20")
	table, err := store.OpenTable(t.Context(), s, "t")
	if err != nil {
		t.Fatal(err)
	}
	for range 500 {
		if _, err := table.Get(t.Context(), []byte("r01"), nil); err != nil {
			t.Fatal(err)
		}
	}
	for pass := range 2 {
		done, err := tender.Tend(t.Context())
		if err != nil || len(done.Hot) != 1 || len(done.Hot[0].Start) != 0 {
			t.Errorf("pass %d: hot %v, %v; want the first region", pass, done.Hot, err)
		}
	}
	if n := strings.Count(log.String(), "far more requests"); n != 1 {
		t.Errorf("%d warnings of one hot region:\n%s", n, log)
	}
}

func TestRegionTenderSkipsDisabledTables(t *testing.T) {
	t.Parallel()
	s, tender, log := tended(t, map[string]string{"MEMSTORE_FLUSHSIZE": "1048576"})
	if err := s.DisableTable(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if done, err := tender.Tend(t.Context()); err != nil || done.Splits != 0 || log.Len() != 0 {
		t.Errorf("Got %+v, %v; want nothing done and nothing said: %s", done, err, log)
	}
}

func TestRegionTenderRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := tended(t, map[string]string{"MEMSTORE_FLUSHSIZE": "1048576"})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- store.NewRegionTender(s, nil).Run(ctx) }()
		time.Sleep(store.DefaultTendInterval - time.Second)
		synctest.Wait()
		if got := splitsOf(t, s); len(got) != 0 {
			t.Errorf("split before the first interval: %v", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if d := cmp.Diff([]string{"r20"}, splitsOf(t, s)); d != "" {
			t.Errorf("splits after the first interval (-want +got)\n%s", d)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
