// Package fenced reads the fenced blocks of the project's documents, for the tests that do
// what these say. It is no reader of Markdown: fences are three backquotes at a line's start.
package fenced

import (
	"os"
	"strings"
	"testing"
)

// Block is a fenced block.
type Block struct {
	Section string // the last heading of the second level above it; "" = there is none
	Heading string // the last one of any level
	// Before is the last line of text between the block or the heading before it and it; "" =
	// there is none.
	Before   string
	Language string
	Text     string
	Line     int // of its opening fence, counted from 1
}

// Blocks returns the fenced blocks of the file at path, in their order.
func Blocks(t testing.TB, path string) []Block {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []Block
	var next Block // but for what the fence says
	in := false
	for i, l := range strings.Split(string(data), "\n") {
		switch {
		case in && l == "```":
			in = false
		case in:
			all[len(all)-1].Text += l + "\n"
		case strings.HasPrefix(l, "```"):
			in = true
			next.Language, next.Line = l[len("```"):], i+1
			all = append(all, next)
			next.Before = ""
		case strings.HasPrefix(l, "#"):
			next.Heading, next.Before = strings.TrimLeft(l, "# "), ""
			if section, ok := strings.CutPrefix(l, "## "); ok {
				next.Section = section
			}
		case l != "":
			next.Before = l
		}
	}
	return all
}
