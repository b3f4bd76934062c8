// Package mapping turns one record into row mutations by rules that the user
// wrote: which tables, which row keys, which columns, which counters.
//
// Reading the rules compiles them (design D16): Compile checks every name and
// type and yields a Plan; a Plan makes Mappers, one a goroutine. Field paths,
// constants, concatenations and row-key functions run as direct code without
// allocation; only what is really an expression (when, arithmetic, string
// functions) runs in expr-lang/expr's machine.
//
// The package decodes payloads through pipeline/decode and emits cell.Mutations;
// it reads no store and knows no Kafka client. What depends on what is stored
// (checks, event ids) leaves it as conditions for the store to decide.
package mapping

import (
	"sluice/cell"
	"sluice/store"
)

// Record is what a Mapper maps. It only reads the slices.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Timestamp int64 // ms since the Unix epoch
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Header is one record header.
type Header struct {
	Key   []byte
	Value []byte
}

// Output is what a record becomes: mutations in order, or none where every rule
// left the record out. Increments in it go to COUNTER families only, with the
// event time in Op.Time. It belongs to the Mapper and is valid until its next
// Map, and as long as the record's slices are: its bytes are the record's where
// they can be. They must not be changed.
type Output struct {
	// Mutations are in order.
	Mutations []cell.Mutation
	// Records are Mutations as units, in place of them: where the rules have
	// checks or event ids, or deletes beside increments, the store decides in
	// the order of records what becomes of each. Their Offset is not set and
	// their Once is the event's id alone. nil for other rules.
	Records []store.Record
	// Late says that an event of the record was later than
	// EventTimeSpec.AllowedLateness: it is to be counted, besides being applied.
	Late bool
}

// Filtered reports that the rules left the record out.
func (o *Output) Filtered() bool { return len(o.Mutations) == 0 }

// Stage is where a record failed.
type Stage string

// The stages of a record that can refuse it.
const (
	StageDecode Stage = "decode"
	StageMap    Stage = "map"
	StageStore  Stage = "store"
)

// Stages returns the names of all stages, in a record's order.
func Stages() []string { return []string{string(StageDecode), string(StageMap), string(StageStore)} }

// Error says why a record cannot be mapped. It is never temporary.
type Error struct {
	Stage Stage
	Class string // short, bounded set: "json", "combined", "missing_field", "bad_row", …; a metric label
	Err   error
}

// Error names the stage, the class and the reason.
func (e *Error) Error() string { return string(e.Stage) + ": " + e.Class + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }
