package main

import (
	"bufio"
	"fmt"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// TestForeignWhile: what another process uses is what others take, unless it is one that
// is measured, or a child that ends meanwhile.
func TestForeignWhile(t *testing.T) {
	t.Parallel()
	if _, _, known := machineCPU(0); !known {
		t.Skip("there is no /proc/stat here")
	}
	const count = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
	cmd := exec.Command("sh", "-c", "read x; "+count+"; echo done; read x; exit 0")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pids := []int{cmd.Process.Pid}
	var measured float64
	begun := time.Now()
	all, err := foreignWhile(nil, func() (err error) {
		measured, err = foreignWhile(pids, func() error {
			fmt.Fprintln(in)
			bufio.NewScanner(out).Scan()
			return nil
		})
		return err
	})
	took := time.Since(begun)
	if err != nil {
		t.Fatal(err)
	}
	used, err := processesCPU(pids)
	if err != nil {
		t.Fatal(err)
	}
	const slack = 50 * time.Millisecond // some ticks of 10 ms
	if got := time.Duration((all - measured) * float64(took) * float64(runtime.NumCPU())); got < used-slack || measured < 0 {
		t.Errorf("Got %v more of others with a process of theirs, which has used %v", got, used)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sh", "-c", count)
	before, _, _ := machineCPU(0)
	begun = time.Now()
	measured, err = foreignWhile(nil, child.Run)
	took = time.Since(begun)
	if err != nil {
		t.Fatal(err)
	}
	after, _, _ := machineCPU(0)
	used = child.ProcessState.UserTime() + child.ProcessState.SystemTime()
	if got := after - before - time.Duration(measured*float64(took)*float64(runtime.NumCPU())); got < used-slack {
		t.Errorf("Got %v less of others than of all, with a child that has used %v", got, used)
	}
}
