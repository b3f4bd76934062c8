package serve_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocs: the paths that the documentation names are there.
func TestDocs(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, nil)
	request := regexp.MustCompile("`(GET|PUT|POST|DELETE)\\s+(/[^`?]*)")
	n := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range request.FindAllStringSubmatch(string(text), -1) {
			n++
			if _, answer := s.do(m[1], m[2], ""); strings.Contains(answer, "api: not found: "+m[1]+" "+m[2]) || strings.Contains(answer, "method_not_allowed") || strings.HasPrefix(answer, "404 page") {
				t.Errorf("%s: %s %s: Got %s", filepath.Base(page), m[1], m[2], answer)
			}
		}
	}
	if n == 0 {
		t.Error("Got no path in docs")
	}
}
