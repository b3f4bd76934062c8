package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"sluice/store"
)

// What a store refuses is named with its place, once, and with its class.
func TestRefusalNamesThePlaceOnce(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("r", 300)
	for _, tc := range []struct{ row, err, want string }{
		{"r1", "", `table t, row "r1": store: cell too large`},
		{"r1", `table t, row "r1": Put f:"q": `, `table t, row "r1": Put f:"q": store: cell too large`},
		{"r1", `table t, row "r2": `, `table t, row "r1": table t, row "r2": store: cell too large`},
		{long, fmt.Sprintf("table t, row %.100q: ", long), fmt.Sprintf("table t, row %.100q: store: cell too large", long)},
	} {
		got := refusal(&store.Refusal{Offset: 7, Table: "t", Row: []byte(tc.row), Err: fmt.Errorf("%s%w", tc.err, store.ErrCellTooLarge)})
		if got.Err.Error() != tc.want || got.Class != "cell_too_large" || !errors.Is(got.Err, store.ErrCellTooLarge) {
			t.Errorf("Got %s: %v, want %s", got.Class, got.Err, tc.want)
		}
	}
}
