package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"sluice/serve/api"
	"sluice/store"
)

// IcebergCatalog is what GET /iceberg/v1 serves: the Iceberg tables that exports are. It is safe
// for concurrent use.
type IcebergCatalog interface {
	// Tables returns the names of the tables that are there, sorted.
	Tables(ctx context.Context) ([]string, error)
	// Load returns where the newest metadata of a table is, and that metadata, JSON. Its error
	// wraps api.ErrNotFound where there is no such table.
	Load(ctx context.Context, table string) (location string, metadata []byte, err error)
}

// icebergPrefix is the path of the catalog; clients are told http://ADDRESS/iceberg.
const icebergPrefix = "/iceberg/v1"

// icebergNamespace is the only one.
const icebergNamespace = "sluice"

// icebergRoutes are what the catalog answers (Iceberg REST Catalog API), all of it for readers:
// jobs alone make tables.
func (s *Server) icebergRoutes(mux *http.ServeMux) {
	var endpoints []string
	route := func(path string, h handlerFunc, methods ...string) {
		mux.Handle("GET "+icebergPrefix+path, s.icebergGuard(h)) // and HEAD
		for _, method := range methods {
			endpoints = append(endpoints, method+" /v1/{prefix}"+path)
		}
	}
	route("/namespaces", s.icebergNamespaces, http.MethodGet)
	route("/namespaces/{namespace}", s.icebergOneNamespace, http.MethodGet, http.MethodHead)
	route("/namespaces/{namespace}/tables", s.icebergTables, http.MethodGet)
	route("/namespaces/{namespace}/tables/{table}", s.icebergTable, http.MethodGet, http.MethodHead)
	route("/config", func(w http.ResponseWriter, _ *http.Request) error {
		return writeJSON(w, http.StatusOK, map[string]any{"defaults": map[string]string{}, "overrides": map[string]string{}, "endpoints": endpoints})
	})
	mux.Handle("/iceberg/", s.icebergGuard(func(_ http.ResponseWriter, r *http.Request) error {
		return fmt.Errorf("%w: %s %s: this catalog is for readers: exports make its tables, and nothing else changes them", store.ErrUnsupported, r.Method, r.URL.Path)
	}))
}

// icebergGuard asks for the token, as /api does, and answers errors as the catalog's clients
// read them.
func (s *Server) icebergGuard(h handlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.checkToken(w, r)
		if err == nil {
			err = h(w, r)
		}
		if err == nil {
			return
		}
		e, status := api.FromError(err)
		if status == http.StatusInternalServerError && r.Context().Err() == nil {
			s.o.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", e.Message)
		}
		what := map[int]string{
			http.StatusUnauthorized: "NotAuthorizedException", http.StatusNotImplemented: "UnsupportedOperationException", http.StatusNotFound: "NoSuchTableException",
			http.StatusBadRequest: "BadRequestException",
		}[status]
		if errors.Is(err, errNoNamespace) {
			what = "NoSuchNamespaceException"
		}
		if what == "" {
			what = "ServiceFailureException"
		}
		_ = writeJSON(w, status, map[string]any{"error": map[string]any{"message": e.Message, "type": what, "code": status}})
	})
}

// errNoNamespace is wrapped where a namespace is asked for that is not there.
var errNoNamespace = fmt.Errorf("%w: namespace", api.ErrNotFound)

// inNamespace returns an error unless the request is about the namespace that is there.
func inNamespace(r *http.Request) error {
	if name := r.PathValue("namespace"); name != icebergNamespace {
		return fmt.Errorf("%w %q; there is %s", errNoNamespace, name, icebergNamespace)
	}
	return nil
}

func (s *Server) icebergNamespaces(w http.ResponseWriter, r *http.Request) error {
	all := [][]string{{icebergNamespace}}
	switch parent := r.URL.Query().Get("parent"); parent {
	case "":
	case icebergNamespace:
		all = [][]string{}
	default:
		return fmt.Errorf("%w %q; there is %s", errNoNamespace, parent, icebergNamespace)
	}
	return writeJSON(w, http.StatusOK, map[string]any{"namespaces": all})
}

func (s *Server) icebergOneNamespace(w http.ResponseWriter, r *http.Request) error {
	if err := inNamespace(r); err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return writeJSON(w, http.StatusOK, map[string]any{"namespace": []string{icebergNamespace}, "properties": map[string]string{}})
}

func (s *Server) icebergTables(w http.ResponseWriter, r *http.Request) error {
	if err := inNamespace(r); err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	tables, err := s.o.Iceberg.Tables(ctx)
	if err != nil {
		return err
	}
	type identifier struct {
		Namespace []string `json:"namespace"`
		Name      string   `json:"name"`
	}
	all := []identifier{}
	for _, name := range tables {
		all = append(all, identifier{[]string{icebergNamespace}, name})
	}
	return writeJSON(w, http.StatusOK, map[string]any{"identifiers": all})
}

func (s *Server) icebergTable(w http.ResponseWriter, r *http.Request) error {
	if err := inNamespace(r); err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	location, metadata, err := s.o.Iceberg.Load(ctx, r.PathValue("table"))
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return writeJSON(w, http.StatusOK, map[string]any{"metadata-location": location, "metadata": json.RawMessage(metadata), "config": map[string]string{}})
}
