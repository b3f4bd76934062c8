// Command toppages prints the rows of a table of counters that count most: what a Go
// program needs to read a store that pipelines write to. docs/go.md explains it.
//
//	go run ./examples/toppages -c examples/pageviews.yaml pageview_counts day
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"sluice/cell"
	"sluice/config"
	"sluice/counters/query"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout, os.LookupEnv); err != nil {
		fmt.Fprintln(os.Stderr, "toppages:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer, lookupEnv func(string) (string, bool)) (err error) {
	flags := flag.NewFlagSet("toppages", flag.ContinueOnError)
	file := flags.String("c", "", "the configuration `FILE` of the pipelines")
	n := flags.Int("n", 10, "how many rows")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *file == "" || flags.NArg() != 2 {
		return errors.New("usage: toppages -c FILE [-n N] TABLE FAMILY")
	}
	table, family := flags.Arg(0), flags.Arg(1)

	c, err := config.Load(*file, lookupEnv)
	if err != nil {
		return err
	}
	// Through the daemon where one has the directory open, or of an HBase.
	store, _, err := config.OpenStore(ctx, c, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	top, err := query.Top(ctx, store, table, cell.Range{}, family, query.Buckets{}, *n)
	if err != nil {
		return err
	}
	for _, row := range top {
		if _, err := fmt.Fprintf(out, "%12d  %s\n", row.Count, row.Row); err != nil {
			return err
		}
	}
	return nil
}
