package deploy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"sluice/config"
	"sluice/serve"
	"sluice/serve/servetest"
	"sluice/store/memstore"
)

// served returns the names of the metrics, those of histograms with their
// suffixes, and of their labels.
func served(t *testing.T) (names, labels map[string]bool) {
	t.Helper()
	engine, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	o := &serve.Options{Engine: engine, Dir: t.TempDir()}
	servetest.Fill(o)
	s, err := serve.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "http://127.0.0.1/metrics", nil)
	s.Handler().ServeHTTP(w, r)
	body, err := io.ReadAll(w.Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("Got %d, %v", w.Code, err)
	}
	// up and job are Prometheus's own.
	names, labels = map[string]bool{"up": true}, map[string]bool{"job": true}
	for line := range strings.SplitSeq(string(body), "\n") {
		if m := regexp.MustCompile(`^([a-z_]+)(\{[^}]*\})? `).FindStringSubmatch(line); m != nil {
			names[m[1]] = true
			for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(m[2], -1) {
				labels[l[1]] = true
			}
		}
	}
	return names, labels
}

// askedFor returns the metrics and labels of a PromQL expression.
func askedFor(expr string) (names, labels []string) {
	expr = regexp.MustCompile(`"[^"]*"`).ReplaceAllString(expr, `""`)
	expr = regexp.MustCompile(`\[[^\]]*\]`).ReplaceAllString(expr, "")
	for _, by := range regexp.MustCompile(`\bby \(([^)]*)\)`).FindAllStringSubmatch(expr, -1) {
		labels = append(labels, regexp.MustCompile(`[a-z_]+`).FindAllString(by[1], -1)...)
	}
	expr = regexp.MustCompile(`\bby \([^)]*\)`).ReplaceAllString(expr, "")
	for _, in := range regexp.MustCompile(`\{([^}]*)\}`).FindAllStringSubmatch(expr, -1) {
		for _, l := range regexp.MustCompile(`([a-z_]+)\s*(=~|!=|!~|=)`).FindAllStringSubmatch(in[1], -1) {
			labels = append(labels, l[1])
		}
	}
	expr = regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(expr, " ")
	expr = regexp.MustCompile(`\b[a-z_]+\s*\(`).ReplaceAllString(expr, "(") // functions
	for _, w := range regexp.MustCompile(`\b[a-z][a-z_0-9]*\b`).FindAllString(expr, -1) {
		if !slices.Contains([]string{"and", "or", "unless", "on", "without", "offset"}, w) {
			names = append(names, w)
		}
	}
	return names, labels
}

func TestAskedFor(t *testing.T) {
	t.Parallel()
	names, labels := askedFor(`histogram_quantile(0.9, sum by (le, x) (rate(a_bucket{l=~"v and w"}[5m]))) > 1 and b_total == 0`)
	if diff := cmp.Diff([]string{"a_bucket", "b_total"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"le", "x", "l"}, labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

// checkExpr reports what expr asks for and nobody serves.
func checkExpr(t *testing.T, where, expr string, names, labels map[string]bool) {
	t.Helper()
	wantNames, wantLabels := askedFor(expr)
	if len(wantNames) == 0 {
		t.Errorf("%s: %q asks for no metric", where, expr)
	}
	for _, n := range wantNames {
		if !names[n] {
			t.Errorf("%s: metric %s is not served", where, n)
		}
	}
	for _, l := range wantLabels {
		if !labels[l] {
			t.Errorf("%s: no metric has a label %s", where, l)
		}
	}
	for _, pair := range []string{"()", "{}", "[]"} {
		if strings.Count(expr, pair[:1]) != strings.Count(expr, pair[1:]) {
			t.Errorf("%s: brackets in %q", where, expr)
		}
	}
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	names, labels := served(t)
	var d struct {
		UID    string
		Title  string
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ H, W, X, Y int }
			Targets []struct {
				Expr         string
				LegendFormat string
				Datasource   struct{ UID string }
			}
		}
		Templating struct {
			List []struct{ Name, Query string }
		}
	}
	readJSON(t, "grafana/dashboards/sluice.json", &d)
	if d.UID == "" || d.Title == "" || len(d.Panels) < 15 {
		t.Errorf("Got uid %q, title %q, %d panels", d.UID, d.Title, len(d.Panels))
	}
	ids := map[int]bool{}
	used := map[string]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %s: its id or place is taken", p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			checkExpr(t, "panel "+p.Title, target.Expr, names, labels)
			for _, l := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !labels[l[1]] {
					t.Errorf("panel %s: no metric has a label %s", p.Title, l[1])
				}
			}
			if target.Datasource.UID != "prometheus" {
				t.Errorf("panel %s: datasource %q is not provisioned", p.Title, target.Datasource.UID)
			}
			asked, _ := askedFor(target.Expr)
			for _, n := range asked {
				used[n] = true
			}
		}
	}
	for _, v := range d.Templating.List {
		if m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Query); m == nil || !names[m[1]] || !labels[m[2]] {
			t.Errorf("variable %s: query %q", v.Name, v.Query)
		}
	}
	// And the other way round: a metric that no panel shows is one that nobody
	// looks at.
	for n := range names {
		base := strings.TrimSuffix(strings.TrimSuffix(n, "_sum"), "_count")
		if strings.HasPrefix(n, "sluice_") && !used[n] && !used[base+"_bucket"] && !slices.Contains(unshown, n) && !slices.Contains(unshown, base) && !slices.Contains(unshown, strings.TrimSuffix(n, "_bucket")) {
			t.Errorf("metric %s is on no panel", n)
		}
	}
}

// unshown are metrics for alerts and for looking at by hand.
var unshown = []string{
	"sluice_kafka_position_offset", "sluice_kafka_end_offset", "sluice_kafka_generation",
	"sluice_breaker_open", "sluice_dead_letters_total", "sluice_export_rows_total", "sluice_export_bytes_total", "sluice_export_duration_seconds",
	"sluice_export_scheduled_total", "sluice_export_next_timestamp_seconds", "sluice_export_paused", "sluice_export_working",
	"sluice_export_ordered_total", "sluice_export_ordered_pending", "sluice_export_yielding",
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	names, labels := served(t)
	var f struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	readYAML(t, "prometheus/alerts.yml", &f)
	seen := map[string]bool{}
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || seen[r.Alert] || r.Annotations["summary"] == "" {
				t.Errorf("alert %q is twice, has no name or no summary", r.Alert)
			}
			seen[r.Alert] = true
			if s := r.Labels["severity"]; s != "critical" && s != "warning" {
				t.Errorf("alert %s: severity %q", r.Alert, s)
			}
			if want := "docs/operations.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
				t.Errorf("alert %s: runbook %q, want %q", r.Alert, r.Annotations["runbook"], want)
			}
			checkExpr(t, "alert "+r.Alert, r.Expr, names, labels)
			for _, text := range r.Annotations {
				for _, l := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
					if !labels[l[1]] {
						t.Errorf("alert %s: no metric has a label %s", r.Alert, l[1])
					}
				}
			}
		}
	}
	if len(seen) < 8 {
		t.Errorf("Got %d alerts", len(seen))
	}
	// Whoever is woken finds the alert in the documents by its name, and nobody there finds
	// one that never fires.
	const page = "docs/operations.md"
	text, err := os.ReadFile("../" + page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Sluice\w+)$`).FindAllStringSubmatch(string(text), -1) {
		if !seen[m[1]] {
			t.Errorf("%s says what to do about %s, which is no alert", page, m[1])
		}
		delete(seen, m[1])
	}
	for name := range seen {
		t.Errorf("%s does not say what to do about %s", page, name)
	}
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalWithOptions(b, into, yaml.Strict()); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// service is what the compose file uses of Compose's specification; an unknown key
// is an error.
type service struct {
	Image, Hostname, Restart, Entrypoint any
	Build                                *struct{ Context, Dockerfile string }
	Ports, Volumes                       []string
	Environment                          map[string]string
	DependsOn                            any `yaml:"depends_on"`
	Command                              any
	Healthcheck                          *struct {
		Test              []string
		Interval, Timeout string
		Retries           int
	}
	ReadOnly        bool     `yaml:"read_only"`
	CapDrop         []string `yaml:"cap_drop"`
	SecurityOpt     []string `yaml:"security_opt"`
	StopGracePeriod string   `yaml:"stop_grace_period"`
}

type composeFile struct {
	Name     string
	Services map[string]service
	Volumes  map[string]any
}

// dependencies returns the services and the conditions of depends_on.
func (s *service) dependencies() map[string]string {
	all := map[string]string{}
	switch d := s.DependsOn.(type) {
	case []any:
		for _, name := range d {
			all[name.(string)] = "service_started"
		}
	case map[string]any:
		for name, v := range d {
			all[name], _ = v.(map[string]any)["condition"].(string)
		}
	}
	return all
}

func TestCompose(t *testing.T) {
	t.Parallel()
	var c composeFile
	readYAML(t, "../docker-compose.yml", &c)
	var names []string
	for name, s := range c.Services {
		names = append(names, name)
		image, _ := s.Image.(string)
		if tag := image[strings.LastIndex(image, ":")+1:]; s.Build == nil && !regexp.MustCompile(`^v?\d+\.\d+\.\d+$`).MatchString(tag) {
			t.Errorf("%s: the version of image %q is not pinned", name, image)
		}
		if s.Build != nil && !exists(filepath.Join("..", s.Build.Context, s.Build.Dockerfile)) {
			t.Errorf("%s: %s does not exist", name, s.Build.Dockerfile)
		}
		for _, p := range s.Ports {
			if !regexp.MustCompile(`^127\.0\.0\.1:\d+:\d+$`).MatchString(p) {
				t.Errorf("%s: port %s is not on loopback", name, p)
			}
		}
		for _, v := range s.Volumes {
			from, rest, ok := strings.Cut(v, ":")
			to, mode, _ := strings.Cut(rest, ":")
			_, declared := c.Volumes[from]
			switch {
			case !ok || !strings.HasPrefix(to, "/"):
				t.Errorf("%s: volume %s", name, v)
			case strings.HasPrefix(from, "./"):
				if !exists(filepath.Join("..", from)) || mode != "ro" {
					t.Errorf("%s: %s does not exist, or may be written to", name, from)
				}
			case !declared:
				t.Errorf("%s: volume %s is not declared", name, from)
			}
		}
		for other, condition := range s.dependencies() {
			o, ok := c.Services[other]
			switch {
			case !ok:
				t.Errorf("%s depends on %s, which does not exist", name, other)
			case condition == "service_healthy" && o.Healthcheck == nil:
				t.Errorf("%s waits for the health of %s, which has no check", name, other)
			case condition == "":
				t.Errorf("%s depends on %s without a condition", name, other)
			}
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"grafana", "kafka", "prometheus", "sluice", "topics"}, names); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	kafka := c.Services["kafka"].Environment
	if kafka["KAFKA_PROCESS_ROLES"] != "broker,controller" || !strings.Contains(kafka["KAFKA_ADVERTISED_LISTENERS"], c.Services["sluice"].Environment["SLUICE_BROKERS"]) {
		t.Errorf("sluice's broker %s is none of %s", c.Services["sluice"].Environment["SLUICE_BROKERS"], kafka["KAFKA_ADVERTISED_LISTENERS"])
	}
}

// TestContainerConfig: the container's file is the example's, served to others,
// and Prometheus may ask it.
func TestContainerConfig(t *testing.T) {
	t.Parallel()
	var c composeFile
	readYAML(t, "../docker-compose.yml", &c)
	environment := c.Services["sluice"].Environment
	lookup := func(name string) (string, bool) { v, ok := environment[name]; return v, ok }
	container, err := config.Load("sluice.yaml", lookup)
	if err != nil {
		t.Fatal(err)
	}
	example, err := config.Load("../examples/pageviews.yaml", lookup)
	if err != nil {
		t.Fatal(err)
	}
	if container.Store.Dir != "/data" || container.Kafka.Brokers[0] != "kafka:9092" {
		t.Errorf("Got directory %s, brokers %v", container.Store.Dir, container.Kafka.Brokers)
	}
	if diff := cmp.Diff(example.Tables, container.Tables); diff != "" {
		t.Errorf("tables (-example +container):\n%s", diff)
	}
	if diff := cmp.Diff(fmt.Sprintf("%+v", example.Pipelines), fmt.Sprintf("%+v", container.Pipelines)); diff != "" {
		t.Errorf("pipelines (-example +container):\n%s", diff)
	}
	var p struct {
		Global     map[string]string
		RuleFiles  []string `yaml:"rule_files"`
		ScrapeJobs []struct {
			JobName string                       `yaml:"job_name"`
			Static  []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	readYAML(t, "prometheus/prometheus.yml", &p)
	target := p.ScrapeJobs[0].Static[0].Targets[0]
	host, port, _ := strings.Cut(target, ":")
	if p.ScrapeJobs[0].JobName != "sluice" || !slices.Contains(container.Serve.AllowedHosts, host) || !strings.HasSuffix(container.Serve.Listen, ":"+port) || c.Services[host].Build == nil {
		t.Errorf("Prometheus asks %s; sluice listens on %s and allows %v", target, container.Serve.Listen, container.Serve.AllowedHosts)
	}
	if !slices.ContainsFunc(c.Services["prometheus"].Volumes, func(v string) bool { return strings.Contains(v, ":"+p.RuleFiles[0]+":") }) {
		t.Errorf("rule file %s is not mounted", p.RuleFiles[0])
	}
	for _, topic := range append(container.Pipelines["pageviews"].Topics, container.Pipelines["pageviews"].DeadLetters.Topic) {
		if !slices.Contains(strings.Fields(strings.ReplaceAll(fmt.Sprint(c.Services["topics"].Command), ";", " ")), topic) {
			t.Errorf("topic %s is not created", topic)
		}
	}
}

func TestProvisioning(t *testing.T) {
	t.Parallel()
	var sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool `yaml:"isDefault"`
			Editable                     bool
		}
	}
	readYAML(t, "grafana/provisioning/datasources/prometheus.yml", &sources)
	var c composeFile
	readYAML(t, "../docker-compose.yml", &c)
	if len(sources.Datasources) != 1 || sources.Datasources[0].UID != "prometheus" || sources.Datasources[0].URL != "http://prometheus:9090" {
		t.Errorf("Got %+v", sources)
	}
	var providers struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Type     string
			AllowUIUpdates bool `yaml:"allowUiUpdates"`
			Options        struct{ Path string }
		}
	}
	readYAML(t, "grafana/provisioning/dashboards/sluice.yml", &providers)
	path := providers.Providers[0].Options.Path
	grafana := c.Services["grafana"]
	if !slices.Contains(grafana.Volumes, "./deploy/grafana/dashboards:"+path+":ro") || !strings.HasPrefix(grafana.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"], path+"/") {
		t.Errorf("the dashboards' directory %s is not mounted", path)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestDockerfile reads the instructions and checks that what they name exists.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(b), "\\\n", " ")
	stages := map[string]bool{}
	var instructions [][]string
	for line := range strings.SplitSeq(text, "\n") {
		if fields := strings.Fields(line); len(fields) > 0 && !strings.HasPrefix(fields[0], "#") {
			instructions = append(instructions, fields)
		}
	}
	if len(instructions) == 0 || instructions[0][0] != "FROM" {
		t.Fatal("the first instruction is not FROM")
	}
	last := map[string][]string{} // of the final stage
	for _, in := range instructions {
		args := in[1:]
		switch in[0] {
		case "FROM":
			if !strings.Contains(args[0], ":") || strings.HasSuffix(args[0], ":latest") {
				t.Errorf("the version of %s is not pinned", args[0])
			}
			if len(args) == 3 && args[1] == "AS" {
				stages[args[2]] = true
			}
			last = map[string][]string{}
		case "COPY":
			from := ""
			for strings.HasPrefix(args[0], "--") {
				if stage, ok := strings.CutPrefix(args[0], "--from="); ok {
					from = stage
				}
				args = args[1:]
			}
			if from != "" && !stages[from] {
				t.Errorf("COPY from stage %s, which does not exist", from)
			}
			for _, source := range args[:len(args)-1] {
				if from == "" && !exists(filepath.Join("..", source)) {
					t.Errorf("COPY %s: it does not exist", source)
				}
			}
		case "RUN":
			for _, a := range args {
				if strings.HasPrefix(a, "./cmd/") && !exists(filepath.Join("..", a)) {
					t.Errorf("RUN: %s does not exist", a)
				}
			}
			if slices.Contains(args, "build") && !slices.Contains(args, "CGO_ENABLED=0") {
				t.Error("the programs are not linked statically")
			}
		case "WORKDIR", "ENV", "USER", "VOLUME", "EXPOSE", "ENTRYPOINT", "CMD":
		default:
			t.Errorf("unknown instruction %s", in[0])
		}
		last[in[0]] = args
	}
	if user := strings.Join(last["USER"], ""); user == "" || strings.HasPrefix(user, "0") || user == "root" {
		t.Errorf("the final stage runs as %q", user)
	}
	var entry, command []string
	if json.Unmarshal([]byte(strings.Join(last["ENTRYPOINT"], " ")), &entry) != nil || json.Unmarshal([]byte(strings.Join(last["CMD"], " ")), &command) != nil {
		t.Fatalf("ENTRYPOINT %v or CMD %v is not in exec form", last["ENTRYPOINT"], last["CMD"])
	}
	if entry[0] != "/usr/local/bin/ingest" || command[0] != "run" || !strings.Contains(text, "deploy/sluice.yaml "+command[2]) {
		t.Errorf("Got %v %v", entry, command)
	}
}
