package pipeline

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/pipeline/kafka"
	"sluice/pipeline/memory"
)

// A batch that is larger than the decoded memory borrows buffered memory. A record of it
// whose effect would fit into the buffered memory, and does not beside what is lent, is
// unreadable with its place: it must not wait for what its own batch holds.
func TestRecordLargerThanWhatItsBatchLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testRecordLargerThanWhatItsBatchLeaves)
}

func testRecordLargerThanWhatItsBatchLeaves(t *testing.T) {
	const large = 400 << 10 // of 256 KiB decoded and 512 KiB buffered
	c, client := virtualCluster(t, 1)
	m, err := memory.New(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if large < m.Decoded().Limit() || large > m.Buffered().Limit() {
		t.Fatalf("a record of %d bytes is to be larger than the decoded memory of %d and smaller than the buffered of %d",
			large, m.Decoded().Limit(), m.Buffered().Limit())
	}
	e := newEngine(t)
	p, err := New(&Options{
		Name: "p", Topics: []string{"pages"}, Client: client(), Plan: testPlan(t, e), Engine: e, Memory: m,
		StoreID: "s1", SessionTimeout: 6 * time.Second, Heartbeat: time.Second, Logger: testLogger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	c.produce("pages", 2)
	packed := c.client.NewProducer(&kafka.ProducerOptions{Compression: kafka.Zstd, BatchBytes: 2 * large})
	defer packed.Close()
	// It is no JSON: the whole of it becomes a dead letter.
	if err := packed.Produce(t.Context(), "pages", kafka.Message{Value: []byte("bad" + strings.Repeat("x", large))}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	var text string
	waitFor(t, func() bool {
		if all := p.Status().Partitions; len(all) == 1 {
			text = all[0].Paused
		}
		return text != ""
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(text, "pages/0: offsets 2 to 2") || !strings.Contains(text, "buffered memory") || !strings.Contains(text, "--from 2 --to 3 --reason too_large") {
		t.Errorf("Got pause %q, want it of buffered memory at offset 2 of pages/0", text)
	}
	if n := readProgress(t, e); n != 2 {
		t.Errorf("Got offset %d stored, want 2", n)
	}
	if m.Used() != 0 {
		t.Errorf("Got %d bytes held after the end", m.Used())
	}
}
