//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/config"
)

// ensureTables makes the tables of a configuration.
func ensureTables(t *testing.T, file string, env []string) {
	t.Helper()
	for _, v := range env {
		if name, value, ok := bytes.Cut([]byte(v), []byte("=")); ok && bytes.HasPrefix(name, []byte("SLUICE_")) {
			t.Setenv(string(name), string(value))
		}
	}
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := config.OpenEngine(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := c.EnsureTables(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

// passThrough has a daemon ingest a part of the log, and jobs and joins export, through
// gateways that settings of store.hbase name, and compares with the log and with what is
// exported through the gateway of the HBase itself. Tables are made through that.
func (in *hbaseIngest) passThrough(settings string) {
	t := in.t
	t.Helper()
	ensureTables(t, in.config, in.env)
	in.through(settings)
	lines := SharedLog(t).Lines[:2000]
	if _, err := Run(t, in.env, append(bytes.Join(lines, []byte("\n")), '\n'), "ingest", "produce", "-c", in.config, "--topic", in.topic, "-"); err != nil {
		t.Fatal(err)
	}
	in.run()
	WaitCaughtUp(t, in.daemons[0], in.config, in.env, int64(len(lines)), 5*time.Minute)
	if err := in.daemons[0].Stop(time.Minute); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	s := openHBase(t, in.hbase.address, nil)
	defer s.Close()
	log := &Log{Lines: lines}
	log.count()
	if err := log.Check(t.Context(), s); err != nil {
		t.Error(err)
	}
	if err := log.CheckVisitors(t.Context(), s); err != nil {
		t.Error(err)
	}

	own, direct := loadHBaseExports(t, fmt.Sprintf("{engine: hbase, hbase: {gateways: [%q]}}", in.hbase.address))
	file, through := loadHBaseExports(t, "{engine: hbase, hbase: {"+settings+"}}")
	ensureTables(t, own, nil)
	fillVisits(t, through, 1000)
	for job, verb := range map[string]string{"rows": "run", "cells": "run", "pairs": "join"} {
		for _, file := range []string{own, file} {
			if out, err := exec.Command(filepath.Join(Binaries(t), "export"), verb, "-c", file, "-q", job).CombinedOutput(); err != nil {
				t.Fatalf("export %s of %s: %v\n%s", job, file, err, out)
			}
		}
		want, got := exportRows(t, direct, job), exportRows(t, through, job)
		if d := cmp.Diff(want, got); d != "" || len(want) < 500 {
			t.Errorf("%s, %d rows (-the HBase's own +%s):\n%.2000s", job, len(want), settings, d)
		}
	}
}
