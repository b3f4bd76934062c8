//go:build cgo && linux

package cmemory

/*
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static int bound(int arenas, int large) {
#ifdef __GLIBC__
	return mallopt(M_ARENA_MAX, arenas) && mallopt(M_MMAP_THRESHOLD, large);
#else
	return 1;
#endif
}
*/
import "C"

import (
	"errors"
	"runtime"
)

// largeBytes is from which size on memory is given back as soon as it is freed: that of
// memtables. Once it is set, so is what an arena keeps at its end, at 128 KiB (mallopt(3),
// M_TRIM_THRESHOLD); left alone, the two grow with what is freed.
const largeBytes = 1 << 20

// Bound keeps freed memory of C's from staying with the process: for all of it, once,
// before the process has allocated much. It does nothing where there is no GNU C library.
func Bound() error {
	if C.bound(C.int(runtime.NumCPU()), largeBytes) == 0 {
		return errors.New("cmemory: mallopt refuses its bounds")
	}
	return nil
}
