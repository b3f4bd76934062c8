package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"sluice/cell"
	"sluice/internal/spelling"
	"sluice/store"
)

// Options that get and scan share, and those of scan alone.
var (
	readOptionNames = []string{
		"COLUMN", "COLUMNS", "VERSIONS", "TIMESTAMP", "TIMERANGE", "FILTER", "MAXLENGTH", "FORMATTER", "FORMATTER_CLASS",
		"CONSISTENCY", "CACHE_BLOCKS", "ATTRIBUTES",
	}
	scanOptionNames = append([]string{
		"STARTROW", "STOPROW", "ROWPREFIXFILTER", "LIMIT", "REVERSED", "RAW", "BATCH", "CACHE", "MAX_RESULT_SIZE",
		"ALLOW_PARTIAL_RESULTS", "ISOLATION_LEVEL", "READ_TYPE",
	}, readOptionNames...)
)

// readOptions are what get, scan and count were asked for.
type readOptions struct {
	scan      store.Scan
	convert   map[string]string // "family:qualifier" → converter
	formatter string            // converter of all else; "" = escaped bytes
	maxLength int
	prefixed  bool // ROWPREFIXFILTER was given
	ranged    bool // TIMERANGE was given, which TIMESTAMP does not change, as in HBase
}

// shared sets an option of both get and scan; it reports whether it is one.
func (o *readOptions) shared(p pair) (known bool, err error) {
	switch p.name() {
	case "COLUMN", "COLUMNS":
		for _, c := range p.list() {
			if err := o.column(c); err != nil {
				return true, err
			}
		}
	case "VERSIONS":
		n, err := p.number()
		if err != nil {
			return true, err
		}
		if n < 1 || n > store.AllVersions {
			return true, badArgument("VERSIONS => must be 1..%d", store.AllVersions)
		}
		o.scan.Versions = int(n)
	case "TIMESTAMP":
		n, err := p.number()
		if err != nil {
			return true, err
		}
		if n < 0 || n == math.MaxInt64 {
			return true, badArgument("TIMESTAMP => must be 0..%d", int64(math.MaxInt64-1))
		}
		if !o.ranged {
			o.scan.Time = &cell.TimeRange{Min: cell.Timestamp(n), Max: cell.Timestamp(n) + 1}
		}
	case "TIMERANGE":
		list, ok := p.value.([]any)
		if !ok || len(list) != 2 {
			return true, badArgument("TIMERANGE => takes [from, to)")
		}
		from, ok1 := list[0].(int64)
		to, ok2 := list[1].(int64)
		if !ok1 || !ok2 {
			return true, badArgument("TIMERANGE => takes two numbers of milliseconds")
		}
		o.scan.Time, o.ranged = &cell.TimeRange{Min: cell.Timestamp(from), Max: cell.Timestamp(to)}, true
	case "FILTER":
		f, err := filterOption(p.value)
		o.scan.Filter = f
		return true, err
	case "MAXLENGTH":
		n, err := p.number()
		if err != nil {
			return true, err
		}
		o.maxLength = int(max(0, min(n, math.MaxInt32))) // -1 is HBase's default, all
	case "FORMATTER":
		o.formatter = text(p.value)
		if _, ok := converters[o.formatter]; !ok {
			return true, badArgument("FORMATTER => %s; known are %s", inspect(p.value), converterNames())
		}
	case "FORMATTER_CLASS":
		if !isBytesClass(text(p.value)) {
			return true, fmt.Errorf("%w: FORMATTER_CLASS %s; known is org.apache.hadoop.hbase.util.Bytes", store.ErrUnsupported, text(p.value))
		}
	case "CONSISTENCY":
		return true, p.oneOf("STRONG", "TIMELINE") // one copy: timeline is strong
	case "CACHE_BLOCKS":
		_, err := p.boolean() // how a reader fetches; the result is the same
		return true, err
	case "ATTRIBUTES":
		return true, checkAttributes(p) // for coprocessors, which Sluice has not
	case "AUTHORIZATIONS":
		return true, fmt.Errorf("%w: AUTHORIZATIONS: there are no visibility labels", store.ErrUnsupported)
	case "REGION_REPLICA_ID":
		return true, fmt.Errorf("%w: REGION_REPLICA_ID: a region has one copy", store.ErrUnsupported)
	case "METRICS", "ALL_METRICS":
		return true, fmt.Errorf("%w: metrics of one scan; see status 'detailed' for requests a region", store.ErrUnsupported)
	default:
		return false, nil
	}
	return true, nil
}

// checkAttributes checks the form of ATTRIBUTES, which reach coprocessors in HBase
// and nobody here.
func checkAttributes(p pair) error {
	if _, ok := p.value.(hash); !ok {
		return badArgument("ATTRIBUTES => takes {'name' => 'value'}")
	}
	return nil
}

// scanOptions reads scan's options: a hash, or the older array of columns.
func (o *readOptions) scanOptions(arg any) error {
	if list, ok := arg.([]any); ok {
		for _, c := range list {
			if err := o.column(c); err != nil {
				return err
			}
		}
		return nil
	}
	h, ok := arg.(hash)
	if !ok {
		return badArgument("%s: the options of scan are {NAME => value, …}", inspect(arg))
	}
	for _, p := range h {
		if known, err := o.shared(p); known || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if err := o.scanOption(p); err != nil {
			return err
		}
	}
	if o.prefixed { // it overwrites the rows, as HBase's does
		o.scan.Start, o.scan.Stop = nil, nil
	}
	// HBase's shell uses the old constructor: equal rows are that row.
	if len(o.scan.Start) > 0 && string(o.scan.Start) == string(o.scan.Stop) {
		o.scan.StopInclusive = true
	}
	return nil
}

func (o *readOptions) scanOption(p pair) (err error) {
	switch p.name() {
	case "STARTROW":
		o.scan.Start = []byte(text(p.value))
	case "STOPROW":
		o.scan.Stop = []byte(text(p.value))
	case "ROWPREFIXFILTER":
		o.scan.Prefix, o.prefixed = []byte(text(p.value)), true
	case "LIMIT":
		o.scan.Limit, err = p.bound()
	case "BATCH":
		o.scan.Batch, err = p.bound()
	case "REVERSED":
		o.scan.Reversed, err = p.boolean()
	case "RAW":
		o.scan.Raw, err = p.boolean()
	// The rest is how a reader fetches; the result is the same.
	case "CACHE", "MAX_RESULT_SIZE":
		_, err = p.number()
	case "ALLOW_PARTIAL_RESULTS":
		_, err = p.boolean()
	case "ISOLATION_LEVEL":
		err = p.oneOf("READ_COMMITTED", "READ_UNCOMMITTED") // nobody sees what is not committed
	case "READ_TYPE":
		err = p.oneOf("DEFAULT", "STREAM", "PREAD")
	default:
		if hint := spelling.Aside(p.name(), scanOptionNames); hint != "" {
			return badArgument("unknown scan option %s%s", p.name(), hint)
		}
		return badArgument("unknown scan option %s; known are %s", p.name(), strings.Join(scanOptionNames, ", "))
	}
	return err
}

// bound returns the option's value as a limit, 0 being none, as -1 is in HBase.
func (p pair) bound() (int, error) {
	n, err := p.number()
	if err == nil && n > math.MaxInt32 {
		err = badArgument("%s => must be at most %d", p.name(), math.MaxInt32)
	}
	return int(max(n, 0)), err
}

func (o *readOptions) column(v any) error {
	c, convert, err := column(v)
	if err != nil {
		return err
	}
	o.scan.Columns = append(o.scan.Columns, c)
	if convert != "" {
		if o.convert == nil {
			o.convert = map[string]string{}
		}
		o.convert[c.Family+":"+string(c.Qualifier)] = convert
	}
	return nil
}

// column splits "family:qualifier[:converter]". A bare "family" has all set.
func column(v any) (c store.Column, converter string, err error) {
	spec := text(v)
	family, qualifier, found := strings.Cut(spec, ":")
	if family == "" {
		return c, "", badArgument("a column is 'family:qualifier', not %s", inspect(v))
	}
	if !found {
		return store.Column{Family: family, All: true}, "", nil
	}
	if i := strings.LastIndexByte(qualifier, ':'); i >= 0 {
		name := qualifier[i+1:]
		// c(class).method, the class being HBase's Bytes.
		if class, method, ok := strings.Cut(strings.TrimPrefix(name, "c("), ")."); ok && strings.HasPrefix(name, "c(") {
			if !isBytesClass(class) {
				return c, "", fmt.Errorf("%w: converter class %s; known is org.apache.hadoop.hbase.util.Bytes", store.ErrUnsupported, class)
			}
			if _, ok := converters[method]; !ok {
				return c, "", badArgument("column %s: converter %s; known are %s", inspect(v), method, converterNames())
			}
			name = method
		}
		if _, ok := converters[name]; ok {
			qualifier, converter = qualifier[:i], name
		}
	}
	return store.Column{Family: family, Qualifier: []byte(qualifier)}, converter, nil
}

func isBytesClass(class string) bool {
	return class == "org.apache.hadoop.hbase.util.Bytes" || class == "Bytes"
}

// value returns a cell's value for text and for JSON.
func (o *readOptions) value(c *cell.Cell) (shown string, plain any) {
	convert := o.convert[c.Family+":"+string(c.Qualifier)]
	if convert == "" {
		convert = o.formatter
	}
	if convert == "" {
		return escape(c.Value), c.Value
	}
	v := converters[convert](c.Value)
	if b, ok := v.([]byte); ok { // not what it was said to be
		return escape(b), b
	}
	return text(v), v
}

// bytes returns a row key or qualifier as text.
func (o *readOptions) bytes(b []byte) string {
	if o.formatter == "" {
		return escape(b)
	}
	v := converters[o.formatter](b)
	if raw, ok := v.([]byte); ok {
		return escape(raw)
	}
	return text(v)
}

// cellText is the right column of get and scan.
func (o *readOptions) cellText(p *printer, c *cell.Cell) string {
	s := "timestamp=" + p.timestamp(c.Time)
	if c.Kind.IsDelete() {
		s += ", type=" + c.Kind.String()
	} else {
		shown, _ := o.value(c)
		s += ", value=" + shown
	}
	if o.maxLength > 0 && len(s) > o.maxLength {
		s = s[:o.maxLength]
	}
	return s
}

// columnName is the column as get and scan show it.
func (o *readOptions) columnName(c *cell.Cell) string { return c.Family + ":" + o.bytes(c.Qualifier) }

// rowObject is a row of get and scan as JSON.
func (o *readOptions) rowObject(row *cell.Row) object {
	cells := make([]object, len(row.Cells))
	for i := range row.Cells {
		_, value := o.value(&row.Cells[i])
		cells[i] = cellObject(&row.Cells[i], value)
	}
	return object{{"row", row.Key}, {"cells", cells}}
}

// timeArgument reads an optional timestamp argument.
func timeArgument(args []any, i int) (cell.Timestamp, error) {
	if len(args) <= i {
		return cell.Latest, nil
	}
	n, ok := args[i].(int64)
	if !ok {
		return 0, badArgument("%s is not a timestamp", inspect(args[i]))
	}
	return cell.Timestamp(n), nil
}

// numberArgument reads a number that may be written as a string.
func numberArgument(v any) (int64, error) {
	if n, ok := v.(int64); ok {
		return n, nil
	}
	if s, ok := v.(string); ok {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, badArgument("%s is not a number", inspect(v))
}
