//go:build integration

package integration

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"sluice/store"
)

// shell runs commands in HBase's own shell.
func (h *hbaseServer) shell(t *testing.T, commands ...string) {
	t.Helper()
	cmd := exec.Command(h.tool, "shell", h.dir)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "ERROR") {
		t.Fatalf("HBase's shell: %v\n%s", err, out)
	}
}

// TestHBaseAltered: a table that was altered in HBase's shell so that it loses what is
// counted is refused, and the commands of the error put it right.
func TestHBaseAltered(t *testing.T) {
	h := startHBase(t)
	s := openHBase(t, h.address, nil)
	defer s.Close()
	emptyHBase(t, s)
	n := store.NewFamily("n")
	n.Counter = true
	d := &store.TableDescriptor{Name: "altered", Families: []store.FamilyDescriptor{store.NewFamily("f"), n}}
	if err := s.CreateTable(t.Context(), d, nil); err != nil {
		t.Fatal(err)
	}
	h.shell(t, "alter 'altered', {NAME => 'n', VERSIONS => 3, TTL => 86400, KEEP_DELETED_CELLS => 'TRUE', NEW_VERSION_BEHAVIOR => 'true'}",
		"alter 'altered', DURABILITY => 'SKIP_WAL'")
	err := s.CheckExact(t.Context(), "altered")
	if !errors.Is(err, store.ErrInvalidSchema) {
		t.Fatalf("Got %v, want it refused", err)
	}
	var commands []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		_, command, ok := strings.Cut(line, "in HBase's shell: ")
		if !ok {
			t.Errorf("no command: %s", line)
		}
		commands = append(commands, command)
	}
	if len(commands) != 5 {
		t.Errorf("Got %q, want 5 commands", commands)
	}
	h.shell(t, commands...)
	if err := s.CheckExact(t.Context(), "altered"); err != nil {
		t.Errorf("after %q: %v", commands, err)
	}
	s.Close()
	s = openHBase(t, h.address, nil) // knows nothing of before
	if got, err := s.Table(t.Context(), "altered"); err != nil || !got.Family("n").Counter {
		t.Errorf("Got %+v, %v, want a COUNTER family", got, err)
	}
}
