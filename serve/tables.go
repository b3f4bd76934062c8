package serve

import (
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
	return s.withAdmin(w, func(a store.Admin) error { return a.AlterTable(r.Context(), q.Store()) })
}

func (s *Server) dropTable(w http.ResponseWriter, r *http.Request) error {
	patient(w)
	return s.withAdmin(w, func(a store.Admin) error { return a.DropTable(r.Context(), r.PathValue("table")) })
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
	return s.withAdmin(w, func(a store.Admin) error { return a.MergeRegions(ctx, r.PathValue("table"), q.From, q.To) })
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
