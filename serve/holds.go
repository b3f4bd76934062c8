package serve

import (
	"net/http"

	"sluice/cell"
	"sluice/serve/api"
	"sluice/store"
)

// withHolder runs do on the engine's ChangeHolder.
func (s *Server) withHolder(do func(h store.ChangeHolder) error) error {
	h, ok := s.o.Engine.(store.ChangeHolder)
	if !ok {
		return s.unsupported("knowledge of changes")
	}
	return do(h)
}

func (s *Server) listHolds(w http.ResponseWriter, r *http.Request) error {
	return s.withHolder(func(h store.ChangeHolder) error {
		holds, err := h.ChangeHolds(r.Context())
		if err != nil {
			return err
		}
		a := api.HoldsResponse{Holds: []api.Hold{}}
		for _, h := range holds {
			a.Holds = append(a.Holds, api.FromHold(h))
		}
		return writeJSON(w, http.StatusOK, a)
	})
}

// putHold makes or renews a hold, and answers what it is from now on.
func (s *Server) putHold(w http.ResponseWriter, r *http.Request) error {
	var q api.HoldRequest
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	return s.withHolder(func(h store.ChangeHolder) error {
		patient(w) // it waits for the rewrite that is under way
		made, err := h.HoldChanges(r.Context(), store.ChangeHold{Name: r.PathValue("hold"), Table: q.Table, Since: q.Since, Until: cell.Timestamp(q.Until), Expired: q.Expired})
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, api.FromHold(made))
	})
}

// deleteHold releases a hold, also one that is not there.
func (s *Server) deleteHold(w http.ResponseWriter, r *http.Request) error {
	return s.withHolder(func(h store.ChangeHolder) error {
		ctx, cancel := s.bounded(r)
		defer cancel()
		if err := h.ReleaseChanges(ctx, r.PathValue("hold")); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
}
