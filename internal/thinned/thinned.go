// Package thinned shortens tests in short runs. It is no part of a program.
package thinned

import "testing"

// Of returns usual, or short in short runs: those with the race detector, which look
// for other things than the last of many kills or rows would show, at ten times the cost.
func Of[T any](usual, short T) T {
	if testing.Short() {
		return short
	}
	return usual
}
