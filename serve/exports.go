package serve

import (
	"fmt"
	"net/http"

	"sluice/serve/api"
	"sluice/store"
)

// putSchedule pauses or resumes the schedule of an export job.
func (s *Server) putSchedule(w http.ResponseWriter, r *http.Request) error {
	var q api.ScheduleRequest
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	if s.o.PauseExport == nil {
		return fmt.Errorf("%w: no job has a schedule", store.ErrUnsupported)
	}
	if err := s.o.PauseExport(r.Context(), r.PathValue("job"), q.Paused); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
