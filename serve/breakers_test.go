package serve_test

import (
	"context"
	"fmt"
	"testing"

	"sluice/serve"
	"sluice/serve/api"
)

func TestCloseBreakers(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *serve.Options) {
		o.CloseBreakers = func(_ context.Context, pipeline string) (int, error) {
			if pipeline != "a/b" {
				return 0, fmt.Errorf("%w: pipeline %s", api.ErrNotFound, pipeline)
			}
			return 3, nil
		}
	})
	if code, body := s.do("POST", "/api/v1/pipelines/a%2Fb/close_breakers", ""); code != 200 || body != "{\"partitions\":3}\n" {
		t.Errorf("Got %d %q", code, body)
	}
	if code, body := s.do("POST", "/api/v1/pipelines/c/close_breakers", ""); code != 404 {
		t.Errorf("Got %d %q for a pipeline that is none", code, body)
	}
	if code, body := newServer(t, nil).do("POST", "/api/v1/pipelines/c/close_breakers", ""); code != 404 {
		t.Errorf("Got %d %q without pipelines", code, body)
	}
}
