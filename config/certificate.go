package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"strings"

	"sluice/internal/reread"
)

// load returns nil where TLS is off.
func (t *TLS) load() (*tls.Config, error) {
	if !t.Enable {
		return nil, nil
	}
	o := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify, MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		o.RootCAs = x509.NewCertPool()
		if !o.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca_file: %s holds no certificate in PEM form", t.CAFile)
		}
	}
	if t.CertFile != "" {
		var err error
		if o.GetClientCertificate, err = clientCertificate(t.CertFile, t.KeyFile); err != nil {
			return nil, fmt.Errorf("cert_file and key_file: %w", err)
		}
	}
	return o, nil
}

// clientCertificate returns a tls.Config's GetClientCertificate, which shows the pair that
// the files hold, and none where the server would not take it, as of a Config's
// Certificates.
func clientCertificate(certFile, keyFile string) (func(*tls.CertificateRequestInfo) (*tls.Certificate, error), error) {
	pair, err := reread.New(readPair(certFile, keyFile), certFile, keyFile)
	if err != nil {
		return nil, err
	}
	return func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		p := pair.Get()
		if asked.SupportsCertificate(p) != nil {
			p = &tls.Certificate{}
		}
		return p, nil
	}, nil
}

// readPair returns what reads a certificate and its key.
func readPair(certFile, keyFile string) func() (*tls.Certificate, error) {
	return func() (*tls.Certificate, error) {
		p, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil && isEncrypted(keyFile) {
			err = fmt.Errorf("the key in %s is encrypted, and nothing here asks for its password: decrypt it (openssl pkey), and protect the file", keyFile)
		}
		return &p, err
	}
}

// isEncrypted reports whether the file holds a private key in PEM form that is encrypted: by
// PKCS #8, or by the header of older ones.
func isEncrypted(keyFile string) bool {
	text, err := os.ReadFile(keyFile)
	for err == nil {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return false
		}
		if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return true
		}
	}
	return false
}
