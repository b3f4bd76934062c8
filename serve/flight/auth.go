package flight

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/apache/arrow/go/v15/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"sluice/serve/api"
)

// handshake is the one call that needs no token before.
const handshake = "/arrow.flight.protocol.FlightService/Handshake"

// unary asks calls for the token.
func (s *Server) unary(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := s.authorize(ctx); err != nil {
		return nil, err
	}
	return next(ctx, q)
}

// streaming asks calls for the token.
func (s *Server) streaming(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if info.FullMethod != handshake {
		if err := s.authorize(stream.Context()); err != nil {
			return err
		}
	}
	return next(srv, stream)
}

// credentialsOf returns the scheme and the text of the Authorization header.
func credentialsOf(ctx context.Context) (scheme, text string) {
	md, _ := metadata.FromIncomingContext(ctx)
	if all := md.Get("authorization"); len(all) > 0 {
		scheme, text, _ = strings.Cut(all[0], " ")
	}
	return scheme, text
}

func (s *Server) authorize(ctx context.Context) error {
	if scheme, token := credentialsOf(ctx); strings.EqualFold(scheme, "Bearer") && api.SameToken(s.token(), token) {
		return nil
	}
	s.counts.token.Add(1)
	return status.Errorf(codes.Unauthenticated, "the call has no good token: send the header authorization: Bearer TOKEN, with serve.token of the daemon's configuration, or the one in %s of its data directory", api.EndpointFile)
}

// Handshake is for clients that log in with a name and a password: whatever the name, the
// password is the token, which they get back as a bearer token.
func (s *Server) Handshake(stream flight.FlightService_HandshakeServer) error {
	scheme, text := credentialsOf(stream.Context())
	if strings.EqualFold(scheme, "Basic") {
		plain, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			plain, err = base64.RawStdEncoding.DecodeString(text)
		}
		if _, password, ok := strings.Cut(string(plain), ":"); err == nil && ok && api.SameToken(s.token(), password) {
			bearer := metadata.Pairs("authorization", "Bearer "+password)
			stream.SetTrailer(bearer)
			return stream.SendHeader(bearer)
		}
	}
	s.counts.token.Add(1)
	return status.Errorf(codes.Unauthenticated, "log in with any name and, as the password, serve.token of the daemon's configuration, or the token in %s of its data directory", api.EndpointFile)
}
