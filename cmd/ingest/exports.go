package main

import (
	"context"
	"sync"
	"time"

	"sluice/config"
	"sluice/jobs"
	"sluice/serve"
)

// publishedAge is how old the answer of published may be: a directory of many
// runs must not be read at every scrape.
const publishedAge = 30 * time.Second

// published knows the runs that the configured jobs have published, whichever
// process ran them, by looking at their directories.
type published struct {
	cfg *config.Config

	mu   sync.Mutex
	at   time.Time
	last []serve.ExportStatus
}

// status returns a status a job, by name. A directory that cannot be read counts
// as one without runs; `export list` says why.
func (p *published) status() []serve.ExportStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.at) < publishedAge {
		return p.last
	}
	p.at, p.last = time.Now(), nil
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	runs := map[string][]jobs.RunSummary{}
	for _, name := range p.cfg.JobNames() {
		out := p.cfg.Jobs[name].Out
		if _, ok := runs[out]; !ok {
			runs[out], _ = jobs.List(ctx, out)
		}
		s := serve.ExportStatus{Name: name, Runs: map[string]uint64{"ok": 0}}
		for i := range runs[out] {
			r := &runs[out][i]
			if r.Job != name || r.Err != nil {
				continue
			}
			s.Runs["ok"]++
			s.Rows += uint64(r.Rows)
			s.Bytes += uint64(r.Bytes)
			if r.FinishedAt.After(s.LastSuccess) {
				s.LastSuccess = r.FinishedAt
			}
		}
		p.last = append(p.last, s)
	}
	return p.last
}
