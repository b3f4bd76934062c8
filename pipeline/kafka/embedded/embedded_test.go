package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, o *embedded.Options) *embedded.Broker {
	t.Helper()
	b, err := embedded.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func connect(t *testing.T, b *embedded.Broker) *kafka.Client {
	t.Helper()
	c, err := kafka.NewClient(&kafka.Options{Brokers: b.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func produce(t *testing.T, c *kafka.Client, from, to int) {
	t.Helper()
	var msgs []kafka.Message
	for i := from; i < to; i++ {
		msgs = append(msgs, kafka.Message{Value: fmt.Append(nil, i)})
	}
	if err := c.NewProducer(nil).Produce(testContext(t), "views", msgs...); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, r *kafka.PartitionReader, to int64) []string {
	t.Helper()
	var got []string
	for {
		b, err := r.Next(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range b.Records {
			got = append(got, string(rec.Value))
		}
		next := b.Next
		b.Release()
		if next >= to {
			return got
		}
	}
}

func numbers(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

func fetch(t *testing.T, c *kafka.Client) *kafka.Fetcher {
	f := c.NewFetcher(nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

func TestRestartKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	o := &embedded.Options{Dir: dir, Topics: map[string]int{"views": 1}}
	b := start(t, o)
	addr := b.Addr()
	c := connect(t, b)
	before, err := c.Topic(testContext(t), "views")
	if err != nil {
		t.Fatal(err)
	}
	produce(t, c, 0, 100)
	r := fetch(t, c).Add("views", 0, 0)
	if got := read(t, r, 100); !slices.Equal(got, numbers(0, 100)) {
		t.Errorf("Got %v", got)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	// The same address, topic and cluster; a topic more. The client and the
	// fetcher of before go on.
	o.Topics["more"] = 2
	b = start(t, o)
	if b.Addr() != addr {
		t.Errorf("Got address %s after the restart, want %s", b.Addr(), addr)
	}
	produce(t, c, 100, 200)
	if got := read(t, r, 200); !slices.Equal(got, numbers(100, 200)) {
		t.Errorf("Got %v after the restart", got)
	}
	after, err := c.Topics(testContext(t), "views", "more")
	if err != nil {
		t.Fatal(err)
	}
	if after["views"].ID != before.ID || after["views"].ClusterID != before.ClusterID || len(after["more"].Partitions) != 2 {
		t.Errorf("Got %+v after the restart, want %+v", after["views"], before)
	}
}

func TestMemory(t *testing.T) {
	one, two := start(t, nil), start(t, &embedded.Options{Topics: map[string]int{"views": 3}, Nodes: 3})
	if len(one.Addrs()) != 1 || len(two.Addrs()) != 3 || one.Addr() == two.Addr() {
		t.Errorf("Got addresses %v and %v", one.Addrs(), two.Addrs())
	}
	info, err := connect(t, two).Topic(testContext(t), "views")
	if err != nil || len(info.Partitions) != 3 {
		t.Errorf("Got %+v, %v", info, err)
	}
	other, err := connect(t, one).Topics(testContext(t))
	if err != nil || len(other) != 0 {
		t.Errorf("Got topics %v, %v of an empty broker", other, err)
	}
	if two.Cluster().LeaderFor("views", 0) < 0 {
		t.Error("Got no leader")
	}
}

func TestDirInUse(t *testing.T) {
	dir := t.TempDir()
	start(t, &embedded.Options{Dir: dir})
	if _, err := embedded.Start(&embedded.Options{Dir: dir}); !errors.Is(err, embedded.ErrDirInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("Got %v, want ErrDirInUse naming the directory", err)
	}
}

func TestPortTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	port := ln.Addr().(*net.TCPAddr).Port
	dir := t.TempDir()
	_, err = embedded.Start(&embedded.Options{Dir: dir, Port: port})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(port)) {
		t.Errorf("Got %v, want an error naming port %d", err, port)
	}
	start(t, &embedded.Options{Dir: dir}) // the directory is free again
}

func TestBadDir(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Start(&embedded.Options{Dir: file}); err == nil {
		t.Error("Got no error for a file as the directory")
	}
	if err := os.WriteFile(filepath.Join(dir, "port"), []byte("seven"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Start(&embedded.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "does not hold a port") {
		t.Errorf("Got %v for a port file that holds none", err)
	}
	if _, err := embedded.Start(&embedded.Options{Topics: map[string]int{"views": 0}}); err == nil || !strings.Contains(err.Error(), "views") {
		t.Errorf("Got %v for a topic without partitions", err)
	}
}

func Example() {
	broker, err := embedded.Start(&embedded.Options{Topics: map[string]int{"views": 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = broker.Close() }()
	client, err := kafka.NewClient(&kafka.Options{Brokers: broker.Addrs()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := client.NewProducer(nil).Produce(ctx, "views", kafka.Message{Key: []byte("u1"), Value: []byte("/home")}); err != nil {
		fmt.Println(err)
		return
	}
	fetcher := client.NewFetcher(nil)
	done := make(chan struct{})
	fetching, stop := context.WithCancel(ctx)
	go func() {
		defer close(done)
		_ = fetcher.Run(fetching) // ends with stop
	}()
	batch, err := fetcher.Add("views", 0, 0).Next(ctx)
	if err != nil {
		fmt.Println(err)
	} else {
		fmt.Printf("%s viewed %s; next offset %d\n", batch.Records[0].Key, batch.Records[0].Value, batch.Next)
		batch.Release()
	}
	stop()
	<-done
	// Output: u1 viewed /home; next offset 1
}
