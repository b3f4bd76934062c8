package kafka

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Who asks gets an answer to what was asked, by a request that began after the question;
// who asks beside others shares the request, and who gives up takes no other's answer away.
func TestGathering(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type reply struct {
			begun time.Time
			to    []int
		}
		var g gathering[string, int, reply]
		requests, atOnce := 0, map[string]int{}
		var mu sync.Mutex
		request := func(key string) func(ctx context.Context, questions []int) (reply, error) {
			return func(ctx context.Context, questions []int) (reply, error) {
				mu.Lock()
				requests++
				if atOnce[key]++; atOnce[key] > 1 {
					t.Error("Two requests about one thing are on their way")
				}
				mu.Unlock()
				got := reply{time.Now(), slices.Clone(questions)}
				err := sleep(ctx, 10*time.Millisecond)
				mu.Lock()
				atOnce[key]--
				mu.Unlock()
				return got, err
			}
		}
		const callers = 2000
		answered, gaveUp := 0, 0
		var wg sync.WaitGroup
		for i := range callers {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			wg.Go(func() {
				time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
				key := []string{"a", "b"}[rng.IntN(2)]
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				if rng.IntN(4) == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(rng.IntN(20))*time.Millisecond)
				}
				defer cancel()
				asked := time.Now()
				got, err := g.ask(ctx, key, []int{i}, request(key))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil && ctx.Err() == nil:
					t.Errorf("Got %v, and there is time left", err)
				case err != nil && !errors.Is(err, ctx.Err()):
					t.Errorf("Got %v, want %v", err, ctx.Err())
				case err != nil:
					gaveUp++
				case got.begun.Before(asked):
					t.Errorf("asked at %v, and the request was of %v", asked, got.begun)
				case !slices.Contains(got.to, i):
					t.Errorf("the answer to %d is to %v", i, got.to)
				default:
					answered++
				}
			})
		}
		wg.Wait()
		if answered < callers/2 || gaveUp < callers/20 || requests > callers/4 {
			t.Errorf("%d answers and %d that gave up, by %d requests", answered, gaveUp, requests)
		}
		if len(g.queues) > 0 {
			t.Errorf("%d queues are left", len(g.queues))
		}
		failed := errors.New("no")
		if _, err := g.ask(t.Context(), "a", nil, func(context.Context, []int) (reply, error) { return reply{}, failed }); err != failed {
			t.Errorf("Got %v, want the request's error", err)
		}
	})
}
