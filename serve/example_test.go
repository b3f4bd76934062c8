package serve_test

import (
	"context"
	"fmt"
	"net"

	"sluice/serve"
	"sluice/serve/api"
	"sluice/serve/client"
	"sluice/store"
	"sluice/store/memstore"
)

// An engine is served, and used through the connection as if it were here.
func Example() {
	if err := serveAndUse(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1
	// 2
}

func serveAndUse() error {
	engine, err := memstore.New(nil)
	if err != nil {
		return err
	}
	defer engine.Close()
	server, err := serve.New(&serve.Options{Engine: engine})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Run(ctx, l) }()
	err = use(ctx, server.Endpoint(l.Addr().String()))
	stop()
	if serr := <-served; err == nil {
		err = serr
	}
	return err
}

func use(ctx context.Context, at api.Endpoint) error {
	c, err := client.Dial(ctx, at)
	if err != nil {
		return err
	}
	defer c.Close()
	counts := store.NewFamily("c")
	counts.Counter = true
	if err := c.CreateTable(ctx, &store.TableDescriptor{Name: "users", Families: []store.FamilyDescriptor{counts}}, nil); err != nil {
		return err
	}
	users, err := store.OpenTable(ctx, c, "users")
	if err != nil {
		return err
	}
	for range 2 {
		n, err := users.Increment(ctx, []byte("ann"), "c", []byte("visits"), 1)
		if err != nil {
			return err
		}
		fmt.Println(n)
	}
	return nil
}
