package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"sluice/config"
)

// Program is what a command gets from its process, so that tests give it
// something else.
type Program struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	LookupEnv      func(string) (string, bool)
}

// ConfigFlag is the flag of the commands that read a configuration file.
type ConfigFlag struct {
	Config string `short:"c" required:"" placeholder:"FILE" help:"Configuration file."`
}

// Load reads the file.
func (f *ConfigFlag) Load(p *Program) (*config.Config, error) {
	return config.Load(f.Config, p.LookupEnv)
}

// VersionCommand is the command version.
type VersionCommand struct{}

// Run prints the version.
func (c *VersionCommand) Run(p *Program) error {
	v := Version()
	_, err := fmt.Fprintln(p.Stdout, strings.TrimSpace(fmt.Sprintf("sluice %s %s %s", v.Version, v.Go, v.Commit)))
	return err
}

// Main runs the command of a kong command set that the arguments of the process
// name, with ctx and a Program bound, and ends the process where it fails.
func Main(ctx context.Context, name, description string, commands any) {
	p := &Program{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv}
	parser := kong.Must(commands, kong.Name(name), kong.Description(description),
		kong.UsageOnError(), kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(p))
	k, err := parser.Parse(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(StatusUsage)
	}
	if err := k.Run(); err != nil {
		fmt.Fprintln(os.Stderr, Explain(name, err))
		os.Exit(Status(err))
	}
}
