package columnar

import (
	"fmt"
	"strings"
	"testing"
)

func TestListNames(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range listedNames + 3 {
		many = append(many, fmt.Sprint("c", i))
	}
	for _, tt := range []struct {
		names []string
		want  string
	}{
		{nil, "none"},
		{[]string{"a"}, `"a"`},
		{[]string{"a b", "\x1b[2J"}, `"a b", "\x1b[2J"`},
		{many[:listedNames], `"c` + strings.Join(many[:listedNames], `", "`)[1:] + `"`},
		{many, `"c` + strings.Join(many[:listedNames], `", "`)[1:] + `" and 3 more`},
	} {
		if got := ListNames(tt.names); got != tt.want {
			t.Errorf("Got %s, want %s", got, tt.want)
		}
	}
}
