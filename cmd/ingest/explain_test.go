package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/examples"
)

// The newest offsets of a topic that is written in transactions are markers, and records
// of those that were aborted: the sample is of the records before them.
func TestExplainPassesMarkers(t *testing.T) {
	t.Parallel()
	broker := startBroker(t, map[string]int{"pageviews": 3})
	p, out, config := program(t, examples.Pageviews, broker.Addr())
	explain := func(sample int) string {
		t.Helper()
		out.Reset()
		if err := (&explainCommand{ConfigFlag: config, Sample: sample}).Run(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.TransactionalID("views"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("pageviews"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	write := func(partition int32, records int, end kgo.TransactionEndTry) {
		t.Helper()
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for i := range records {
			r := &kgo.Record{Partition: partition, Value: fmt.Appendf(nil, `{"ts": 1700000000000, "user": "u%d", "page": "/a"}`, i)}
			if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	write(2, 20, kgo.TryAbort)
	if got, want := explain(3), "no record is among the newest offsets of the topics"; !strings.HasPrefix(got, want) {
		t.Errorf("nothing but an aborted transaction: got %q, want %q", got, want)
	}
	write(0, 2, kgo.TryCommit) // records 0 and 1, marker 2
	write(1, 2, kgo.TryCommit)
	write(1, 40, kgo.TryAbort)
	got := explain(3)
	if strings.Count(got, "pageviews/") != 2 || !strings.Contains(got, "pageviews/0@1: 5 operations\n") || !strings.Contains(got, "pageviews/1@1: 5 operations\n") {
		t.Errorf("got\n%s\nwant pageviews/0@1 and pageviews/1@1", got)
	}
}

// A file with more lines than the sample is not passed off as one of so many.
func TestExplainSaysThatLinesAreLeft(t *testing.T) {
	t.Parallel()
	p, out, config := program(t, examples.Pageviews, "")
	name := filepath.Join(t.TempDir(), "views.ndjson")
	line := `{"ts": 1700000000000, "user": "u", "page": "/a"}` + "\n"
	for lines, want := range map[int]string{2: "", 3: "views.ndjson has more lines than these 2: --sample N is for more\n"} {
		if err := os.WriteFile(name, []byte(strings.Repeat(line, lines)), 0o600); err != nil {
			t.Fatal(err)
		}
		var problems strings.Builder
		out.Reset()
		p.Stderr = &problems
		if err := (&explainCommand{ConfigFlag: config, Sample: 2, File: name}).Run(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if got := problems.String(); strings.Count(out.String(), "pageviews/0@") != 2 || (got != "") != (want != "") || !strings.HasSuffix(got, want) {
			t.Errorf("%d lines: got %q and\n%s", lines, got, out)
		}
	}
}
