package cli

import (
	"regexp"
	"testing"
)

// TestVersionsDiffer: programs that know no commit, or have changes that are in none, have
// different versions all the same, or one would go on with what the other has begun.
func TestVersionsDiffer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ version, want string }{
		{"unreleased", "unreleased-0123456789ab"},
		{"v0.0.0-20261130003015-a67796cc5d8e+dirty", "v0.0.0-20261130003015-a67796cc5d8e+dirty.0123456789ab"},
		{"v0.0.0-20261130003015-a67796cc5d8e", "v0.0.0-20261130003015-a67796cc5d8e"},
		{"v1.2.3", "v1.2.3"},
	} {
		if got := distinct(tt.version, func() string { return "0123456789ab" }); got != tt.want {
			t.Errorf("%s: got %s. Want %s", tt.version, got, tt.want)
		}
	}
	// Tests are built without the repository.
	if got := Version().Version; !regexp.MustCompile(`^unreleased-[0-9a-f]{12}$`).MatchString(got) {
		t.Errorf("Got version %s of this program", got)
	}
}
