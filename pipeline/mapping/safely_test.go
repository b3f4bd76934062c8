package mapping_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"sluice/pipeline/mapping"
)

// A panic becomes the record's error, and the log has the stack; other errors stay as they are.
func TestSafely(t *testing.T) {
	var told strings.Builder
	log := slog.New(slog.NewTextHandler(&told, nil))
	r := &mapping.Record{Topic: "t", Offset: 7}
	out, err := mapping.Safely(r, log, func(*mapping.Record) (*mapping.Output, error) { panic("oops") })
	var e *mapping.Error
	if out != nil || !errors.As(err, &e) || e.Class != mapping.ClassPanic || !mapping.Panicked(err) || !strings.Contains(err.Error(), "oops") {
		t.Errorf("Got %v, %v", out, err)
	}
	if text := told.String(); !strings.Contains(text, "offset=7") || !strings.Contains(text, "safely_test.go") {
		t.Errorf("Got the log %s", text)
	}
	other := errors.New("other")
	if _, err := mapping.Safely(r, log, func(*mapping.Record) (*mapping.Output, error) { return nil, other }); err != other || mapping.Panicked(err) {
		t.Errorf("Got %v", err)
	}
	want := &mapping.Output{}
	if out, err := mapping.Safely(r, log, func(*mapping.Record) (*mapping.Output, error) { return want, nil }); out != want || err != nil || mapping.Panicked(err) {
		t.Errorf("Got %v, %v", out, err)
	}
	if n := testing.AllocsPerRun(100, func() {
		_, _ = mapping.Safely(r, log, func(*mapping.Record) (*mapping.Output, error) { return want, nil })
	}); n != 0 {
		t.Errorf("Got %v allocations a record", n)
	}
}
