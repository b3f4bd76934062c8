// Package spelling finds the name that was meant by one that is not known. It compares
// letters, in lower case, and knows nothing of what names stand for.
package spelling

import (
	"fmt"
	"strings"
)

// Hint asks whether the nearest of known was meant: `did you mean "x"?`, or "" where none
// is near.
func Hint(name string, known []string) string {
	meant := nearest(name, known)
	if meant == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", meant)
}

// Aside is Hint as it is added to a sentence: ` (did you mean "x"?)`, or "".
func Aside(name string, known []string) string {
	hint := Hint(name, known)
	if hint == "" {
		return ""
	}
	return " (" + hint + ")"
}

// nearest returns the one of known that name was likely meant for, the first of several
// that are equally near, or "" where none is near: a third of name may be wrong, or it may
// lack the end.
func nearest(name string, known []string) string {
	most := max(1, min(len(name), longest)/3)
	found, least := "", most+1
	for _, k := range known {
		d := Distance(name, k)
		if d > most && begins(k, name) {
			d = most
		}
		if d < least {
			found, least = k, d
		}
	}
	return found
}

// begins reports whether k begins with name, which is not too short for that to tell.
func begins(k, name string) bool {
	return len(name) >= 3 && len(name) < len(k) && strings.EqualFold(k[:len(name)], name)
}

// longest is how many bytes of a name count: the table of Distance grows with the square,
// and names are shorter.
const longest = 64

// Distance is the number of bytes to insert, delete, replace or swap with their neighbour
// that makes b of a, whatever the case of either (optimal string alignment). Of long names
// the beginnings count.
func Distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	a, b = a[:min(len(a), longest)], b[:min(len(b), longest)]
	var before, last []int // the rows of i-2 and i-1
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(last[j]+1, row[j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
