package reread

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestValue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	clock := time.Now().Add(-time.Hour)
	write := func(name, text string) {
		t.Helper()
		clock = clock.Add(time.Second)
		if err := errors.Join(os.WriteFile(name, []byte(text), 0o600), os.Chtimes(name, clock, clock)); err != nil {
			t.Fatal(err)
		}
	}
	reads, unlike := 0, errors.New("the files do not belong together")
	read := func() (string, error) {
		reads++
		x, err := os.ReadFile(a)
		y, err2 := os.ReadFile(b)
		if err := errors.Join(err, err2); err != nil {
			return "", err
		}
		if string(x) != string(y) {
			return "", unlike
		}
		return string(x), nil
	}
	write(a, "1")
	if _, err := New(read, a, b); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: Got %v", err)
	}
	write(b, "2")
	if _, err := New(read, a, b); !errors.Is(err, unlike) {
		t.Errorf("with two that differ: Got %v", err)
	}
	write(b, "1")
	v, err := New(read, a, b)
	if err != nil {
		t.Fatal(err)
	}
	reads = 0
	for range 3 {
		if got := v.Get(); got != "1" || reads > 0 {
			t.Errorf("unchanged: Got %q after %d reads", got, reads)
		}
	}
	write(a, "2")
	for range 2 {
		if got, err := v.Get(), v.Look(); got != "1" || !errors.Is(err, unlike) {
			t.Errorf("half replaced: Got %q, %v", got, err)
		}
	}
	write(b, "2")
	if got, err := v.Get(), v.Look(); got != "2" || err != nil {
		t.Errorf("replaced: Got %q, %v", got, err)
	}
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	if got, err := v.Get(), v.Look(); got != "2" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: Got %q, %v", got, err)
	}
	write(a, "hunter2")
	write(b, "hunter2")
	if got := v.Get(); got != "hunter2" {
		t.Errorf("replaced again: Got %q", got)
	}
	if text := fmt.Sprintf("%v %+v %#v", v, v, v); strings.Contains(text, "hunter2") {
		t.Errorf("the value is in %s", text)
	}
}

// TestTogether has the race detector look on.
func TestTogether(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := New(func() (string, error) { b, err := os.ReadFile(name); return string(b), err }, name)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if i == 0 {
				if err := os.WriteFile(name, []byte("yy"), 0o600); err != nil {
					t.Error(err)
				}
			}
			if got := v.Get(); got != "x" && got != "yy" && got != "" && got != "y" {
				t.Errorf("Got %q", got)
			}
		})
	}
	all.Wait()
	if got := v.Get(); got != "yy" {
		t.Errorf("Got %q", got)
	}
}
