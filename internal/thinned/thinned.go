package jobstest

import "testing"

// Thinned returns usual, or short in short runs: those with the race detector, which look
// for other things than the last of many kills or rows would show, at ten times the cost.
func Thinned(usual, short int) int {
	if testing.Short() {
		return short
	}
	return usual
}
