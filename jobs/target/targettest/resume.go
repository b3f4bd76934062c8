package targettest

import (
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs/target"
)

func resumable(t *testing.T, u target.Upload) target.Resumable {
	t.Helper()
	r, ok := u.(target.Resumable)
	if !ok {
		t.Fatalf("the target is a Resumer, its upload is a %T", u)
	}
	return r
}

func note(t *testing.T, u target.Resumable, name, data string) {
	t.Helper()
	if err := u.Note(t.Context(), name, []byte(data)); err != nil {
		t.Fatalf("Note: %v", err)
	}
}

func notes(t *testing.T, u target.Resumable) map[string]string {
	t.Helper()
	all, err := u.Notes(t.Context())
	if err != nil {
		t.Fatalf("Notes: %v", err)
	}
	texts := make(map[string]string)
	for name, data := range all {
		texts[name] = string(data)
	}
	return texts
}

// resume leaves an upload with two finished files, one of which was not noted, and
// one that is being written, and takes it over.
func resume(t *testing.T, tg target.Target) {
	r, ok := tg.(target.Resumer)
	if !ok {
		t.Skip("the target is no Resumer")
	}
	u := resumable(t, begin(t, tg, "job/run=1", "id"))
	write(t, u, "part-0", "zero")
	note(t, u, "part-0", "draft")
	note(t, u, "part-0", "4 bytes")
	write(t, u, "sub/part-1", "one")
	w, err := u.Create(t.Context(), "part-2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "tw"); err != nil {
		t.Fatal(err)
	}
	if err := u.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := u.Note(t.Context(), "late", nil); err == nil {
		t.Error("Got no error for Note after Leave")
	}
	if err := u.Commit(t.Context(), "_manifest", nil); err == nil {
		t.Error("Got no error for Commit after Leave")
	}
	if err := u.Abort(); err != nil {
		t.Errorf("Abort after Leave: %v", err)
	}
	same(t, tg, map[string]string{})
	all, err := r.Unfinished(t.Context())
	if d := cmp.Diff([]target.Unfinished{{ID: "id", Notes: map[string][]byte{"part-0": []byte("4 bytes")}}}, all); err != nil || d != "" {
		t.Errorf("Unfinished: %v%s", err, d)
	}
	again, err := r.Resume(t.Context(), "job/run=1", "id")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"part-0": "4 bytes"}, notes(t, again)); d != "" {
		t.Errorf("notes: %s", d)
	}
	for _, keep := range []map[string]int64{{"part-0": 5}, {"part-0": 4, "gone": 0}} {
		if err := again.Retain(t.Context(), keep); !errors.Is(err, target.ErrNotFound) {
			t.Errorf("Retain(%v): got %v, want ErrNotFound", keep, err)
		}
	}
	if err := again.Retain(t.Context(), map[string]int64{"part-0": 4}); err != nil {
		t.Fatal(err)
	}
	write(t, again, "sub/part-1", "another one")
	note(t, again, "sub-part-1", "")
	if err := again.Leave(); err != nil {
		t.Fatal(err)
	}
	if again, err = r.Resume(t.Context(), "job/run=1", "id"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"part-0": "4 bytes", "sub-part-1": ""}, notes(t, again)); d != "" {
		t.Errorf("notes: %s", d)
	}
	if err := again.Commit(t.Context(), "_manifest", []byte("all")); err != nil {
		t.Fatal(err)
	}
	if err := again.Leave(); err != nil {
		t.Errorf("Leave after Commit: %v", err)
	}
	same(t, tg, map[string]string{"job/run=1/part-0": "zero", "job/run=1/sub/part-1": "another one", "job/run=1/_manifest": "all"})
	if all, err := r.Unfinished(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("Got %+v, %v, want nothing unfinished", all, err)
	}
}

// resumeStates is what Resume and Unfinished say of uploads that cannot be resumed.
func resumeStates(t *testing.T, tg target.Target) {
	r, ok := tg.(target.Resumer)
	if !ok {
		t.Skip("the target is no Resumer")
	}
	refused := func(when string, want error) {
		t.Helper()
		if _, err := r.Resume(t.Context(), "job/run=1", "id"); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", when, err, want)
		}
	}
	refused("before", target.ErrNotFound)
	u := resumable(t, begin(t, tg, "job/run=1", "id"))
	note(t, u, "n", "1")
	for _, name := range []string{"", ".", "../n", "a/b", "/n"} {
		if err := u.Note(t.Context(), name, nil); err == nil {
			t.Errorf("Got no error for Note(%q)", name)
		}
	}
	refused("at work", target.ErrBusy)
	all, err := r.Unfinished(t.Context())
	if d := cmp.Diff([]target.Unfinished{{ID: "id", Busy: true, Notes: map[string][]byte{"n": []byte("1")}}}, all); err != nil || d != "" {
		t.Errorf("Unfinished: %v%s", err, d)
	}
	if err := u.Abort(); err != nil {
		t.Fatal(err)
	}
	refused("after Abort", target.ErrNotFound)
	u = resumable(t, begin(t, tg, "job/run=1", "id"))
	note(t, u, "n", "1")
	if err := u.Leave(); err != nil {
		t.Fatal(err)
	}
	other := begin(t, tg, "job/run=1", "other")
	if err := other.Commit(t.Context(), "_manifest", nil); err != nil {
		t.Fatal(err)
	}
	refused("published by another", target.ErrExists)
	c, ok := tg.(target.Collector)
	if !ok {
		return
	}
	l, err := c.Leftovers(t.Context())
	switch {
	case err == nil && len(l) == 0: // Commit has removed what it made useless
	case err != nil || len(l) != 1 || l[0].Busy || !l[0].Resumable:
		t.Fatalf("Got %+v, %v, want one leftover that can be resumed", l, err)
	default:
		if err := c.Discard(t.Context(), "id"); err != nil {
			t.Error(err)
		}
	}
	if all, err := r.Unfinished(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("Got %+v, %v, want nothing unfinished", all, err)
	}
}
