package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"

	"sluice/cell"
	"sluice/cmd/internal/cli"
	"sluice/counters/query"
	"sluice/store"
)

// report prints what a demo's counters say: the most viewed pages, the views by
// hour, and the audit equation of every partition.
func report(ctx context.Context, w io.Writer, r store.Reader, table string) error {
	if err := reportTop(ctx, w, r, table); err != nil {
		return err
	}
	if err := reportHours(ctx, w, r, table); err != nil {
		return err
	}
	return reportAudit(ctx, w, r)
}

func reportTop(ctx context.Context, w io.Writer, r store.Reader, table string) error {
	top, err := query.Top(ctx, r, table, cell.Range{}, "day", query.Buckets{}, 10)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "\nMost viewed")
	for _, t := range top {
		fmt.Fprintf(w, "  %12s  %s\n", cli.Count(t.Count), t.Row)
	}
	return nil
}

// hours is views by hour bucket, "2006010215".
func hours(ctx context.Context, r store.Reader, table string) (map[string]int64, error) {
	sc := r.Scan(ctx, &store.Scan{Table: table, Columns: []store.Column{{Family: "hour", All: true}}})
	defer sc.Close()
	sums := map[string]int64{}
	for sc.Next() {
		for i := range sc.Row().Cells {
			c := &sc.Row().Cells[i]
			if len(c.Value) != 8 {
				return nil, fmt.Errorf("table %s, row %q: %w", table, sc.Row().Key, store.ErrNotANumber)
			}
			sums[string(c.Qualifier)] += int64(binary.BigEndian.Uint64(c.Value))
		}
	}
	return sums, sc.Err()
}

func reportHours(ctx context.Context, w io.Writer, r store.Reader, table string) error {
	sums, err := hours(ctx, r, table)
	if err != nil || len(sums) == 0 {
		return err
	}
	title := "Views by hour"
	if len(sums) > 24 {
		// Several days: one bar an hour of the day says more than a long list.
		byHour := map[string]int64{}
		for bucket, n := range sums {
			byHour[bucket[max(0, len(bucket)-2):]] += n
		}
		title, sums = fmt.Sprintf("Views by hour of the day (UTC), %d hours of data", len(sums)), byHour
	}
	var buckets []string
	var most int64
	for b, n := range sums {
		buckets = append(buckets, b)
		most = max(most, n)
	}
	sort.Strings(buckets)
	fmt.Fprintf(w, "\n%s\n", title)
	for _, b := range buckets {
		label := b + ":00"
		if t, err := time.Parse("2006010215", b); err == nil {
			label = t.Format("Mon 02 Jan 15:04")
		}
		fmt.Fprintf(w, "  %s  %-40s %s\n", label, strings.Repeat("█", int((sums[b]*40+most-1)/max(most, 1))), cli.Count(sums[b]))
	}
	return nil
}

func reportAudit(ctx context.Context, w io.Writer, r store.Reader) error {
	all, err := store.AllProgress(ctx, r)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "\nAudit: records in range = applied + filtered + duplicate + unmet + dead-lettered + dropped + control + lost")
	var sum store.Progress
	line := func(name string, p *store.Progress, inRange int64) {
		verdict := "ok"
		if inRange != p.Applied+p.Filtered+p.Duplicate+p.Unmet+p.Dead+p.Dropped+p.Control+p.Lost {
			verdict = "BROKEN"
		}
		fmt.Fprintf(w, "  %-16s %12s = %s + %s + %s + %s + %s + %s + %s + %s  %s\n", name, cli.Count(inRange),
			cli.Count(p.Applied), cli.Count(p.Filtered), cli.Count(p.Duplicate), cli.Count(p.Unmet), cli.Count(p.Dead), cli.Count(p.Dropped), cli.Count(p.Control), cli.Count(p.Lost), verdict)
	}
	var inRange int64
	for i := range all {
		p := &all[i].Progress
		line(fmt.Sprintf("%s/%d", all[i].Source.Topic, all[i].Partition), p, p.Next-p.First)
		inRange += p.Next - p.First
		sum.Applied += p.Applied
		sum.Filtered += p.Filtered
		sum.Dead += p.Dead
		sum.Duplicate += p.Duplicate
		sum.Unmet += p.Unmet
		sum.Dropped += p.Dropped
		sum.Control += p.Control
		sum.Lost += p.Lost
	}
	line("all", &sum, inRange)
	return nil
}
