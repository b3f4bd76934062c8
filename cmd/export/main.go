// Command export runs the export jobs of a configuration file, lists their runs
// and verifies what they have published; it counts tables, and backs up stores and
// restores them. While a daemon has the data directory it
// works on a checkpoint that the daemon makes for it, so that the load of an
// export stays out of the ingest process; otherwise it opens the directory itself.
package main

import (
	"fmt"
	"os"
	"strings"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
)

type commands struct {
	Run         runCommand         `cmd:"" help:"Run a job: a table at one instant, to files."`
	Join        joinCommand        `cmd:"" help:"Join two tables at one instant, or two published exports, to files."`
	Backfill    backfillCommand    `cmd:"" help:"Run a job for the times of its schedule that have no run, each once."`
	Plan        planCommand        `cmd:"" help:"Say what a run would do: regions, rows, bytes, files."`
	Derive      deriveCommand      `cmd:"" help:"Print the jobs that read tables by the rules that write them: columns, types and parts of row keys."`
	Count       countCommand       `cmd:"" help:"Count the rows and cells of a table at one instant, by region and family."`
	List        listCommand        `cmd:"" help:"List jobs, joins and backups with their published runs."`
	SQL         sqlCommand         `cmd:"" name:"sql" help:"Print code that reads a published run: DuckDB, Polars, pandas, Spark."`
	GC          gcCommand          `cmd:"" name:"gc" help:"Remove what killed exports have left, and runs beyond their retention."`
	History     historyCommand     `cmd:"" help:"Show what became of the runs of a job, join or backup: those of its schedule, ordered ones, those by hand."`
	Pause       pauseCommand       `cmd:"" help:"Keep the daemon from running a job by its schedule, and its backfills."`
	Cancel      cancelCommand      `cmd:"" help:"End an order that the daemon has accepted: a manual run or a backfill."`
	Resume      resumeCommand      `cmd:"" help:"Let a paused schedule go on, with the first time from now."`
	Backup      backupCommand      `cmd:"" help:"Copy the whole store at one instant, with a manifest, beside a daemon or without one."`
	Restore     restoreCommand     `cmd:"" help:"Make a data directory of a backup, verified before it is visible."`
	Verify      verifyCommand      `cmd:"" help:"Recount and re-checksum a published run, or a backup, from its files alone."`
	Copy        copyCommand        `cmd:"" help:"Move house: copy a whole store into one of the other engine, with offsets and dead letters, so that pipelines go on there."`
	CopyTable   copyTableCommand   `cmd:"" help:"Copy a table at one instant, with versions, delete markers and counters, into an empty one."`
	Import      importCommand      `cmd:"" help:"Write the rows of a published run into a table."`
	VerifyTable verifyTableCommand `cmd:"" help:"Compare two tables, of one store or of two, row by row, and name the first rows that differ."`
	Version     cli.VersionCommand `cmd:"" help:"Show the version."`

	ShowVersion cli.VersionFlag `name:"version" help:"Show the version and end."`
}

func main() {
	cli.Main("export", "Tables to Parquet and Arrow files.", new(commands), nil, secondSignal)
}

// secondSignal says that the process ends before it has tidied up.
func secondSignal(p *cli.Program, s os.Signal, status int) {
	p.Fail("export", fmt.Sprintf("export: second signal (%s): ending at once; export gc removes what an export has left", s), status)
}

// jobSpec returns a job of the file; its error wraps cli.ErrUsage.
func jobSpec(cfg *config.Config, name string) (*jobs.Spec, error) {
	spec, ok := cfg.Jobs[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s has no job %q; it has %s%s", cli.ErrUsage, cfg.File(), name, listOf(cfg.JobNames()), whatElse(cfg, name))
	}
	return &spec, nil
}

// whatElse says what a name is of, where a command took it for another thing, and which
// command is for that.
func whatElse(cfg *config.Config, name string) string {
	d, ok := cfg.Declared(name)
	if !ok && name == config.GCName {
		return "; the file has no gc: {schedule: …} either, by which the daemon would tidy up: export gc does it by hand"
	}
	if !ok {
		return ""
	}
	is := map[string]string{
		config.KindJob:    "export run makes it",
		config.KindJoin:   "export join makes it",
		config.KindBackup: "export backup makes one, and run --daemon has the daemon make one",
		config.KindGC:     "export gc makes one, and run --daemon has the daemon make one",
	}
	return fmt.Sprintf("; %s is a %s: %s", name, d.Kind, is[d.Kind])
}

// isDeclared says that a name is of nothing that is declared; its error wraps cli.ErrUsage.
func isDeclared(cfg *config.Config, name string) error {
	if _, ok := cfg.Declared(name); ok {
		return nil
	}
	_, err := jobSpec(cfg, name)
	return err
}

// listOf names what there is, or says that there is nothing.
func listOf(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
