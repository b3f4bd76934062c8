package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
)

// report is everything that was measured.
type report struct {
	Machine    machine
	Events     int
	EventBytes float64 // on average
	Rounds     int
	Partitions int
	Batch      int
	Capture    sample
	Samples    map[string][]sample // by stage, one a round
}

// spread is the median of some numbers and their bounds.
type spread struct{ median, min, max float64 }

func spreadOf(xs []float64) spread {
	if len(xs) == 0 {
		return spread{}
	}
	xs = slices.Sorted(slices.Values(xs))
	n := len(xs)
	return spread{median: (xs[(n-1)/2] + xs[n/2]) / 2, min: xs[0], max: xs[n-1]}
}

// over returns the spread of f over the rounds of a stage.
func (r *report) over(name string, f func(*sample) float64) spread {
	var xs []float64
	for i := range r.Samples[name] {
		xs = append(xs, f(&r.Samples[name][i]))
	}
	return spreadOf(xs)
}

// rates is the events a second of a stage, in thousands.
func (r *report) rates(name string) spread {
	return r.over(name, func(s *sample) float64 { return s.rate(r.Events) / 1000 })
}

// cpu is the ns of CPU an event of a stage.
func (r *report) cpu(name string) spread {
	return r.over(name, func(s *sample) float64 { return s.CPU / float64(r.Events) * 1e9 })
}

func (r *report) settled(name string) spread {
	return r.over(name, func(s *sample) float64 { return s.Settled / float64(r.Events) * 1e9 })
}

func (r *report) extra(name, key string) spread {
	return r.over(name, func(s *sample) float64 { return s.Extra[key] })
}

// ratio is the spread of f over the rounds: of stages of one round, which ran next
// to each other.
func (r *report) ratio(f func(round int) float64) spread {
	var xs []float64
	for i := range r.Samples[pipelineStage] {
		xs = append(xs, f(i))
	}
	return spreadOf(xs)
}

// comparedStages are what the pipeline is compared with: buffer contains map, and
// raw Pebble is compared apart.
var comparedStages = []string{fetchStage, decodeStage, mapStage, storeStage}

// slowest is the stage with the lowest median rate.
func (r *report) slowest() string {
	return slices.MinFunc(comparedStages, func(a, b string) int {
		return cmp.Compare(r.rates(a).median, r.rates(b).median)
	})
}

func (r *report) seconds(name string, round int) float64 { return r.Samples[name][round].Seconds }

// busiest returns the stage during which other processes took most, by the median,
// and their share of the machine; below 0 where it is not known.
func (r *report) busiest() (name string, share float64) {
	share = -1
	for _, st := range stages {
		if s := r.over(st.name, func(s *sample) float64 { return s.Foreign }); len(r.Samples[st.name]) > 0 && s.median > share {
			name, share = st.name, s.median
		}
	}
	return name, share
}

// table is a table of the report, as text and as Markdown.
type table struct {
	head []string
	rows [][]string
}

func (t *table) text(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range append([][]string{t.head}, t.rows...) {
		// The first column is a name: to the left, and so not part of the tabs.
		fmt.Fprintf(tw, "%-*s\t", t.width(), row[0])
		for _, c := range row[1:] {
			fmt.Fprintf(tw, "%s\t", c)
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

func (t *table) width() (n int) {
	for _, row := range append([][]string{t.head}, t.rows...) {
		n = max(n, len([]rune(row[0])))
	}
	return n
}

func (t *table) markdown(w *bytes.Buffer) {
	line := func(cells []string) {
		for _, c := range cells {
			fmt.Fprintf(w, "| %s ", c)
		}
		w.WriteString("|\n")
	}
	line(t.head)
	w.WriteString("|---")
	for range t.head[1:] {
		w.WriteString("|---:")
	}
	w.WriteString("|\n")
	for _, row := range t.rows {
		line(row)
	}
	w.WriteString("\n")
}

// unlisted reports whether a stage has its own tables, or ratios only.
func unlisted(name string) bool {
	return name == exportStage || name == operationsStage || name == besideStage || name == incrementStage
}

// stageTable has a line for each stage.
func (r *report) stageTable() *table {
	t := &table{head: []string{"stage", "k events/s", "min..max", "CPU ns/event", "until at rest", "others"}}
	for _, st := range stages {
		if len(r.Samples[st.name]) == 0 || unlisted(st.name) {
			continue
		}
		rate, cpu, settled := r.rates(st.name), r.cpu(st.name), r.settled(st.name)
		row := []string{st.what, number(rate.median), number(rate.min) + ".." + number(rate.max), fmt.Sprintf("%.0f", cpu.median), "", share(r.over(st.name, func(s *sample) float64 { return s.Foreign }).median)}
		if settled.median > 0 {
			row[4] = fmt.Sprintf("%.0f", settled.median)
		}
		t.rows = append(t.rows, row)
		if st.name == countersStage && r.redisMeasured() {
			t.rows = append(t.rows, r.redisRow())
		}
	}
	return t
}

// ratioTable is what the run is for.
func (r *report) ratioTable() *table {
	t := &table{head: []string{"ratio", "median", "min..max", "goal"}}
	add := func(name, goal string, s spread) {
		t.rows = append(t.rows, []string{name, ratio(s.median), ratio(s.min) + ".." + ratio(s.max), goal})
	}
	slowest := r.slowest()
	add("pipeline / slowest stage ("+slowest+")", "≥ 0.90", r.ratio(func(i int) float64 {
		return r.seconds(slowest, i) / r.seconds(pipelineStage, i)
	}))
	// The store alone keeps most of two cores busy; what comes before it has to be done,
	// too.
	add("the most that this can be, where fetch, buffer and store keep all cores busy", "", r.ratio(func(i int) float64 {
		parts := r.Samples[fetchStage][i].CPU + r.Samples[bufferStage][i].CPU + r.Samples[storeStage][i].CPU
		return r.seconds(slowest, i) * float64(r.Machine.Cores) / parts
	}))
	add("backfill / pipeline", "≥ 1.50", r.ratio(func(i int) float64 {
		return r.seconds(pipelineStage, i) / r.seconds(backfillStage, i)
	}))
	add("CPU: backfill / pipeline, until at rest", "", r.ratio(func(i int) float64 {
		return r.Samples[backfillStage][i].Settled / r.Samples[pipelineStage][i].Settled
	}))
	add("pipeline that remembers event ids / pipeline", "", r.ratio(func(i int) float64 {
		return r.seconds(pipelineStage, i) / r.seconds(dedupStage, i)
	}))
	add("pipeline / raw Pebble commits of the same key-values", "≥ 0.80", r.ratio(func(i int) float64 {
		return r.seconds(rawStage, i) / r.seconds(pipelineStage, i)
	}))
	add("store / raw Pebble", "", r.ratio(func(i int) float64 {
		return r.seconds(rawStage, i) / r.seconds(storeStage, i)
	}))
	add("CPU: raw Pebble / pipeline, until at rest", "", r.ratio(func(i int) float64 {
		return r.Samples[rawStage][i].Settled / r.Samples[pipelineStage][i].Settled
	}))
	add("CPU: fetch + buffer + store / pipeline, until at rest", "", r.ratio(func(i int) float64 {
		return (r.Samples[fetchStage][i].CPU + r.Samples[bufferStage][i].CPU + r.Samples[storeStage][i].Settled) / r.Samples[pipelineStage][i].Settled
	}))
	add("CPU: fetch / fetch by franz-go", "≤ 0.60", r.ratio(func(i int) float64 {
		return r.Samples[fetchStage][i].CPU / r.Samples[peerStage][i].CPU
	}))
	add("CPU: encoding/json / decode", "≥ 6.00", r.ratio(func(i int) float64 {
		return r.Samples[standardStage][i].CPU / r.Samples[decodeStage][i].CPU
	}))
	add("decode and map: µs of CPU an event", "≤ 1.00", r.ratio(func(i int) float64 {
		return r.Samples[mapStage][i].CPU / float64(r.Events) * 1e6
	}))
	add("export to Parquet / slower of scan and encode", "≥ 0.80", r.exportRatio(encodeParquetSeconds, func(s *sample) float64 { return s.Seconds }))
	add("export to Parquet / slower of scan and encode on one core each", "≥ 0.80", r.over(exportStage, func(s *sample) float64 {
		return max(s.Extra[scanOneSeconds], s.Extra[encodeOneSeconds]) / s.Seconds
	}))
	add("CPU: scan and encode / export to Parquet", "≥ 0.80", r.over(exportStage, func(s *sample) float64 {
		return (s.Extra[scanCPU] + s.Extra[encodeParquetCPU]) / s.CPU
	}))
	add("rows in memory to an Arrow file / to Arrow's builders alone, one core", "≥ 0.70", r.over(exportStage, func(s *sample) float64 {
		return s.Extra[arrowBuildersSeconds] / s.Extra[arrowExportSeconds]
	}))
	add("export to Arrow / slower of scan and encode", "", r.exportRatio(encodeArrowSeconds, func(s *sample) float64 { return s.Extra[wholeArrowSeconds] }))
	r.incrementRatios(add)
	if r.redisMeasured() {
		r.redisRatio(add)
	}
	r.operationRatios(add)
	return t
}

func (r *report) exportRatio(encode string, whole func(*sample) float64) spread {
	return r.over(exportStage, func(s *sample) float64 { return max(s.Extra[scanSeconds], s.Extra[encode]) / whole(s) })
}

// exportTable has the parts of the export.
func (r *report) exportTable() *table {
	t := &table{head: []string{"export of the rows, all cores", "k rows/s", "min..max", "bytes/row"}}
	add := func(name string, seconds func(*sample) float64, bytes string) {
		s := r.over(exportStage, func(s *sample) float64 { return float64(r.Events) / seconds(s) / 1000 })
		row := []string{name, number(s.median), number(s.min) + ".." + number(s.max), ""}
		if bytes != "" {
			row[3] = fmt.Sprintf("%.0f", r.extra(exportStage, bytes).median/float64(r.Events))
		}
		t.rows = append(t.rows, row)
	}
	key := func(k string) func(*sample) float64 { return func(s *sample) float64 { return s.Extra[k] } }
	add("scan alone", key(scanSeconds), "")
	add("scan alone, one core", key(scanOneSeconds), "")
	add("encode alone, Parquet", key(encodeParquetSeconds), "")
	add("encode alone, Parquet, one core", key(encodeOneSeconds), "")
	add("encode alone, Arrow", key(encodeArrowSeconds), "")
	for _, side := range []struct{ name, key string }{{"rows in memory to Arrow, one core", arrowExportSeconds}, {"rows in memory to Arrow's builders, one core", arrowBuildersSeconds}} {
		add(side.name, func(s *sample) float64 { return s.Extra[side.key] * float64(r.Events) / s.Extra[arrowRowsKey] }, "")
	}
	add("whole, Parquet", func(s *sample) float64 { return s.Seconds }, parquetBytes)
	add("whole, Arrow", key(wholeArrowSeconds), arrowBytes)
	return t
}

// notes are what a reader needs to judge the numbers by.
func (r *report) notes() []string {
	per := func(key string) float64 { return r.Capture.Extra[key] }
	notes := []string{
		fmt.Sprintf("%d events of %.0f bytes in %d partitions, batches of %d records, %d interleaved rounds, medians. Each stage runs in a process of its own.", r.Events, r.EventBytes, r.Partitions, r.Batch, r.Rounds),
		fmt.Sprintf("A commit of the backfill has %.0f events.", r.extra(backfillStage, "events a commit").median),
		fmt.Sprintf("The broker runs in its own process and shares the %d cores: it took %.2f s of CPU during fetch and %.2f s during pipeline. It is in no CPU figure.",
			r.Machine.Cores, r.extra(fetchStage, "broker CPU seconds").median, r.extra(pipelineStage, "broker CPU seconds").median),
		fmt.Sprintf("An event is one packed row and, coalesced, %.2f counters: %.2f key-values and %.0f bytes of a Pebble batch; a commit has %.0f events in the store stage and %.0f in the pipeline.",
			per("counters an event"), per("key-values an event"), per("bytes an event"), r.extra(storeStage, "events a commit").median, r.extra(pipelineStage, "events a commit").median),
		"The counters of all three units and the rows were added up after every run of store, pipeline and backfill, and were equal to the number of events.",
		"\"Until at rest\" is CPU with the flushes and compactions that were still to come when the last event was stored: rates of short runs leave them out.",
		"An export is compared with a scan and an encode that each keep all cores busy, and with them on one core each. The scan makes cells of the rows; the export takes them as they are stored, and so can take less than both together.",
		"Of peers franz-go is measured, which fetches and does no more, and Redis, which counts and does no more (FLINK.md has Flink, CONNECT.md Kafka Connect, HBASE.md HBase).",
	}
	if !r.redisMeasured() {
		notes = append(notes, noRedis)
	}
	switch name, s := r.busiest(); {
	case s < 0:
		notes = append(notes, "How much other processes took is not known on this system.")
	case s > maxForeign:
		notes = append(notes, fmt.Sprintf("WARNING: other processes took %.0f %% of the machine during %s. Rates say little; CPU and ratios say more.", 100*s, name))
	}
	return notes
}

func number(x float64) string {
	if x < 100 {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// ratio writes a ratio with two decimals, or where these would hide all of it
// with two digits.
func ratio(x float64) string {
	if math.Abs(x) < 0.01 {
		return fmt.Sprintf("%.1e", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func share(x float64) string {
	if x < 0 {
		return "?"
	}
	return fmt.Sprintf("%.0f %%", 100*x)
}

// text prints the report for a terminal.
func (r *report) text(w io.Writer) error {
	for _, t := range []*table{r.stageTable(), r.ratioTable(), r.exportTable(), r.operationTable()} {
		fmt.Fprintln(w)
		if err := t.text(w); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, n := range r.notes() {
		if _, err := fmt.Fprintln(w, "*", n); err != nil {
			return err
		}
	}
	return nil
}

// writeMarkdown writes the report with machine and commit.
func (r *report) writeMarkdown(name string) error {
	b := newPage("Results", "Written by `make bench`; [main.go](main.go) says what is measured and how.", &r.Machine)
	b.WriteString("\n## Ingest\n\n")
	r.stageTable().markdown(b)
	b.WriteString("## Ratios\n\nOf stages of one round.\n\n")
	r.ratioTable().markdown(b)
	b.WriteString("## Export\n\n")
	r.exportTable().markdown(b)
	b.WriteString("## Operations\n\n")
	r.operationTable().markdown(b)
	return writePage(name, b, r.notes())
}

// newPage begins a page of results: about is where they are from.
func newPage(title, about string, m *machine) *bytes.Buffer {
	b := new(bytes.Buffer)
	fmt.Fprintf(b, "# %s\n\n%s Compare ratios between machines, not rates.\n\n", title, about)
	for _, line := range m.lines() {
		fmt.Fprintf(b, "* %s\n", line)
	}
	return b
}

// writePage ends a page with its notes, and writes it.
func writePage(name string, b *bytes.Buffer, notes []string) error {
	b.WriteString("## Notes\n\n")
	for _, n := range notes {
		fmt.Fprintf(b, "* %s\n", n)
	}
	return writeFile(name, b.Bytes())
}

func (r *report) writeJSON(name string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(name, append(data, '\n'))
}

// writeFile replaces name at once, so that a failure leaves what was there.
func writeFile(name string, data []byte) error {
	tmp := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".tmp")
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}
