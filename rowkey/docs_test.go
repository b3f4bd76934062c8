package rowkey_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every Go example of docs/row-keys.md is the code of an example test, which checks
// what it prints.
func TestGuideExamples(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../docs/row-keys.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, name := range []string{"example_test.go", "salted/example_test.go", "../counters/query/example_test.go"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			code.WriteString(strings.TrimPrefix(line, "\t"))
		}
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(guide), -1)
	if len(blocks) < 5 {
		t.Fatalf("%d Go examples in the guide", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(code.String(), b[1]) {
			t.Errorf("no example test has this code:\n%s", b[1])
		}
	}
}
