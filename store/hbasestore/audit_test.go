package hbasestore

import (
	"slices"
	"strings"
	"testing"

	"sluice/jobs/instant"
	"sluice/pipeline"
	"sluice/pipeline/buffer"
	"sluice/store"
)

// letterBatch puts dead letters at offsets of partition 0 of views, and advances it.
func letterBatch(t *testing.T, from, next, dead int64, offsets ...int64) *store.Batch {
	t.Helper()
	var b store.Batch
	for _, o := range offsets {
		d := buffer.DeadLetter{Pipeline: views.Pipeline, Topic: views.Topic, TopicID: views.TopicID, Offset: o, Time: 1000 + o, Value: []byte("x"), Stage: "map", Class: "bad"}
		m, err := d.Mutation()
		if err != nil {
			t.Fatal(err)
		}
		b.Add(o, m)
	}
	b.Advance(views, 0, from, store.Progress{Next: next, Applied: next - dead, Dead: dead, LastOffset: next - 1, LeaderEpoch: -1, MappingVersion: "m1"})
	return &b
}

// TestAuditAmidBatch: dead letters of a batch that was begun, and that a daemon is amid of or
// was killed in, are no mistake of the outbox; others behind the stored offset are.
func TestAuditAmidBatch(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	ctx := t.Context()
	// audit returns the problems and notes, with before done once the offsets were read.
	audit := func(before func()) pipeline.Audit {
		t.Helper()
		u, err := instant.OpenUnfrozen(ctx, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		scans := 0
		g.inject(func(method string) fault {
			if method == "openScanner" {
				// Of the offsets twice, the first time by the source; of what is counted of
				// redriven letters; of the letters.
				if scans++; scans == 3 && before != nil {
					done := make(chan struct{})
					go func() {
						defer close(done)
						before()
					}()
					return fault{until: done}
				}
			}
			return fault{}
		})
		all, err := pipeline.RunAudit(ctx, &pipeline.AuditOptions{Store: u, Begun: u})
		g.inject(nil)
		if err != nil || len(all) != 1 {
			t.Fatalf("Got %+v, %v, want one partition", all, err)
		}
		return all[0]
	}
	if err := s.Apply(ctx, letterBatch(t, store.Absent, 10, 2, 3, 7)); err != nil {
		t.Fatal(err)
	}
	if a := audit(nil); len(a.Problems)+len(a.Notes) > 0 || a.Letters != 2 {
		t.Errorf("Got %+v, want 2 letters and nothing else", a)
	}

	// Killed before the end of the batch: all of it is written but the offset.
	puts := 0
	g.inject(func(method string) fault {
		if method != "checkAndMutate" {
			return fault{}
		}
		if puts++; puts == 1 { // the claim
			return fault{}
		}
		return fault{text: "org.apache.hadoop.hbase.DoNotRetryIOException: killed"}
	})
	if err := s.Apply(ctx, letterBatch(t, 10, 20, 4, 12, 17)); err == nil {
		t.Fatal("Got no error, want the one of the last call")
	}
	if a := audit(nil); len(a.Problems) > 0 || a.Letters != 2 || len(a.Notes) != 1 || !strings.HasPrefix(a.Notes[0], "2 dead letters from offset 12 on") {
		t.Errorf("Got %+v, want 2 letters and a note of 2 others", a)
	}
	g.inject(nil)
	if err := s.Apply(ctx, letterBatch(t, 10, 20, 4, 12, 17)); err != nil {
		t.Fatal(err)
	}

	// A daemon goes on between the reading of the offsets and of the outbox.
	a := audit(func() {
		other := dial(t, nil, g)
		if err := other.Apply(ctx, letterBatch(t, 20, 30, 5, 25)); err != nil {
			t.Error(err)
		}
	})
	if len(a.Problems) > 0 || a.Letters != 4 || a.Progress.Next != 20 || len(a.Notes) != 1 {
		t.Errorf("Got %+v, want the 4 letters of before and a note of another", a)
	}
	if a := audit(nil); len(a.Problems)+len(a.Notes) > 0 || a.Letters != 5 {
		t.Errorf("Got %+v, want 5 letters and nothing else", a)
	}

	// One that is behind all that was begun does not belong there.
	stray := letterBatch(t, 30, 40, 6, 35)
	if _, err := s.MutateRow(ctx, nil, &stray.Unpacked().Mutations[0].Mutation); err != nil {
		t.Fatal(err)
	}
	a = audit(nil)
	if len(a.Problems) != 2 || !slices.ContainsFunc(a.Problems, func(p string) bool { return strings.Contains(p, "1 dead letters are outside") }) {
		t.Errorf("Got %q, want a letter that is outside", a.Problems)
	}
}
