package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
)

// standardStage is the decode stage by encoding/json, for comparison.
const standardStage = "encoding/json"

// view is what the decode stage picks out, as encoding/json is given it. It finds
// texts and numbers; ours leaves numbers as they are spelled.
type view struct {
	TS         int64  `json:"ts"`
	User       string `json:"user"`
	Page       string `json:"page"`
	Country    string `json:"country"`
	Referrer   string `json:"referrer"`
	Agent      string `json:"agent"`
	DurationMS int64  `json:"duration_ms"`
}

func runStandard(_ context.Context, s *spec) (sample, error) {
	runtime.GOMAXPROCS(1)
	e := generate(s)
	documents, size := 0, 0
	decodeAll := func(n int) error {
		var v view
		for i := range n {
			v = view{}
			if err := json.Unmarshal(e.payload(i), &v); err != nil {
				return err
			}
			documents++
			size += len(v.Page) + int(v.DurationMS)
		}
		return nil
	}
	if err := decodeAll(e.warm()); err != nil {
		return sample{}, err
	}
	documents = 0
	_, got, err := measured(s, func() error { return decodeAll(e.len()) })
	if err == nil && (documents != e.len() || size == 0) {
		err = fmt.Errorf("%d documents of %d events", documents, e.len())
	}
	return got, err
}
