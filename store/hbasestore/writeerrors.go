package hbasestore

import (
	"fmt"
	"strings"
)

// toldErrors is how many different errors of several writes their text has.
const toldErrors = 3

// ofWrites returns the errors of several writes, nil among them, as one: those of the rows
// of a call are the same, and a batch has thousands of rows.
func ofWrites(errs []error) error {
	all := &writeErrors{}
	known := map[string]bool{}
	for _, err := range errs {
		if err == nil {
			continue
		}
		if text := err.Error(); !known[text] {
			known[text] = true
			all.different = append(all.different, err)
		}
	}
	switch len(all.different) {
	case 0:
		return nil
	case 1:
		return all.different[0]
	}
	return all
}

// writeErrors is two or more errors of different texts.
type writeErrors struct{ different []error }

func (w *writeErrors) Error() string {
	var b strings.Builder
	for i, err := range w.different {
		switch {
		case i == toldErrors:
			fmt.Fprintf(&b, "; and %d further errors", len(w.different)-i)
			return b.String()
		case i > 0:
			b.WriteString("; ")
		}
		b.WriteString(err.Error())
	}
	return b.String()
}

func (w *writeErrors) Unwrap() []error { return w.different }
