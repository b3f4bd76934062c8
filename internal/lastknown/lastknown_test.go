package lastknown

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k Answer[int]
		asked := 0
		var slow chan struct{} // nil = it answers at once
		look := func() int {
			asked++
			if slow != nil {
				<-slow
			}
			return asked
		}
		ask := func(maxAge time.Duration, want int, takes time.Duration) {
			t.Helper()
			begun := time.Now()
			if got := k.Ask(maxAge, time.Second, look); got != want {
				t.Errorf("Got %d, want %d", got, want)
			}
			if took := time.Since(begun); took != takes {
				t.Errorf("it took %s, want %s", took, takes)
			}
		}
		slow = make(chan struct{})
		ask(0, 0, time.Second) // nothing is known yet
		ask(time.Hour, 0, time.Second)
		close(slow)
		synctest.Wait()
		slow = nil
		ask(time.Hour, 1, 0)
		ask(0, 2, 0)
		time.Sleep(time.Minute)
		ask(time.Minute, 3, 0)

		slow = make(chan struct{})
		ask(0, 3, time.Second)
		ask(0, 3, time.Second) // and asks not once more
		synctest.Wait()
		if asked != 4 {
			t.Errorf("it was asked %d times, want 4", asked)
		}
		// Who comes while somebody asks does not get what was true before: it asks anew.
		done := make(chan int)
		go func() { done <- k.Ask(0, time.Second, look) }()
		synctest.Wait()
		was := slow
		slow = nil
		close(was)
		if got := <-done; got != 5 {
			t.Errorf("Got %d, want 5", got)
		}
	})
}
