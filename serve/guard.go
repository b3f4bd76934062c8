package serve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sluice/serve/api"
	"sluice/store"
)

// requestCounts counts answers by the class of their status: index 2 is 2xx.
type requestCounts [6]atomic.Uint64

// statusWriter remembers the status and counts it.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// guard is around everything: Host check, limits, security headers, counts.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sw := &statusWriter{ResponseWriter: w}
		defer func() {
			if class := sw.status / 100; class > 0 && class < len(s.requests) {
				s.requests[class].Add(1)
			}
		}()
		h := sw.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		if !s.hostAllowed(r.Host) {
			s.writeError(sw, r, http.StatusMisdirectedRequest, &api.Error{
				Code:    "host_not_allowed",
				Message: fmt.Sprintf("host %q is not allowed; use an address or localhost, or add the name to serve.allowed_hosts", r.Host),
			})
			return
		}
		r.Body = http.MaxBytesReader(sw, r.Body, s.o.MaxBodyBytes)
		// Not every ResponseWriter has deadlines (tests' have none).
		_ = http.NewResponseController(sw).SetWriteDeadline(time.Now().Add(s.o.RequestTimeout + 5*time.Second))
		next.ServeHTTP(sw, r)
	})
}

// hostAllowed keeps web pages from reaching this server under a name of their
// own that resolves to loopback: addresses and known names only.
func (s *Server) hostAllowed(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return net.ParseIP(host) != nil || strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(s.o.AllowedHosts, func(a string) bool { return strings.EqualFold(a, host) })
}

// authorized asks for the bearer token.
func (s *Server) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.checkToken(w, r); err != nil {
			e, status := api.FromError(err)
			s.writeError(w, r, status, e)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// checkToken returns why a request has no right to an answer, whose headers say what it lacks.
func (s *Server) checkToken(w http.ResponseWriter, r *http.Request) error {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") && api.SameToken(s.token(), token) {
		return nil
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
	return fmt.Errorf("%w; the daemon's is in %s of its data directory", api.ErrUnauthorized, api.EndpointFile)
}

// streamError is an error after the answer has begun: the client's, or one that the answer
// ends with.
type streamError struct{ error }

// cutOffError is an error after the answer has begun that there is no place for in it.
type cutOffError struct{ error }

// handle runs h under the request's deadline and turns its error into an answer.
func (s *Server) handle(h handlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil {
			return
		}
		if _, streamed := err.(streamError); streamed {
			return
		}
		if _, cut := err.(cutOffError); cut {
			if r.Context().Err() == nil {
				s.o.Logger.Error("answer was cut off", "method", r.Method, "path", r.URL.Path, "err", err)
			}
			panic(http.ErrAbortHandler) // the client shall not take it for whole
		}
		e, status := api.FromError(err)
		s.writeError(w, r, status, e)
	})
}

// bounded returns the request's context with the server's deadline.
func (s *Server) bounded(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), s.o.RequestTimeout)
}

// patient lifts the write deadline of a request that may take long.
func patient(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
}

func (s *Server) writeError(w http.ResponseWriter, r *http.Request, status int, e *api.Error) {
	if status == http.StatusInternalServerError && r.Context().Err() == nil {
		s.o.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", e.Message)
	}
	_ = writeJSON(w, status, e)
}

// unsupported is the error of an engine that lacks an optional interface.
func (s *Server) unsupported(what string) error {
	return fmt.Errorf("%w: engine %s has no %s", store.ErrUnsupported, s.o.Engine.Traits().Name, what)
}
