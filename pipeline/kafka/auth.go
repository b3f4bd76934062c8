package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/xdg-go/scram"
)

// SASL says who this client is. The zero value sends no credentials. It prints
// without its password.
type SASL struct {
	Mechanism string // "PLAIN", "SCRAM-SHA-256" or "SCRAM-SHA-512"; "" = none
	User      string
	Password  string `json:"-"`
}

// String leaves the password out.
func (s SASL) String() string {
	if s.Mechanism == "" {
		return "no SASL"
	}
	return fmt.Sprintf("SASL %s as %q", s.Mechanism, s.User)
}

// GoString keeps %#v from printing the password.
func (s SASL) GoString() string { return "kafka.SASL{" + s.String() + "}" }

// LogValue keeps slog from printing it.
func (s SASL) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Format keeps verbs that are for no text, such as %d, from printing it.
func (s SASL) Format(f fmt.State, verb rune) {
	if verb == 'v' && f.Flag('#') {
		_, _ = io.WriteString(f, s.GoString()) // a State takes what it is given
		return
	}
	fmt.Fprintf(f, fmt.FormatString(f, verb), s.String())
}

// mechanism returns nil for none. Where now is not nil it is asked at each authentication for
// the password. It is a function so that fmt, which looks into every
// field of what it prints, finds no password in what holds it.
func (s SASL) mechanism(now func() string) (func() sasl.Mechanism, error) {
	m, err := s.with(s.Password)
	switch {
	case m == nil || err != nil:
		return nil, err
	case now == nil:
		return func() sasl.Mechanism { return m }, nil
	}
	return func() sasl.Mechanism {
		if m, err := s.with(now()); err == nil {
			return m
		}
		return m // the name of the mechanism is no other
	}, nil
}

// with returns the mechanism with this password; nil = none.
func (s SASL) with(password string) (sasl.Mechanism, error) {
	switch s.Mechanism {
	case "PLAIN":
		return plain.Mechanism{Username: s.User, Password: password}, nil
	case "SCRAM-SHA-256":
		return newSCRAM(s.Mechanism, scram.SHA256, s.User, password)
	case "SCRAM-SHA-512":
		return newSCRAM(s.Mechanism, scram.SHA512, s.User, password)
	}
	return nil, nil
}

// authenticate runs SASL on a connection (KIP-43, KIP-152) and returns for how long
// the broker takes it as authenticated (KIP-368); 0 = for good.
func (s *connSet) authenticate(ctx context.Context, c net.Conn, address string) (lifetime time.Duration, err error) {
	failed := func(err error) (time.Duration, error) {
		return 0, fmt.Errorf("broker %s, %v: %w", address, s.o.SASL, err)
	}
	refused := func(err error, hint string) (time.Duration, error) {
		return 0, fmt.Errorf("%w: broker %s refuses %v: %w; %s", ErrAuth, address, s.o.SASL, err, hint)
	}
	mechanism := s.mechanism()
	shake := kmsg.NewPtrSASLHandshakeRequest()
	shake.Version, shake.Mechanism = 1, mechanism.Name()
	greeted := &greetedConn{Conn: c}
	resp, err := s.ask(greeted, shake)
	switch {
	case greeted.wrong != nil:
		s.other(address)
		return failed(greeted.wrong)
	case err != nil:
		return failed(err)
	}
	switch r := resp.(*kmsg.SASLHandshakeResponse); code(r.ErrorCode) {
	case codeNone:
	case codeIllegalSASLState: // its listener authenticates nobody, or by TLS
		return refused(codeIllegalSASLState, "its listener has no SASL: check the port, or set no mechanism")
	default:
		return refused(fmt.Errorf("%w; it takes %q", code(r.ErrorCode), r.SupportedMechanisms), "check the mechanism")
	}
	session, state, err := mechanism.Start(ctx)
	if err != nil {
		return failed(err)
	}
	for done := false; !done; {
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.Version, req.SASLAuthBytes = 1, state
		resp, err := s.ask(c, req)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return failed(fmt.Errorf("%w: %w", errHungUp, err)) // as Kafka before 1.0 did
		case err != nil:
			return failed(err)
		}
		r := resp.(*kmsg.SASLAuthenticateResponse)
		if e := code(r.ErrorCode); e != codeNone {
			reason := e.with(e, r.ErrorMessage)
			if !e.auth() {
				return failed(reason)
			}
			return refused(reason, "check the credentials")
		}
		// The broker, too, proves that it knows the password.
		if done, state, err = session.Next(ctx, r.SASLAuthBytes); err != nil {
			return refused(err, "check the credentials")
		}
		lifetime = time.Duration(min(max(r.SessionLifetimeMillis, 0), maxLifetime.Milliseconds())) * time.Millisecond
	}
	return lifetime, nil
}

func (s *connSet) ask(c net.Conn, req kmsg.Request) (kmsg.Response, error) {
	x := &exchange{clientID: s.o.ClientID, req: req}
	if _, err := x.RawExchange(c); err != nil {
		return nil, err
	}
	return x.resp, nil
}

// alert reports whether err is a TLS alert that the other side sent.
func alert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// errHandshake: it was TLS that was not agreed on, for no reason that anybody gave.
var errHandshake = errors.New("TLS with broker")

// tlsError names the broker and what to look at. What waiting cannot cure wraps
// ErrTLS.
func tlsError(address string, err error) error {
	var (
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		host    x509.HostnameError
		verify  *tls.CertificateVerificationError
		hint    string
	)
	switch {
	case errors.As(err, &unknown):
		hint = "its certificate was not issued by a CA that this process trusts: check the CA file"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		hint = "its certificate has expired or is not valid yet: renew it, and check the clocks"
	case errors.As(err, &host):
		hint = "its certificate is for other names: check the broker's address and the server name"
	case errors.As(err, &verify), errors.As(err, &invalid):
		hint = "its certificate cannot be trusted"
	case alert(err):
		hint = "the broker has ended the connection: check this client's certificate and key, and whether the broker asks for one"
	default: // the network's, or the broker speaks no TLS here
		return fmt.Errorf("%w %s: %w", errHandshake, address, err)
	}
	return fmt.Errorf("%w with broker %s: %w; %s", ErrTLS, address, err, hint)
}
