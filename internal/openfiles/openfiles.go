// Package openfiles tells how many files the process may have open (ulimit -n), so that
// those who open many agree on their parts.
package openfiles
