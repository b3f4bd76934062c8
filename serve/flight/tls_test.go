package flight

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"sluice/jobs"
	"sluice/jobs/jobstest"
)

// selfSigned returns a certificate for 127.0.0.1, and what trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: parsed}, pool
}

// With TLS a client is refused that has none, does not trust the server, has no certificate
// where one is asked for, or no token.
func TestTLS(t *testing.T) {
	t.Parallel()
	own, trust := selfSigned(t)
	clients, trusted := selfSigned(t)
	e := jobstest.OpenMemory(t)
	f := serveFlights(t, e, map[string]*jobs.Spec{"events": eventSpec()}, func(o *Options) {
		o.TLS = &tls.Config{
			MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &own, nil },
		}
	})
	good := &tls.Config{RootCAs: trust, Certificates: []tls.Certificate{clients}, MinVersion: tls.VersionTLS12}
	if _, err := dial(t, f.address, credentials.NewTLS(good)).GetSchema(authorized(t), path("events")); err != nil {
		t.Error(err)
	}
	_, err := dial(t, f.address, credentials.NewTLS(good)).GetSchema(t.Context(), path("events"))
	wantStatus(t, err, codes.Unauthenticated, "no good token")
	for name, c := range map[string]credentials.TransportCredentials{
		"no TLS":         insecure.NewCredentials(),
		"no trust":       credentials.NewTLS(&tls.Config{RootCAs: x509.NewCertPool(), Certificates: good.Certificates, MinVersion: tls.VersionTLS12}),
		"no certificate": credentials.NewTLS(&tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12}),
		"another's":      credentials.NewTLS(&tls.Config{RootCAs: trust, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dial(t, f.address, c).GetSchema(authorized(t), path("events"))
			wantStatus(t, err, codes.Unavailable, "")
		})
	}
	if m := f.Metrics(); m.Refused["token"] != 1 {
		t.Errorf("Got %+v", m)
	}
}

// Beside a token that is good, one that is not first counts.
func TestTwoTokens(t *testing.T) {
	t.Parallel()
	f := events(t, 1, nil)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer wrong", "authorization", "Bearer "+testToken)
	_, err := f.client.GetSchema(ctx, path("events"))
	wantStatus(t, err, codes.Unauthenticated, "no good token")
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, o := range []*Options{nil, {}, {Compile: noJob, Table: noTable, Open: noSource}} {
		if s, err := New(o); err == nil {
			t.Errorf("Got %v for %v", s, fmt.Sprint(o))
		}
	}
	s, err := New(&Options{Compile: noJob, Table: noTable, Open: noSource, Token: testToken, Hold: 2 * time.Hour})
	if err != nil || s.o.MaxHold != 2*time.Hour || s.o.MaxFlights != DefaultMaxFlights {
		t.Errorf("Got %+v, %v", s.held.maxHold, err)
	}
}
