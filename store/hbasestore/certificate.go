package hbasestore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
)

// errCertificate: the certificate of a gateway, or that of this client, is wrong.
var errCertificate = errors.New("hbasestore: wrong certificate")

// certificateError is err, of a connection that was not made, with what to look at where
// a certificate is at fault; then it wraps errCertificate. Otherwise it is nil.
func certificateError(err error) error {
	var (
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		host    x509.HostnameError
		verify  *tls.CertificateVerificationError
		op      *net.OpError
		hint    string
	)
	switch {
	case errors.As(err, &unknown):
		hint = "the gateway's certificate was not issued by a CA that this process trusts: check ca_file"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		hint = "the gateway's certificate has expired or is not valid yet: renew it, and check the clocks"
	case errors.As(err, &host):
		hint = "the gateway's certificate is for other names: check its address in gateways, and server_name"
	case errors.As(err, &verify), errors.As(err, &invalid):
		hint = "the gateway's certificate cannot be trusted"
	case errors.As(err, &op) && op.Op == "remote error" && refusesClient(op.Err.Error()):
		hint = "the gateway refuses this client: check cert_file and key_file, and whether it asks for a certificate"
	default: // the network's, or no TLS is spoken there
		return nil
	}
	return fmt.Errorf("%w: %w; %s", errCertificate, err, hint)
}

// refusesClient reports whether an alert may be about a certificate: those that name one
// (RFC 8446, section 6.2: bad, unsupported, revoked, expired, unknown, required, and an
// authority that is unknown), and handshake_failure, which TLS 1.2 says where there is
// none.
func refusesClient(alert string) bool {
	return strings.Contains(alert, "certificate") || strings.Contains(alert, "handshake failure")
}
