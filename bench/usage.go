package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

// sample is one run of one stage.
type sample struct {
	Seconds float64 // of the measured part
	CPU     float64 // seconds of CPU of the process in it, user and system
	// Settled is CPU with what came after, until nothing ran any more: flushes
	// and compactions of what was written. 0 where nothing is left behind.
	Settled float64
	Foreign float64 // share of the machine that processes of others took; < 0 = unknown
	Extra   map[string]float64
}

func (s *sample) rate(events int) float64 { return float64(events) / s.Seconds }

func (s *sample) line(events int) string {
	text := fmt.Sprintf("%9.1f k events/s  %6.0f ns CPU an event", s.rate(events)/1000, s.CPU/float64(events)*1e9)
	if s.Settled > 0 {
		text += fmt.Sprintf("  (%.0f settled)", s.Settled/float64(events)*1e9)
	}
	if s.Foreign > maxForeign {
		text += fmt.Sprintf("  others took %.0f %% of the machine", 100*s.Foreign)
	}
	return text
}

// meter measures from its start to stop.
type meter struct {
	broker int
	begun  time.Time
	own    time.Duration
	busy   time.Duration
	theirs time.Duration // of the broker
	known  bool
}

// startMeter starts to measure this process. The CPU of the process brokerPID (0 =
// none) is not counted as foreign.
func startMeter(brokerPID int) (*meter, error) {
	m := &meter{broker: brokerPID}
	var err error
	if m.own, err = processCPU(); err != nil {
		return nil, err
	}
	m.busy, m.theirs, m.known = machineCPU(brokerPID)
	m.begun = time.Now()
	return m, nil
}

// stop returns what was used since the start.
func (m *meter) stop() (sample, error) {
	took := time.Since(m.begun)
	own, err := processCPU()
	if err != nil {
		return sample{}, err
	}
	s := sample{Seconds: took.Seconds(), CPU: (own - m.own).Seconds(), Foreign: -1, Extra: map[string]float64{}}
	if busy, theirs, ok := machineCPU(m.broker); ok && m.known {
		foreign := (busy - m.busy) - (own - m.own) - (theirs - m.theirs)
		s.Foreign = max(foreign.Seconds()/took.Seconds()/float64(runtime.NumCPU()), 0)
		s.Extra["broker CPU seconds"] = (theirs - m.theirs).Seconds()
	}
	return s, nil
}

// foreignWhile runs f, and returns the share of the machine that others took meanwhile: all
// but this process, those of its child processes that ended in f, and the processes pids.
// < 0 = there is no /proc.
func foreignWhile(pids []int, f func() error) (share float64, err error) {
	ours := func() (time.Duration, error) {
		own, err := processCPU()
		if err != nil {
			return 0, err
		}
		children, err := childrenCPU()
		if err != nil {
			return 0, err
		}
		others, err := processesCPU(pids)
		return own + children + others, err
	}
	before, _, known := machineCPU(0)
	if !known {
		return -1, f()
	}
	used, err := ours()
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := f(); err != nil {
		return 0, err
	}
	took := time.Since(begun)
	now, err := ours()
	if err != nil {
		return 0, err
	}
	after, _, _ := machineCPU(0)
	return max(((after-before)-(now-used)).Seconds()/took.Seconds()/float64(runtime.NumCPU()), 0), nil
}

const (
	// settleStep is how long the process must be idle to count as settled;
	settleStep = 250 * time.Millisecond
	// settleIdle is the share of one core that counts as idle,
	settleIdle = 0.02
	// settleLimit ends the wait for compactions that never rest.
	settleLimit = time.Minute
)

// settle waits until the process rests and adds what it used since the start. delay is
// how long it may rest before it goes on, as a store does with its compactions.
func (m *meter) settle(s *sample, delay time.Duration) error {
	time.Sleep(delay)
	last, rests, err := waitForRest(processCPU, settleIdle, settleLimit)
	if err != nil {
		return err
	}
	if !rests {
		return fmt.Errorf("the store has not come to rest within %v", settleLimit)
	}
	s.Settled = (last - m.own).Seconds()
	return nil
}

// waitForRest waits, limit at most, until less than the share idle of one core was used for
// a settleStep, by what used counts, and returns its last count. rests is false where that
// has not happened.
func waitForRest(used func() (time.Duration, error), idle float64, limit time.Duration) (last time.Duration, rests bool, err error) {
	ticks := time.NewTicker(settleStep)
	defer ticks.Stop()
	if last, err = used(); err != nil {
		return 0, false, err
	}
	for begun := time.Now(); time.Since(begun) < limit; {
		<-ticks.C
		now, err := used()
		if err != nil {
			return 0, false, err
		}
		rests = (now - last).Seconds() < idle*settleStep.Seconds()
		last = now
		if rests {
			return last, true, nil
		}
	}
	return last, false, nil
}

// userHZ is the unit of /proc on every Linux: 100 ticks a second.
const userHZ = 100

func ticks(n int64) time.Duration { return time.Duration(n) * time.Second / userHZ }

// machineCPU returns how long the machine's processors have been busy, time stolen
// by other machines included, and how much of it was process pid. ok is false
// where there is no /proc.
func machineCPU(pid int) (busy, process time.Duration, ok bool) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, false
	}
	if busy, ok = parseStat(data); !ok || pid == 0 {
		return busy, 0, ok
	}
	if data, err = os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil {
		return 0, 0, false
	}
	process, ok = parseProcessStat(data)
	return busy, process, ok
}

// parseStat reads the first line of /proc/stat: cpu user nice system idle iowait
// irq softirq steal …
func parseStat(data []byte) (busy time.Duration, ok bool) {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return 0, false
	}
	for i, f := range fields[1:9] {
		if i == 3 || i == 4 { // idle, iowait
			continue
		}
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, false
		}
		busy += ticks(n)
	}
	return busy, true
}

// parseProcessStat reads user and system time, fields 14 and 15, of
// /proc/PID/stat. The second field is a name in parentheses that may hold spaces.
func parseProcessStat(data []byte) (time.Duration, bool) {
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return 0, false
	}
	fields := bytes.Fields(data[end+1:])
	if len(fields) < 13 {
		return 0, false
	}
	user, err1 := strconv.ParseInt(string(fields[11]), 10, 64)
	system, err2 := strconv.ParseInt(string(fields[12]), 10, 64)
	return ticks(user + system), err1 == nil && err2 == nil
}
