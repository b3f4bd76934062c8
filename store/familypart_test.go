package store

import "testing"

// TestFamilyPart: every source has a part that a family may be named by, and that no other
// source has.
func TestFamilyPart(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for source, want := range map[string]string{
		"views": "views", "a=b": "a=b", "a=": "a=", "views~1": "views~1",
		"a:b": "a=3Ab", "a=3Ab": "a=3D3Ab", "a=3D3Ab": "a=3D3D3Ab", `x/y\z=`: "x=2Fy=5Cz=3D", "=2f": "=2f", "=3D": "=3D3D",
	} {
		got := FamilyPart(source)
		if got != want || OfFamilyPart(got) != source || CheckFamilyName("f~"+got) != nil {
			t.Errorf("Got %q of %q, and %q of that, want %q", got, source, OfFamilyPart(got), want)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q are both %q", other, source, got)
		}
		seen[got] = source
	}
}
