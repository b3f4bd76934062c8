package serve

import (
	"net/http"

	"sluice/serve/api"
	"sluice/serve/checkpoint"
)

func (s *Server) withCheckpoints(do func(c *checkpoint.Directory) error) error {
	if s.checkpoints == nil {
		return s.unsupported("checkpoints")
	}
	return do(s.checkpoints)
}

func (s *Server) listCheckpoints(w http.ResponseWriter, _ *http.Request) error {
	return s.withCheckpoints(func(c *checkpoint.Directory) error {
		return writeJSON(w, http.StatusOK, map[string]any{"checkpoints": c.List()})
	})
}

func (s *Server) createCheckpoint(w http.ResponseWriter, r *http.Request) error {
	var q api.CheckpointRequest
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	return s.withCheckpoints(func(c *checkpoint.Directory) error {
		ctx, cancel := s.bounded(r)
		defer cancel()
		lease, err := c.Create(ctx, &q)
		if err != nil {
			return err
		}
		s.o.Logger.Info("made a checkpoint", "path", lease.Path, "owner", lease.Owner, "sequence", lease.Sequence)
		return writeJSON(w, http.StatusCreated, lease)
	})
}

func (s *Server) renewCheckpoint(w http.ResponseWriter, r *http.Request) error {
	var q api.CheckpointRequest
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	return s.withCheckpoints(func(c *checkpoint.Directory) error {
		lease, err := c.Renew(r.PathValue("id"), q.LeaseSeconds)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, lease)
	})
}

func (s *Server) releaseCheckpoint(w http.ResponseWriter, r *http.Request) error {
	return s.withCheckpoints(func(c *checkpoint.Directory) error {
		if err := c.Release(r.PathValue("id")); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
}
