package serve

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sluice/cell"
	"sluice/counters"
	"sluice/counters/query"
	"sluice/serve/api"
	"sluice/store"
)

// rollupQuery is what the paths of rollups share: ?by= the set's dimensions with
// commas between them, ?value= for each of them (of top, for the first ones),
// ?bucket=, ?from= and ?to= in RFC 3339 or ms since 1970, ?zone=, ?distinct=true.
type rollupQuery struct {
	query.Rollup
	bucket   counters.Bucket
	values   [][]byte
	from, to cell.Timestamp
}

// rollupParams are the parameters that newRollupQuery reads.
var rollupParams = append(once("by", "bucket", "encoding", "zone", "distinct", "from", "to"), param{name: "value", several: true})

func newRollupQuery(r *http.Request) (*rollupQuery, error) {
	p := r.URL.Query()
	bad := func(name, want string) error {
		return fmt.Errorf("%w: %s is %q, want %s", store.ErrInvalidArgument, name, p.Get(name), want)
	}
	q := &rollupQuery{Rollup: query.Rollup{Table: r.PathValue("table"), Rollup: counters.Rollup{Name: r.PathValue("rollup")}}}
	if by := p.Get("by"); by != "" {
		q.Dimensions = strings.Split(by, ",")
	}
	var ok bool
	if q.bucket, ok = counters.ParseBucket(p.Get("bucket")); !ok {
		return nil, bad("bucket", strings.Join(counters.BucketNames(), ", "))
	}
	for _, text := range p["value"] {
		value, err := bytesParam(p, text)
		if err != nil {
			return nil, err
		}
		q.values = append(q.values, value)
	}
	var err error
	if q.Zone, err = zoneParam(p.Get("zone")); err != nil {
		return nil, bad("zone", "the IANA name of a time zone")
	}
	if q.Distinct, err = strconv.ParseBool(p.Get("distinct")); err != nil && p.Get("distinct") != "" {
		return nil, bad("distinct", "true or false")
	}
	if q.bucket == counters.Total && !p.Has("from") && !p.Has("to") {
		return q, nil
	}
	if q.from, err = timeParam(p, "from"); err != nil {
		return nil, err
	}
	q.to, err = timeParam(p, "to")
	return q, err
}

func zoneParam(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("zone Local depends on the machine")
	}
	return time.LoadLocation(name)
}

func timeParam(p url.Values, name string) (cell.Timestamp, error) {
	text := p.Get(name)
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return cell.Timestamp(ms), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, fmt.Errorf("%w: %s is %q, want a time such as 2026-11-21T00:00:00Z or ms since 1970", store.ErrInvalidArgument, name, text)
	}
	return cell.Timestamp(t.UnixMilli()), nil
}

// response is what the answers share.
func (q *rollupQuery) response() api.Rollup {
	return api.NewRollup(q.Name, q.Dimensions, q.values, q.bucket.String(), q.Distinct)
}

// rollupSeries answers what was counted in each bucket for one value a dimension,
// and in all of them together.
func (s *Server) rollupSeries(w http.ResponseWriter, r *http.Request) error {
	q, err := newRollupQuery(r)
	if err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	points, sum, err := q.SeriesAndSum(ctx, s.o.Engine, q.bucket, q.values, q.from, q.to)
	if err != nil {
		return err
	}
	a := api.SeriesResponse{Rollup: q.response(), Points: make([]api.Point, len(points)), Sum: sum.Count}
	for i, p := range points {
		a.Points[i] = api.Point{Start: int64(p.Start), Stop: int64(p.Stop), Count: p.Count, Time: int64(p.Time)}
	}
	return writeJSON(w, http.StatusOK, a)
}

// rollupTop answers the ?n= (10) combinations of values for which most was counted.
func (s *Server) rollupTop(w http.ResponseWriter, r *http.Request) error {
	q, err := newRollupQuery(r)
	if err != nil {
		return err
	}
	n, err := intParam(r.URL.Query(), "n", 10, 1, query.MaxTop)
	if err != nil {
		return err
	}
	ctx, cancel := s.bounded(r)
	defer cancel()
	groups, err := q.Top(ctx, s.o.Engine, q.bucket, q.values, q.from, q.to, n)
	if err != nil {
		return err
	}
	a := api.GroupsResponse{Rollup: q.response(), Groups: make([]api.Group, len(groups))}
	for i, g := range groups {
		a.Groups[i] = api.NewGroup(g.Values, g.Count, g.Time)
	}
	return writeJSON(w, http.StatusOK, a)
}
