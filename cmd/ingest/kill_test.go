package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/internal/integration"
	"sluice/internal/roomy"
	"sluice/store/pebblestore"
)

func TestMain(m *testing.M) {
	roomy.Use()
	code := m.Run()
	integration.RemoveBinaries()
	os.Exit(code)
}

// I2, I3: ten SIGKILLs at random moments change no count.
func TestKilledTenTimes(t *testing.T) {
	integration.Binaries(t) // or skip, before anything is started
	log := integration.SharedLog(t)
	broker := startBroker(t, map[string]int{"access-log": 3, "access-log.dead": 1})
	data := filepath.Join(t.TempDir(), "data")
	integration.KillRun(t, &integration.KillOptions{
		Config: integration.FastConfig(t, "500ms"), Brokers: broker.Addr(), Data: data, Topic: "access-log", Log: log,
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
