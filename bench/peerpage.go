package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
)

// peerReport is what we and a peer took for the same rows or events, round by round.
type peerReport struct {
	title string
	about string // a paragraph of the page
	notes []string

	machine machine
	of      string // what is counted; "" = row
	rows    int

	names  []string // in the order of their first round
	rates  map[string][]float64
	cpu    map[string][]float64
	bytes  map[string][]float64 // a row; none where nobody compares them
	ratios []peerRatio

	foreign float64 // the greatest share of the machine that others took in a run
	unknown bool    // and of some it is not known
}

// peerRatio is one of two programs in each round.
type peerRatio struct {
	name, goal string
	values     []float64
}

// unit returns what is counted, one of it.
func (r *peerReport) unit() string {
	if r.of == "" {
		return "row"
	}
	return r.of
}

// begin takes note of the machine and of the command, and prints them. Where this machine
// has what the peer needs is not told: it is called name.
func (r *peerReport) begin(ctx context.Context, w io.Writer, argument string, args []string, place, name string) {
	r.machine = thisMachine(ctx)
	command := strings.Join(append([]string{"go run ./bench", argument}, args...), " ")
	r.machine.Command = strings.ReplaceAll(command, place, name)
	fmt.Fprintln(w, strings.Join(r.machine.lines(), "\n"))
}

// add takes what a program took in one round, and says so. bytes is the size of what it
// has written, 0 where that is not compared.
func (r *peerReport) add(w io.Writer, round int, name string, s *sample, bytes int64) {
	if r.rates == nil {
		r.rates, r.cpu, r.bytes = map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	}
	if !slices.Contains(r.names, name) {
		r.names = append(r.names, name)
	}
	r.rates[name] = append(r.rates[name], s.rate(r.rows)/1000)
	r.cpu[name] = append(r.cpu[name], s.CPU/float64(r.rows)*1e9)
	r.foreign, r.unknown = max(r.foreign, s.Foreign), r.unknown || s.Foreign < 0
	fmt.Fprintf(w, "round %d  %-28s%s", round+1, name, peerLine(s, r.unit(), r.rows))
	if bytes > 0 {
		r.bytes[name] = append(r.bytes[name], float64(bytes)/float64(r.rows))
		fmt.Fprintf(w, "  %5.1f bytes per %s", float64(bytes)/float64(r.rows), r.unit())
	}
	fmt.Fprintln(w)
}

// peerLine says what one run took for n of what is counted.
func peerLine(s *sample, unit string, n int) string {
	text := fmt.Sprintf("%9.1f k %ss/s  %6.0f ns CPU per %s", s.rate(n)/1000, unit, s.CPU/float64(n)*1e9, unit)
	if s.Foreign > maxForeign {
		text += fmt.Sprintf("  others took %.0f %% of the machine", 100*s.Foreign)
	}
	return text
}

// ratio takes one of the ratios of a round; goal is empty where there is none.
func (r *peerReport) ratio(name, goal string, value float64) {
	i := slices.IndexFunc(r.ratios, func(have peerRatio) bool { return have.name == name })
	if i < 0 {
		i = len(r.ratios)
		r.ratios = append(r.ratios, peerRatio{name: name, goal: goal})
	}
	r.ratios[i].values = append(r.ratios[i].values, value)
}

func (r *peerReport) rateTable() *table {
	t := &table{head: []string{"program", "k " + r.unit() + "s/s", "min..max", "CPU ns/" + r.unit(), "bytes/" + r.unit()}}
	for _, name := range r.names {
		rate := spreadOf(r.rates[name])
		row := []string{name, number(rate.median), number(rate.min) + ".." + number(rate.max), fmt.Sprintf("%.0f", spreadOf(r.cpu[name]).median), ""}
		if len(r.bytes[name]) > 0 {
			row[4] = fmt.Sprintf("%.1f", spreadOf(r.bytes[name]).median)
		}
		t.rows = append(t.rows, row)
	}
	return t
}

func (r *peerReport) ratioTable() *table {
	t := &table{head: []string{"ratio", "median", "min..max", "goal"}}
	for i := range r.ratios {
		s := spreadOf(r.ratios[i].values)
		t.rows = append(t.rows, []string{r.ratios[i].name, fmt.Sprintf("%.2f", s.median), fmt.Sprintf("%.2f..%.2f", s.min, s.max), r.ratios[i].goal})
	}
	return t
}

// publish prints the ratios, and writes the page to name, where that is not empty.
func (r *peerReport) publish(w io.Writer, name string, force bool) error {
	fmt.Fprintln(w)
	if err := r.ratioTable().text(w); err != nil || name == "" {
		return err
	}
	if r.foreign > maxForeign && !force {
		return fmt.Errorf("%w: %.0f %%; wait until it is quiet, or say -force. %s is unchanged", errBusy, 100*r.foreign, name)
	}
	b := newPage(r.title, r.about, &r.machine)
	b.WriteString("\n## Rates\n\n")
	r.rateTable().markdown(b)
	b.WriteString("## Ratios\n\nOf runs of one round.\n\n")
	r.ratioTable().markdown(b)
	notes := r.notes
	if r.unknown {
		notes = append(slices.Clone(notes), "Of some runs it is not known what other processes took meanwhile.")
	}
	return writePage(name, b, notes)
}
