package store_test

import (
	"bytes"
	"errors"
	"testing"

	"sluice/store"
)

// A batch of which nothing is known to be applied is not called applied in part.
func TestPartialErrorSaysWhatWasApplied(t *testing.T) {
	t.Parallel()
	failed := []store.Refusal{{Offset: 7, Table: "t", Row: []byte("r"), Err: errors.New("gone")}, {Offset: 8}}
	for applied, want := range map[int]string{
		0: `store: no mutation of the batch is known to be applied: offset 7, table t, row "r": gone (and 1 more)`,
		2: `store: batch applied in part, 2 mutations were: offset 7, table t, row "r": gone (and 1 more)`,
	} {
		if got := (&store.PartialError{Failed: failed, Applied: applied}).Error(); got != want {
			t.Errorf("%d applied: %s\nwant %s", applied, got, want)
		}
	}
}

// A row key may have 32 KiB; an error, which is logged, shows its beginning.
func TestBatchErrorsCutRows(t *testing.T) {
	t.Parallel()
	refused := []store.Refusal{{Offset: 7, Table: "t", Row: bytes.Repeat([]byte{0}, 32<<10), Err: errors.New("gone")}}
	for _, err := range []error{&store.BatchError{Refused: refused}, &store.PartialError{Failed: refused}} {
		if n := len(err.Error()); n > 600 {
			t.Errorf("%T: Got %d bytes", err, n)
		}
	}
}

// Errors of a batch name each row once, also where the engine's own name it.
func TestBatchErrorNamesTheRowOnce(t *testing.T) {
	t.Parallel()
	at := func(row string) error {
		return &store.RowError{Table: "t", Row: []byte(row), Err: store.ErrCellTooLarge}
	}
	err := store.NewBatchError([]store.Refusal{
		{Offset: 7, Table: "t", Row: []byte("r"), Err: at("r")},
		{Offset: 8, Table: "default:t", Row: []byte("r"), Err: at("r")},
		{Offset: 9, Table: "t", Row: []byte("r"), Err: at("other")},
	})
	for i, want := range []string{
		`table t, row "r": store: cell too large`,
		`table default:t, row "r": store: cell too large`,
		`table t, row "r": table t, row "other": store: cell too large`,
	} {
		if got := &err.Refused[i]; got.Error() != want || !errors.Is(got, store.ErrCellTooLarge) {
			t.Errorf("Got %v, want %s", got, want)
		}
	}
	if got, want := err.Error(), `store: batch refused: offset 7, table t, row "r": store: cell too large (and 2 more)`; got != want {
		t.Errorf("Got %s, want %s", got, want)
	}
}
