package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"

	"sluice/pipeline/buffer"
	"sluice/pipeline/memory"
	"sluice/store"
)

// Bounds of what a relay sends at once.
const (
	relayLetters = 500
	// relayBytes is the memory of some megabytes of letters: more in a request makes it
	// no faster.
	relayBytes = 12 << 20
	// relayPart of the buffered memory is the most that the relays of a process
	// take together, but for a letter that is larger: while their topics are down they
	// hold it for as long as a producer tries, and partitions need it.
	relayPart = 8
)

// What a letter takes while it is relayed.
const (
	// letterCopies: decoded, in a record batch, and in the request with it.
	letterCopies = 3
	// letterBytes are the struct, its message with eleven headers of our own, and
	// the mark.
	letterBytes = 4 << 10
	// headerBytes are one header as JSON, decoded and in the message, beside its text.
	headerBytes = 256
)

// letterMemory returns the memory, in bytes, that the letter in row takes until it is
// relayed, the row itself not counted: that is the store's.
func letterMemory(row *buffer.LetterSize) int64 {
	return letterBytes + letterCopies*row.Bytes + headerBytes*row.Headers
}

// relays counts those that live on one share of the memory.
type relays struct{ n atomic.Int64 }

func relaysOn(s *memory.Share) *relays {
	return memory.Only(s, func(*memory.Share) *relays { return &relays{} })
}

// most is the memory that r takes for more than one letter, in bytes.
func (r *relay) most() int64 {
	return min(relayBytes, max(r.memory.Limit()/relayPart/max(r.relays.n.Load(), 1), 1))
}

// lot is the letters that are relayed at once, and the memory that they take.
type lot struct {
	letters []*buffer.DeadLetter
	held    memory.Grant
	passed  []byte // the first row that was passed over; nil = none
	why     error  // it was
	next    []byte // the row to go on at; nil = this was the end
	need    int64  // of memory, in bytes, for the letter at next; 0 = it may be one of many
}

// read returns the next letters in [start, stop) that are not relayed, up to the
// bounds. It waits for need bytes of memory, those of one letter, or for as much as
// many may have, and holds none meanwhile. The caller releases lot.held.
func (r *relay) read(ctx context.Context, start, stop []byte, need int64) (l lot, err error) {
	held, err := r.memory.Acquire(ctx, max(need, r.most()), 0, nil)
	if err != nil {
		return lot{}, err
	}
	taken := int64(0)
	defer func() {
		if err != nil {
			taken = 0
		}
		held.Shrink(taken)
		l.held = held
	}()
	sc := r.engine.Scan(ctx, &store.Scan{Table: store.OutboxTable, Start: start, Stop: stop})
	defer sc.Close()
	for sc.Next() {
		row := sc.Row()
		size := buffer.SizeOfLetter(row)
		n := letterMemory(&size)
		if size.Relayed {
			continue
		}
		if _, ok := r.passed[string(row.Key)]; ok {
			l.pass(row.Key, errPassed)
			continue
		}
		if len(l.letters) == relayLetters || n > held.Bytes()-taken {
			if err := r.memory.Check(n, 0); err != nil {
				r.passed[string(row.Key)] = struct{}{}
				l.pass(row.Key, fmt.Errorf("dead letter in the outbox row %x: %w", row.Key, err))
				continue
			}
			l.next = bytes.Clone(row.Key)
			if len(l.letters) == 0 {
				l.need = n
			}
			return l, nil
		}
		d, err := buffer.DecodeDeadLetter(row)
		if err != nil {
			// No letter, or a damaged one: it stays, and holds up no other.
			r.status.relayed(0, 1)
			r.log.Error("outbox row cannot be relayed", "table", store.OutboxTable, "err", err)
			continue
		}
		l.letters = append(l.letters, d)
		taken += n
	}
	if err := sc.Err(); err != nil {
		return lot{}, fmt.Errorf("read the outbox: %w", err)
	}
	return l, nil
}

// pass notes that a letter is left for later.
func (l *lot) pass(row []byte, why error) {
	if l.passed == nil {
		l.passed, l.why = bytes.Clone(row), why
	}
}
