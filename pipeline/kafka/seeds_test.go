package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What is dialed, call after call: the seeds in turn, and behind them the brokers, which
// come first every other time once no seed has answered. Who refuses the credentials of
// this client is not gone: nobody else is shown them.
func TestSeedsInTurn(t *testing.T) {
	t.Parallel()
	down := errors.New("connection refused")
	for name, tc := range map[string]struct {
		seeds, brokers []string
		answers        map[string]error // nil = it does
		calls          int
		want           [][]string
		err            error
	}{
		"a seed":          {[]string{"a:1"}, []string{"a:1", "b:1"}, map[string]error{"a:1": nil}, 2, [][]string{{"a:1"}, {"a:1"}}, nil},
		"the other":       {[]string{"a:1", "b:1"}, []string{"c:1"}, map[string]error{"a:1": down, "b:1": nil}, 2, [][]string{{"a:1", "b:1"}, {"b:1"}}, nil},
		"no brokers yet":  {[]string{"a:1"}, nil, map[string]error{"a:1": down}, 2, [][]string{{"a:1"}, {"a:1"}}, down},
		"a broker":        {[]string{"a:1"}, []string{"a:1", "b:1", "c:1"}, map[string]error{"a:1": down, "b:1": nil}, 3, [][]string{{"a:1", "b:1"}, {"b:1"}, {"a:1", "b:1"}}, nil},
		"wrong password":  {[]string{"a:1"}, []string{"b:1"}, map[string]error{"a:1": fmt.Errorf("a: %w", ErrAuth)}, 3, [][]string{{"a:1"}, {"a:1"}, {"a:1"}}, ErrAuth},
		"wrong authority": {[]string{"a:1"}, []string{"b:1"}, map[string]error{"a:1": ErrTLS}, 2, [][]string{{"a:1"}, {"a:1"}}, ErrTLS},
		"nobody":          {[]string{"a:1"}, []string{"b:1"}, map[string]error{"a:1": down}, 2, [][]string{{"a:1", "b:1"}, {"b:1", "a:1"}}, down},
	} {
		s := newSeeds(tc.seeds)
		s.next = 0
		var brokers []kmsg.MetadataResponseBroker
		for _, b := range tc.brokers {
			host, _, err := net.SplitHostPort(b)
			if err != nil {
				t.Fatal(err)
			}
			brokers = append(brokers, kmsg.MetadataResponseBroker{Host: host, Port: 1})
		}
		s.learn(brokers)
		var got [][]string
		for range tc.calls {
			var dialed []string
			_, err := s.dial(t.Context(), func(_ context.Context, _, addr string) (net.Conn, error) {
				dialed = append(dialed, addr)
				answer, ok := tc.answers[addr]
				if !ok {
					answer = errors.New("another broker is down, too")
				}
				return nil, answer
			})
			if !errors.Is(err, tc.err) {
				t.Errorf("%s: Got %v, want %v", name, err, tc.err)
			}
			got = append(got, slices.Clone(dialed))
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A seed that did not answer is dialed behind the others for a while, whoever else dials
// meanwhile, and has its turn again then.
func TestSeedsThatAreDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSeeds([]string{"a:1", "b:1", "c:1"})
		for range 2 { // two callers that began at once
			s.dialed("a:1", context.DeadlineExceeded)
		}
		s.dialed("c:1", context.DeadlineExceeded)
		for i := range 6 {
			s.next = i
			if first := s.order()[0]; first != "b:1" {
				t.Errorf("Got %s first, the only one that may be up", first)
			}
		}
		if got := s.order(); len(got) != 3 {
			t.Errorf("Got %v, want all of them", got)
		}
		time.Sleep(downFor)
		if s.next = 0; s.order()[0] != "a:1" {
			t.Errorf("Got %v, want its turn for a:1", s.order())
		}
		s.dialed("a:1", nil)
		s.dialed("b:1", context.DeadlineExceeded)
		if s.next = 1; s.order()[0] != "c:1" {
			t.Errorf("Got %v, want those before b:1", s.order())
		}
	})
}
