package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/pipeline/mapping"
	"sluice/store"
)

// Policy says what becomes of a record that cannot be decoded, mapped or stored.
type Policy uint8

// The policies.
const (
	// KeepLetters puts the record into the outbox and, from there, into the
	// dead-letter topic.
	KeepLetters Policy = iota
	// DropRecords counts the record and keeps nothing of it.
	DropRecords
	// StopPipeline ends the pipeline at the record, with a *PoisonError. What was
	// before it is applied.
	StopPipeline
	// RetryRecords pauses the partition and tries again, Poison.Retries times;
	// then the record is a dead letter.
	RetryRecords
)

var policyNames = []string{"dlq", "drop", "fail", "retry"}

// PolicyNames returns how the configuration file names the policies.
func PolicyNames() []string { return slices.Clone(policyNames) }

// ParsePolicy reads a name. Its error says which there are.
func ParsePolicy(name string) (Policy, error) {
	i := slices.Index(policyNames, name)
	if i < 0 {
		return 0, fmt.Errorf("%q is no policy: write one of %v", name, policyNames)
	}
	return Policy(i), nil
}

// String names the policy as the configuration file does.
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Poison says what becomes of records that cannot be applied. The zero value
// keeps them all as dead letters, however many they are.
type Poison struct {
	// Policies by class of error, or by stage; a class goes before its stage.
	// What is not named is kept, but of class read_only_table: it waits for its table,
	// whatever the policy of its stage, which is for what is wrong with records.
	Policies map[string]Policy
	// Retries of RetryRecords; 0 = DefaultRetries. The waits between them double
	// from 100 ms to 5 s.
	Retries int
	// TripAt is the circuit breaker of each partition: where more than so many
	// percent of a window of offsets were kept as dead letters or dropped, the
	// partition pauses, as then the topic or the mapping is wrong more likely than
	// the records. 0 = never; below 100.
	TripAt int
	// Window of TripAt, in offsets; 0 = DefaultWindow.
	Window int
	// CloseAfter is how long the breaker stays open. Then it is half open: for a
	// tenth of Window it opens again where TripAt percent of that are not applied,
	// one more than the record at which it opened at least, and otherwise it is
	// closed. 0 = until the process is started anew.
	CloseAfter time.Duration
}

// Defaults of Poison.
const (
	DefaultRetries = 10     // about half a minute
	DefaultWindow  = 10_000 // half a batch
)

func (p *Poison) validate() error {
	for name, policy := range p.Policies {
		if policy > RetryRecords {
			return fmt.Errorf("unknown policy %v for %s", policy, name)
		}
	}
	switch {
	case p.Retries < 0:
		return fmt.Errorf("%d retries", p.Retries)
	case p.TripAt < 0 || p.TripAt > 99:
		return fmt.Errorf("breaker trips at %d %%, must be 0 to 99", p.TripAt)
	case p.Window < 0:
		return fmt.Errorf("breaker has a window of %d offsets", p.Window)
	case p.CloseAfter < 0:
		return fmt.Errorf("breaker closes after %v", p.CloseAfter)
	}
	return nil
}

func (p *Poison) setDefaults() {
	if p.Retries == 0 {
		p.Retries = DefaultRetries
	}
	if p.Window == 0 {
		p.Window = DefaultWindow
	}
}

// Policy returns what becomes of a record with an error of that stage and class.
func (p *Poison) Policy(stage mapping.Stage, class string) Policy {
	if policy, ok := p.Policies[class]; ok {
		return policy
	}
	return p.Policies[string(stage)]
}

// waits reports whether what the store has refused waits for its table, which is READONLY:
// nothing is wrong with the record. Nothing but the store's own tables waits where a policy is
// given for that.
func (p *Poison) waits(r *store.Refusal) bool {
	if !errors.Is(r, store.ErrTableReadOnly) {
		return false
	}
	_, given := p.Policies[classReadOnly]
	return !given || store.NamespaceOf(r.Table) == store.SystemNamespace
}

// Classes returns what a policy can be for: the stages, and every class of error
// of each.
func Classes() []string {
	return append(mapping.Stages(), errorClasses()...)
}

// LetterClasses returns every class that a dead letter can have, in order.
func LetterClasses() []string {
	all := append(errorClasses(), "several_events") // of redrives before letters of several event ids could be redriven
	slices.Sort(all)
	return all
}

func errorClasses() []string {
	all := []string{mapping.ClassPanic, classInternal, classTooLarge, classRefused}
	for _, c := range refusalClasses {
		all = append(all, c.class)
	}
	return append(all, mapping.Classes()...)
}

// The classes of errors that neither the mapping nor the store names.
const (
	classInternal = "internal"  // an error that is no mapping.Error
	classTooLarge = "too_large" // what the record becomes takes more memory than there is
)

// ErrPoison: a record cannot be applied, and its policy is to stop.
var ErrPoison = errors.New("pipeline: a record cannot be applied")

// PoisonError is the record that a pipeline stopped at. It is an ErrPoison.
type PoisonError struct {
	Pipeline  string
	Topic     string
	Partition int32
	Offset    int64
	Err       *mapping.Error
}

// Error names the record and says what can be done.
func (e *PoisonError) Error() string {
	return fmt.Sprintf("pipeline %s: %s/%d, offset %d: %v. Nothing after it was applied. "+
		"Correct the mapping, or set dead_letters.policies.%s to dlq or drop", e.Pipeline, e.Topic, e.Partition, e.Offset, e.Err, e.Err.Class)
}

// Unwrap returns ErrPoison and the reason.
func (e *PoisonError) Unwrap() []error { return []error{ErrPoison, e.Err} }

// retryError asks to try a record again after a while. It wraps nothing: what
// stops a pipeline as a reason of its own is to be waited out here.
type retryError struct {
	offset int64
	err    *mapping.Error
}

func (e *retryError) Error() string {
	return fmt.Sprintf("offset %d is tried again: %v", e.offset, e.err)
}

// tripError says why a partition's breaker has opened.
type tripError struct {
	failed, window int
	offset         int64
	err            *mapping.Error // of the last record
	after          time.Duration  // until it is half open; 0 = never
}

func (e *tripError) Error() string {
	again := ""
	if e.after > 0 {
		again = fmt.Sprintf("; some are tried again every %v", e.after)
	}
	return fmt.Sprintf("breaker is open: %d of %d offsets up to %d could not be applied, the last for %v. "+
		"Nothing after it was applied; correct the mapping, the topic or the table and start again, or raise dead_letters.trip_at; ingest breaker close goes on as it is%s", e.failed, e.window, e.offset, e.err, again)
}

// isPoison reports whether err is about one record, or one batch of them, with nothing
// wrong before it.
func isPoison(err error) bool {
	var again *retryError
	var tripped *tripError
	return errors.Is(err, ErrPoison) || errors.Is(err, ErrUnreadable) || errors.As(err, &again) || errors.As(err, &tripped)
}

// breaker counts the records of a partition that were not applied. It notes the
// offsets of the newest ones, as many as must lie in one window for it to open, so
// that records which are good cost nothing. It belongs to the worker that has the
// partition, and outlives it.
type breaker struct {
	window, probe int64 // offsets; probe is where it is half open
	tripAt        int64
	limit         int     // failures in a window that open it; 0 = never
	failed        []int64 // ascending, the newest ones, at most limit or 2
	halfOpen      int64   // before this offset
}

func newBreaker(p *Poison) *breaker {
	b := &breaker{window: int64(p.Window), tripAt: int64(p.TripAt)}
	b.probe = max(b.window/10, 1)
	if p.TripAt > 0 {
		b.limit = b.most(b.window)
	}
	return b
}

// most returns how many failures in a window open the breaker.
func (b *breaker) most(window int64) int { return int(window*b.tripAt/100) + 1 }

// try makes an open breaker half open, from the record at which it has opened, and
// returns for how many offsets.
func (b *breaker) try() int64 {
	if n := len(b.failed); n > 0 {
		b.halfOpen = b.failed[n-1] + b.probe
	}
	b.failed = b.failed[:0]
	return b.probe
}

// close makes it as it was at first.
func (b *breaker) close() { b.failed, b.halfOpen = b.failed[:0], 0 }

// bounds returns how many failures in a window of offsets open the breaker at offset.
func (b *breaker) bounds(offset int64) (window int64, limit int) {
	if offset < b.halfOpen {
		return b.probe, max(b.most(b.probe), 2) // one is the record at which it opened
	}
	return b.window, b.limit
}

// fail notes that the record at offset cannot be applied, once however often it is
// read, and reports whether there are too many, this one included.
func (b *breaker) fail(offset int64) bool {
	if b.limit == 0 {
		return false
	}
	if i, known := slices.BinarySearch(b.failed, offset); !known {
		b.failed = slices.Insert(b.failed, i, offset)
		if len(b.failed) > max(b.limit, 2) { // see bounds
			b.failed = slices.Delete(b.failed, 0, 1)
		}
	}
	window, limit := b.bounds(offset)
	n := len(b.failed)
	return n >= limit && b.failed[n-1]-b.failed[n-limit] < window
}

// asMappingError returns err as the mapping.Error that it is, or one of a class
// for what is none.
func asMappingError(err error) *mapping.Error {
	var e *mapping.Error
	if errors.As(err, &e) {
		return e
	}
	return &mapping.Error{Stage: mapping.StageMap, Class: classInternal, Err: err}
}
