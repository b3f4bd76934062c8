package client_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/serve/api"
	"sluice/serve/servetest"
)

// TestLag: of a daemon's pipelines it is known how far they are behind, and of a server
// without any that there are none.
func TestLag(t *testing.T) {
	t.Parallel()
	got, err := dial(t, newStore(t), servetest.Fill).Lag(t.Context())
	want := []api.PipelineLag{{Name: "views", Partitions: []api.PartitionLag{{State: "tripped", Begun: true, Since: 2e12 - 90_000, Floor: 100, End: 125}}}}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if got, err := dial(t, newStore(t), nil).Lag(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("Got %v, %v", got, err)
	}
}
