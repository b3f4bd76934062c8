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

// getRow answers one row, page by page: ?family= one family of it, ?versions= more of its
// past.
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
	scan := &store.Scan{Table: r.PathValue("table"), Start: row, Stop: row, StopInclusive: true, Versions: versions, MaxResultBytes: pageBytes}
	for _, f := range q["family"] {
		scan.Columns = append(scan.Columns, store.Column{Family: f, All: true})
	}
	sc := s.o.Engine.Scan(r.Context(), scan)
	defer sc.Close()
	to := newPages(w, "application/json")
	line, n := rowEncoder{families: map[string][]byte{}}, 0
	for ; sc.Next(); n++ {
		part := sc.Row()
		switch {
		case n == 0:
			to.buf = append(appendBytes(append(to.buf, `{"key":`...), part.Key), `,"cells":[`...)
		case len(part.Cells) > 0:
			to.buf = append(to.buf, ',')
		}
		to.buf = line.cells(to.buf, part.Cells)
		if err := to.full(); err != nil {
			return err
		}
	}
	if err := sc.Err(); err != nil {
		return to.failed(err)
	}
	if n == 0 {
		return fmt.Errorf("%w: table %s has no row %q", api.ErrNotFound, scan.Table, row)
	}
	to.buf = append(to.buf, "]}\n"...)
	return to.send()
}

// pages sends an answer in pages, so that it is never in memory as a whole.
type pages struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	kind    string // its Content-Type
	buf     []byte // of the page that comes next
	started bool
}

func newPages(w http.ResponseWriter, kind string) *pages {
	return &pages{w: w, rc: http.NewResponseController(w), kind: kind}
}

// full sends the page where it is one.
func (p *pages) full() error {
	if len(p.buf) < pageBytes {
		return nil
	}
	return p.send()
}

func (p *pages) send() error {
	if !p.started {
		p.w.Header().Set("Content-Type", p.kind)
		p.w.WriteHeader(http.StatusOK)
		p.started = true
	}
	// Deadlines and flushes are missing on tests' writers only.
	_ = p.rc.SetWriteDeadline(time.Now().Add(pageTimeout))
	if _, err := p.w.Write(p.buf); err != nil {
		return streamError{err}
	}
	p.buf = p.buf[:0]
	if err := p.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return streamError{err}
	}
	return nil
}

// failed returns err, so that the answer is cut off where it has begun.
func (p *pages) failed(err error) error {
	if p.started {
		return cutOffError{err}
	}
	return err
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
	to := newPages(w, "application/x-ndjson")
	line := rowEncoder{families: map[string][]byte{}}
	cursors := what.NeedCursor || what.PageRows > 0 || what.Cursor != ""
	var at store.Cursor
	for sc.Next() {
		if what.NeedCursor {
			if at, err = store.CursorOf(sc); err != nil {
				return err
			}
		}
		to.buf = line.append(to.buf, sc.Row(), at)
		if err := to.full(); err != nil {
			return err
		}
	}
	if err := sc.Err(); err != nil {
		if !to.started && len(to.buf) == 0 {
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
		to.buf = append(append(to.buf, last...), '\n')
		if err := to.send(); err != nil {
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
	to.buf = append(append(to.buf, last...), '\n')
	return to.send()
}

// rowEncoder writes api.ScanLines. encoding/json's reflection would take most of
// a scan's time.
type rowEncoder struct {
	families map[string][]byte // quoted
}

// append appends a row's line, with a cursor where it is not empty.
func (e *rowEncoder) append(dst []byte, row *cell.Row, at store.Cursor) []byte {
	dst = appendBytes(append(dst, `{"row":{"key":`...), row.Key)
	dst = e.cells(append(dst, `,"cells":[`...), row.Cells)
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

// cells appends cells, with commas between them.
func (e *rowEncoder) cells(dst []byte, cells []cell.Cell) []byte {
	for i := range cells {
		c := &cells[i]
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
	return dst
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
