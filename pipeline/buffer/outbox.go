package buffer

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"sluice/cell"
	"sluice/store"
)

// MaxReasonBytes is where the reason of a dead letter is cut: enough for any
// parser's message, and a payload quoted in one does not double the row.
const MaxReasonBytes = 2048

// Columns of an outbox row that tell its state.
const (
	// OffsetQualifier is there as long as the letter is.
	OffsetQualifier = "offset"
	// RelayedQualifier is put once the dead-letter topic has the record.
	RelayedQualifier = "relayed"
	// RedrivenQualifier is put in the commit that gives the record its effect
	// after all: where it is, the letter is dead no more.
	RedrivenQualifier = "redriven"
	// RedrivenByQualifier names the redrive that did it.
	RedrivenByQualifier = "redriven_by"
	// RedrivenAsQualifier says what the record became: Applied or Filtered.
	RedrivenAsQualifier = "redriven_as"
)

// Header is one header of a record.
type Header struct {
	Key   []byte
	Value []byte
}

// DeadLetter is a record that could not be decoded, mapped or stored, with what
// is needed to look at it and to send it again. docs/format/outbox.md has its
// stored form.
type DeadLetter struct {
	Pipeline       string
	Topic          string
	TopicID        [16]byte
	Partition      int32
	Offset         int64
	Time           int64  // of the record, ms since the Unix epoch
	Key            []byte // nil = Kafka's null
	Value          []byte // nil = Kafka's null
	Headers        []Header
	Stage          string // "decode", "map" or "store"
	Class          string // short, of a bounded set
	Reason         string // cut at MaxReasonBytes
	MappingVersion string
	Attempts       int    // times that it was refused, the first included; 0 = 1
	Relayed        bool   // the dead-letter topic has it
	Redriven       int64  // when it had its effect after all, ms since the Unix epoch; 0 = it is dead
	RedrivenAs     string // Applied or Filtered where Redriven is set
	RedrivenBy     string // the redrive that did it
}

// What became of a record that was redriven.
const (
	Applied  = "applied"
	Filtered = "filtered" // nothing was left to do: the present mapping leaves it out, no check holds, or its event id is used
)

// purged is put in front of what became of a letter, or of dead, in the column that
// counts those that were removed.
const (
	purged = "purged_"
	dead   = "dead"
)

// AppendOutboxPrefix appends what the outbox rows of one pipeline share.
func AppendOutboxPrefix(dst []byte, pipeline string) []byte {
	return cell.AppendPart(dst, []byte(pipeline))
}

// AppendRow appends d's row of store.OutboxTable: the pipeline's and the topic's
// parts, the topic id (16 bytes), the partition (4 bytes big-endian) and the
// offset (8 bytes big-endian). Rows of one partition are in offset order.
func (d *DeadLetter) AppendRow(dst []byte) []byte {
	dst = AppendOutboxPrefix(dst, d.Pipeline)
	dst = cell.AppendPart(dst, []byte(d.Topic))
	dst = append(dst, d.TopicID[:]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(d.Partition))
	return binary.BigEndian.AppendUint64(dst, uint64(d.Offset))
}

// cellTime is the timestamp of d's cells: the record's own, so that the same
// record always writes the same cells.
func (d *DeadLetter) cellTime() cell.Timestamp {
	return min(max(cell.Timestamp(d.Time), 0), cell.Latest-1)
}

type jsonHeader struct {
	Key       *string `json:"key,omitempty"`
	KeyBase64 *string `json:"key_base64,omitempty"` // where the key is not UTF-8
	Value     []byte  `json:"value"`                // base64; null = Kafka's null
}

func encodeHeaders(hs []Header) ([]byte, error) {
	out := make([]jsonHeader, len(hs))
	for i, h := range hs {
		if k := string(h.Key); utf8.ValidString(k) {
			out[i].Key = &k
		} else {
			k = base64.StdEncoding.EncodeToString(h.Key)
			out[i].KeyBase64 = &k
		}
		out[i].Value = h.Value
	}
	return json.Marshal(out)
}

func decodeHeaders(b []byte) ([]Header, error) {
	var in []jsonHeader
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, err
	}
	if len(in) == 0 {
		return nil, nil
	}
	out := make([]Header, 0, len(in))
	for _, h := range in {
		d := Header{Value: h.Value}
		switch {
		case h.Key != nil:
			d.Key = []byte(*h.Key)
		case h.KeyBase64 != nil:
			k, err := base64.StdEncoding.DecodeString(*h.KeyBase64)
			if err != nil {
				return nil, err
			}
			d.Key = k
		default:
			return nil, fmt.Errorf("header without a key")
		}
		out = append(out, d)
	}
	return out, nil
}

// Mutation returns the write of d's outbox row, in memory of its own.
func (d *DeadLetter) Mutation() (cell.Mutation, error) {
	headers, err := encodeHeaders(d.Headers)
	if err != nil {
		return cell.Mutation{}, fmt.Errorf("encode the headers of offset %d: %w", d.Offset, err)
	}
	m := cell.Mutation{Table: store.OutboxTable, Row: d.AppendRow(nil), Ops: make([]cell.Op, 0, 12)}
	t := d.cellTime()
	text := func(column, value string) { m.Put(store.OutboxFamily, []byte(column), t, []byte(value)) }
	text("class", d.Class)
	m.Put(store.OutboxFamily, []byte("headers"), t, headers)
	if d.Key != nil {
		m.Put(store.OutboxFamily, []byte("key"), t, append([]byte{}, d.Key...))
	}
	text("mapping_version", d.MappingVersion)
	text(OffsetQualifier, strconv.FormatInt(d.Offset, 10))
	text("partition", strconv.FormatInt(int64(d.Partition), 10))
	text("pipeline", d.Pipeline)
	text("reason", cut(d.Reason, MaxReasonBytes))
	text("stage", d.Stage)
	text("time", strconv.FormatInt(d.Time, 10))
	if d.Attempts > 1 {
		text("attempts", strconv.Itoa(d.Attempts))
	}
	text("topic", d.Topic)
	if d.Value != nil {
		m.Put(store.OutboxFamily, []byte("value"), t, append([]byte{}, d.Value...))
	}
	return m, nil
}

// RelayedMutation returns the write that marks d as relayed, with the time of
// the relay as the value, ms since the Unix epoch in decimal.
func (d *DeadLetter) RelayedMutation(now int64) cell.Mutation {
	m := cell.Mutation{Table: store.OutboxTable, Row: d.AppendRow(nil)}
	m.Put(store.OutboxFamily, []byte(RelayedQualifier), d.cellTime(), strconv.AppendInt(nil, now, 10))
	return m
}

// RefusedMutation returns the write of what d was refused for this time.
func (d *DeadLetter) RefusedMutation() cell.Mutation {
	m := cell.Mutation{Table: store.OutboxTable, Row: d.AppendRow(nil)}
	t := d.cellTime()
	for _, c := range [][2]string{
		{"attempts", strconv.Itoa(d.Attempts)},
		{"class", d.Class},
		{"mapping_version", d.MappingVersion},
		{"reason", cut(d.Reason, MaxReasonBytes)},
		{"stage", d.Stage},
	} {
		m.Put(store.OutboxFamily, []byte(c[0]), t, []byte(c[1]))
	}
	return m
}

// RedrivenMutation returns the write that marks d as redriven, from its fields.
func (d *DeadLetter) RedrivenMutation() cell.Mutation {
	m := cell.Mutation{Table: store.OutboxTable, Row: d.AppendRow(nil)}
	t := d.cellTime()
	m.Put(store.OutboxFamily, []byte("mapping_version"), t, []byte(d.MappingVersion))
	m.Put(store.OutboxFamily, []byte(RedrivenQualifier), t, strconv.AppendInt(nil, d.Redriven, 10))
	m.Put(store.OutboxFamily, []byte(RedrivenAsQualifier), t, []byte(d.RedrivenAs))
	m.Put(store.OutboxFamily, []byte(RedrivenByQualifier), t, []byte(d.RedrivenBy))
	return m
}

// ClaimMutation returns the write that d.RedrivenBy is at work on d, which stays dead.
func (d *DeadLetter) ClaimMutation() cell.Mutation {
	m := cell.Mutation{Table: store.OutboxTable, Row: d.AppendRow(nil)}
	m.Put(store.OutboxFamily, []byte(RedrivenByQualifier), d.cellTime(), []byte(d.RedrivenBy))
	return m
}

// Claimed returns the condition that d has the claim of d.RedrivenBy.
func (d *DeadLetter) Claimed() *store.Cond {
	return &store.Cond{Family: store.OutboxFamily, Qualifier: []byte(RedrivenByQualifier), Op: store.Equal, Value: []byte(d.RedrivenBy)}
}

// Redriven counts the dead letters of one partition that had their effect after
// all, and those that were removed from the outbox. The offset's own counts
// (store.Progress) stay as they are: they say what the record became when its turn
// was.
type Redriven struct {
	Pipeline  string
	Topic     string
	TopicID   [16]byte
	Partition int32
	Applied   int64
	Filtered  int64
	// Purged are the letters that were removed, by what they were then. Those
	// that were redriven are among Applied and Filtered, too.
	PurgedDead     int64
	PurgedApplied  int64
	PurgedFiltered int64
}

// Purged returns how many letters were removed.
func (r *Redriven) Purged() int64 { return r.PurgedDead + r.PurgedApplied + r.PurgedFiltered }

// AppendRedrivenPrefix appends what the rows of Redriven share, and no letter:
// store.OutboxCounts. pipeline = "" is the prefix of all pipelines.
func AppendRedrivenPrefix(dst []byte, pipeline string) []byte {
	dst = append(dst, store.OutboxCounts...)
	if pipeline != "" {
		dst = cell.AppendPart(dst, []byte(pipeline))
	}
	return dst
}

// CountMutation returns the increment of the count of letters that became as
// RedrivenAs says, in d's partition.
func (d *DeadLetter) CountMutation() cell.Mutation { return d.count(d.RedrivenAs) }

func (d *DeadLetter) count(column string) cell.Mutation {
	row := d.AppendRow(AppendRedrivenPrefix(nil, ""))
	m := cell.Mutation{Table: store.OutboxTable, Row: row[:len(row)-8]}
	m.Increment(store.OutboxFamily, []byte(column), 1)
	return m
}

// PurgeMutations returns the removal of d's row and the increment of the count of
// letters of d's partition that were removed as what d is: dead, or RedrivenAs.
func (d *DeadLetter) PurgeMutations() []cell.Mutation {
	m := cell.Mutation{Table: store.OutboxTable, Row: d.AppendRow(nil)}
	m.DeleteRow(d.cellTime())
	as := dead
	if d.Redriven != 0 {
		as = d.RedrivenAs
	}
	return []cell.Mutation{m, d.count(purged + as)}
}

// There returns the condition that d's row is in the outbox, in whatever state.
func (d *DeadLetter) There() *store.Cond {
	return &store.Cond{Family: store.OutboxFamily, Qualifier: []byte(OffsetQualifier), Op: store.NotEqual}
}

// Unchanged returns the condition that d's row is in the outbox and still dead, or
// redriven as d was.
func (d *DeadLetter) Unchanged() *store.Cond {
	if d.Redriven != 0 {
		return &store.Cond{Family: store.OutboxFamily, Qualifier: []byte(RedrivenAsQualifier), Op: store.Equal, Value: []byte(d.RedrivenAs)}
	}
	// A row without the column passes, no row does not. Its value is never empty.
	return &store.Cond{Filter: &store.SingleColumnValueFilter{
		Family: store.OutboxFamily, Qualifier: []byte(RedrivenQualifier), Op: store.Equal, Comparator: store.Binary(nil),
	}}
}

// DecodeRedriven reads a row that CountMutation and PurgeMutations have written. Its error wraps
// store.ErrCorrupt.
func DecodeRedriven(row *cell.Row) (*Redriven, error) {
	corrupt := func(what string, err error) error {
		return fmt.Errorf("%w: outbox row %q: %s: %w", store.ErrCorrupt, row.Key, what, err)
	}
	empty, rest, _, err := cell.DecodePart(row.Key, nil)
	if err == nil && len(empty) > 0 {
		err = fmt.Errorf("begins with %q", empty)
	}
	if err != nil {
		return nil, corrupt("counts", err)
	}
	r := &Redriven{}
	for _, field := range []*string{&r.Pipeline, &r.Topic} {
		var part []byte
		if part, rest, _, err = cell.DecodePart(rest, nil); err != nil {
			return nil, corrupt("counts", err)
		}
		*field = string(part)
	}
	if len(rest) != 16+4 {
		return nil, corrupt("length", fmt.Errorf("%d bytes after the topic, want 20", len(rest)))
	}
	copy(r.TopicID[:], rest)
	r.Partition = int32(binary.BigEndian.Uint32(rest[16:]))
	for i := range row.Cells {
		c := &row.Cells[i]
		var n *int64
		switch string(c.Qualifier) {
		case Applied:
			n = &r.Applied
		case Filtered:
			n = &r.Filtered
		case purged + dead:
			n = &r.PurgedDead
		case purged + Applied:
			n = &r.PurgedApplied
		case purged + Filtered:
			n = &r.PurgedFiltered
		default:
			continue
		}
		if len(c.Value) != 8 {
			return nil, corrupt(string(c.Qualifier), fmt.Errorf("%d bytes, want 8", len(c.Value)))
		}
		*n = int64(binary.BigEndian.Uint64(c.Value))
	}
	return r, nil
}

// cut returns at most n bytes of s, not ending inside a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// BriefQualifiers returns the columns of a letter without what may be large: key,
// value and headers.
func BriefQualifiers() []string {
	return []string{
		"attempts", "class", "mapping_version", OffsetQualifier, "reason", RedrivenQualifier, RedrivenAsQualifier, RedrivenByQualifier,
		RelayedQualifier, "stage", "time",
	}
}

// LetterSize is how large a letter is, as it is stored.
type LetterSize struct {
	Bytes   int64 // of its row and columns
	Headers int64 // of the record
	Relayed bool  // the dead-letter topic has it
}

// SizeOfLetter measures an outbox row without decoding it. A row that is no letter has
// a size, too.
func SizeOfLetter(row *cell.Row) LetterSize {
	z := LetterSize{Bytes: int64(len(row.Key))}
	for i := range row.Cells {
		c := &row.Cells[i]
		z.Bytes += int64(len(c.Value))
		switch string(c.Qualifier) {
		case "headers":
			// A quote inside a string is escaped.
			z.Headers += int64(bytes.Count(c.Value, []byte(`"value":`)))
		case RelayedQualifier:
			z.Relayed = true
		}
	}
	return z
}

// DecodeDeadLetter reads an outbox row. Nothing of the result points into row.
// Its error wraps store.ErrCorrupt.
func DecodeDeadLetter(row *cell.Row) (*DeadLetter, error) {
	corrupt := func(what string, err error) error {
		return fmt.Errorf("%w: outbox row %q: %s: %w", store.ErrCorrupt, row.Key, what, err)
	}
	d := &DeadLetter{}
	part, rest, _, err := cell.DecodePart(row.Key, nil)
	if err != nil {
		return nil, corrupt("pipeline", err)
	}
	d.Pipeline = string(part)
	if part, rest, _, err = cell.DecodePart(rest, nil); err != nil {
		return nil, corrupt("topic", err)
	}
	d.Topic = string(part)
	if len(rest) != 16+4+8 {
		return nil, corrupt("length", fmt.Errorf("%d bytes after the topic, want 28", len(rest)))
	}
	copy(d.TopicID[:], rest)
	d.Partition = int32(binary.BigEndian.Uint32(rest[16:]))
	d.Offset = int64(binary.BigEndian.Uint64(rest[20:]))
	for i := range row.Cells {
		c := &row.Cells[i]
		switch string(c.Qualifier) {
		case "class":
			d.Class = string(c.Value)
		case "headers":
			if d.Headers, err = decodeHeaders(c.Value); err != nil {
				return nil, corrupt("headers", err)
			}
		case "attempts":
			if d.Attempts, err = strconv.Atoi(string(c.Value)); err != nil {
				return nil, corrupt("attempts", err)
			}
		case "key":
			d.Key = append([]byte{}, c.Value...)
		case "mapping_version":
			d.MappingVersion = string(c.Value)
		case "reason":
			d.Reason = string(c.Value)
		case "stage":
			d.Stage = string(c.Value)
		case "time":
			if d.Time, err = strconv.ParseInt(string(c.Value), 10, 64); err != nil {
				return nil, corrupt("time", err)
			}
		case "value":
			d.Value = append([]byte{}, c.Value...)
		case RelayedQualifier:
			d.Relayed = true
		case RedrivenQualifier:
			if d.Redriven, err = strconv.ParseInt(string(c.Value), 10, 64); err != nil {
				return nil, corrupt("redriven", err)
			}
		case RedrivenAsQualifier:
			d.RedrivenAs = string(c.Value)
		case RedrivenByQualifier:
			d.RedrivenBy = string(c.Value)
		}
	}
	return d, nil
}
