package jobs

import (
	"sluice/jobs/schedule"
)

// Outcome says what the run has published.
func (m *Manifest) Outcome() schedule.Outcome {
	out := schedule.Outcome{RunID: m.RunID, PausedSeconds: m.PausedSeconds}
	for _, t := range m.Totals {
		out.Rows = t.Rows
		out.Bytes += t.Bytes
	}
	return out
}

// RunEntry returns the entry of the history for a run that somebody has made by hand and
// that is published; before says that it was found published. The same run has the same
// entry whoever asks, so that history.Record finds it.
func RunEntry(m *Manifest, cause string, before bool) schedule.Entry {
	out := m.Outcome()
	e := schedule.Entry{
		Logical: m.LogicalTime.UTC(), Result: schedule.OK, Count: 1, Cause: cause, Started: m.StartedAt.UTC(), Ended: m.FinishedAt.UTC(), Attempts: 1,
		RunID: out.RunID, Rows: out.Rows, Bytes: out.Bytes, PausedSeconds: out.PausedSeconds,
	}
	if before {
		e.Result = schedule.Published
	}
	return e
}
