package config

import (
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFlightProblems(t *testing.T) {
	t.Parallel()
	const job = "\njobs: {j: {table: t, columns: [{name: k, from: $row, type: string}]}}\n"
	for _, tt := range []struct {
		name, file string
		want       string // in the one problem; "" = there is none
	}{
		{"off", "store: {dir: x}", ""},
		{"on", "flight: {listen: '127.0.0.1:8815'}", ""},
		{"all", "flight: {listen: ':0', hold: 1m, max_hold: 2h, max_flights: 1, max_streams: 1024, tls: {cert_file: a, key_file: b, client_ca_file: c}}", ""},
		{"no address", "flight: {listen: '8815'}", "f.yaml:1:18: flight.listen is not an address to listen on (write host:port, such as 127.0.0.1:8815)"},
		{"that of serve", "serve: {listen: '127.0.0.1:8815'}\nflight: {listen: '127.0.0.1:8815'}", "f.yaml:2:18: flight.listen is serve.listen"},
		{"free ports", "serve: {listen: '127.0.0.1:0'}\nflight: {listen: '127.0.0.1:0'}", ""},
		{"hold", "flight: {listen: ':1', hold: 1ms}", "f.yaml:1:30: hold is 1ms, must be 1s..24h0m0s"},
		{"max_hold", "flight: {listen: ':1', max_hold: 48h}", "max_hold is 48h0m0s, must be 1s..24h0m0s"},
		{"hold beyond max_hold", "flight: {listen: ':1', hold: 2h}", "hold (2h0m0s) is longer than max_hold (1h0m0s)"},
		{"max_flights", "flight: {listen: ':1', max_flights: 0}", "max_flights is 0, must be 1..1024"},
		{"max_streams", "flight: {listen: ':1', max_streams: 1025}", "max_streams is 1025, must be 1..1024"},
		{"a certificate without its key", "flight: {listen: ':1', tls: {cert_file: a}}", "f.yaml:1:24: cert_file and key_file go together"},
		{"clients' certificates alone", "flight: {listen: ':1', tls: {client_ca_file: a}}", "there is no TLS without the server's own (add cert_file and key_file)"},
		{"a misspelled key", "flight: {lisen: ':1'}", `unknown key "lisen" in flight (did you mean "listen"?)`},
		{"on HBase without a token", "store: {engine: hbase}\nflight: {listen: ':1'}", "f.yaml:2:18: flights need serve.token with engine hbase, where no data directory has one for their callers (set serve.token)"},
		{"on HBase", "store: {engine: hbase}\nserve: {token: abc}\nflight: {listen: ':1'}", ""},
		{"a token beyond ASCII", "flight: {listen: ':1'}\nserve: {token: é}", "f.yaml:2:16: serve.token has other characters than printable ASCII"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := Parse("f.yaml", []byte(tt.file+job), nil)
			switch {
			case tt.want == "" && err == nil:
				if w := c.Warnings(); len(w) != 0 {
					t.Errorf("Got %v", w)
				}
			case tt.want == "" || err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(strings.TrimSpace(err.Error()), "\n"):
				t.Errorf("Got %v, want %s", err, tt.want)
			}
		})
	}
	for file, want := range map[string]string{
		"flight: {hold: 2m}" + job: "f.yaml:1:1: flight has no listen",
		"flight: {listen: ':1'}\n": "f.yaml:1:18: there is no job",
	} {
		c, err := Parse("f.yaml", []byte(file), nil)
		if err != nil {
			t.Fatal(err)
		}
		if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0].String(), want) {
			t.Errorf("Got %v, want %s", w, want)
		}
	}
}

func TestServerTLS(t *testing.T) {
	t.Parallel()
	if o, err := (&ServerTLS{}).load("flight.tls", newRenewed()); o != nil || err != nil {
		t.Errorf("Got %v, %v", o, err)
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if _, err := (&ServerTLS{CertFile: cert, KeyFile: key}).load("flight.tls", newRenewed()); err == nil || !strings.HasPrefix(err.Error(), "cert_file and key_file: ") {
		t.Errorf("Got %v", err)
	}
	first := writePair(t, cert, key, 1)
	o, err := (&ServerTLS{CertFile: cert, KeyFile: key, ClientCAFile: cert}).load("flight.tls", newRenewed())
	if err != nil {
		t.Fatal(err)
	}
	got, err := o.GetCertificate(nil)
	if err != nil || string(got.Certificate[0]) != string(first) || o.ClientCAs == nil {
		t.Errorf("Got %v, %v", got, err)
	}
	second := writePair(t, cert, key, 2)
	if got, err = o.GetCertificate(nil); err != nil || string(got.Certificate[0]) != string(second) {
		t.Error("A certificate that was replaced is still shown")
	}
	if err := os.WriteFile(cert, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	other, otherKey := filepath.Join(dir, "other.pem"), filepath.Join(dir, "other.key")
	writePair(t, other, otherKey, 3)
	if _, err = (&ServerTLS{CertFile: other, KeyFile: otherKey, ClientCAFile: cert}).load("flight.tls", newRenewed()); err == nil || !strings.Contains(err.Error(), "holds no certificate") {
		t.Errorf("Got %v", err)
	}
}

// writePair writes a certificate and its key, another one each time, and returns the
// certificate in DER.
func writePair(t *testing.T, cert, key string, serial int64) []byte {
	t.Helper()
	c, k := pairOf(t, serial)
	for name, data := range map[string][]byte{cert: c, key: k} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(1e9+serial, 0) // clocks of file systems are coarse
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	block, _ := pem.Decode(c)
	return block.Bytes
}
