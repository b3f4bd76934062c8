package store

import (
	"context"
	"time"
)

// DiscardedMapping stands for the mapping's version in the progress of a rebuild that is
// given up. No mapping has it. A RebuildSwitcher refuses what any mapping applies there,
// and the switch, with ErrStale.
const DiscardedMapping = "discarded"

// RebuildSwitcher is an Admin whose families cannot be replaced in one commit, as a
// FamilyReplacer's are, and that puts counters which were counted anew into the place of
// those that are served all the same: each row at once, and all of them once it is
// decided, by whoever comes next where a process is killed. Meanwhile the pipeline's
// batches are refused with ErrTransient.
//
// A rebuild counts as a pipeline of its own, with a name that begins with that of the
// pipeline that is counted again, "~" and a number. One process at a time holds the
// rebuilds of a pipeline.
type RebuildSwitcher interface {
	// HoldRebuilds has the caller hold the rebuilds of a pipeline, until it releases them
	// or another one takes them over. Its error wraps ErrHeld, and says who it is, where
	// another one holds them and h does not say that they are taken over.
	HoldRebuilds(ctx context.Context, pipeline string, h *RebuildHolder) (RebuildHold, error)
}

// ReleaseTimeout is how long who was cancelled tries to release what it holds: where it
// cannot, the next one must be told to take over.
const ReleaseTimeout = 10 * time.Second

// RebuildHolder is who rebuilds the counters of a pipeline.
type RebuildHolder struct {
	// Name says to people who it is, where another one is refused.
	Name string
	// TakeOver takes the rebuilds over from whoever holds them. It need not be dead: what
	// it still does is refused with ErrHeld, or changes nothing that is served or counted.
	TakeOver bool
}

// RebuildHold are the rebuilds of a pipeline, as far as one process holds them. Its
// methods' errors wrap ErrHeld where another one has taken them over, which has changed
// nothing then. It is for one goroutine, but for Rebuilds.
type RebuildHold interface {
	// Rebuilds returns the rebuild that was begun, and neither switched to nor given up,
	// and the newest one that ever was; "" = none. No other rebuild gets the latter's
	// number, or a lower one.
	Rebuilds(ctx context.Context) (begun, ended string, err error)
	// BeginRebuild is called before the first record of a rebuild is read, and each
	// time that it goes on: dead letters that are redriven from then on are not lost,
	// but make SwitchRebuild refuse. It finishes a switch that was decided before. Its
	// error wraps ErrRefused where a redrive is not carried out, another rebuild was begun,
	// or this one has ended.
	BeginRebuild(ctx context.Context, rebuilt string) error
	// SwitchRebuild makes the replacements, whose families are COUNTER or DISTINCT
	// ones, and has the pipeline go on from what rebuilt has counted. Its error wraps
	// ErrStale where rebuilt is not as far as the pipeline, or letters were redriven,
	// and nothing is switched; ErrRefused where a family has counts of another
	// pipeline, too; ErrTableNotFound, ErrFamilyNotFound, ErrInvalidSchema or
	// ErrInvalidArgument as those of FamilyReplacer do.
	SwitchRebuild(ctx context.Context, rebuilt string, replacements []FamilyReplacement) error
	// ResumeSwitch finishes a switch that was decided, and reports whether there was
	// one.
	ResumeSwitch(ctx context.Context) (bool, error)
	// AbandonRebuild gives up what was begun and not decided, for ever: the pipeline may go
	// on, and what its rebuilds have applied in part counts as done. Its error wraps
	// ErrRefused where a switch is decided.
	AbandonRebuild(ctx context.Context) error
	// Release lets others hold them. What was begun stays so. Where another one has taken
	// them over it does nothing.
	Release(ctx context.Context) error
}
