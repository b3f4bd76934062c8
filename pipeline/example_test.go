package pipeline_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
	"sluice/pipeline/mapping"
	"sluice/store"
	"sluice/store/memstore"
)

// Three page views in Kafka become counters in a store.
func Example() {
	if err := example(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// /cart 1
	// /home 2
}

func example() error {
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
	for _, view := range []string{`{"page":"/home"}`, `{"page":"/cart"}`, `{"page":"/home"}`} {
		if err := producer.Produce(ctx, "views", kafka.Message{Value: []byte(view), Partition: kafka.AnyPartition}); err != nil {
			return err
		}
	}

	engine, err := memstore.New(nil)
	if err != nil {
		return err
	}
	defer engine.Close()
	counts := &store.TableDescriptor{Name: "counts", Families: []store.FamilyDescriptor{store.NewFamily("c")}}
	counts.Families[0].Counter = true
	if err := engine.CreateTable(ctx, counts, nil); err != nil {
		return err
	}
	plan, err := mapping.Compile(&mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "json"},
		Rules:  []mapping.RuleSpec{{Table: "counts", Row: "page", Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"views"`}}}},
	}, nil)
	if err != nil {
		return err
	}

	p, err := pipeline.New(&pipeline.Options{Name: "views", Topics: []string{"views"}, Client: client, Plan: plan, Engine: engine, StoreID: "example"})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.Run(running) }()
	err = p.WaitStored(ctx, map[string]map[int32]int64{"views": {0: 3}})
	stop()
	if rerr := <-done; err == nil {
		err = rerr
	}
	if err != nil {
		return err
	}
	sc := engine.Scan(ctx, &store.Scan{Table: "counts"})
	defer sc.Close()
	for sc.Next() {
		fmt.Printf("%s %d\n", sc.Row().Key, binary.BigEndian.Uint64(sc.Row().Cells[0].Value))
	}
	return sc.Err()
}
