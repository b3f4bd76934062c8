package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/pipeline/buffer"
	"sluice/pipeline/kafka"
	"sluice/pipeline/memory"
	"sluice/store"
	"sluice/store/memstore"
)

// What a store refuses is named with its place and its class.
func TestRefusal(t *testing.T) {
	t.Parallel()
	const want = `table t, row "r1": store: cell too large`
	got := refusal(&store.Refusal{Offset: 7, Table: "t", Row: []byte("r1"), Err: store.ErrCellTooLarge})
	if got.Err.Error() != want || got.Class != "cell_too_large" || !errors.Is(got.Err, store.ErrCellTooLarge) {
		t.Errorf("Got %s: %v, want %s", got.Class, got.Err, want)
	}
}

// A table that takes no writes has a class of its own, as the guide says.
func TestRefusalOfReadOnlyTable(t *testing.T) {
	t.Parallel()
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}, ReadOnly: true}
	s, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.CreateTable(t.Context(), d, nil); err != nil {
		t.Fatal(err)
	}
	m := store.Mutation{Mutation: cell.Mutation{Table: "t", Row: []byte("r")}}
	m.Put("f", []byte("q"), 1, nil)
	var refused *store.BatchError
	if err := s.Apply(t.Context(), &store.Batch{Mutations: []store.Mutation{m}}); !errors.As(err, &refused) || len(refused.Refused) != 1 {
		t.Fatalf("Got %v", err)
	}
	if got := refusal(&refused.Refused[0]); got.Class != "read_only_table" {
		t.Errorf("Got class %s: %v", got.Class, got.Err)
	}
}

// A partition that waits for a table says for which, whatever else its batch met.
func TestPauseNamesTheTable(t *testing.T) {
	t.Parallel()
	for table, want := range map[string]string{
		"n:t":              "table disabled: enable 'n:t' in the shell",
		store.OffsetsTable: "table disabled: enable 'sluice:offsets' in HBase's shell",
	} {
		err := errors.Join(fmt.Errorf("put rows: %w", store.ErrTransient), fmt.Errorf("put rows: %w", &store.DisabledError{Table: table}))
		if got := pauseReason(err); got != want {
			t.Errorf("Got %q, want %q", got, want)
		}
	}
}

// A partition that waits for a table that is READONLY says which, and who can change it.
func TestPauseNamesTheReadOnlyTable(t *testing.T) {
	t.Parallel()
	for table, want := range map[string]string{
		"n:t":             "table read-only: alter 'n:t', READONLY => false in the shell",
		store.OutboxTable: "table read-only: alter 'sluice:outbox', READONLY => false in HBase's shell",
	} {
		err := errors.Join(fmt.Errorf("put rows: %w", store.ErrTransient), fmt.Errorf("put rows: %w", &store.ReadOnlyError{Table: table}))
		if got := pauseReason(err); got != want {
			t.Errorf("Got %q, want %q", got, want)
		}
	}
}

// Why a partition is not read on names it once.
func TestFetchErrorNamesThePlaceOnce(t *testing.T) {
	t.Parallel()
	for _, reason := range []error{
		kafka.ErrAuth, kafka.ErrTopicNotFound, kafka.ErrClosed,
		&kafka.UnreadableError{Offset: 5, Next: 9, Err: errors.New("CRC-32C")},
		&kafka.UnreadableError{Offset: 5, Next: -1, Err: memory.ErrTooLarge},
	} {
		buf, err := buffer.New(&buffer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w := &worker{name: "t/1", src: store.Source{Pipeline: "p", Topic: "t"}, partition: 1, buf: buf}
		got := w.fetchError(&kafka.PartitionError{Topic: "t", Partition: 1, Err: reason})
		if n := strings.Count(got.Error(), "t/1"); n != 1 || !errors.Is(got, reason) {
			t.Errorf("Got the place %d times, want once, with the reason: %v", n, got)
		}
		if d := cmp.Diff([]any{"topic", "t", "partition", int32(1)}, LogPlace(got)[:4]); d != "" {
			t.Errorf("Got another place (-want +got):\n%s", d)
		}
		buf.Close()
	}
}

// Trouble that lasts is logged when it begins, when its cause changes, what it asks for
// included, and now and then; not with each other offset that it meets.
func TestTroubleIsLoggedWhereItChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("REFUSED")
		var now trouble
		for i, tc := range []struct {
			err  error
			news bool
		}{
			{fmt.Errorf("fetch t/0, offset 1: %w", refused), true},
			{fmt.Errorf("fetch t/0, offset 2: %w", refused), false},
			{fmt.Errorf("fetch t/0, offset 2: %w", fmt.Errorf("%w; allow READ", refused)), true},
			{fmt.Errorf("fetch t/0, offset 3: %w", fmt.Errorf("%w; allow READ", refused)), false},
			{fmt.Errorf("fetch t/0, offset 3: %w", fmt.Errorf("%w; allow WRITE", refused)), true},
			{fmt.Errorf("fetch t/0, offset 3: %w", refused), true},
			{fmt.Errorf("fetch t/0: %w", fmt.Errorf("%w: from port 1", refused)), false},
			{fmt.Errorf("fetch t/0: %w", fmt.Errorf("%w: from port 2", refused)), false},
			{fmt.Errorf("fetch t/0: %w", fmt.Errorf("%w; is it TLS?", fmt.Errorf("from port 1: %w", refused))), true},
			{fmt.Errorf("fetch t/0: %w", fmt.Errorf("%w; is it TLS?", fmt.Errorf("from port 2: %w", refused))), false},
			{errors.New("other"), true},
		} {
			if got := now.news(rootCause(tc.err)); got != tc.news {
				t.Errorf("%d: Got news %t of %v", i, got, tc.err)
			}
		}
		time.Sleep(reminder)
		if !now.news("REFUSED") {
			t.Error("Got no reminder")
		}
		if !now.over() || now.over() || !now.news("REFUSED") {
			t.Error("Got trouble that is over twice, or none anew")
		}
	})
}
