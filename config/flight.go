package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"sluice/internal/reread"
)

// Flight is the Arrow Flight server of the daemon, from which the rows of export jobs are
// read without files; calls carry serve.token.
type Flight struct {
	// Listen is the host:port to listen on, such as 127.0.0.1:8815; port 0 takes a free one;
	// empty = there is no such server. An address beyond loopback is reachable for everyone
	// who can route to it: set serve.token and tls then.
	Listen string `yaml:"listen"`
	// TLS encrypts the connections.
	TLS ServerTLS `yaml:"tls"`
	// Hold is for how long a flight can be read after it was asked for, and after each time
	// that it was read: so long does the daemon hold its instant, which takes disk space as
	// the table changes.
	Hold time.Duration `yaml:"hold" default:"5m"`
	// MaxHold is for how long one is held at most, whoever reads it then.
	MaxHold time.Duration `yaml:"max_hold" default:"1h"`
	// MaxFlights is how many flights are held at once; more are refused.
	MaxFlights int `yaml:"max_flights" default:"8"`
	// MaxStreams is how many parts of flights are sent at once; others wait, and are refused
	// after 30 seconds. Each takes some 16 MiB of memory.
	MaxStreams int `yaml:"max_streams" default:"8"`
}

// ServerTLS encrypts the connections of a server.
type ServerTLS struct {
	// CertFile is the server's certificate, PEM, with those that lead to its authority; empty
	// = no TLS. Both files are read again where they have changed when a connection is made.
	CertFile string `yaml:"cert_file"`
	// KeyFile is the server's key, PEM.
	KeyFile string `yaml:"key_file"`
	// ClientCAFile holds the certificates of authorities, PEM, by one of which a client's
	// certificate must be signed; empty = clients need none.
	ClientCAFile string `yaml:"client_ca_file"`
}

// FlightTLS returns what encrypts the connections of the Flight server, or nil where nothing
// does.
func (c *Config) FlightTLS() (*tls.Config, error) { return c.Flight.TLS.load("flight.tls", c.renewed) }

// load returns the server's configuration, or nil where TLS is off. The setting is t's own,
// files where what it reads is looked at again.
func (t *ServerTLS) load(setting string, files *Renewed) (*tls.Config, error) {
	if t.CertFile == "" {
		return nil, nil
	}
	pair, err := renewed(files, setting, func() (*reread.Value[*tls.Certificate], error) {
		return reread.New(readPair(t.CertFile, t.KeyFile), t.CertFile, t.KeyFile)
	})
	if err != nil {
		return nil, fmt.Errorf("cert_file and key_file: %w", err)
	}
	o := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Get(), nil }}
	if t.ClientCAFile != "" {
		o.ClientAuth = tls.RequireAndVerifyClientCert
		if o.ClientCAs, err = readRoots(t.ClientCAFile); err != nil {
			return nil, fmt.Errorf("client_ca_file: %w", err)
		}
	}
	return o, nil
}

// isListen reports whether text is an address to listen on; "http" is a port, too.
func isListen(text string) bool {
	_, port, err := net.SplitHostPort(text)
	n, numErr := strconv.Atoi(port)
	return err == nil && !errors.Is(numErr, strconv.ErrRange) && (numErr != nil || n >= 0 && n <= math.MaxUint16)
}

// lintFlight reports what is wrong with flight.
func (c *Config) lintFlight(d *decoder, report reporter) {
	f := &c.Flight
	if (f.TLS.CertFile == "") != (f.TLS.KeyFile == "") {
		report("flight.tls", "", "cert_file and key_file go together")
	}
	if f.TLS.ClientCAFile != "" && f.TLS.CertFile == "" {
		report("flight.tls.client_ca_file", "add cert_file and key_file", "certificates are asked of clients, and there is no TLS without the server's own")
	}
	for _, w := range []struct {
		key string
		v   time.Duration
	}{{"hold", f.Hold}, {"max_hold", f.MaxHold}} {
		if w.v < time.Second || w.v > maxWait {
			report("flight."+w.key, "", "%s is %v, must be %v..%v", w.key, w.v, time.Second, maxWait)
		}
	}
	if f.Hold > f.MaxHold {
		report("flight.hold", "", "hold (%v) is longer than max_hold (%v)", f.Hold, f.MaxHold)
	}
	for _, n := range []struct {
		key string
		v   int
	}{{"max_flights", f.MaxFlights}, {"max_streams", f.MaxStreams}} {
		if n.v < 1 || n.v > 1024 {
			report("flight."+n.key, "", "%s is %d, must be 1..1024", n.key, n.v)
		}
	}
	if f.Listen == "" {
		if d.has("flight") {
			d.warn("flight", "add listen: 127.0.0.1:8815", "flight has no listen, without which there is no such server")
		}
		return
	}
	_, port, _ := net.SplitHostPort(f.Listen)
	switch {
	case !isListen(f.Listen):
		report("flight.listen", "write host:port, such as 127.0.0.1:8815", "flight.listen is not an address to listen on")
	case f.Listen == c.Serve.Listen && port != "0":
		report("flight.listen", "take another port, such as 8815", "flight.listen is serve.listen, where the HTTP server is")
	case len(c.Jobs) == 0:
		d.warn("flight.listen", "declare a job: docs/export.md", "there is no job, and so nothing to read")
	}
	if c.Store.Engine == "hbase" && c.Serve.Token == "" {
		report("flight.listen", "set serve.token", "flights need serve.token with engine hbase, where no data directory has one for their callers")
	}
	if strings.ContainsFunc(string(c.Serve.Token), func(r rune) bool { return r < ' ' || r > '~' }) {
		report("serve.token", "", "serve.token has other characters than printable ASCII, which no call of flight can carry")
	}
}
