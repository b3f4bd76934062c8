package serve_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sluice/serve"
	"sluice/serve/api"
	"sluice/serve/servetest"
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

func TestExportsShowSchedules(t *testing.T) {
	t.Parallel()
	s := newServer(t, servetest.Fill)
	if code, body := s.do("GET", "/api/v1/exports", ""); code != 200 || !strings.Contains(body, `"schedule":{"cron":"@daily","zone":"UTC","paused":true`) {
		t.Errorf("Got %d %s", code, body)
	}
	_, body := s.do("GET", "/metrics", "")
	for _, want := range []string{
		`sluice_export_scheduled_total{export="nightly",result="failed"} 74`, `sluice_export_next_timestamp_seconds{export="nightly"} 3e+09`,
		`sluice_export_paused{export="nightly"} 1`, `sluice_export_working{export="nightly"} 1`,
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("missing: %s", want)
		}
	}
}
