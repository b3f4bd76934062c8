package serve_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sluice/serve"
	"sluice/serve/api"
	"sluice/serve/servetest"
	"sluice/store"
)

func TestPauseExport(t *testing.T) {
	t.Parallel()
	var got []string
	s := newServer(t, func(o *serve.Options) {
		o.PauseExport = func(_ context.Context, job string, paused bool) error {
			if job == "none" {
				return fmt.Errorf("%w: job none", api.ErrNotFound)
			}
			got = append(got, fmt.Sprint(job, " ", paused))
			return nil
		}
	})
	for _, tt := range []struct {
		job, body string
		want      int
	}{
		{"nightly", `{"paused": true}`, 204},
		{"a%2Fb", `{"paused": false}`, 204},
		{"none", `{"paused": true}`, 404},
		{"nightly", `{"pause": true}`, 400},
		{"nightly", `{}`, 400},
		{"nightly", `null`, 400},
	} {
		if code, body := s.do("PUT", "/api/v1/exports/"+tt.job+"/schedule", tt.body); code != tt.want {
			t.Errorf("%s %s: got %d %s, want %d", tt.job, tt.body, code, body, tt.want)
		}
	}
	if strings.Join(got, ", ") != "nightly true, a/b false" {
		t.Errorf("Got calls %q", got)
	}
	if code, body := newServer(t, nil).do("PUT", "/api/v1/exports/j/schedule", `{"paused": true}`); code == 204 || !strings.Contains(body, "no job has a schedule") {
		t.Errorf("Got %d %s without schedules", code, body)
	}
}

func TestOrderExport(t *testing.T) {
	t.Parallel()
	var got []string
	s := newServer(t, func(o *serve.Options) {
		o.OrderExport = func(_ context.Context, job string, q api.OrderRequest) (api.Order, error) {
			switch job {
			case "none":
				return api.Order{}, fmt.Errorf("%w: job none", api.ErrNotFound)
			case "full":
				return api.Order{}, fmt.Errorf("%w: too many", store.ErrRefused)
			}
			got = append(got, fmt.Sprint(job, q.Time.Unix(), q.From.IsZero(), q.To.IsZero()))
			return api.Order{ID: "abc", Cause: "manual", Times: 1}, nil
		}
		o.CancelOrder = func(_ context.Context, job, order string) error {
			if order == "none" {
				return fmt.Errorf("%w: order none", api.ErrNotFound)
			}
			got = append(got, job+" "+order)
			return nil
		}
	})
	for _, tt := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "a%2Fb/orders", `{"time": "1970-01-01T00:00:07Z"}`, 202},
		{"POST", "nightly/orders", `{"time": "1970-01-01T00:00:08Z", "from": "2026-01-01T00:00:00Z"}`, 202},
		{"POST", "none/orders", `{}`, 404},
		{"POST", "full/orders", `{}`, 422},
		{"POST", "nightly/orders", `{"at": "2026-01-01T00:00:00Z"}`, 400},
		{"POST", "nightly/orders", `{"time": "yesterday"}`, 400},
		{"DELETE", "nightly/orders/abc", "", 204},
		{"DELETE", "nightly/orders/none", "", 404},
	} {
		code, body := s.do(tt.method, "/api/v1/exports/"+tt.path, tt.body)
		if code != tt.want || code == 202 && !strings.Contains(body, `"id":"abc"`) {
			t.Errorf("%s %s %s: got %d %s, want %d", tt.method, tt.path, tt.body, code, body, tt.want)
		}
	}
	if strings.Join(got, ", ") != "a/b7 true true, nightly8 false true, nightly abc" {
		t.Errorf("Got calls %q", got)
	}
	bare := newServer(t, nil)
	for _, method := range []string{"POST", "DELETE"} {
		path := map[string]string{"POST": "/orders", "DELETE": "/orders/x"}[method]
		if code, body := bare.do(method, "/api/v1/exports/j"+path, `{}`); code != 501 || !strings.Contains(body, "no job has a schedule") {
			t.Errorf("Got %d %s without schedules", code, body)
		}
	}
}

func TestExportsShowSchedules(t *testing.T) {
	t.Parallel()
	s := newServer(t, servetest.Fill)
	if code, body := s.do("GET", "/api/v1/exports", ""); code != 200 || !strings.Contains(body, `"schedule":{"cron":"@daily","zone":"UTC","paused":true`) {
		t.Errorf("Got %d %s", code, body)
	}
	_, body := s.do("GET", "/metrics", "")
	for _, want := range []string{
		`sluice_export_scheduled_total{export="nightly",result="failed"} 74`, `sluice_export_next_timestamp_seconds{export="nightly"} 3e+09`,
		`sluice_export_ordered_total{cause="manual",export="nightly",result="ok"} 76`, `sluice_export_ordered_pending{export="nightly"} 75`,
		`sluice_export_yielding{export="nightly"} 1`, `sluice_export_yield_seconds_total{export="nightly"} 128.5`,
		`sluice_export_paused{export="nightly"} 1`, `sluice_export_working{export="nightly"} 1`,
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("missing: %s", want)
		}
	}
}

// What has not happened has no time: clients would take the year 1 for one.
func TestExportsWithoutTimes(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *serve.Options) {
		o.Exports = func() []serve.ExportStatus {
			return []serve.ExportStatus{{Name: "new", Schedule: &serve.ScheduleStatus{Cron: "@daily", Zone: "UTC"}}}
		}
	})
	if code, body := s.do("GET", "/api/v1/exports", ""); code != 200 || !strings.Contains(body, `"name":"new"`) || strings.Contains(body, "0001-01-01") {
		t.Errorf("Got %d %s", code, body)
	}
}

func TestRecordExport(t *testing.T) {
	t.Parallel()
	var got []string
	s := newServer(t, func(o *serve.Options) {
		o.RecordExport = func(_ context.Context, job string, run api.ExportRun) error {
			if run.Cause == "" {
				return fmt.Errorf("%w: no cause", store.ErrInvalidArgument)
			}
			got = append(got, fmt.Sprint(job, " ", run.Logical.Unix(), run.Result, run.Rows))
			return nil
		}
	})
	const path = "/api/v1/exports/a%2Fb/history"
	if code, body := s.do("POST", path, `{"logical_time": "1970-01-01T00:00:07Z", "result": "ok", "cause": "manual", "rows": 3}`); code != 204 {
		t.Errorf("Got %d %s", code, body)
	}
	for _, wrong := range []string{`{"result": "ok"}`, `{"results": "ok"}`} {
		if code, body := s.do("POST", path, wrong); code != 400 {
			t.Errorf("%s: got %d %s", wrong, code, body)
		}
	}
	if strings.Join(got, ", ") != "a/b 7ok3" {
		t.Errorf("Got calls %q", got)
	}
	if code, body := newServer(t, nil).do("POST", path, `{}`); code != 501 || !strings.Contains(body, "keeps no history") {
		t.Errorf("Got %d %s without a history", code, body)
	}
}
