package pipeline

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/kafka"
	"sluice/store"
)

var skipCommand = regexp.MustCompile(`ingest offsets skip -c FILE --pipeline p --topic pages --partition 0 --from (\d+) --to (\d+) --reason (\w+) --yes`)

// paused waits until partition 0 is paused for records that cannot be read, and returns
// what the message says to do.
func (m *member) paused() SkipOptions {
	m.t.Helper()
	var found []string
	waitFor(m.t, func() bool {
		for _, p := range m.Status().Partitions {
			if p.Partition == 0 {
				found = skipCommand.FindStringSubmatch(p.Paused)
			}
		}
		return found != nil
	})
	from, _ := strconv.ParseInt(found[1], 10, 64)
	to, _ := strconv.ParseInt(found[2], 10, 64)
	reason, err := store.ParseSkipReason(found[3])
	if err != nil {
		m.t.Fatal(err)
	}
	return SkipOptions{Engine: m.opts.Engine, Pipeline: "p", Topic: "pages", From: from, To: to, Reason: reason}
}

// A batch that cannot be read pauses its partition. What is done then is what the message
// says, and nothing but the batch is lost: it is counted, and passed over by whoever reads
// the log again.
func TestCorruptBatchIsSkipped(t *testing.T) {
	t.Parallel()
	for name, engine := range map[string]func(testing.TB) store.Engine{"mem": newEngine, "pebble": newSplit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, e := newCluster(t, map[string]int{"pages": 2}), engine(t)
			plain := c.client.NewProducer(&kafka.ProducerOptions{Compression: kafka.None})
			t.Cleanup(func() { plain.Close() })
			w := new(wire)
			w.setSpoil("/spoiled")
			spoilt := func(n int) {
				t.Helper()
				messages := make([]kafka.Message, n)
				for i := range messages {
					messages[i].Value = fmt.Appendf(nil, `{"page": "/spoiled", "user": "u%d"}`, i)
				}
				if err := plain.Produce(t.Context(), "pages", messages...); err != nil {
					t.Fatal(err)
				}
			}
			slow := func(o *Options) { o.SessionTimeout = 30 * time.Second }
			c.produce("pages", 100)
			before := c.ends("pages")
			spoilt(3)
			c.produce("pages", 100)
			m := c.run(e, c.through(w), slow)
			o := m.paused()
			if want := (SkipOptions{Engine: e, Pipeline: "p", Topic: "pages", From: before[0], To: before[0] + 3, Reason: store.SkippedCorrupt}); o != want {
				t.Fatalf("Got %+v, want %+v", o, want)
			}
			m.wait(map[int32]int64{0: before[0], 1: c.ends("pages")[1]})
			o.Client = c.client
			for _, tc := range []struct {
				from, to int64
				reason   store.SkipReason
				want     error
			}{
				{o.From - 1, o.To, o.Reason, store.ErrStale},
				{o.From + 1, o.To, o.Reason, store.ErrStale},
				{o.From, o.From, o.Reason, store.ErrInvalidArgument},
				{o.From, 1_000, o.Reason, store.ErrInvalidArgument},
				{o.From, o.To, 0, store.ErrInvalidArgument},
			} {
				bad := o
				bad.From, bad.To, bad.Reason = tc.from, tc.to, tc.reason
				if _, err := SkipOffsets(t.Context(), &bad); !errors.Is(err, tc.want) {
					t.Errorf("Got %v of %d to %d, want %v", err, tc.from, tc.to, tc.want)
				}
			}
			dry := o
			dry.DryRun = true
			if p, err := SkipOffsets(t.Context(), &dry); err != nil || p.Next != o.To || m.Status().Partitions[0].Progress.Next != o.From {
				t.Errorf("Got %+v, %v, want what would be stored", p, err)
			}
			if _, err := SkipOffsets(t.Context(), &o); err != nil {
				t.Fatal(err)
			}
			m.wait(c.ends("pages"))
			// Now it is the end of the log: whoever opens the partition compares the record before.
			spoilt(2)
			o2 := m.paused()
			o2.Client = c.client
			m.close()
			if _, err := SkipOffsets(t.Context(), &o2); err != nil {
				t.Fatal(err)
			}
			m = c.run(e, c.through(w), slow)
			c.produce("pages", 50)
			m.wait(c.ends("pages"))
			m.close()

			got := readContents(t, e)
			if d := cmp.Diff(c.pages, got.Counts); d != "" {
				t.Errorf("Got other counts (-want +got):\n%s", d)
			}
			if p := got.Progress; p.Applied != c.total-c.bad || p.Dead != c.bad || p.Lost != 5 || p.Next != c.total+5 {
				t.Errorf("Got %+v, want %d applied, %d dead and 5 lost", p, c.total-c.bad, c.bad)
			}
			var spoiling Options
			c.through(w)(&spoiling)
			for _, client := range []*kafka.Client{c.client, spoiling.Client} {
				audits, err := RunAudit(t.Context(), &AuditOptions{Store: e, Client: client, Deep: true})
				if err != nil {
					t.Fatal(err)
				}
				if g := audits[0].Progress; g.Skipped != 5 || g.Skips.String() != fmt.Sprintf("%d-%d corrupt, %d-%d corrupt", o.From, o.To-1, o2.From, o2.To-1) {
					t.Errorf("Got %d offsets given up: %s", g.Skipped, g.Skips)
				}
				for _, a := range audits {
					if len(a.Problems) > 0 || a.Partition == 0 && !strings.Contains(strings.Join(a.Notes, "\n"), "given up: ") {
						t.Errorf("Got problems %q, notes %q in the audit of %+v", a.Problems, a.Notes, a.Progress)
					}
				}
			}
		})
	}
}
