package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/internal/integration"
)

// Whatever a command says, and the daemon at its most talkative, with the right
// password and with a wrong one: neither the password nor the token is in it. A
// wrong password ends the daemon at once, with one error that names broker and
// mechanism.
func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	const token, password = "token-9b1deb4d", "pass word-3b7d"
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "access-log", "access-log.dead"), kfake.GroupMinSessionTimeout(100*time.Millisecond),
		kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "u", password))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	secret := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(secret, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(password)
	text, err := os.ReadFile(integration.FastConfig(t, "5s"))
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "secret.yaml")
	full := strings.Replace(string(text), "kafka:\n", fmt.Sprintf("log: {level: debug}\nkafka:\n  sasl: {mechanism: scram-sha-512, user: u, password: '${file:%s}'}\n", secret), 1)
	full = strings.Replace(full, "serve:\n", "serve:\n  token: ${TOKEN}\n", 1)
	if err := os.WriteFile(config, []byte(full), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := cluster.ListenAddrs()[0]
	env := append(integration.Environment(addr, filepath.Join(t.TempDir(), "data")), "TOKEN="+token)

	var said []string
	run := func(args ...string) error {
		t.Helper()
		log := integration.GeneratedLog(3, 50)
		out, err := integration.Run(t, env, append(bytes.Join(log.Lines, []byte("\n")), '\n'), "ingest", append(args, "-c", config)...)
		said = append(said, out, fmt.Sprint(err))
		return err
	}
	for _, args := range [][]string{{"lint"}, {"produce", "--topic", "access-log", "-"}} {
		if err := run(args...); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	d := integration.StartDaemon(t, config, env)
	integration.WaitCaughtUp(t, d, config, env, 50, time.Minute)
	if err := run("offsets"); err != nil {
		t.Error(err)
	}
	if err := d.Stop(time.Minute); err != nil {
		t.Errorf("%v\n%s", err, d.Log())
	}
	said = append(said, d.Log())

	write("not " + password)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
	if err := run("produce", "--topic", "access-log", "-"); err == nil {
		t.Error("Got no error with a wrong password")
	}
	d = integration.StartDaemon(t, config, env)
	if err := d.Wait(time.Minute); err == nil {
		t.Error("the daemon runs with a wrong password")
	}
	for _, want := range []string{addr, "SCRAM-SHA-512", `"u"`, "SASL_AUTHENTICATION_FAILED"} {
		if !strings.Contains(d.Log(), want) {
			t.Errorf("%q is not in\n%s", want, d.Log())
		}
	}
	said = append(said, d.Log())
	for _, text := range said {
		for _, s := range []string{token, password} {
			if i := strings.Index(text, s); i >= 0 {
				t.Errorf("a secret is in\n%s", text[max(0, i-500):min(len(text), i+200)])
			}
		}
	}
}
