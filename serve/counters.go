package serve

import (
	"encoding/json"
	"fmt"
	"net/http"

	"sluice/cell"
	"sluice/counters/query"
	"sluice/serve/api"
	"sluice/store"
)

func familyParam(r *http.Request) (string, error) {
	f := r.URL.Query().Get("family")
	if f == "" {
		return "", fmt.Errorf("%w: name the column family: ?family=", store.ErrInvalidArgument)
	}
	return f, nil
}

// buckets reads ?qualifier=, or the range ?from= (inclusive) to ?to= (exclusive).
func buckets(r *http.Request) (query.Buckets, error) {
	q := r.URL.Query()
	if q.Has("qualifier") {
		if q.Has("from") || q.Has("to") {
			return query.Buckets{}, fmt.Errorf("%w: give a qualifier or a range, not both", store.ErrInvalidArgument)
		}
		b, err := bytesParam(q, q.Get("qualifier"))
		return query.One(b), err
	}
	from, err := bytesParam(q, q.Get("from"))
	if err != nil {
		return query.Buckets{}, err
	}
	to, err := bytesParam(q, q.Get("to"))
	if err == nil && len(to) > 0 && string(from) >= string(to) {
		err = fmt.Errorf("%w: from, %q, is not before to, %q", store.ErrInvalidArgument, from, to)
	}
	return query.Buckets{From: from, To: to}, err
}

// counterParams are the parameters that getCounters reads.
var counterParams = once("row", "encoding", "family", "qualifier", "from", "to")

// getCounters answers the counters of one row and family: one of them, a range,
// or all, with their sum.
func (s *Server) getCounters(w http.ResponseWriter, r *http.Request) error {
	row, err := rowKey(r)
	if err != nil {
		return err
	}
	family, err := familyParam(r)
	if err != nil {
		return err
	}
	b, err := buckets(r)
	if err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	series, sum, err := query.RangeAndSum(ctx, s.o.Engine, r.PathValue("table"), row, family, b)
	if err != nil {
		return err
	}
	if len(series) == 0 && r.URL.Query().Has("qualifier") {
		return fmt.Errorf("%w: table %s row %q has no counter %s:%s", api.ErrNotFound, r.PathValue("table"), row, family, r.URL.Query().Get("qualifier"))
	}
	a := api.CountersResponse{Row: row, Family: family, Counters: make([]api.Counter, len(series)), Sum: sum.Count, Estimate: sum.Estimate}
	for i, c := range series {
		a.Counters[i] = api.NewCounter(c.Qualifier, c.Count, c.Time)
	}
	return writeJSON(w, http.StatusOK, a)
}

// topCounters answers the n rows that count the most: ?family=, optionally
// ?qualifier= or ?from=&to=, ?n= (10), ?prefix= of the rows.
func (s *Server) topCounters(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	family, err := familyParam(r)
	if err != nil {
		return err
	}
	b, err := buckets(r)
	if err != nil {
		return err
	}
	n, err := intParam(q, "n", 10, 1, query.MaxTop)
	if err != nil {
		return err
	}
	prefix, err := bytesParam(q, q.Get("prefix"))
	if err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	rows := cell.Range{Start: prefix, Stop: cell.PrefixEnd(prefix)}
	top, err := query.Top(ctx, s.o.Engine, r.PathValue("table"), rows, family, b, n)
	if err != nil {
		return err
	}
	a := api.TopResponse{Family: family, Rows: make([]api.TopRow, len(top))}
	for i, t := range top {
		a.Rows[i] = api.NewTopRow(t.Row, t.Count, t.Time)
		a.Estimate = a.Estimate || t.Estimate
	}
	return writeJSON(w, http.StatusOK, a)
}

func (s *Server) offsets(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := s.bounded(r)
	defer cancel()
	all, err := store.AllProgress(ctx, s.o.Engine)
	if err != nil {
		return err
	}
	a := api.OffsetsResponse{Partitions: make([]api.PartitionProgress, len(all))}
	for i := range all {
		a.Partitions[i] = api.FromPartitionProgress(&all[i])
	}
	return writeJSON(w, http.StatusOK, a)
}

// outbox answers dead letters: ?limit= (100) of them after the row ?after= (base64
// as in the answer).
func (s *Server) outbox(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	limit, err := intParam(q, "limit", 100, 1, 10_000)
	if err != nil {
		return err
	}
	q.Set("encoding", "base64")
	after, err := bytesParam(q, q.Get("after"))
	if err != nil {
		return err
	}
	if len(after) == 0 {
		after = cell.PrefixEnd([]byte(store.OutboxCounts))
	}
	sc := s.o.Engine.Scan(r.Context(), &store.Scan{Table: store.OutboxTable, Start: after, StartExclusive: len(after) > 0, Limit: limit})
	defer sc.Close()
	// An api.OutboxResponse, a letter at a time.
	to := newPages(w, "application/json")
	to.buf = append(to.buf, `{"rows":[`...)
	for n := 0; sc.Next(); n++ {
		row := sc.Row()
		o := api.OutboxRow{Key: append([]byte(nil), row.Key...), Columns: map[string][]byte{}}
		for _, c := range row.Cells {
			o.Columns[string(c.Qualifier)] = append([]byte{}, c.Value...)
		}
		letter, err := json.Marshal(o)
		if err != nil {
			return to.failed(fmt.Errorf("encode the answer: %w", err))
		}
		if n > 0 {
			to.buf = append(to.buf, ',')
		}
		to.buf = append(to.buf, letter...)
		if err := to.full(); err != nil {
			return err
		}
	}
	if err := sc.Err(); err != nil {
		return to.failed(err)
	}
	to.buf = append(to.buf, "]}\n"...)
	return to.send()
}
