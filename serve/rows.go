package serve

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"sluice/cell"
	"sluice/serve/api"
	"sluice/store"
)

const (
	// pageBytes is how much of a scan is gathered before it is sent.
	pageBytes = 64 << 10
	// pageTimeout bounds the sending of one page: a reader that has stopped
	// must not hold an iterator, and with it disk space, for ever.
	pageTimeout = time.Minute
)

// rowKey reads a row key from the path, or from ?row=; ?encoding=base64 says that
// it is URL-safe base64, otherwise it is the percent-decoded text.
func rowKey(r *http.Request) ([]byte, error) {
	text, q := r.PathValue("row"), r.URL.Query()
	switch {
	case text == "":
		text = q.Get("row")
	case q.Has("row"):
		return nil, fmt.Errorf("%w: the path names row %.100q, and the parameter row another: which one?", store.ErrInvalidArgument, text)
	}
	return bytesParam(q, text)
}

func bytesParam(q url.Values, text string) ([]byte, error) {
	switch e := q.Get("encoding"); e {
	case "", "text":
		return []byte(text), nil
	case "base64":
		for _, coding := range []*base64.Encoding{base64.RawURLEncoding, base64.URLEncoding, base64.StdEncoding} {
			if b, err := coding.DecodeString(text); err == nil {
				return b, nil
			}
		}
		return nil, fmt.Errorf("%w: %q is not base64", store.ErrInvalidArgument, text)
	default:
		return nil, fmt.Errorf("%w: encoding %q, want text or base64", store.ErrInvalidArgument, e)
	}
}

func intParam(q url.Values, name string, fallback, low, high int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%w: %s is %q, want %d..%d", store.ErrInvalidArgument, name, text, low, high)
	}
	return n, nil
}

// rowParams are the parameters that getRow reads.
var rowParams = append(once("row", "encoding", "versions"), param{name: "family", several: true})

// getRow answers one row: ?family= one family of it, ?versions= more of its past.
func (s *Server) getRow(w http.ResponseWriter, r *http.Request) error {
	row, err := rowKey(r)
	if err != nil {
		return err
	}
	if err := cell.CheckRow(row); err != nil {
		return fmt.Errorf("%w: %w", store.ErrInvalidArgument, err)
	}
	q := r.URL.Query()
	versions, err := intParam(q, "versions", 1, 1, store.AllVersions)
	if err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	scan := &store.Scan{Table: r.PathValue("table"), Start: row, Stop: row, StopInclusive: true, Versions: versions}
	for _, f := range q["family"] {
		scan.Columns = append(scan.Columns, store.Column{Family: f, All: true})
	}
	sc := s.o.Engine.Scan(ctx, scan)
	defer sc.Close()
	if !sc.Next() {
		if err := sc.Err(); err != nil {
			return err
		}
		return fmt.Errorf("%w: table %s has no row %q", api.ErrNotFound, scan.Table, row)
	}
	return writeJSON(w, http.StatusOK, api.Row{Key: sc.Row().Key, Cells: api.FromCells(sc.Row().Cells)})
}

// scan streams rows as lines of JSON, page by page. An error after the first page
// is the last line.
func (s *Server) scan(w http.ResponseWriter, r *http.Request) error {
	var q api.Scan
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	what, err := q.Store(r.PathValue("table"))
	if err != nil {
		return err
	}
	sc := s.o.Engine.Scan(r.Context(), what)
	defer sc.Close()
	rc := http.NewResponseController(w)
	line := rowEncoder{families: map[string][]byte{}}
	var buf []byte
	started := false
	send := func() error {
		if !started {
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
			started = true
		}
		// Deadlines and flushes are missing on tests' writers only.
		_ = rc.SetWriteDeadline(time.Now().Add(pageTimeout))
		if _, err := w.Write(buf); err != nil {
			return streamError{err}
		}
		buf = buf[:0]
		if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return streamError{err}
		}
		return nil
	}
	cursors := what.NeedCursor || what.PageRows > 0 || what.Cursor != ""
	var at store.Cursor
	for sc.Next() {
		if what.NeedCursor {
			if at, err = store.CursorOf(sc); err != nil {
				return err
			}
		}
		if buf = line.append(buf, sc.Row(), at); len(buf) >= pageBytes {
			if err := send(); err != nil {
				return err
			}
		}
	}
	if err := sc.Err(); err != nil {
		if !started && len(buf) == 0 {
			return err
		}
		if cursors {
			at, _ = store.CursorOf(sc) // with what it is done with since the last row
		}
		e, _ := api.FromError(err)
		last, merr := json.Marshal(api.ScanLine{Error: e, Cursor: string(at)})
		if merr != nil {
			return merr
		}
		buf = append(append(buf, last...), '\n')
		if err := send(); err != nil {
			return err
		}
		return streamError{err}
	}
	end := api.ScanLine{End: true}
	if cursors {
		if at, err = store.CursorOf(sc); err != nil {
			return err
		}
		end.Cursor, end.More = string(at), !at.End()
	}
	last, err := json.Marshal(end)
	if err != nil {
		return err
	}
	buf = append(append(buf, last...), '\n')
	return send()
}

// rowEncoder writes api.ScanLines. encoding/json's reflection would take most of
// a scan's time.
type rowEncoder struct {
	families map[string][]byte // quoted
}

// append appends a row's line, with a cursor where it is not empty.
func (e *rowEncoder) append(dst []byte, row *cell.Row, at store.Cursor) []byte {
	dst = appendBytes(append(dst, `{"row":{"key":`...), row.Key)
	dst = append(dst, `,"cells":[`...)
	for i := range row.Cells {
		c := &row.Cells[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, `{"family":`...), e.quoted(c.Family)...)
		dst = appendBytes(append(dst, `,"qualifier":`...), c.Qualifier)
		dst = strconv.AppendInt(append(dst, `,"time":`...), int64(c.Time), 10)
		if c.Kind != cell.KindPut {
			dst = strconv.AppendUint(append(dst, `,"kind":`...), uint64(c.Kind), 10)
		}
		dst = appendBytes(append(dst, `,"value":`...), c.Value)
		if c.TTL != 0 {
			dst = strconv.AppendInt(append(dst, `,"ttl":`...), c.TTL, 10)
		}
		dst = append(dst, '}')
	}
	dst = append(dst, ']')
	if row.More {
		dst = append(dst, `,"more":true`...)
	}
	dst = append(dst, '}')
	if at != "" { // base64: nothing in it to escape
		dst = append(append(append(dst, `,"cursor":"`...), at...), '"')
	}
	return append(dst, "}\n"...)
}

func (e *rowEncoder) quoted(family string) []byte {
	q, ok := e.families[family]
	if !ok {
		q, _ = json.Marshal(family) // a string always marshals
		e.families[family] = q
	}
	return q
}

// appendBytes appends b as JSON: no bytes are an empty text, nil, too, which engines may
// return for an empty value.
func appendBytes(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

// mutateRow applies one row mutation, with a condition where one is given.
func (s *Server) mutateRow(w http.ResponseWriter, r *http.Request) error {
	var q api.MutateRequest
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	if q.Table == "" {
		q.Table = r.PathValue("table")
	} else if q.Table != r.PathValue("table") {
		return fmt.Errorf("%w: the mutation names table %s, the path %s", store.ErrInvalidArgument, q.Table, r.PathValue("table"))
	}
	m, err := q.Cell()
	if err != nil {
		return err
	}
	cond, err := q.Cond.Store()
	if err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	res, err := s.o.Engine.MutateRow(ctx, cond, &m)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.Result{Applied: res.Applied, Cells: api.FromCells(res.Cells)})
}

// mutateRows applies independent row mutations; each has its own outcome.
func (s *Server) mutateRows(w http.ResponseWriter, r *http.Request) error {
	var q api.MutateManyRequest
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	many, ok := s.o.Engine.(store.RowMutator)
	if !ok {
		return s.unsupported("mutations of several rows at once")
	}
	ms := make([]*cell.Mutation, len(q.Mutations))
	for i := range q.Mutations {
		m, err := q.Mutations[i].Cell()
		if err != nil {
			return fmt.Errorf("mutation %d: %w", i, err)
		}
		ms[i] = &m
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	results, errs := many.MutateRows(ctx, ms)
	a := api.MutateManyResponse{Results: make([]api.Result, len(ms))}
	for i := range ms {
		a.Results[i] = api.Result{Applied: results[i].Applied, Cells: api.FromCells(results[i].Cells)}
		if errs[i] != nil {
			a.Results[i].Error, _ = api.FromError(errs[i])
		}
	}
	return writeJSON(w, http.StatusOK, a)
}

// applyBatch applies a whole store.Batch.
func (s *Server) applyBatch(w http.ResponseWriter, r *http.Request) error {
	var q api.Batch
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	b, err := q.Store()
	if err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	if err := s.o.Engine.Apply(ctx, b); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.BatchResponse(b.Unapplied))
}
