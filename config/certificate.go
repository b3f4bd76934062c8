package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
)

// load returns nil where TLS is off.
func (t *TLS) load() (*tls.Config, error) {
	if !t.Enable {
		return nil, nil
	}
	o := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify, MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		o.RootCAs = x509.NewCertPool()
		if !o.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file: %s holds no certificate in PEM form", t.CAFile)
		}
	}
	if t.CertFile != "" {
		c := &certificate{files: [2]string{t.CertFile, t.KeyFile}}
		if _, err := c.current(); err != nil {
			return nil, fmt.Errorf("cert_file and key_file: %w", err)
		}
		o.GetClientCertificate = c.answer
	}
	return o, nil
}

// certificate is a client's certificate and its key in files that something else
// replaces before they expire. It is safe for concurrent use.
type certificate struct {
	files [2]string // the certificate's, the key's

	mu    sync.Mutex // guards below
	pair  *tls.Certificate
	state [2]fileState // of the files that pair is from
}

// fileState tells a file from the one that replaces it.
type fileState struct {
	modified int64 // Unix time in ns
	size     int64 // in bytes
}

// answer is a tls.Config's GetClientCertificate: none where the server would not take it,
// as of a Config's Certificates.
func (c *certificate) answer(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := c.current()
	if err == nil && asked.SupportsCertificate(pair) != nil {
		pair = &tls.Certificate{}
	}
	return pair, err
}

// current returns what the files hold, which it reads where they have changed. What
// cannot be read then, as the two files are not replaced at one moment, is passed over for
// the last pair that could; the next call looks again.
func (c *certificate) current() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The state is taken before the files are read: a change in between is seen next time.
	state, err := c.stat()
	if err == nil && c.pair != nil && state == c.state {
		return c.pair, nil
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.LoadX509KeyPair(c.files[0], c.files[1])
	}
	switch {
	case err == nil:
		c.pair, c.state = &pair, state
	case c.pair == nil:
		return nil, err
	}
	return c.pair, nil
}

func (c *certificate) stat() (state [2]fileState, err error) {
	for i, name := range c.files {
		info, statErr := os.Stat(name)
		if statErr != nil {
			err = errors.Join(err, statErr)
			continue
		}
		state[i] = fileState{modified: info.ModTime().UnixNano(), size: info.Size()}
	}
	return state, err
}
