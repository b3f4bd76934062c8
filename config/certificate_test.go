package config

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pairOf returns a certificate that trusts itself, with this serial number, and its key,
// both in PEM.
func pairOf(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: fmt.Sprint(serial)}, DNSNames: []string{"h"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// presented returns the serial number of the certificate that a client of this configuration
// shows a server that asks for one of these authorities; 0 = it shows none.
func presented(t *testing.T, client *tls.Config, authorities *x509.CertPool) int64 {
	t.Helper()
	cert, key := pairOf(t, 99)
	own, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	failed := make(chan error, 1)
	go func() { failed <- tls.Client(a, client.Clone()).Handshake() }()
	server := tls.Server(b, &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequestClientCert, ClientCAs: authorities, MaxVersion: tls.VersionTLS12})
	if err := server.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if got := server.ConnectionState().PeerCertificates; len(got) > 0 {
		return got[0].SerialNumber.Int64()
	}
	return 0
}

// TestCertificateReplaced: a connection shows the certificate that the files hold when it
// is made, and the one before while the two do not belong together.
func TestCertificateReplaced(t *testing.T) {
	t.Parallel()
	dir, files := t.TempDir(), newRenewed()
	spec := &TLS{Enable: true, InsecureSkipVerify: true, CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key")}
	clock := time.Now().Add(-time.Hour)
	write := func(name string, data []byte) {
		t.Helper()
		clock = clock.Add(time.Second)
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, clock, clock); err != nil {
			t.Fatal(err)
		}
	}
	cert, key := pairOf(t, 1)
	write(spec.CertFile, cert)
	write(spec.KeyFile, []byte("no key"))
	if _, _, err := spec.load("kafka.tls", files); err == nil || !strings.Contains(err.Error(), "cert_file and key_file") {
		t.Errorf("a file without a key: Got %v", err)
	}
	for _, block := range []*pem.Block{
		{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")},
		{Type: "EC PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: []byte("x")},
	} {
		write(spec.KeyFile, append([]byte("Bag Attributes\n"), pem.EncodeToMemory(block)...))
		if _, _, err := spec.load("kafka.tls", files); err == nil || !strings.Contains(err.Error(), spec.KeyFile+" is encrypted") {
			t.Errorf("%s: Got %v, want that it is encrypted", block.Type, err)
		}
	}
	write(spec.KeyFile, key)
	o, _, err := spec.load("kafka.tls", files)
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, serial int64) {
		t.Helper()
		if got := presented(t, o, nil); got != serial {
			t.Errorf("%s: Got certificate %d, want %d", what, got, serial)
		}
	}
	want("as opened", 1)
	other := x509.NewCertPool()
	ca, _ := pairOf(t, 98)
	other.AppendCertsFromPEM(ca)
	if got := presented(t, o, other); got != 0 {
		t.Errorf("a server that takes others' only: Got certificate %d", got)
	}
	cert, key = pairOf(t, 2)
	write(spec.CertFile, cert)
	want("with half of the new pair", 1)
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	told := func(what string, unreadable int, lines ...string) {
		t.Helper()
		files.look(log)
		files.look(log)
		got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if out.Reset(); got[0] == "" {
			got = nil
		}
		if len(got) != len(lines) || files.Unreadable() != unreadable {
			t.Errorf("%s: Got %q and %d that cannot be read, want %d lines and %d", what, got, files.Unreadable(), len(lines), unreadable)
			return
		}
		for i, line := range lines {
			if !strings.Contains(got[i], line) || !strings.Contains(got[i], "kafka.tls.cert_file") {
				t.Errorf("%s: Got %q, want %q", what, got[i], line)
			}
		}
	}
	told("half of the new pair", 1, "level=WARN")
	write(spec.KeyFile, key)
	want("with the new pair", 2)
	told("the new pair", 0, "level=INFO")
	if err := os.Remove(spec.CertFile); err != nil {
		t.Fatal(err)
	}
	want("without a file", 2)
	told("without a file", 1, "no such file")
	write(spec.CertFile, []byte("none"))
	told("no certificate", 1, spec.CertFile+" and "+spec.KeyFile)
	cert, key = pairOf(t, 3)
	write(spec.KeyFile, key)
	write(spec.CertFile, cert)
	want("with the third pair", 3)
}

// TestRenewedRun: the files are looked at once a minute, however long no connection is made,
// and one that several pipelines share is told of once.
func TestRenewedRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		spec, files := &TLS{Enable: true, CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key")}, newRenewed()
		cert, key := pairOf(t, 1)
		if err := errors.Join(os.WriteFile(spec.CertFile, cert, 0o600), os.WriteFile(spec.KeyFile, key, 0o600)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, _, err := spec.load("schema_registry.tls", files); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var out strings.Builder
		ended := make(chan struct{})
		go func() { defer close(ended); files.Run(ctx, slog.New(slog.NewTextHandler(&out, nil))) }()
		if err := os.WriteFile(spec.KeyFile, []byte("cut short"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		cancel()
		<-ended
		if n := strings.Count(out.String(), "level=WARN"); n != 1 || files.Unreadable() != 1 {
			t.Errorf("Got %d that cannot be read, and the log\n%s", files.Unreadable(), out.String())
		}
	})
}

// TestAuthoritiesAndPasswordsReplaced: a connection trusts the CAs, and authenticates with the
// password, that the files hold when it is made; what cannot be read is passed over, and told of.
func TestAuthoritiesAndPasswordsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, password := filepath.Join(dir, "ca"), filepath.Join(dir, "password")
	clock := time.Now().Add(-time.Hour)
	write := func(name string, data []byte) {
		t.Helper()
		clock = clock.Add(time.Second)
		if err := errors.Join(os.WriteFile(name, data, 0o600), os.Chtimes(name, clock, clock)); err != nil {
			t.Fatal(err)
		}
	}
	pool := func(cert []byte) *x509.CertPool {
		p := x509.NewCertPool()
		p.AppendCertsFromPEM(cert)
		return p
	}
	first, _ := pairOf(t, 1)
	second, _ := pairOf(t, 2)
	write(ca, first)
	write(password, []byte("secret-1\n"))
	c, err := Parse(filepath.Join(dir, "sluice.yaml"), []byte(`
kafka:
  tls: {enable: true, ca_file: `+ca+`}
  sasl: {mechanism: plain, user: u, password: "a-${file:password}"}
schema_registry: {urls: ["http://h:1"], user: u, password: "plain"}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := c.KafkaOptions()
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, cert []byte, secret string, unreadable int) {
		t.Helper()
		c.Renewed().look(slog.New(slog.DiscardHandler))
		if !o.RootCAs().Equal(pool(cert)) || o.PasswordNow() != secret || c.Renewed().Unreadable() != unreadable {
			t.Errorf("%s: Got the password %s, %d files that cannot be read", what, o.PasswordNow(), c.Renewed().Unreadable())
		}
	}
	want("as opened", first, "a-secret-1", 0)
	write(ca, []byte("no certificate"))
	want("cut short", first, "a-secret-1", 1)
	write(password, nil)
	want("emptied", first, "a-secret-1", 2)
	write(ca, second)
	write(password, []byte("secret-2"))
	want("replaced", second, "a-secret-2", 0)
	if err := os.Remove(password); err != nil {
		t.Fatal(err)
	}
	want("gone", second, "a-secret-2", 1)
	if c.secret("schema_registry.password", c.SchemaRegistry.Password) != nil {
		t.Error("a password that is in the file itself is read again")
	}
	if text := fmt.Sprintf("%+v %#v", c, c.Renewed()); strings.Contains(text, "secret-") {
		t.Errorf("a password is in %s", text)
	}
}
