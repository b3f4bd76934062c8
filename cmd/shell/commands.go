package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// commandInfo is one command of the shell.
type commandInfo struct {
	min, max int    // arguments; max -1 = any number
	usage    string // shown by help
	run      func(*session, []any) (string, error)
}

func (c *commandInfo) arity() string {
	switch {
	case c.max < 0:
		return strconv.Itoa(c.min) + "+"
	case c.min == c.max:
		return strconv.Itoa(c.min)
	}
	return fmt.Sprintf("%d..%d", c.min, c.max)
}

// commandTable returns every command by name. It is a function, not a variable,
// because help refers back to it.
func commandTable() map[string]*commandInfo {
	t := map[string]*commandInfo{
		"create": {2, -1, `create 't1', 'f1', {NAME => 'f2', VERSIONS => 5, TTL => '30 DAYS'}
create 't1', 'f1', SPLITS => ['10', '20']
create 't1', 'f1', {NUMREGIONS => 4, SPLITALGO => 'HexStringSplit'}
create 't1', {NAME => 'c', COUNTER => true}     # a family of counters`, create},
		"list": {0, 1, `list
list 'abc.*'`, list},
		"describe": {1, 1, `describe 't1'`, describe},
		"exists":   {1, 1, `exists 't1'`, exists},
		"drop":     {1, 1, `drop 't1'                   # at once: Sluice's tables need not be disabled`, drop},
		"put": {4, 6, `put 't1', 'r1', 'f1:c1', 'value'
put 't1', 'r1', 'f1:c1', 'value', ts1
put 't1', 'r1', 'f1:c1', 'value', {TTL => 60000}`, put},
		"get": {2, -1, `get 't1', 'r1'
get 't1', 'r1', 'f1:c1', 'f2'
get 't1', 'r1', {COLUMN => ['f1:c1'], VERSIONS => 4, TIMERANGE => [ts1, ts2]}`, get},
		"scan": {1, 2, `scan 't1'
scan 't1', {COLUMNS => ['f1', 'f2:c1'], LIMIT => 10, STARTROW => 'x', STOPROW => 'y'}
scan 't1', {ROWPREFIXFILTER => 'x', REVERSED => true, VERSIONS => 3, TIMERANGE => [ts1, ts2]}
scan 't1', {RAW => true, VERSIONS => 10}`, scan},
		"count": {1, 2, `count 't1'
count 't1', INTERVAL => 100000`, count},
		"incr": {3, 5, `incr 't1', 'r1', 'c:n'
incr 't1', 'r1', 'c:n', 10`, incr},
		"append":      {4, 5, `append 't1', 'r1', 'f1:c1', 'value'`, appendValue},
		"get_counter": {3, 3, `get_counter 't1', 'r1', 'c:n'`, getCounter},
		"delete": {3, 4, `delete 't1', 'r1', 'f1:c1'          # the newest version
delete 't1', 'r1', 'f1:c1', ts1`, deleteCell},
		"deleteall": {2, 4, `deleteall 't1', 'r1'
deleteall 't1', 'r1', 'f1:c1'
deleteall 't1', 'r1', 'f1:c1', ts1`, deleteAll},
		"version": {0, 0, `version`, version},
		"exit":    {0, 0, `exit`, func(*session, []any) (string, error) { return "", errExit }},
	}
	t["desc"], t["quit"] = t["describe"], t["exit"]
	t["help"] = &commandInfo{0, 1, `help
help 'scan'`, help}
	for name, why := range notOffered {
		t[name] = &commandInfo{0, -1, why, func(*session, []any) (string, error) {
			return "", fmt.Errorf("%w: %s: %s", store.ErrUnsupported, name, why)
		}}
	}
	return t
}

// notOffered are commands of HBase's shell that this one knows and does not
// have, with what to do instead.
var notOffered = map[string]string{
	"disable":     "Sluice's tables are always enabled; drop needs no disable",
	"enable":      "Sluice's tables are always enabled",
	"is_enabled":  "Sluice's tables are always enabled",
	"is_disabled": "Sluice's tables are always enabled",
	"alter":       "change the table in the configuration; altering by shell is not built yet",
	"truncate":    "drop the table and create it again",
	"status":      "one process has no cluster status; see /readyz and /metrics of ingest run",
	"snapshot":    "an export is a consistent snapshot: see 'export run'",
}

func didYouMean(name string) string {
	best, least := "", 3
	for c := range commandTable() {
		if d := distance(name, c); d < least || d == least && c < best {
			best, least = c, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// distance is the Levenshtein distance of two short words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}

func help(s *session, args []any) (string, error) {
	if len(args) == 1 {
		name := text(args[0])
		c, ok := s.commands[name]
		if !ok {
			return "", fmt.Errorf("unknown command %q%s", name, didYouMean(name))
		}
		fmt.Fprintln(s.print.out, c.usage)
		return "", nil
	}
	var names []string
	for n := range s.commands {
		if _, ok := notOffered[n]; !ok {
			names = append(names, n)
		}
	}
	sort.Strings(names)
	fmt.Fprintln(s.print.out, "Commands: "+strings.Join(names, ", "))
	fmt.Fprintln(s.print.out, "'help \"scan\"' shows one. Strings are 'single' or \"double\\x00quoted\"; options are {NAME => value}.")
	return "", nil
}

func create(s *session, args []any) (string, error) {
	t := &store.TableDescriptor{Name: text(args[0])}
	var splits [][]byte
	var regions int64
	algorithm := ""
	for _, a := range args[1:] {
		h, ok := a.(hash)
		if !ok {
			if _, ok := a.(string); !ok {
				return "", badArgument("%v of type %T cannot describe a column family", text(a), a)
			}
			h = hash{{symbol("NAME"), a}}
		}
		if name, ok := h.get("NAME"); ok {
			f, err := s.family(text(name), h)
			if err != nil {
				return "", err
			}
			if old := t.Family(f.Name); old != nil {
				fmt.Fprintf(s.print.out, "Family '%s' already exists, the old one will be replaced\n", f.Name)
				*old = f
			} else {
				t.Families = append(t.Families, f)
			}
			continue
		}
		for _, p := range h {
			switch key := strings.ToUpper(text(p.key)); key {
			case "SPLITS":
				list, ok := p.value.([]any)
				if !ok {
					return "", badArgument("SPLITS => takes an array of row keys")
				}
				for _, k := range list {
					splits = append(splits, []byte(text(k)))
				}
			case "NUMREGIONS":
				n, ok := p.value.(int64)
				if !ok || n < 2 {
					return "", badArgument("NUMREGIONS => takes a number of at least 2")
				}
				regions = n
			case "SPLITALGO":
				algorithm = text(p.value)
			default:
				fmt.Fprintf(s.print.out, "An argument ignored (unknown or overridden): %s\n", key)
			}
		}
	}
	if (regions != 0) != (algorithm != "") {
		return "", badArgument("NUMREGIONS and SPLITALGO go together")
	}
	if regions != 0 {
		var err error
		if splits, err = region.SplitPoints(algorithm, int(regions)); err != nil {
			return "", err
		}
	}
	if len(t.Families) == 0 {
		return "", badArgument("Table must have at least one column family")
	}
	if err := s.store.CreateTable(s.ctx, t, splits); err != nil {
		if errors.Is(err, store.ErrTableExists) {
			return "", &tableError{"Table already exists: " + t.Name + "!", err}
		}
		return "", err
	}
	fmt.Fprintln(s.print.out, "Created table "+t.Name)
	return "Hbase::Table - " + t.Name, nil
}

func (s *session) family(name string, h hash) (store.FamilyDescriptor, error) {
	f := store.NewFamily(name)
	known := store.FamilyAttributeNames()
	for _, p := range h {
		key := strings.ToUpper(text(p.key))
		if key == "NAME" {
			continue
		}
		i := sort.SearchStrings(known, key)
		if i == len(known) || known[i] != key {
			fmt.Fprintf(s.print.out, "Unknown argument ignored for column family %s: %s\n", name, key)
			continue
		}
		if err := f.SetAttribute(key, text(p.value)); err != nil {
			return f, err
		}
	}
	return f, nil
}

func list(s *session, args []any) (string, error) {
	pattern := ".*"
	if len(args) == 1 {
		pattern = text(args[0])
	}
	re, err := regexp.Compile("^(?:" + pattern + ")$")
	if err != nil {
		return "", badArgument("not a regular expression: %v", err)
	}
	names, err := s.store.Tables(s.ctx)
	if err != nil {
		return "", err
	}
	s.print.header("TABLE")
	var quoted []string
	for _, n := range names {
		if re.MatchString(n) {
			fmt.Fprintln(s.print.out, n)
			quoted = append(quoted, strconv.Quote(n))
		}
	}
	s.print.count(len(quoted))
	return "[" + strings.Join(quoted, ", ") + "]", nil
}

func describe(s *session, args []any) (string, error) {
	t, err := s.table(text(args[0]))
	if err != nil {
		return "", err
	}
	fmt.Fprintf(s.print.out, "Table %s is ENABLED\n%s\nCOLUMN FAMILIES DESCRIPTION\n", t.Name, t.Name)
	for i := range t.Families {
		f := &t.Families[i]
		var parts []string
		for _, a := range f.List() {
			parts = append(parts, fmt.Sprintf("%s => '%s'", a.Name, a.Value))
		}
		var meta []string
		for _, a := range f.Metadata() {
			meta = append(meta, fmt.Sprintf("'%s' => '%s'", a.Name, a.Value))
		}
		if len(meta) > 0 {
			parts = append(parts, "METADATA => {"+strings.Join(meta, ", ")+"}")
		}
		fmt.Fprintf(s.print.out, "{%s}\n\n", strings.Join(parts, ", "))
	}
	s.print.count(len(t.Families))
	fmt.Fprintln(s.print.out, "Quota is disabled")
	return "", nil
}

func exists(s *session, args []any) (string, error) {
	name := text(args[0])
	_, err := s.store.Table(s.ctx, name)
	switch {
	case err == nil:
		fmt.Fprintf(s.print.out, "Table %s does exist\n", name)
		return "true", nil
	case errors.Is(err, store.ErrTableNotFound):
		fmt.Fprintf(s.print.out, "Table %s does not exist\n", name)
		return "false", nil
	}
	return "", err
}

func drop(s *session, args []any) (string, error) {
	name := text(args[0])
	err := s.store.DropTable(s.ctx, name)
	if errors.Is(err, store.ErrTableNotFound) {
		return "", &tableError{"Table " + name + " does not exist.", err}
	}
	return "", err
}

func put(s *session, args []any) (string, error) {
	t, m, col, err := s.target(args)
	if err != nil {
		return "", err
	}
	op := cell.Op{Type: cell.OpPut, Family: col.Family, Qualifier: col.Qualifier, Time: cell.Latest, Value: []byte(text(args[3]))}
	for _, a := range args[4:] {
		switch a := a.(type) {
		case int64:
			op.Time = cell.Timestamp(a)
		case hash:
			for _, p := range a {
				if k := strings.ToUpper(text(p.key)); k != "TTL" {
					return "", fmt.Errorf("%w: put option %s", store.ErrUnsupported, k)
				}
				n, ok := p.value.(int64)
				if !ok || n <= 0 {
					return "", badArgument("TTL => takes a positive number of milliseconds")
				}
				op.TTL = n
			}
		default:
			return "", badArgument("%q is neither a timestamp nor options", text(a))
		}
	}
	m.Ops = append(m.Ops, op)
	_, err = s.store.MutateRow(s.ctx, nil, m)
	return "", s.explain(t, err)
}

// target reads table, row and column: the first arguments of most commands.
func (s *session) target(args []any) (*store.TableDescriptor, *cell.Mutation, store.Column, error) {
	t, err := s.table(text(args[0]))
	if err != nil {
		return nil, nil, store.Column{}, err
	}
	m := &cell.Mutation{Table: t.Name, Row: []byte(text(args[1]))}
	if len(args) < 3 {
		return t, m, store.Column{}, nil
	}
	col, _, err := column(args[2])
	if err == nil && t.Family(col.Family) == nil {
		err = s.explain(t, fmt.Errorf("%w: %s", store.ErrFamilyNotFound, col.Family))
	}
	return t, m, col, err
}

// timeArgument reads an optional timestamp argument.
func timeArgument(args []any, i int) (cell.Timestamp, error) {
	if len(args) <= i {
		return cell.Latest, nil
	}
	n, ok := args[i].(int64)
	if !ok {
		return 0, badArgument("%q is not a timestamp", text(args[i]))
	}
	return cell.Timestamp(n), nil
}

func incr(s *session, args []any) (string, error) {
	t, m, col, err := s.target(args)
	if err != nil {
		return "", err
	}
	delta := int64(1)
	if len(args) > 3 && args[3] != nil {
		n, ok := args[3].(int64)
		if !ok {
			return "", badArgument("%q is not a number", text(args[3]))
		}
		delta = n
	}
	if len(args) > 4 {
		return "", fmt.Errorf("%w: options of incr", store.ErrUnsupported)
	}
	m.Increment(col.Family, col.Qualifier, delta)
	r, err := s.store.MutateRow(s.ctx, nil, m)
	if err != nil {
		return "", s.explain(t, err)
	}
	return "", s.counter(r.Cells)
}

func (s *session) counter(cells []cell.Cell) error {
	if len(cells) == 0 {
		fmt.Fprintln(s.print.out, "No counter found at specified coordinates")
		return nil
	}
	if n := len(cells[0].Value); n != 8 {
		return fmt.Errorf("%w: it has %d bytes", store.ErrNotANumber, n)
	}
	fmt.Fprintf(s.print.out, "COUNTER VALUE = %d\n", int64(binary.BigEndian.Uint64(cells[0].Value)))
	return nil
}

func appendValue(s *session, args []any) (string, error) {
	t, m, col, err := s.target(args)
	if err != nil {
		return "", err
	}
	if len(args) > 4 {
		return "", fmt.Errorf("%w: options of append", store.ErrUnsupported)
	}
	m.Append(col.Family, col.Qualifier, []byte(text(args[3])))
	r, err := s.store.MutateRow(s.ctx, nil, m)
	if err != nil {
		return "", s.explain(t, err)
	}
	for _, c := range r.Cells {
		fmt.Fprintf(s.print.out, "CURRENT VALUE = %s\n", escape(c.Value))
	}
	return "", nil
}

func getCounter(s *session, args []any) (string, error) {
	t, m, col, err := s.target(args)
	if err != nil {
		return "", err
	}
	sc := s.store.Scan(s.ctx, &store.Scan{Table: t.Name, Start: m.Row, Stop: m.Row, StopInclusive: true, Columns: []store.Column{col}})
	defer sc.Close()
	if sc.Next() {
		return "", s.counter(sc.Row().Cells)
	}
	if err := sc.Err(); err != nil {
		return "", s.explain(t, err)
	}
	return "", s.counter(nil)
}

func deleteCell(s *session, args []any) (string, error) {
	t, m, col, err := s.target(args)
	if err != nil {
		return "", err
	}
	at, err := timeArgument(args, 3)
	if err != nil {
		return "", err
	}
	switch {
	case t.Family(col.Family).Counter && !col.All:
		m.DeleteColumn(col.Family, col.Qualifier, at) // a counter has one version
	case col.All:
		m.DeleteFamilyVersion(col.Family, at)
	default:
		m.Delete(col.Family, col.Qualifier, at)
	}
	_, err = s.store.MutateRow(s.ctx, nil, m)
	return "", s.explain(t, err)
}

func deleteAll(s *session, args []any) (string, error) {
	if _, ok := args[1].(hash); ok {
		return "", fmt.Errorf("%w: deleteall by prefix", store.ErrUnsupported)
	}
	t, m, col, err := s.target(args)
	if err != nil {
		return "", err
	}
	at, err := timeArgument(args, 3)
	if err != nil {
		return "", err
	}
	switch {
	case len(args) == 2:
		m.DeleteRow(at)
	case col.All:
		m.DeleteFamily(col.Family, at)
	default:
		m.DeleteColumn(col.Family, col.Qualifier, at)
	}
	_, err = s.store.MutateRow(s.ctx, nil, m)
	return "", s.explain(t, err)
}
