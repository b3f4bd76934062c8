package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/spelling"
)

// Problem is one mistake in a configuration file.
type Problem struct {
	File    string // as it was named to Load or Parse
	Line    int    // 1-based; 0 = the file as a whole
	Col     int    // 1-based, in runes
	Path    string // of the setting, such as "pipelines.clicks.map[0].row"; may be empty
	Message string // what is wrong
	Hint    string // what to do, or the name that was meant; may be empty
}

// String prints the problem as compilers do: file:line:col: message (hint).
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Col)
	}
	b.WriteString(": ")
	b.WriteString(p.Message)
	if p.Hint != "" {
		fmt.Fprintf(&b, " (%s)", p.Hint)
	}
	return b.String()
}

// Problems is every mistake of a file, in its order. It is the error of Load and
// Parse; reach it with errors.As.
type Problems []Problem

// Error prints one problem a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// sorted orders the problems by place and drops repetitions.
func (p Problems) sorted() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return slices.Compact(p)
}

// DidYouMean returns a hint that names the candidate nearest to name, or all of
// them where none is near and they are few.
func DidYouMean(name string, candidates []string) string { return didYouMean(name, candidates) }

// didYouMean returns a hint that names the candidate nearest to name, or all of
// them where none is near and they are few.
func didYouMean(name string, candidates []string) string {
	if hint := spelling.Hint(name, candidates); hint != "" {
		return hint
	}
	if len(candidates) == 0 || len(candidates) > 32 {
		return ""
	}
	sorted := slices.Clone(candidates)
	slices.Sort(sorted)
	return "known: " + strings.Join(sorted, ", ")
}
