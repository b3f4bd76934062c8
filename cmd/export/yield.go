package main

import (
	"context"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/serve/client"
)

// lagTimeout bounds a question after the lag: a run waits for the answer.
const lagTimeout = 5 * time.Second

// lagOf returns what tells how far the pipelines are behind that fill the store of in, for a
// job or join of this name that yields to them. Where no daemon has the store, it says that
// nothing is yielded to, and returns nil.
func lagOf(p *cli.Program, in *config.Instant, name string, yields bool) func(ctx context.Context) ([]jobs.PipelineLag, error) {
	if !yields {
		return nil
	}
	d, ok := in.Engine.(*client.Client)
	if !ok {
		p.Note("export", "%s does not yield to ingest: no daemon has the store open that would tell how far it is behind", name)
		return nil
	}
	return func(ctx context.Context) ([]jobs.PipelineLag, error) {
		ctx, cancel := context.WithTimeout(ctx, lagTimeout)
		defer cancel()
		all, err := d.Lag(ctx)
		now := time.Now()
		var out []jobs.PipelineLag
		for i := range all {
			l := jobs.PipelineLag{Pipeline: all[i].Name}
			l.Age, l.Records = all[i].Behind(now)
			out = append(out, l)
		}
		return out, err
	}
}
