package hbasestore

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/store"
)

// certificateOf makes a certificate that trusts itself, for a name, until a time.
func certificateOf(t *testing.T, host string, until time.Time) (*tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: until.Add(-2 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

// behindTLS is a gateway whose connections have this configuration.
func behindTLS(t *testing.T, c *tls.Config) *fakeGateway {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", c)
	if err != nil {
		t.Fatal(err)
	}
	return newGatewayAt(t, l, newMem(t), false)
}

// TestOpenWrongCertificate: a certificate that is wrong on either side is no matter of
// time: it ends the first open at once, with the gateway's name and what to look at.
func TestOpenWrongCertificate(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	good, roots := certificateOf(t, "gateway", later)
	old, oldRoots := certificateOf(t, "gateway", time.Now().Add(-time.Minute))
	_, others := certificateOf(t, "gateway", later)
	server := func(c *tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{*c}} }
	asks := func(version uint16) *tls.Config {
		c := server(good)
		c.ClientAuth, c.ClientCAs, c.MaxVersion = tls.RequireAndVerifyClientCert, others, version
		return c
	}
	trusts := func(roots *x509.CertPool) *tls.Config { return &tls.Config{RootCAs: roots, ServerName: "gateway"} }
	withCertificate := trusts(roots)
	withCertificate.Certificates = []tls.Certificate{*good}
	for _, c := range []struct {
		name           string
		server, client *tls.Config
		want           string
	}{
		{"another authority", server(good), trusts(others), "check ca_file"},
		{"another name", server(good), &tls.Config{RootCAs: roots, ServerName: "other"}, "check its address in gateways, and server_name"},
		{"expired", server(old), trusts(oldRoots), "renew it, and check the clocks"},
		{"no client certificate, TLS 1.3", asks(tls.VersionTLS13), trusts(roots), "check cert_file and key_file"},
		{"no client certificate, TLS 1.2", asks(tls.VersionTLS12), trusts(roots), "check cert_file and key_file"},
		{"another client certificate", asks(tls.VersionTLS13), withCertificate, "check cert_file and key_file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bad := behindTLS(t, c.server)
			s, err := Open(t.Context(), &Options{Addresses: []string{bad.address()}, TLS: c.client})
			if err == nil {
				s.Close()
				t.Fatal("it was opened")
			}
			if errors.Is(err, store.ErrTransient) || !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), "gateway "+bad.address()) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "is it a Thrift2 gateway") {
				t.Errorf("Got %v, want %q, and no temporary error", err, c.want)
			}
		})
	}
	t.Run("beside one that works", func(t *testing.T) {
		t.Parallel()
		bad, works := behindTLS(t, server(old)), behindTLS(t, server(good))
		s := dial(t, func(o *Options) { o.TLS = trusts(roots) }, bad, works)
		if err := mutate(t, s, put("r", "v")); err != nil {
			t.Error(err)
		}
	})
	t.Run("beside one that is down", func(t *testing.T) {
		t.Parallel()
		bad, down := behindTLS(t, server(old)), behindTLS(t, server(good))
		down.stop()
		for _, addresses := range [][]string{{bad.address(), down.address()}, {down.address(), bad.address()}} {
			s, err := Open(t.Context(), &Options{Addresses: addresses, TLS: trusts(roots)})
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, store.ErrTransient) {
				t.Errorf("Got %v, and the one that is down may be back", err)
			}
		}
	})
}

// TestWrongCertificateLater: a certificate that goes bad under a store that was open may
// be mended: calls are made again for RetryTimeout, and say what is wrong.
func TestWrongCertificateLater(t *testing.T) {
	t.Parallel()
	good, roots := certificateOf(t, "gateway", time.Now().Add(time.Hour))
	old, _ := certificateOf(t, "gateway", time.Now().Add(-time.Minute))
	var spoiled atomic.Bool
	g := behindTLS(t, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if spoiled.Load() {
			return old, nil
		}
		return good, nil
	}})
	var log bytes.Buffer
	s := dial(t, func(o *Options) {
		o.TLS, o.RetryTimeout = &tls.Config{RootCAs: roots, ServerName: "gateway", ClientSessionCache: nil}, 200*time.Millisecond
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	}, g)
	breakAll := func() {
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		for _, g := range s.pool.gateways {
			s.pool.forget(g)
		}
	}
	spoiled.Store(true)
	breakAll()
	begun := time.Now()
	err := mutate(t, s, put("r", "v"))
	if !errors.Is(err, store.ErrTransient) || time.Since(begun) < 200*time.Millisecond || !strings.Contains(err.Error(), "renew it, and check the clocks") || !strings.Contains(err.Error(), g.address()) {
		t.Errorf("Got %v after %v, want a temporary error that says what is wrong", err, time.Since(begun))
	}
	if !strings.Contains(log.String(), "renew it, and check the clocks") {
		t.Errorf("Got %s in the log", log.String())
	}
	spoiled.Store(false)
	if err := mutate(t, s, put("r", "v")); err != nil {
		t.Errorf("with the right certificate: Got %v", err)
	}
}
