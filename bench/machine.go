package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// machine is where and what was measured.
type machine struct {
	CPU     string
	Cores   int
	Kernel  string
	Go      string
	Commit  string
	Date    string
	Command string
}

func thisMachine(ctx context.Context) machine {
	return machine{
		CPU:    cpuModel(),
		Cores:  runtime.NumCPU(),
		Kernel: kernel(),
		Go:     runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
		Commit: commit(ctx),
		Date:   time.Now().UTC().Format(time.DateOnly),
	}
}

func (m *machine) lines() []string {
	return []string{
		fmt.Sprintf("%s, %d cores, %s", m.CPU, m.Cores, m.Kernel),
		m.Go,
		fmt.Sprintf("commit %s, %s", m.Commit, m.Date),
		"`" + m.Command + "`",
	}
}

const unknown = "unknown"

func cpuModel() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return unknown
	}
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return unknown
}

func kernel() string {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return "Linux " + strings.TrimSpace(string(data))
}

// commit asks git, because a binary of go run has no version in it, and says where
// the files are not those of the commit.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
	if err != nil {
		return unknown
	}
	name := string(bytes.TrimSpace(out))
	if changes, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no", "--", "*.go", "go.mod", "examples").Output(); err != nil || len(changes) > 0 {
		name += " with changes"
	}
	return name
}
