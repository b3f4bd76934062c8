package main

import (
	"context"
	"sort"
	"strings"
	"time"
)

// completionTime bounds what a Tab may cost: a daemon that does not answer must
// not stop the typing.
const completionTime = 2 * time.Second

// complete offers what may come at the end of before, the text up to the cursor:
// commands at the head of a call; in a string tables, namespaces, columns or
// commands, as the command takes them; elsewhere the command's options. head is
// the part of before that stays.
func (s *session) complete(before string) (head string, offers []string) {
	call, quote, open := lastCall(before)
	name, rest, isCall := strings.Cut(strings.TrimLeft(call, " \t"), " ")
	if !isCall && quote == 0 {
		offers = s.commands.names()
		for v := range s.tables {
			offers = append(offers, v)
		}
		return before[:len(before)-len(name)], matching(offers, name, "")
	}
	cmd := s.commands.find(name)
	var table string
	if cmd == nil {
		cmd, table = s.method(name)
	}
	if cmd == nil {
		return before, nil
	}
	if quote == 0 {
		i := strings.LastIndexAny(before, " \t,{[(") + 1
		return before[:i], matching(cmd.options, before[i:], " => ")
	}
	ctx, cancel := context.WithTimeout(s.ctx, completionTime)
	defer cancel()
	head, word := before[:open+1], before[open+1:]
	if table == "" && cmd.first != noArgument {
		if strings.Count(rest, "'")+strings.Count(rest, `"`) == 1 { // the first argument
			return head, matching(s.names(ctx, cmd.first), word, string(quote))
		}
		if calls, err := parse(name + " " + firstArgument(rest)); err == nil && len(calls) == 1 && len(calls[0].args) == 1 {
			table = text(calls[0].args[0])
		}
	}
	if cmd.first == commandArgument || cmd.first == noArgument {
		return head, nil
	}
	d, err := s.store.Table(ctx, table)
	if err != nil {
		return head, nil
	}
	end := ":"
	if cmd.families {
		end = string(quote)
	}
	var families []string
	for i := range d.Families {
		families = append(families, d.Families[i].Name)
	}
	return head, matching(families, word, end)
}

// method finds the command of "t.scan", where t names a table.
func (s *session) method(name string) (*commandInfo, string) {
	variable, method, _ := strings.Cut(name, ".")
	table, ok := s.tables[variable]
	cmd := s.commands.find(method)
	if !ok || cmd == nil || cmd.first != tableArgument {
		return nil, ""
	}
	return cmd, table
}

// names lists what the first argument of a command may be.
func (s *session) names(ctx context.Context, kind argument) []string {
	var names []string
	switch kind {
	case commandArgument:
		return append(s.commands.names(), groupNames()...)
	case tableArgument:
		names, _ = s.store.Tables(ctx) // no offers where it fails
	case namespaceArgument:
		names, _ = s.namespaces(ctx)
	}
	return names
}

// matching returns the words that begin with prefix, sorted, with end after each.
func matching(words []string, prefix, end string) []string {
	var out []string
	for _, w := range words {
		if strings.HasPrefix(w, prefix) {
			out = append(out, w+end)
		}
	}
	sort.Strings(out)
	return out
}

// lastCall returns the last call of a line. Where the line ends inside a string,
// quote and open say which quote opened it, and where in line.
func lastCall(line string) (call string, quote byte, open int) {
	begin := 0
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, open = c, i
		case quote == 0 && c == ';':
			begin = i + 1
		}
	}
	return line[begin:], quote, open
}

// firstArgument returns the text of a call's first argument, a string or a word.
func firstArgument(args string) string {
	args = strings.TrimLeft(args, " \t(")
	if args == "" || args[0] != '\'' && args[0] != '"' {
		head, _, _ := strings.Cut(args, ",")
		return head
	}
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case '\\':
			i++
		case args[0]:
			return args[:i+1]
		}
	}
	return ""
}
