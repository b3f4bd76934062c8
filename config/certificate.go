package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"sluice/internal/reread"
)

// load returns nil where TLS is off. The setting is t's own, files where what it reads is
// looked at again. The roots are those that a connection is to trust when it is made, as they
// may have been replaced since; nil = those of o.
func (t *TLS) load(setting string, files *Renewed) (o *tls.Config, roots func() *x509.CertPool, err error) {
	if !t.Enable {
		return nil, nil, nil
	}
	o = &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify, MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pool, err := renewed(files, setting+".ca_file", func() (*reread.Value[*x509.CertPool], error) {
			return reread.New(func() (*x509.CertPool, error) { return readRoots(t.CAFile) }, t.CAFile)
		})
		if err != nil {
			return nil, nil, fmt.Errorf("ca_file: %w", err)
		}
		roots = pool.Get
		o.RootCAs = roots()
	}
	if t.CertFile != "" {
		if o.GetClientCertificate, err = clientCertificate(setting+".cert_file", t.CertFile, t.KeyFile, files); err != nil {
			return nil, nil, fmt.Errorf("cert_file and key_file: %w", err)
		}
	}
	return o, roots, nil
}

func readRoots(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", file)
	}
	return pool, nil
}

// clientCertificate returns a tls.Config's GetClientCertificate, which shows the pair that
// the files hold, and none where the server would not take it, as of a Config's
// Certificates.
func clientCertificate(setting, certFile, keyFile string, files *Renewed) (func(*tls.CertificateRequestInfo) (*tls.Certificate, error), error) {
	pair, err := renewed(files, setting, func() (*reread.Value[*tls.Certificate], error) {
		return reread.New(readPair(certFile, keyFile), certFile, keyFile)
	})
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
		var named *fs.PathError
		switch {
		case err == nil || errors.As(err, &named):
		case !isEncrypted(keyFile):
			err = fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
		default:
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
