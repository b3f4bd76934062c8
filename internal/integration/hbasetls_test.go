//go:build integration

package integration

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate makes a certificate that signs itself, of a name or an address, and writes
// it to a file.
func certificate(t *testing.T, host string) (c tls.Certificate, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// TestHBaseTLS: the binaries ingest and export through TLS that ends before a real
// gateway, and what is wrong with it is an error that says so.
func TestHBaseTLS(t *testing.T) {
	in := newHBaseIngestOn(t, startHBase(t), embeddedKafka(t), 1)
	right, ca := certificate(t, "127.0.0.1")
	named, namedCA := certificate(t, "gateway.example")
	_, wrongCA := certificate(t, "127.0.0.1")
	p := newThriftProxy(t, in.hbase.address, &tls.Config{Certificates: []tls.Certificate{right}})
	other := newThriftProxy(t, in.hbase.address, &tls.Config{Certificates: []tls.Certificate{named}})

	for _, test := range []struct{ name, address, tls, want string }{
		{"another authority", p.address, fmt.Sprintf("{enable: true, ca_file: %q}", wrongCA), "certificate signed by unknown authority"},
		{"no authority", p.address, "{enable: true}", "certificate signed by unknown authority"},
		{"another name", other.address, fmt.Sprintf("{enable: true, ca_file: %q}", namedCA), "cannot validate certificate for 127.0.0.1"},
		{"no TLS there", in.hbase.address, fmt.Sprintf("{enable: true, ca_file: %q}", ca), "does the gateway speak TLS?"},
		{"no TLS here", p.address, "{}", "is it a Thrift2 gateway, and its transport (framed or not, TLS or not) as configured?"},
	} {
		file := filepath.Join(t.TempDir(), "sluice.yaml")
		settings := fmt.Sprintf("gateways: [%q], tls: %s", test.address, test.tls)
		text := strings.Replace(in.embedded, "  engine: pebble\n", "  engine: hbase\n  hbase: {"+settings+"}\n", 1)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		exports, _ := loadHBaseExports(t, "{engine: hbase, hbase: {"+settings+"}}")
		for _, args := range [][]string{{"ingest", "run", "-c", file}, {"export", "run", "-c", exports, "-q", "rows"}} {
			cmd := exec.Command(filepath.Join(Binaries(t), args[0]), args[1:]...)
			cmd.Env = in.env
			out, err := cmd.CombinedOutput()
			last := string(out[bytes.LastIndexByte(bytes.TrimSuffix(out, []byte("\n")), '\n')+1:])
			t.Logf("%s: %s", test.name, last)
			if err == nil || !strings.Contains(last, test.want) || !strings.Contains(last, test.address) {
				t.Errorf("%s: %s: Got %v and %s, want %q and the address %s", test.name, args[0], err, out, test.want, test.address)
			}
		}
	}

	in.passThrough(fmt.Sprintf("gateways: [%q], tls: {enable: true, ca_file: %q}, retry_timeout: 20s", p.address, ca))
	if p.count("getScannerRows") == 0 || p.count("putMultiple")+p.count("put") == 0 {
		t.Error("nothing was read or written through the proxy")
	}
}
