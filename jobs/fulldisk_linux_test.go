package jobs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"sluice/internal/thinned"
	"sluice/jobs/target"
)

// inMounts says that this process may mount what it likes, and nobody else sees it.
const inMounts = "SLUICE_TEST_IN_MOUNTS"

// smallDisk is a file system of 512 KiB in memory.
type smallDisk struct {
	t   *testing.T
	dir string
}

func newSmallDisk(t *testing.T) *smallDisk {
	t.Helper()
	d := &smallDisk{t, t.TempDir()}
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *smallDisk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill leaves so many bytes.
func (d *smallDisk) fill(free int64) {
	d.t.Helper()
	f, err := os.Create(d.ballast())
	if err != nil {
		d.t.Fatal(err)
	}
	page := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatal(err)
	}
	info, err := f.Stat()
	if err == nil {
		err = errors.Join(f.Truncate(max(info.Size()-free, 0)), f.Close())
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// empty makes space.
func (d *smallDisk) empty() {
	d.t.Helper()
	if err := os.Remove(d.ballast()); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
}

// readOnly makes the disk read-only, or not.
func (d *smallDisk) readOnly(yes bool) {
	d.t.Helper()
	flags := uintptr(syscall.MS_REMOUNT)
	if yes {
		flags |= syscall.MS_RDONLY
	}
	if err := syscall.Mount("", d.dir, "", flags, ""); err != nil {
		d.t.Fatal(err)
	}
}

// TestFullDisk: on a disk that has too little space, as a target or for what does not
// fit memory, and on one that is read-only, a run of every kind says so and leaves
// nothing visible, and with a full one nothing at all; with space it is what it would
// have been.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getenv(inMounts) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestFullDisk$", fmt.Sprint("-test.short=", testing.Short()))
		cmd.Env = append(os.Environ(), inMounts+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Skipf("this system gives us no mounts of our own: %v", err)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	for _, r := range refusals(t) {
		for _, spills := range []bool{false, true} {
			if spills && r.name != "sorted" && r.name != "hashed" {
				continue
			}
			t.Run(fmt.Sprint(r.name, " spills ", spills), func(t *testing.T) { r.onSmallDisk(t, spills) })
		}
	}
}

// onSmallDisk makes the run with as little space as there can be, and with more and more.
func (r *refusal) onSmallDisk(t *testing.T, spills bool) {
	want, _ := r.clean(t, t.TempDir())
	disk := newSmallDisk(t)
	full := 0
	for free := int64(0); ; free += max(4096, free/int64(thinned.Of(8, 2))) {
		out, spill := t.TempDir(), t.TempDir()
		at := &out
		if spills {
			at = &spill
		}
		*at = filepath.Join(disk.dir, fmt.Sprint(free))
		if err := os.Mkdir(*at, 0o755); err != nil {
			t.Fatal(err)
		}
		local, err := target.OpenLocal(out)
		if err != nil {
			t.Fatal(err)
		}
		r.prepare(t, local)
		before := visible(t, out)
		refused := func(errno syscall.Errno) bool {
			err := r.run(t, local, spill)
			if err == nil {
				return false
			}
			if !errors.Is(err, errno) || errno == syscall.ENOSPC && errors.Is(err, ErrResumable) {
				t.Fatalf("%d bytes free: Got %v, want %v", free, err, errno)
			}
			return true
		}
		if free == 0 {
			disk.readOnly(true)
			if !refused(syscall.EROFS) {
				t.Error("a read-only disk was written to")
			}
			disk.readOnly(false)
		}
		disk.fill(free)
		more := refused(syscall.ENOSPC)
		disk.empty()
		if more {
			full++
			r.refused(t, fmt.Sprint(free, " bytes free"), before, want, out, spill, false)
		}
		if err := errors.Join(local.Close(), os.RemoveAll(*at)); err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
	}
	if full < 3 {
		t.Errorf("the disk was full %d times: it shows little", full)
	}
}
