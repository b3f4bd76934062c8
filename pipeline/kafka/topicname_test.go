package kafka

import (
	"strings"
	"testing"
)

func TestCheckTopicName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "Page-views_2.dead", "...", strings.Repeat("x", 249)} {
		if err := CheckTopicName(name); err != nil {
			t.Errorf("%.20s: got %v", name, err)
		}
	}
	for name, want := range map[string]string{"": "empty", ".": "no topic", "..": "no topic", "logs.*": `'*'`, "a b": `' '`, "é": `'é'`, "a/b": `'/'`, strings.Repeat("x", 250): "at most 249"} {
		if err := CheckTopicName(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: got %v, want %s", name, err, want)
		}
	}
}
