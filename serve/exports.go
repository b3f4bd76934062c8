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
	if q.Paused == nil {
		return fmt.Errorf(`%w: say {"paused": true} or {"paused": false}`, store.ErrInvalidArgument)
	}
	if err := s.o.PauseExport(r.Context(), r.PathValue("job"), *q.Paused); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// orderExport accepts a manual run or a backfill of an export job.
func (s *Server) orderExport(w http.ResponseWriter, r *http.Request) error {
	var q api.OrderRequest
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	if s.o.OrderExport == nil {
		return fmt.Errorf("%w: no job has a schedule", store.ErrUnsupported)
	}
	order, err := s.o.OrderExport(r.Context(), r.PathValue("job"), q)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusAccepted, order)
}

// cancelOrder ends an order of an export job.
func (s *Server) cancelOrder(w http.ResponseWriter, r *http.Request) error {
	if s.o.CancelOrder == nil {
		return fmt.Errorf("%w: no job has a schedule", store.ErrUnsupported)
	}
	if err := s.o.CancelOrder(r.Context(), r.PathValue("job"), r.PathValue("order")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// recordExport adds a run that somebody has made by hand to the history of its job.
func (s *Server) recordExport(w http.ResponseWriter, r *http.Request) error {
	var run api.ExportRun
	if err := decodeBody(r, &run); err != nil {
		return err
	}
	if s.o.RecordExport == nil {
		return fmt.Errorf("%w: this server keeps no history of exports", store.ErrUnsupported)
	}
	if err := s.o.RecordExport(r.Context(), r.PathValue("job"), run); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
