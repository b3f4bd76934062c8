package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sluice/pipeline/decode"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/pipeline/memory"
	"sluice/store"
)

// Errors that stop a pipeline, or pause a partition.
var (
	// ErrDataLoss: Kafka no longer has records that were not applied.
	ErrDataLoss = errors.New("pipeline: data loss")
	// ErrTopicChanged: the topic is not the one whose records were applied.
	ErrTopicChanged = errors.New("pipeline: topic changed")
	// ErrUnreadable: Kafka has records that cannot be read or kept. It pauses their
	// partition only.
	ErrUnreadable = errors.New("pipeline: unreadable records")
	// ErrNotCommitted: the pipeline is to start at the group's committed
	// offsets, and there is none.
	ErrNotCommitted = errors.New("pipeline: the group has committed no offset")
	// ErrStopped: the pipeline no longer runs.
	ErrStopped = errors.New("pipeline: stopped")
)

// naming are the errors whose text names their pipeline.
type naming interface {
	error
	namesPipeline()
}

// named returns err with the name of the pipeline, once.
func (p *Pipeline) named(err error) error {
	if _, ok := errors.AsType[naming](err); ok {
		return err
	}
	return fmt.Errorf("pipeline %s: %w", p.opts.Name, err)
}

func (*DataLossError) namesPipeline()     {}
func (*UnreadableError) namesPipeline()   {}
func (*TopicChangedError) namesPipeline() {}
func (*PoisonError) namesPipeline()       {}

// DataLossError is a range of offsets that Kafka no longer has. It is an
// ErrDataLoss.
type DataLossError struct {
	Pipeline  string
	Topic     string
	Partition int32
	From, To  int64 // [From, To) is gone
	LogEnd    int64
	// Common is up to which offset the log has the records that were applied, -1
	// where nothing tells: of a truncated log, where one can go on.
	Common int64

	untold bool // the brokers tell no topic ids
}

// Error names the range and says what can be done.
func (e *DataLossError) Error() string {
	if e.To > e.LogEnd && e.untold {
		return fmt.Sprintf("pipeline %s: %s/%d: the records up to offset %d are applied, but the log ends at %d: the topic was deleted and created anew, which brokers that tell no topic ids do not say, "+
			"or the log was truncated (an unclean leader election) or restored from an older copy. Nothing was skipped. %s", e.Pipeline, e.Topic, e.Partition, e.From-1, e.LogEnd, untoldAdvice)
	}
	if e.To > e.LogEnd {
		return fmt.Sprintf("pipeline %s: %s/%d: the records up to offset %d are applied, but the log ends at %d: it was truncated (an unclean leader election) or restored from an older copy. "+
			"Nothing was skipped. %s", e.Pipeline, e.Topic, e.Partition, e.From-1, e.LogEnd, truncatedAdvice(e.Common))
	}
	return fmt.Sprintf("pipeline %s: %s/%d: offsets %d to %d (%d records or fewer) are gone from Kafka before they were applied: retention is shorter than the ingest was down or behind. "+
		"Nothing was skipped. To count them as lost and go on at %d, set on_data_loss: skip", e.Pipeline, e.Topic, e.Partition, e.From, e.To-1, e.To-e.From, e.To)
}

// truncatedAdvice says what can be done about a log that has the records which were
// applied up to common only.
func truncatedAdvice(common int64) string {
	where := ""
	if common >= 0 {
		where = fmt.Sprintf(" at offset %d, up to which it is the same,", common)
	}
	return "Restore the log, or go on" + where + " under another name of the pipeline (which counts all again if it begins before): see docs/operations.md, Truncated logs"
}

// untoldAdvice says what can be done where a log is another one and no topic id tells why.
const untoldAdvice = "To keep what was applied and to apply a topic that is new from its start, give the pipeline a new name with start: earliest; " +
	"of a log that was truncated see docs/operations.md, Truncated logs"

// orAnew ends a list of what may have become of a log.
func orAnew(untold bool) string {
	if untold {
		return ", or the topic was deleted and created anew (the brokers tell no topic ids)"
	}
	return ""
}

// Unwrap returns ErrDataLoss.
func (e *DataLossError) Unwrap() error { return ErrDataLoss }

// UnreadableError is a range of offsets that Kafka has and that cannot be read, or that
// do not fit the memory: SkipOffsets goes on behind it. It is an ErrUnreadable.
type UnreadableError struct {
	Pipeline  string
	Topic     string
	Partition int32
	From, To  int64 // [From, To) cannot be read; To is -1 where nothing tells it
	Reason    store.SkipReason
	Err       error
}

// Error names the range, and says what can be done.
func (e *UnreadableError) Error() string {
	where, to, goesOn := fmt.Sprintf("offsets %d to %d", e.From, e.To-1), strconv.FormatInt(e.To, 10), fmt.Sprintf("at offset %d", e.To)
	if e.To < 0 {
		where, to, goesOn = fmt.Sprintf("the records from offset %d on", e.From), "OFFSET", "at an OFFSET behind it"
	}
	raise := ""
	if e.Reason == store.SkippedTooLarge && !errors.Is(e.Err, memory.ErrTooLarge) {
		raise = fmt.Sprintf("Raise pipelines.%s.fetch.max_batch_bytes, which bounds a record batch as it is stored, or kafka.max_decompressed, as it unfolds. ", e.Pipeline)
	}
	return fmt.Sprintf("pipeline %s: %s/%d: %s cannot be read: %v. Nothing of that was applied; it is tried again. %s"+
		"To count that as lost and go on %s: ingest offsets skip -c FILE --pipeline %s --topic %s --partition %d --from %d --to %s --reason %v --yes",
		e.Pipeline, e.Topic, e.Partition, where, e.Err, raise, goesOn, e.Pipeline, e.Topic, e.Partition, e.From, to, e.Reason)
}

// Unwrap returns ErrUnreadable and the reason.
func (e *UnreadableError) Unwrap() []error { return []error{ErrUnreadable, e.Err} }

// TopicChangedError says how a topic differs from the one whose records were
// applied. It is an ErrTopicChanged.
type TopicChangedError struct {
	Pipeline  string
	Topic     string
	Partition int32 // -1 = all
	Found     string
	Stored    string

	sameID  bool  // name and ids are the same, only the records differ
	untold  bool  // with sameID: the brokers tell no ids
	common  int64 // with sameID: up to which offset they do not, -1 where nothing tells
	firstID bool  // the brokers tell the topic's id now, and told none before
}

// sourceChanged returns the error of a topic that is found now where the offsets of
// stored are.
func sourceChanged(stored *store.Source, partition int32, found *store.Source) *TopicChangedError {
	return &TopicChangedError{
		Pipeline: stored.Pipeline, Topic: stored.Topic, Partition: partition,
		Found:   describeSource(found.ClusterID, found.TopicID),
		Stored:  describeSource(stored.ClusterID, stored.TopicID),
		firstID: stored.ClusterID == found.ClusterID && !stored.HasTopicID() && found.HasTopicID(),
	}
}

// Error says what was found and what can be done.
func (e *TopicChangedError) Error() string {
	at := e.Topic
	if e.Partition >= 0 {
		at = fmt.Sprintf("%s/%d", e.Topic, e.Partition)
	}
	if e.sameID && e.untold {
		return fmt.Sprintf("pipeline %s: %s is not the log whose records were applied: found %s, stored %s. "+
			"The topic was deleted and created anew, which brokers that tell no topic ids do not say, or the log was truncated and written again. "+
			"Nothing more was applied. %s", e.Pipeline, at, e.Found, e.Stored, untoldAdvice)
	}
	if e.sameID {
		return fmt.Sprintf("pipeline %s: %s is not the log whose records were applied: found %s, stored %s. "+
			"The log was truncated and written again, or restored from a copy. "+
			"Nothing more was applied. %s", e.Pipeline, at, e.Found, e.Stored, truncatedAdvice(e.common))
	}
	if e.firstID {
		return fmt.Sprintf("pipeline %s: %s may be another log than that whose records were applied: found %s, stored %s. "+
			"The brokers told no topic ids when the offsets were stored: they were upgraded since. Nothing more was applied. "+
			"If the topic is still the same one, set the group's committed offsets to those of ingest offsets, and give the pipeline a new name with start: committed: see docs/operations.md, Topic ids", e.Pipeline, at, e.Found, e.Stored)
	}
	return fmt.Sprintf("pipeline %s: %s is not the log whose records were applied: found %s, stored %s. "+
		"The topic was deleted and created anew, or the brokers are another cluster. "+
		"To keep what was applied and to apply the new topic from its start, set on_topic_change: new_incarnation; "+
		"to go on with the old one, restore it", e.Pipeline, at, e.Found, e.Stored)
}

// Unwrap returns ErrTopicChanged.
func (e *TopicChangedError) Unwrap() error { return ErrTopicChanged }

// notComparedError: the last applied record did not come, so that the log is not known to
// be the one that was applied.
type notComparedError struct {
	topic     string
	partition int32
	offset    int64
}

func (e *notComparedError) Error() string {
	return fmt.Sprintf("%s/%d: the log was not compared with what was applied: the broker has not given the last applied record, at offset %d, within %v. "+
		"Nothing is applied before; it is asked again", e.topic, e.partition, e.offset, fingerprintTimeout)
}

// untoldError: the brokers tell no topic id just now, and one is stored. That is waited out: it
// says nothing of whether the topic is the same one.
func untoldError(stored *store.Source) error {
	return fmt.Errorf("topic %s: the brokers tell no topic id just now, and %x is stored: one of them works as of a version before 2.8. "+
		"Nothing is applied before the id is known; it is asked again", stored.Topic, stored.TopicID)
}

// describeSource prints a topic's identity.
func describeSource(clusterID string, id [16]byte) string {
	return fmt.Sprintf("cluster %q, topic id %x", clusterID, id)
}

// errReopen asks for the partition to be opened again, to check that its log is
// still the same.
var errReopen = errors.New("pipeline: the log moved backwards")

// fatal reports whether trying again cannot help.
func fatal(err error) bool {
	for _, stop := range []error{
		ErrDataLoss, ErrTopicChanged, ErrNotCommitted, ErrPoison, errPoisonedOutbox, kafka.ErrClosed,
		store.ErrClosed, store.ErrCorrupt, store.ErrReadOnly, store.ErrLocked, store.ErrUnsupported, store.ErrInvalidSchema,
	} {
		if errors.Is(err, stop) {
			return true
		}
	}
	return false
}

// errPoisonedOutbox: the store refused what no dead letter can help with.
var errPoisonedOutbox = errors.New("pipeline: the store refused a dead letter")

// stopping reports whether err only says that ctx ended.
func stopping(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

// refusalClasses are what the store refuses, for metrics: a bounded set.
var refusalClasses = [...]struct {
	err   error
	class string
}{
	{store.ErrCellTooLarge, "cell_too_large"},
	{store.ErrTableNotFound, "no_such_table"},
	{store.ErrFamilyNotFound, "no_such_family"},
	{store.ErrTimestampTooFar, "timestamp_too_far"},
	{store.ErrNotANumber, "not_a_number"},
	{store.ErrTableReadOnly, classReadOnly},
	{store.ErrInvalidArgument, "invalid_argument"},
}

const (
	classRefused  = "refused" // what the store refused for another reason
	classReadOnly = "read_only_table"
)

// refusal returns what the store refused as an error of stage store.
func refusal(r *store.Refusal) *mapping.Error {
	e := &mapping.Error{Stage: mapping.StageStore, Class: classRefused, Err: r}
	for _, c := range refusalClasses {
		if errors.Is(r, c.err) {
			e.Class = c.class
			break
		}
	}
	return e
}

// pauseReason is a short name for why a partition waits.
func pauseReason(err error) string {
	switch {
	case errors.Is(err, store.ErrDiskFull):
		return "disk full"
	case errors.Is(err, store.ErrTableNotEnabled): // others of its batch may have waited for it
		if off, ok := errors.AsType[*store.DisabledError](err); ok {
			return fmt.Sprintf("table disabled: enable '%s' in %s", off.Table, shellFor(off.Table))
		}
		return "table disabled"
	case errors.Is(err, store.ErrTableReadOnly):
		if t, ok := errors.AsType[*store.ReadOnlyError](err); ok {
			return "table read-only: " + writableAgain(t.Table)
		}
		return "table read-only"
	case errors.Is(err, store.ErrTransient):
		return "store unavailable"
	case errors.Is(err, store.ErrStale):
		return "another owner"
	case errors.Is(err, decode.ErrNoDescriptor):
		return "schema registry gives no Protobuf descriptors"
	case errors.Is(err, decode.ErrUnavailable):
		return "schema registry unavailable"
	}
	var again *retryError
	if errors.As(err, &again) {
		return "a record is tried again: " + again.err.Class
	}
	s := err.Error()
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	return s
}

// shellFor names the shell in which a table's state is changed: ours leaves the store's own alone.
func shellFor(table string) string {
	if store.NamespaceOf(table) == store.SystemNamespace {
		return "HBase's shell"
	}
	return "the shell"
}

// writableAgain says how a table takes writes again.
func writableAgain(table string) string {
	return fmt.Sprintf("alter '%s', READONLY => false in %s", table, shellFor(table))
}

// tableReadOnly returns what was refused as its table is READONLY as an error that names the table.
func tableReadOnly(r *store.Refusal) error {
	return fmt.Errorf("table %s: %w", r.Table, &store.ReadOnlyError{Table: r.Table})
}

// ReadOnlyTable returns the error of a command that cannot write what of e is of a table that is
// READONLY, with what to do about that; nil where nothing is.
func ReadOnlyTable(e *store.BatchError) error {
	for i := range e.Refused {
		if r := &e.Refused[i]; errors.Is(r, store.ErrTableReadOnly) {
			return fmt.Errorf("%w; %s first", tableReadOnly(r), writableAgain(r.Table))
		}
	}
	return nil
}

// storeTrouble reports whether err is the store's, which is not to be written to for a
// while.
func storeTrouble(err error) bool {
	for _, class := range []error{store.ErrDiskFull, store.ErrTransient, store.ErrTableNotEnabled, store.ErrTableReadOnly} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// rootCause returns the text of the innermost error, without the offsets and the
// addresses that those around it name, and behind it what they say, after a semicolon,
// of what to do.
func rootCause(err error) string {
	advice := ""
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error() + advice
		}
		if said, ok := strings.CutPrefix(err.Error(), inner.Error()+"; "); ok {
			advice = "; " + said + advice
		}
		err = inner
	}
}

// reminder is how often trouble that lasts is logged again.
const reminder = 5 * time.Minute

// trouble is what is logged of trouble that lasts: that it begins, that it has another
// cause, as somebody has done what the log asked for, and now and then that it is still
// there. The zero value is none.
type trouble struct {
	cause string // empty = none
	at    time.Time
}

// news reports whether cause is to be logged.
func (t *trouble) news(cause string) bool {
	now := time.Now()
	if cause == t.cause && now.Sub(t.at) < reminder {
		return false
	}
	t.cause, t.at = cause, now
	return true
}

// over ends it, and reports whether there was any.
func (t *trouble) over() bool {
	was := t.cause != ""
	*t = trouble{}
	return was
}
