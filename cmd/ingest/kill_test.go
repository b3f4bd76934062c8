package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/examples"
	"sluice/internal/integration"
	"sluice/pipeline/kafka/embedded"
	"sluice/store/pebblestore"
)

func TestMain(m *testing.M) {
	code := m.Run()
	integration.RemoveBinaries()
	os.Exit(code)
}

// fastGroup is examples/access-log.yaml with batches of a few records, so that
// kills fall between commits, and a group that notices a dead member soon.
func fastGroup(t *testing.T) string {
	t.Helper()
	text := strings.Replace(string(examples.AccessLog), "kafka:\n", `drain_timeout: 500ms
kafka:
  session_timeout: 1s
  heartbeat_interval: 200ms
  rebalance_timeout: 2s
`, 1)
	text = strings.Replace(text, "    decode: {format: combined}\n", "    decode: {format: combined}\n    flush: {records: 100}\n", 1)
	name := filepath.Join(t.TempDir(), "access-log.yaml")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// I2, I3: ten SIGKILLs at random moments change no count.
func TestKilledTenTimes(t *testing.T) {
	log := integration.SharedLog(t)
	broker, err := embedded.Start(&embedded.Options{Topics: map[string]int{"access-log": 3, "access-log.dead": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	data := filepath.Join(t.TempDir(), "data")
	integration.KillRun(t, &integration.KillOptions{
		Config: fastGroup(t), Brokers: broker.Addr(), Data: data, Topic: "access-log", Log: log,
		Kills: 10, Seed: uint64(time.Now().UnixNano()), MaxDelay: 1500 * time.Millisecond,
	})
	db, err := pebblestore.Open(data, &pebblestore.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := log.Check(t.Context(), db); err != nil {
		t.Error(err)
	}
}
