package main

import (
	"strings"
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

// TestNotEstimated: of an HBase nothing is in memory only, and Sluice's shell flushes none.
func TestNotEstimated(t *testing.T) {
	t.Parallel()
	if got := notEstimated(&jobs.RunPlan{}); !strings.Contains(got, "flush") {
		t.Errorf("Got %q of an instant, want how to have more estimated", got)
	}
	if got := notEstimated(&jobs.RunPlan{TimeBound: 1}); strings.Contains(got, "flush") || !strings.Contains(got, "HBase") || !strings.Contains(got, "--sample") {
		t.Errorf("Got %q of HBase, want why sizes are not known, and nothing that is not possible there", got)
	}
}
