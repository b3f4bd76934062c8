package schedule_test

import (
	"fmt"
	"time"

	"sluice/jobs/schedule"
)

// Every night at half past two, also in the night in which the clocks go from two
// to three: then at three.
func ExampleSchedule_Next() {
	s, err := schedule.Compile("nightly", &schedule.Spec{Cron: "30 2 * * *", Zone: "Europe/Berlin", DST: schedule.After})
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, time.March, 27, 12, 0, 0, 0, time.UTC)
	for range 3 {
		at = s.Next(at)
		fmt.Println(at.Format(time.RFC3339))
	}
	// Output:
	// 2026-03-28T01:30:00Z
	// 2026-03-29T01:00:00Z
	// 2026-03-30T00:30:00Z
}
