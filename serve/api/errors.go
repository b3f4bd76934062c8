package api

import (
	"context"
	"errors"
	"net/http"

	"sluice/cell"
	"sluice/store"
)

// Errors of the interface itself.
var (
	// ErrUnauthorized: the bearer token is missing or wrong.
	ErrUnauthorized = errors.New("api: the bearer token is missing or wrong")
	// ErrNotFound: no such path, counter, checkpoint or row.
	ErrNotFound = errors.New("api: not found")
	// ErrMethod: the path takes other methods, which the header Allow names.
	ErrMethod = errors.New("api: method not allowed")
	// ErrTooLarge: the body is larger than the server takes.
	ErrTooLarge = errors.New("api: request body too large")
	// ErrInternal: any error without a name; its text says what happened.
	ErrInternal = errors.New("api: internal error")
)

// codes name errors, the most specific first. The names are part of the
// interface: they never change.
var codes = []struct {
	code   string
	err    error
	status int
}{
	{"table_not_found", store.ErrTableNotFound, http.StatusNotFound},
	{"table_exists", store.ErrTableExists, http.StatusConflict},
	{"table_not_enabled", store.ErrTableNotEnabled, http.StatusConflict},
	{"table_read_only", store.ErrTableReadOnly, http.StatusUnprocessableEntity},
	{"table_not_disabled", store.ErrTableNotDisabled, http.StatusConflict},
	{"namespace_not_found", store.ErrNamespaceNotFound, http.StatusNotFound},
	{"namespace_exists", store.ErrNamespaceExists, http.StatusConflict},
	{"constraint", store.ErrConstraint, http.StatusConflict},
	{"family_not_found", store.ErrFamilyNotFound, http.StatusNotFound},
	{"invalid_schema", store.ErrInvalidSchema, http.StatusBadRequest},
	{"row_empty", cell.ErrRowEmpty, http.StatusBadRequest},
	{"row_too_long", cell.ErrRowTooLong, http.StatusBadRequest},
	{"wrong_row", store.ErrWrongRow, http.StatusBadRequest},
	{"cell_too_large", store.ErrCellTooLarge, http.StatusUnprocessableEntity},
	{"not_a_number", store.ErrNotANumber, http.StatusUnprocessableEntity},
	{"timestamp_too_far", store.ErrTimestampTooFar, http.StatusUnprocessableEntity},
	{"incompatible_filter", store.ErrIncompatibleFilter, http.StatusBadRequest},
	{"merge_region", store.ErrMergeRegion, http.StatusConflict},
	{"stale", store.ErrStale, http.StatusConflict},
	{"closed", store.ErrClosed, http.StatusServiceUnavailable},
	{"locked", store.ErrLocked, http.StatusConflict},
	{"read_only", store.ErrReadOnly, http.StatusForbidden},
	{"unsupported", store.ErrUnsupported, http.StatusNotImplemented},
	{"disk_full", store.ErrDiskFull, http.StatusInsufficientStorage},
	{"corrupt", store.ErrCorrupt, http.StatusInternalServerError},
	{"invalid_argument", store.ErrInvalidArgument, http.StatusBadRequest},
	{"refused", store.ErrRefused, http.StatusUnprocessableEntity},
	{"transient", store.ErrTransient, http.StatusServiceUnavailable},
	{"unknown_outcome", store.ErrUnknownOutcome, http.StatusInternalServerError},
	{"unauthorized", ErrUnauthorized, http.StatusUnauthorized},
	{"not_found", ErrNotFound, http.StatusNotFound},
	{"method_not_allowed", ErrMethod, http.StatusMethodNotAllowed},
	{"too_large", ErrTooLarge, http.StatusRequestEntityTooLarge},
	{"deadline_exceeded", context.DeadlineExceeded, http.StatusGatewayTimeout},
	{"canceled", context.Canceled, http.StatusServiceUnavailable},
	{"internal", ErrInternal, http.StatusInternalServerError},
}

// Error is an error on its way over the wire. On the client errors.Is finds in it
// every named error that it wrapped on the server.
type Error struct {
	// Code is the most specific name, such as "table_not_found".
	Code string `json:"code"`
	// Also are the names of the other errors that it wraps, such as the class
	// that Code belongs to.
	Also []string `json:"also,omitempty"`
	// Message says what happened and to what.
	Message string `json:"message"`
	// Refused are the refusals of a store.BatchError.
	Refused []Refusal `json:"refused,omitempty"`
	// Partial is a store.PartialError.
	Partial *Partial `json:"partial,omitempty"`
}

// Partial is store.PartialError.
type Partial struct {
	Failed  []Refusal `json:"failed"`
	Applied int       `json:"applied"`
}

// Refusal is store.Refusal.
type Refusal struct {
	Offset int64  `json:"offset"`
	Table  string `json:"table"`
	Row    []byte `json:"row"`
	Error  *Error `json:"error"`
}

// FromError converts err, which is not nil, and returns the HTTP status for it.
func FromError(err error) (*Error, int) {
	var e *Error
	if errors.As(err, &e) && len(e.Refused) == 0 && e.Partial == nil {
		return &Error{Code: e.Code, Also: e.Also, Message: err.Error()}, statusOf(e.Code)
	}
	e = &Error{Message: err.Error()}
	status := http.StatusInternalServerError
	for _, c := range codes {
		switch {
		case !errors.Is(err, c.err):
		case e.Code == "":
			e.Code, status = c.code, c.status
		default:
			e.Also = append(e.Also, c.code)
		}
	}
	if e.Code == "" {
		e.Code = "internal"
	}
	var refused *store.BatchError
	if errors.As(err, &refused) {
		e.Refused = fromRefusals(refused.Refused)
	}
	var partial *store.PartialError
	if errors.As(err, &partial) {
		e.Partial = &Partial{Failed: fromRefusals(partial.Failed), Applied: partial.Applied}
	}
	return e, status
}

func fromRefusals(rs []store.Refusal) []Refusal {
	out := make([]Refusal, len(rs))
	for i := range rs {
		e, _ := FromError(rs[i].Err)
		out[i] = Refusal{Offset: rs[i].Offset, Table: rs[i].Table, Row: rs[i].Row, Error: e}
	}
	return out
}

func toRefusals(rs []Refusal) []store.Refusal {
	out := make([]store.Refusal, len(rs))
	for i, r := range rs {
		var err error = r.Error
		if r.Error == nil {
			err = ErrInternal
		}
		out[i] = store.Refusal{Offset: r.Offset, Table: r.Table, Row: r.Row, Err: err}
	}
	return out
}

func statusOf(code string) int {
	for _, c := range codes {
		if c.code == code {
			return c.status
		}
	}
	return http.StatusInternalServerError
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the named errors, a *store.BatchError where records were
// refused, and a *store.PartialError where a batch was applied in part.
func (e *Error) Unwrap() []error {
	var errs []error
	for _, c := range codes {
		if c.code == e.Code {
			errs = append(errs, c.err)
		}
		for _, also := range e.Also {
			if c.code == also {
				errs = append(errs, c.err)
			}
		}
	}
	if len(e.Refused) > 0 {
		errs = append(errs, &store.BatchError{Refused: toRefusals(e.Refused)})
	}
	if e.Partial != nil && len(e.Partial.Failed) > 0 {
		errs = append(errs, &store.PartialError{Failed: toRefusals(e.Partial.Failed), Applied: e.Partial.Applied})
	}
	return errs
}
