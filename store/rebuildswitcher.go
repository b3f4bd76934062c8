package store

import "context"

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
// pipeline that is counted again, "~" and a number. One process at a time uses the
// methods for one pipeline.
type RebuildSwitcher interface {
	// BeginRebuild is called before the first record of a rebuild is read, and each
	// time that it goes on: dead letters that are redriven from then on are not lost,
	// but make SwitchRebuild refuse. It finishes a switch that was decided before. Its
	// error wraps ErrRefused where a redrive is not carried out.
	BeginRebuild(ctx context.Context, pipeline, rebuilt string) error
	// SwitchRebuild makes the replacements, whose families are COUNTER or DISTINCT
	// ones, and has the pipeline go on from what rebuilt has counted. Its error wraps
	// ErrStale where rebuilt is not as far as the pipeline, or letters were redriven,
	// and nothing is switched; ErrRefused where a family has counts of another
	// pipeline, too; ErrTableNotFound, ErrFamilyNotFound, ErrInvalidSchema or
	// ErrInvalidArgument as those of FamilyReplacer do.
	SwitchRebuild(ctx context.Context, pipeline, rebuilt string, replacements []FamilyReplacement) error
	// ResumeSwitch finishes a switch that was decided, and reports whether there was
	// one.
	ResumeSwitch(ctx context.Context, pipeline string) (bool, error)
	// AbandonRebuild gives up what was begun and not decided: the pipeline may go on,
	// and what its rebuilds have applied in part counts as done. Its error wraps
	// ErrRefused where a switch is decided.
	AbandonRebuild(ctx context.Context, pipeline string) error
}
