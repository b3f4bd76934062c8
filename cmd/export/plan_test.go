package main

import (
	"testing"

	"sluice/jobs"
)

// TestPlannedParts: a plan says where regions are cut.
func TestPlannedParts(t *testing.T) {
	t.Parallel()
	for splits, want := range map[int]string{3: "3 regions", 8: "3 regions in 8 parts"} {
		if got := plannedParts(&jobs.RunPlan{Regions: 3, Splits: make([]jobs.SplitPlan, splits)}); got != want {
			t.Errorf("Got %s, want %s", got, want)
		}
	}
}
