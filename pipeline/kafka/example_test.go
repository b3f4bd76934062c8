package kafka_test

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
)

// A member of a group reads a partition until it has come to its end. Where it goes
// on next time is the store's to say, not the group's.
func Example() {
	if err := consume(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// offset 0: /home
	// offset 1: /cart
	// next offset 2
}

func consume() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	broker, err := embedded.Start(&embedded.Options{Topics: map[string]int{"views": 1}})
	if err != nil {
		return err
	}
	defer broker.Close()
	client, err := kafka.NewClient(&kafka.Options{Brokers: broker.Addrs()})
	if err != nil {
		return err
	}
	defer client.Close()
	producer := client.NewProducer(nil)
	defer producer.Close()
	if err := producer.Produce(ctx, "views", kafka.Message{Value: []byte("/home")}, kafka.Message{Value: []byte("/cart")}); err != nil {
		return err
	}

	group, err := client.JoinGroup(ctx, &kafka.GroupOptions{ID: "readers", Topics: []string{"views"}, StoreID: "example"})
	if err != nil {
		return err
	}
	defer group.Close()
	generation, err := group.Next(ctx)
	if err != nil {
		return err
	}
	fetcher := client.NewFetcher(nil)
	var work errgroup.Group
	fetching, stop := context.WithCancel(ctx)
	defer stop()
	work.Go(func() error { _ = fetcher.Run(fetching); return nil }) // its error is that of fetching
	for topic, partitions := range generation.Assignment {
		ends, err := client.ListOffsets(ctx, topic, partitions)
		if err != nil {
			return err
		}
		for _, p := range partitions {
			work.Go(func() error {
				defer stop()
				return read(ctx, fetcher.Add(topic, p, ends[p].Start), ends[p].End)
			})
		}
	}
	return work.Wait()
}

func read(ctx context.Context, r *kafka.PartitionReader, end int64) error {
	defer r.Close()
	for next := int64(0); next < end; {
		b, err := r.Next(ctx)
		if err != nil {
			return err
		}
		for i := range b.Records {
			fmt.Printf("offset %d: %s\n", b.Records[i].Offset, b.Records[i].Value)
		}
		next = b.Next
		b.Release()
	}
	fmt.Println("next offset", end)
	return nil
}
