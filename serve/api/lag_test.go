package api_test

import (
	"testing"
	"time"

	"sluice/serve/api"
)

func TestBehind(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	p := api.PipelineLag{Name: "p", Partitions: []api.PartitionLag{
		{State: "running", Begun: true, Since: 990_000, Floor: 10, End: 15},
		{State: "running", Begun: true, Since: 970_000, Floor: 10, End: 12},
		{State: "running", Begun: true, Floor: 10, End: 8},
		{State: "running", Since: 980_000, Floor: 1, End: 99}, // its offsets are not known
		{State: "tripped", Begun: true, Since: 1, End: 1000},
		{State: "failed", Begun: true, Since: 1, End: 1000},
		{State: "paused", Begun: true, Since: 1, End: 1000},
	}}
	if age, records := p.Behind(now); age != 30*time.Second || records != 7 {
		t.Errorf("Got %v, %d records", age, records)
	}
	if age, records := (&api.PipelineLag{}).Behind(now); age != 0 || records != 0 {
		t.Errorf("Got %v, %d records of no partitions", age, records)
	}
}
