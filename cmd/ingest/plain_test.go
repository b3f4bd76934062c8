package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestPlainIsWarnedOfOnce: the daemon has a client a pipeline, of the same settings.
func TestPlainIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	idleDaemon(t, slog.NewTextHandler(&log, nil), fmt.Sprintf(`
store: {dir: %q, min_free: 0B}
serve: {listen: "127.0.0.1:0"}
kafka: {brokers: ["127.0.0.1:1"], sasl: {mechanism: plain, user: u, password: p}}
tables:
  visits: {families: {n: {COUNTER: true}}}
pipelines:
  one:
    topics: [visits]
    group: one
    decode: {format: json}
    map:
      - {table: visits, row: page, increment: [{family: n, qualifier: page}]}
  two:
    topics: [visits]
    group: two
    decode: {format: json}
    map:
      - {table: visits, row: page, increment: [{family: n, qualifier: page}]}
`, t.TempDir()))
	if n := strings.Count(log.String(), "SASL PLAIN without TLS"); n != 1 {
		t.Errorf("Got %d warnings:\n%s", n, &log)
	}
}
