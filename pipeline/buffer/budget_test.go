package buffer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestBudgetServesWaitersInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, err := NewBudget(100)
		if err != nil {
			t.Fatal(err)
		}
		if !b.TryAcquire(80) {
			t.Fatal("Got no 80 of 100 free bytes")
		}
		got := make(chan int64, 2)
		for _, n := range []int64{90, 10} {
			go func() {
				if err := b.Acquire(t.Context(), n); err != nil {
					t.Error(err)
				}
				got <- n
			}()
			synctest.Wait()
		}
		if b.TryAcquire(1) {
			t.Error("Got bytes ahead of those who wait")
		}
		b.Release(80)
		synctest.Wait()
		if first := <-got; first != 90 && first != 10 {
			t.Errorf("Got %d", first)
		}
		<-got
		if b.Used() != 100 {
			t.Errorf("Got %d used, want 100", b.Used())
		}
	})
}

func TestBudgetGrantsMoreThanTheLimitOnlyAlone(t *testing.T) {
	t.Parallel()
	b, err := NewBudget(100)
	if err != nil {
		t.Fatal(err)
	}
	if !b.TryAcquire(1000) {
		t.Error("Got no 1000 bytes of an unused budget of 100")
	}
	if b.TryAcquire(1) {
		t.Error("Got a byte beside 1000 of 100")
	}
	b.Release(1000)
	if !b.TryAcquire(1) || b.TryAcquire(1000) {
		t.Error("Got 1000 of 100 beside another byte, or not that byte")
	}
}

func TestBudgetAcquireGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, err := NewBudget(100)
		if err != nil {
			t.Fatal(err)
		}
		if !b.TryAcquire(60) {
			t.Fatal("Got no 60 of 100 free bytes")
		}
		ctx, cancel := context.WithCancel(t.Context())
		large := make(chan error, 1)
		go func() { large <- b.Acquire(ctx, 100) }()
		synctest.Wait()
		small := make(chan error, 1)
		go func() { small <- b.Acquire(t.Context(), 40) }()
		synctest.Wait()
		cancel()
		if err := <-large; !errors.Is(err, context.Canceled) {
			t.Errorf("Got %v, want canceled", err)
		}
		if err := <-small; err != nil { // no longer behind the large one
			t.Error(err)
		}
		if b.Used() != 100 {
			t.Errorf("Got %d used, want 100", b.Used())
		}
	})
}
