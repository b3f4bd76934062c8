package serve

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"sluice/serve/api"
	"sluice/store"
)

// readyTimeout bounds the store's answer to /readyz: probes give up soon.
const readyTimeout = 2 * time.Second

// livez answers as long as the process does.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request) error {
	_, _ = io.WriteString(w, "ok\n") // an error means that the client has left
	return nil
}

type check struct {
	name   string
	reason string // empty = good
}

func (s *Server) checks(ctx context.Context) []check {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	list := []check{{name: "server"}, {name: "store"}}
	if s.draining.Load() {
		list[0].reason = "shutting down"
	}
	if _, err := s.o.Engine.Regions(ctx, store.OffsetsTable); err != nil {
		list[1].reason = err.Error()
	} else if e, ok := s.o.Engine.(interface{ Stalled() error }); ok {
		if err := e.Stalled(); err != nil {
			list[1].reason = err.Error()
		}
	}
	if s.o.Pipelines == nil {
		return list
	}
	for _, p := range s.o.Pipelines() {
		c := check{name: "pipeline " + p.Name}
		if !p.Ready {
			c.reason = p.State
			if p.Reason != "" {
				c.reason += ": " + p.Reason
			}
		}
		list = append(list, c)
	}
	return list
}

// readyz says 503 with the reasons until everything works; ?verbose lists what
// does, too.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	verbose := r.URL.Query().Has("verbose")
	status := http.StatusOK
	var b strings.Builder
	for _, c := range s.checks(r.Context()) {
		switch {
		case c.reason != "":
			status = http.StatusServiceUnavailable
			fmt.Fprintf(&b, "[-] %s: %s\n", c.name, c.reason)
		case verbose:
			fmt.Fprintf(&b, "[+] %s: ok\n", c.name)
		}
	}
	if status == http.StatusOK {
		b.WriteString("ready\n")
	} else {
		b.WriteString("not ready\n")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, b.String())
	return nil
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, s.o.Version)
}

func (s *Server) hello(w http.ResponseWriter, _ *http.Request) error {
	a := api.Hello{Instance: s.instance, PID: os.Getpid(), Version: s.o.Version, Traits: s.o.Engine.Traits()}
	if named, ok := s.o.Engine.(interface{ ID() string }); ok {
		a.StoreID = named.ID()
	}
	return writeJSON(w, http.StatusOK, a)
}

func (s *Server) pipelines(w http.ResponseWriter, _ *http.Request) error {
	list := []PipelineStatus{}
	if s.o.Pipelines != nil {
		list = append(list, s.o.Pipelines()...)
	}
	return writeJSON(w, http.StatusOK, map[string]any{"pipelines": list})
}

func (s *Server) exports(w http.ResponseWriter, _ *http.Request) error {
	list := []ExportStatus{}
	if s.o.Exports != nil {
		list = append(list, s.o.Exports()...)
	}
	return writeJSON(w, http.StatusOK, map[string]any{"exports": list})
}
