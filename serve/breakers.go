package serve

import (
	"fmt"
	"net/http"

	"sluice/serve/api"
)

// closeBreakers closes the open circuit breakers of a pipeline.
func (s *Server) closeBreakers(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("pipeline")
	if s.o.CloseBreakers == nil {
		return fmt.Errorf("%w: pipeline %s: none runs here", api.ErrNotFound, name)
	}
	n, err := s.o.CloseBreakers(r.Context(), name)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.ClosedBreakers{Partitions: n})
}
