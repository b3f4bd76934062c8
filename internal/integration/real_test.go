//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/pipeline/kafka"
	"sluice/store/pebblestore"
)

// soaking says that make soak runs the tests: in their long forms, and with Spark.
var soaking = os.Getenv("SLUICE_SOAK") != ""

func TestMain(m *testing.M) {
	code := m.Run()
	stopServers()
	RemoveBinaries()
	os.Exit(code)
}

// I2, I3: the same as TestKilledTenTimes of cmd/ingest, against a real Kafka. The
// broker must allow session timeouts of 1 s.
func TestKilledTenTimesRealKafka(t *testing.T) {
	brokers := os.Getenv("SLUICE_KAFKA")
	if brokers == "" {
		t.Skip("SLUICE_KAFKA names no broker")
	}
	c, err := kafka.NewClient(&kafka.Options{Brokers: strings.Split(brokers, ",")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	seed := uint64(time.Now().UnixNano())
	topic := fmt.Sprintf("access-log-%d", seed) // the broker has those of earlier rounds, too
	for topic, partitions := range map[string]int{topic: 3, topic + ".dead": 1} {
		if err := c.CreateTopic(t.Context(), topic, partitions); err != nil {
			t.Fatal(err)
		}
	}
	kills := 10
	if n, err := strconv.Atoi(os.Getenv("SLUICE_KILLS")); err == nil {
		kills = n
	}
	config := FastConfig(t, "500ms")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, bytes.ReplaceAll(text, []byte("access-log"), []byte(topic)), 0o644); err != nil { // the group, too
		t.Fatal(err)
	}
	log := SharedLog(t)
	data := filepath.Join(t.TempDir(), "data")
	KillRun(t, &KillOptions{
		Config: config, Brokers: brokers, Data: data, Topic: topic, Log: log,
		Kills: kills, Seed: seed, MaxDelay: 2 * time.Second,
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
