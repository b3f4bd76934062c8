package main

import (
	"testing"

	"sluice/cmd/internal/cli/clitest"
)

func TestExamples(t *testing.T) {
	clitest.Examples(t, "ingest", func() interface{ Examples() string } { return new(commands) })
}
