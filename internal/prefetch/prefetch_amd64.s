#include "textflag.h"

// func lines(p unsafe.Pointer, n int)
TEXT ·lines(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX

next:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	SUBQ $1, CX
	JGT  next
	RET
