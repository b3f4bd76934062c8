package serve

import (
	"context"
	"fmt"
	"net/http"

	"sluice/serve/api"
	"sluice/store"
)

func (s *Server) admin() (store.Admin, error) {
	if a, ok := s.o.Engine.(store.Admin); ok {
		return a, nil
	}
	return nil, s.unsupported("administration of tables")
}

// withAdmin runs do on the engine's Admin and answers 204.
func (s *Server) withAdmin(w http.ResponseWriter, do func(a store.Admin) error) error {
	a, err := s.admin()
	if err == nil {
		err = do(a)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (s *Server) listTables(w http.ResponseWriter, r *http.Request) error {
	a, err := s.admin()
	if err != nil {
		return err
	}
	names, err := a.Tables(r.Context())
	if err != nil {
		return err
	}
	if names == nil {
		names = []string{}
	}
	return writeJSON(w, http.StatusOK, api.TablesResponse{Tables: names})
}

func (s *Server) getTable(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := s.bounded(r)
	defer cancel()
	name := r.PathValue("table")
	t, err := s.o.Engine.Table(ctx, name)
	if err != nil {
		return err
	}
	m, err := s.o.Engine.Regions(ctx, name)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.TableResponse{Table: api.FromTable(t), Regions: api.FromRegions(m)})
}

func (s *Server) createTable(w http.ResponseWriter, r *http.Request) error {
	var q api.CreateRequest
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	return s.withAdmin(w, func(a store.Admin) error { return a.CreateTable(ctx, q.Table.Store(), q.Splits) })
}

func (s *Server) alterTable(w http.ResponseWriter, r *http.Request) error {
	var q api.Table
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	if name := r.PathValue("table"); q.Name == "" {
		q.Name = name
	} else if q.Name != name {
		return fmt.Errorf("%w: the schema names table %s, the path %s", store.ErrInvalidArgument, q.Name, name)
	}
	patient(w) // removing a family removes its cells
	return s.withAdmin(w, func(a store.Admin) error {
		if s.o.MayAlter != nil {
			if err := s.o.MayAlter(r.Context(), q.Store()); err != nil {
				return err
			}
		}
		return a.AlterTable(r.Context(), q.Store())
	})
}

func (s *Server) dropTable(w http.ResponseWriter, r *http.Request) error {
	patient(w)
	return s.withAdmin(w, func(a store.Admin) error {
		if err := s.mayEmpty(r.Context(), r.PathValue("table")); err != nil {
			return err
		}
		return a.DropTable(r.Context(), r.PathValue("table"))
	})
}

func (s *Server) mayEmpty(ctx context.Context, table string) error {
	if s.o.MayEmpty == nil {
		return nil
	}
	return s.o.MayEmpty(ctx, table)
}

func (s *Server) splitRegion(w http.ResponseWriter, r *http.Request) error {
	var q api.SplitRequest
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	return s.withAdmin(w, func(a store.Admin) error { return a.SplitRegion(ctx, r.PathValue("table"), q.At) })
}

func (s *Server) mergeRegions(w http.ResponseWriter, r *http.Request) error {
	var q api.MergeRequest
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	return s.withAdmin(w, func(a store.Admin) error { return a.MergeRegions(ctx, r.PathValue("table"), q.Rows...) })
}

// getState, putState and truncate are store.TableSwitcher.
func (s *Server) getState(w http.ResponseWriter, r *http.Request) error {
	t, err := optional[store.TableSwitcher](s, "disabled tables")
	if err != nil {
		return err
	}
	enabled, err := t.TableEnabled(r.Context(), r.PathValue("table"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.StateResponse{Enabled: enabled})
}

func (s *Server) putState(w http.ResponseWriter, r *http.Request) error {
	var q api.StateRequest
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	if q.Enabled == nil {
		return fmt.Errorf(`%w: say {"enabled": true} or {"enabled": false}`, store.ErrInvalidArgument)
	}
	return s.switchTable(w, r, func(ctx context.Context, t store.TableSwitcher, name string) error {
		if *q.Enabled {
			return t.EnableTable(ctx, name)
		}
		return t.DisableTable(ctx, name)
	})
}

func (s *Server) truncateTable(w http.ResponseWriter, r *http.Request) error {
	var q api.TruncateRequest
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	return s.switchTable(w, r, func(ctx context.Context, t store.TableSwitcher, name string) error {
		if err := s.mayEmpty(ctx, name); err != nil {
			return err
		}
		return t.TruncateTable(ctx, name, q.PreserveSplits)
	})
}

func (s *Server) switchTable(w http.ResponseWriter, r *http.Request, do func(context.Context, store.TableSwitcher, string) error) error {
	t, err := optional[store.TableSwitcher](s, "disabled tables")
	if err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	if err := do(ctx, t, r.PathValue("table")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// optional returns the engine as T, one of the store's optional interfaces, or an
// error that says what it lacks.
func optional[T any](s *Server, what string) (T, error) {
	t, ok := s.o.Engine.(T)
	if !ok {
		return t, s.unsupported(what)
	}
	return t, nil
}

func (s *Server) listNamespaces(w http.ResponseWriter, r *http.Request) error {
	n, err := optional[store.Namespacer](s, "namespaces")
	if err != nil {
		return err
	}
	all, err := n.Namespaces(r.Context())
	if err != nil {
		return err
	}
	a := api.NamespacesResponse{Namespaces: make([]api.Namespace, len(all))}
	for i := range all {
		a.Namespaces[i] = api.Namespace(all[i])
	}
	return writeJSON(w, http.StatusOK, a)
}

func (s *Server) createNamespace(w http.ResponseWriter, r *http.Request) error {
	return s.putNamespace(w, r, store.Namespacer.CreateNamespace)
}

func (s *Server) alterNamespace(w http.ResponseWriter, r *http.Request) error {
	return s.putNamespace(w, r, store.Namespacer.AlterNamespace)
}

func (s *Server) dropNamespace(w http.ResponseWriter, r *http.Request) error {
	return s.withNamespacer(w, r, func(ctx context.Context, n store.Namespacer) error {
		return n.DropNamespace(ctx, r.PathValue("namespace"))
	})
}

func (s *Server) putNamespace(w http.ResponseWriter, r *http.Request, do func(store.Namespacer, context.Context, *store.Namespace) error) error {
	var q api.Namespace
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	if name := r.PathValue("namespace"); name != "" {
		q.Name = name
	}
	space := store.Namespace(q)
	return s.withNamespacer(w, r, func(ctx context.Context, n store.Namespacer) error { return do(n, ctx, &space) })
}

func (s *Server) withNamespacer(w http.ResponseWriter, r *http.Request, do func(context.Context, store.Namespacer) error) error {
	n, err := optional[store.Namespacer](s, "namespaces")
	if err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	if err := do(ctx, n); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) regionStats(w http.ResponseWriter, r *http.Request) error {
	m, err := optional[store.RegionMeter](s, "region statistics")
	if err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	stats, err := m.RegionStats(ctx, r.PathValue("table"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.RegionsResponse{Regions: api.FromRegionStats(stats)})
}

func (s *Server) splitPoint(w http.ResponseWriter, r *http.Request) error {
	m, err := optional[store.RegionMeter](s, "region statistics")
	if err != nil {
		return err
	}
	var q api.PointRequest
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	at, err := m.SplitPoint(ctx, r.PathValue("table"), q.Row)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.PointResponse{At: at})
}

func (s *Server) withCompactor(w http.ResponseWriter, do func(c store.Compactor) error) error {
	c, ok := s.o.Engine.(store.Compactor)
	if !ok {
		return s.unsupported("compaction")
	}
	patient(w)
	err := do(c)
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (s *Server) compactTable(w http.ResponseWriter, r *http.Request) error {
	return s.withCompactor(w, func(c store.Compactor) error { return c.MajorCompact(r.Context(), r.PathValue("table")) })
}

func (s *Server) flush(w http.ResponseWriter, r *http.Request) error {
	return s.withCompactor(w, func(c store.Compactor) error { return c.Flush(r.Context()) })
}
