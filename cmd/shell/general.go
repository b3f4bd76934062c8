package main

import (
	"fmt"
	"os/user"
	"strings"

	"sluice/store"
)

func generalCommands() []*commandInfo {
	return []*commandInfo{
		{
			name: "help", max: 1, first: commandArgument, run: help,
			summary:  "List the commands, or show one or a group of them.",
			examples: "help\nhelp 'scan'\nhelp 'ddl'",
		},
		{
			name: "exit", alias: "quit", run: func(*session, []any) (string, error) { return "", errExit },
			summary: "End the session.", examples: "exit",
		},
		{
			name: "status", max: 1, servers: true, run: status,
			summary:  "Say how many regions the store serves: 'summary', 'simple' with requests, 'detailed' with each region.",
			examples: "status\nstatus 'simple'\nstatus 'detailed'",
		},
		{
			name: "version", run: version,
			summary: "Print the version of the shell and the kind of its store.", examples: "version",
		},
		{
			name: "whoami", run: whoami,
			summary: "Print the user of this process and its groups.", examples: "whoami",
		},
		{
			name: "table_help", run: tableHelp,
			summary: "Say how a variable can stand for a table.", examples: "table_help",
		},
	}
}

func help(s *session, args []any) (string, error) {
	if len(args) == 0 {
		s.print.linef("Sluice shell %s, in the language of HBase's.\n", s.version)
		s.print.linef("COMMAND GROUPS:")
		for _, g := range groups() {
			var names []string
			for _, c := range s.commands {
				if c.group == g.name {
					names = append(names, c.name)
				}
			}
			s.print.linef("  Group name: %s (%s)\n  Commands: %s\n", g.name, g.purpose, strings.Join(names, ", "))
		}
		s.print.linef(`help "get" shows a command, help "ddl" a group.
Strings are 'single' quoted or "double" with escapes: "\x00\n". Options are NAME => value, in {} or not.
A list is ['f1', 'f2']. Semicolons separate commands, # begins a comment; Tab completes.`)
		return "", s.helpObjects("")
	}
	name := text(args[0])
	if c := s.commands.find(name); c != nil {
		s.print.line(c.summary)
		if c.alias != "" {
			s.print.linef("Alias: %s", c.alias)
		}
		if c.examples != "" {
			s.print.linef("\n  %s", strings.ReplaceAll(c.examples, "\n", "\n  "))
		}
		if len(c.options) > 0 {
			s.print.linef("\nOptions: %s", strings.Join(c.options, ", "))
		}
		return "", s.helpObjects(c.name)
	}
	for _, g := range groups() {
		if g.name != name {
			continue
		}
		for _, c := range s.commands {
			if c.group == g.name {
				s.print.linef("%-22s  %s", c.name, c.summary)
			}
		}
		return "", s.helpObjects(g.name)
	}
	return "", fmt.Errorf("unknown command %q%s", name, s.commands.didYouMean(name))
}

// helpObjects prints commands as JSON: all, a group or one.
func (s *session) helpObjects(which string) error {
	for _, c := range s.commands {
		if which != c.name && which != c.group && (which != "" || c.run == nil) {
			continue
		}
		if err := s.print.object(object{{"command", c.name}, {"group", c.group}, {"summary", c.summary}, {"examples", c.examples}}); err != nil {
			return err
		}
	}
	return nil
}

func version(s *session, _ []any) (string, error) {
	name := s.store.Traits().Name
	s.print.linef("Sluice %s (%s store)", s.version, name)
	return "", s.print.object(object{{"version", s.version}, {"store", name}})
}

func whoami(s *session, _ []any) (string, error) {
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("ask who runs this process: %w", err)
	}
	var groups []string
	if ids, err := u.GroupIds(); err == nil {
		for _, id := range ids {
			if g, err := user.LookupGroupId(id); err == nil {
				id = g.Name
			}
			groups = append(groups, id)
		}
	}
	s.print.linef("%s (auth:SIMPLE)", u.Username)
	if len(groups) > 0 {
		s.print.linef("    groups: %s", strings.Join(groups, ", "))
	}
	return "", s.print.object(object{{"user", u.Username}, {"groups", groups}})
}

func tableHelp(s *session, _ []any) (string, error) {
	s.print.linef(`A variable can stand for a table:

  t = create 't1', 'f1'
  t = get_table 't1'

Then every command that takes a table first is a method of it:

  t.put 'r1', 'f1:c1', 'value'
  t.scan LIMIT => 10
  t.describe

A variable alone prints the table's name.`)
	return "", nil
}

// status counts regions and requests. Sluice has one server: this process, or the
// daemon that has the store.
func status(s *session, args []any) (string, error) {
	format := "summary"
	if len(args) == 1 {
		format = text(args[0])
	}
	if format != "summary" && format != "simple" && format != "detailed" {
		return "", badArgument("status takes 'summary', 'simple' or 'detailed', not %s", inspect(args[0]))
	}
	if s.realHBase() {
		return "", store.ErrUnsupported // it has servers of its own
	}
	tables, err := s.store.Tables(s.ctx)
	if err != nil {
		return "", err
	}
	var all []store.RegionStats
	for _, t := range tables {
		stats, err := s.regionStats(t)
		if err != nil {
			return "", err
		}
		all = append(all, stats...)
	}
	var rate float64
	var bytes int64
	for i := range all {
		rate += all[i].ReadRate + all[i].WriteRate
		bytes += all[i].Bytes
	}
	if err := s.print.object(object{
		{"server", s.server}, {"tables", len(tables)}, {"regions", len(all)}, {"bytes", bytes}, {"requests_per_second", rate},
	}); err != nil {
		return "", err
	}
	if format == "summary" {
		s.print.linef("1 active master, 0 backup masters, 1 servers, 0 dead, %.4f average load", float64(len(all)))
		return "", nil
	}
	s.print.linef("active master:  %s\n0 backup masters\n1 live servers\n    %s", s.server, s.server)
	s.print.linef("        requestsPerSecond=%.1f, numberOfOnlineRegions=%d, storefileSizeMB=%d", rate, len(all), bytes>>20)
	for i := range all {
		if r := &all[i]; format == "detailed" {
			s.print.linef("        %q\n            storefileSizeMB=%d, readRequestsCount=%d, writeRequestsCount=%d%s", escape([]byte(r.Region.Name())), r.Bytes>>20, r.Reads, r.Writes, hotMark(r))
		}
	}
	s.print.linef("0 dead servers\nAggregate load: %.0f, regions: %d", rate, len(all))
	return "", nil
}

// hotMark warns of a region that takes most of its table's requests.
func hotMark(r *store.RegionStats) string {
	if r.Hot {
		return ", hot"
	}
	return ""
}

// regionStats is what the engine knows of a table's regions; where it keeps no
// statistics, the regions alone.
func (s *session) regionStats(table string) ([]store.RegionStats, error) {
	if m, ok := s.store.(store.RegionMeter); ok {
		return m.RegionStats(s.ctx, table)
	}
	m, err := s.store.Regions(s.ctx, table)
	if err != nil {
		return nil, err
	}
	stats := make([]store.RegionStats, m.Len())
	for i := range stats {
		stats[i].Region = *m.At(i)
	}
	return stats, nil
}
