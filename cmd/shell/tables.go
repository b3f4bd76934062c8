package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sluice/pipeline"
	"sluice/store"
)

func tableCommands() []*commandInfo {
	return append(schemaCommands(), []*commandInfo{
		{
			name: "list", max: 1, run: list,
			summary: "List the tables, or those that a regular expression matches whole.", examples: "list\nlist 'abc.*'\nlist 'ns1:.*'",
		},
		{
			name: "describe", alias: "desc", min: 1, max: 1, first: tableArgument, run: describe,
			summary: "Show a table, its attributes and families.", examples: "describe 't1'\ndesc 'ns1:t2'",
		},
		{
			name: "exists", min: 1, max: 1, first: tableArgument, run: exists,
			summary: "Say whether a table exists.", examples: "exists 't1'",
		},
		{
			name: "get_table", min: 1, max: 1, first: tableArgument, reference: true, run: getTable,
			summary: "Return a table for a variable; see table_help.", examples: "t = get_table 't1'",
		},
		{
			name: "drop", min: 1, max: 1, first: tableArgument, run: drop,
			summary: "Remove a disabled table and its cells.", examples: "disable 't1'; drop 't1'",
		},
		{
			name: "drop_all", min: 1, max: 1, run: dropAll,
			summary: "Remove the disabled tables that a regular expression matches, after a question.", examples: "disable_all 't.*'\ny\ndrop_all 't.*'\ny",
		},
		{
			name: "disable", min: 1, max: 1, first: tableArgument, run: disable,
			summary: "Take a table out of service: it keeps its cells and refuses reads and writes.", examples: "disable 't1'",
		},
		{
			name: "disable_all", min: 1, max: 1, run: disableAll,
			summary: "Disable the tables that a regular expression matches, after a question.", examples: "disable_all 't.*'\ny",
		},
		{
			name: "enable", min: 1, max: 1, first: tableArgument, run: enable,
			summary: "Put a disabled table back into service.", examples: "enable 't1'",
		},
		{
			name: "enable_all", min: 1, max: 1, run: enableAll,
			summary: "Enable the tables that a regular expression matches, after a question.", examples: "enable_all 't.*'\ny",
		},
		{
			name: "is_enabled", min: 1, max: 1, first: tableArgument, run: isEnabled,
			summary: "Say whether a table is in service.", examples: "is_enabled 't1'",
		},
		{
			name: "is_disabled", min: 1, max: 1, first: tableArgument, run: isDisabled,
			summary: "Say whether a table is out of service.", examples: "is_disabled 't1'",
		},
		{
			name: "truncate", min: 1, max: 1, first: tableArgument, run: func(s *session, args []any) (string, error) { return s.truncate(args, false) },
			summary: "Remove all cells of a table; it has one region then.", examples: "truncate 't1'",
		},
		{
			name: "truncate_preserve", min: 1, max: 1, first: tableArgument, run: func(s *session, args []any) (string, error) { return s.truncate(args, true) },
			summary: "Remove all cells of a table and keep the bounds of its regions.", examples: "truncate_preserve 't1'",
		},
		{
			name: "show_filters", run: showFilters,
			summary: "List the filters of FILTER strings; docs/filters.md says what they do.", examples: "show_filters",
		},
	}...)
}

// tableError gives a store error the words of HBase's shell.
type tableError struct {
	msg string
	err error
}

func (e *tableError) Error() string { return e.msg }
func (e *tableError) Unwrap() error { return e.err }

// table returns a table's schema, with HBase's words where there is none.
func (s *session) table(name string) (*store.TableDescriptor, error) {
	t, err := s.store.Table(s.ctx, store.CanonicalName(name))
	return t, tableErrorOf(name, err)
}

// tableErrorOf gives the words of HBase's shell to errors about table name.
func tableErrorOf(name string, err error) error {
	switch {
	case errors.Is(err, store.ErrTableNotFound):
		return &tableError{"Unknown table " + name + "!", err}
	case errors.Is(err, store.ErrTableNotEnabled):
		return &tableError{"Table " + name + " is disabled!", err}
	case errors.Is(err, store.ErrTableNotDisabled):
		return &tableError{"Table " + name + " should be disabled!", err}
	}
	return err
}

// explain gives the words of HBase's shell to errors of a call on table t.
func (s *session) explain(t *store.TableDescriptor, err error) error {
	if errors.Is(err, store.ErrFamilyNotFound) {
		var valid []string
		for i := range t.Families {
			valid = append(valid, t.Families[i].Name+":*")
		}
		return &tableError{"Unknown column family! Valid column names: " + strings.Join(valid, ", "), err}
	}
	return tableErrorOf(t.Name, err)
}

// pattern returns whether a name matches the regular expression in args[0], whole;
// without one every name does.
func pattern(args []any) (func(name string) bool, error) {
	if len(args) == 0 {
		return func(string) bool { return true }, nil
	}
	re, err := regexp.Compile("^(?:" + text(args[0]) + ")$")
	if err != nil {
		return nil, badArgument("not a regular expression: %v", err)
	}
	return re.MatchString, nil
}

// tablesLike returns the names of the tables that args[0] matches.
func (s *session) tablesLike(args []any) ([]string, error) {
	match, err := pattern(args)
	if err != nil {
		return nil, err
	}
	names, err := s.store.Tables(s.ctx)
	return slices.DeleteFunc(names, func(n string) bool { return !match(n) }), err
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

func list(s *session, args []any) (string, error) {
	names, err := s.tablesLike(args)
	if err != nil {
		return "", err
	}
	s.print.header("TABLE")
	return s.listNames("table", names)
}

func exists(s *session, args []any) (string, error) {
	name := text(args[0])
	_, err := s.store.Table(s.ctx, store.CanonicalName(name))
	found, verb := err == nil, "does"
	if errors.Is(err, store.ErrTableNotFound) {
		err, verb = nil, "does not"
	}
	if err != nil {
		return "", err
	}
	s.print.linef("Table %s %s exist", name, verb)
	return fmt.Sprint(found), s.print.object(object{{"table", name}, {"exists", found}})
}

func getTable(s *session, args []any) (string, error) {
	t, err := s.table(text(args[0]))
	if err != nil {
		return "", err
	}
	return "Hbase::Table - " + t.Name, nil
}

func (s *session) switcher() (store.TableSwitcher, error) {
	w, ok := s.store.(store.TableSwitcher)
	if !ok {
		return nil, fmt.Errorf("%w: disabled tables, by the %s store", store.ErrUnsupported, s.store.Traits().Name)
	}
	return w, nil
}

// existing returns the canonical name of a table that exists and whether it is in
// service. Of one that does not exist HBase says it in these words.
func (s *session) existing(name string) (canonical string, enabled bool, err error) {
	w, err := s.switcher()
	if err != nil {
		return "", false, err
	}
	canonical = store.CanonicalName(name)
	enabled, err = w.TableEnabled(s.ctx, canonical)
	if errors.Is(err, store.ErrTableNotFound) {
		err = &tableError{"Table " + name + " does not exist.", err}
	}
	return canonical, enabled, err
}

func drop(s *session, args []any) (string, error) { return "", s.drop(text(args[0])) }

func (s *session) drop(given string) error {
	name, enabled, err := s.existing(given)
	if err != nil {
		return err
	}
	if enabled {
		return &tableError{"Table " + given + " is enabled. Disable it first.", store.ErrTableNotDisabled}
	}
	if err := pipeline.MayEmpty(s.ctx, s.store, name); err != nil {
		return err
	}
	return tableErrorOf(given, s.store.DropTable(s.ctx, name))
}

func disable(s *session, args []any) (string, error) { return "", s.disable(text(args[0])) }

// disable does nothing to a table that is disabled, as HBase's.
func (s *session) disable(given string) error {
	name, enabled, err := s.existing(given)
	if err != nil || !enabled {
		return err
	}
	w, err := s.switcher()
	if err != nil {
		return err
	}
	return tableErrorOf(given, w.DisableTable(s.ctx, name))
}

func enable(s *session, args []any) (string, error) { return "", s.enable(text(args[0])) }

// enable does nothing to a table that is enabled, as HBase's.
func (s *session) enable(given string) error {
	name, enabled, err := s.existing(given)
	if err != nil || enabled {
		return err
	}
	w, err := s.switcher()
	if err != nil {
		return err
	}
	return tableErrorOf(given, w.EnableTable(s.ctx, name))
}

func dropAll(s *session, args []any) (string, error) { return s.all(args, "drop", "dropped", s.drop) }

func disableAll(s *session, args []any) (string, error) {
	return s.all(args, "disable", "disabled", s.disable)
}

func enableAll(s *session, args []any) (string, error) {
	return s.all(args, "enable", "enabled", s.enable)
}

// all lists the tables that a regular expression matches, asks, and does it to each.
func (s *session) all(args []any, verb, done string, do func(name string) error) (string, error) {
	names, err := s.tablesLike(args)
	if err != nil {
		return "", err
	}
	for _, n := range names {
		s.print.line(n)
	}
	if len(names) == 0 {
		s.print.linef("No tables matched the regex %s", text(args[0]))
		return "", nil
	}
	yes, err := s.ask(fmt.Sprintf("\n%s the above %d tables (y/n)?", strings.ToUpper(verb[:1])+verb[1:], len(names)))
	if err != nil || !yes {
		return "", err
	}
	var failed []string
	var errs []error
	for _, n := range names {
		err := do(n)
		if err != nil {
			failed, errs = append(failed, n), append(errs, err)
		}
		if err := s.print.object(object{{"table", n}, {done, err == nil}}); err != nil {
			return "", err
		}
	}
	s.print.linef("%d tables successfully %s", len(names)-len(failed), done)
	if len(failed) > 0 {
		return "", fmt.Errorf("%d tables not %s: %w", len(failed), done, errors.Join(errs...))
	}
	return "", nil
}

func isEnabled(s *session, args []any) (string, error) {
	enabled, err := s.enabled(text(args[0]))
	if err != nil {
		return "", err
	}
	s.print.linef("%t", enabled)
	return fmt.Sprint(enabled), s.print.object(object{{"table", text(args[0])}, {"enabled", enabled}})
}

func isDisabled(s *session, args []any) (string, error) {
	enabled, err := s.enabled(text(args[0]))
	if err != nil {
		return "", err
	}
	s.print.linef("%t", !enabled)
	return fmt.Sprint(!enabled), s.print.object(object{{"table", text(args[0])}, {"disabled", !enabled}})
}

func (s *session) enabled(name string) (bool, error) {
	w, err := s.switcher()
	if err != nil {
		return false, err
	}
	enabled, err := w.TableEnabled(s.ctx, store.CanonicalName(name))
	return enabled, tableErrorOf(name, err)
}

func (s *session) truncate(args []any, preserveSplits bool) (string, error) {
	name := text(args[0])
	enabled, err := s.enabled(name)
	if err != nil {
		return "", err
	}
	if err := pipeline.MayEmpty(s.ctx, s.store, store.CanonicalName(name)); err != nil {
		return "", err
	}
	s.print.linef("Truncating '%s' table (it may take a while):", name)
	if enabled {
		s.print.linef("Disabling table...")
		if err := s.disable(name); err != nil {
			return "", err
		}
	}
	s.print.linef("Truncating table...")
	w, err := s.switcher()
	if err != nil {
		return "", err
	}
	return "", tableErrorOf(name, w.TruncateTable(s.ctx, store.CanonicalName(name), preserveSplits))
}
