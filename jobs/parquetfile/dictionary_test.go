package parquetfile

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestDictionary holds the numbers that a dictionary gives to those of a map, one by one and
// many at once, over pages, growth and reset: texts of every length that is looked at in
// another way, which share bytes, some of them zeros.
func TestDictionary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := newDictionary(0)
		texts := rapid.OneOf(
			rapid.StringMatching("[ab\\x00]{0,9}"), rapid.StringMatching("[ab]{14,18}"), rapid.StringMatching("[ab]{16}tail of them"),
			rapid.StringMatching("head of [a-f]{9,40}"), rapid.Map(rapid.IntRange(0, 1000), func(i int) string { return string(bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 4)) }),
		)
		texts = rapid.OneOf(texts, rapid.SampledFrom(rapid.SliceOfN(texts, 1, 20).Draw(t, "often")))
		for range rapid.IntRange(1, 3).Draw(t, "chunks") {
			d.reset()
			numbers, want := map[string]int32{}, []string{}
			for range rapid.IntRange(1, 4).Draw(t, "pages") {
				d.nextPage()
				var page []string
				for range rapid.IntRange(1, 4).Draw(t, "batches") {
					batch := rapid.SliceOfN(texts, 0, 100).Draw(t, "texts")
					page = append(page, batch...)
					data, offsets := []byte("before"), []int32{6}
					for _, text := range batch {
						data = append(data, text...)
						offsets = append(offsets, int32(len(data)))
						if _, ok := numbers[text]; !ok {
							numbers[text] = int32(len(want))
							want = append(want, text)
						}
					}
					got := []int32{-7}
					if rapid.Bool().Draw(t, "one by one") {
						for _, text := range batch {
							i, err := d.index([]byte(text))
							if err != nil {
								t.Fatal(err)
							}
							got = append(got, i)
						}
					} else {
						var err error
						if got, err = d.appendIndexes(got, data, offsets); err != nil {
							t.Fatal(err)
						}
					}
					for i, text := range batch {
						if got[0] != -7 || len(got) != 1+len(batch) || got[i+1] != numbers[text] {
							t.Fatalf("Got %d of %q, want -7, ..., %d at %d", got, batch, numbers[text], i)
						}
					}
				}
				if len(page) > 0 && (string(d.text(d.min)) != slices.Min(page) || string(d.text(d.max)) != slices.Max(page)) {
					t.Fatalf("Got the bounds %q and %q of %q", d.text(d.min), d.text(d.max), page)
				}
			}
			for i, text := range want {
				if d.len() != len(want) || string(d.text(int32(i))) != text {
					t.Fatalf("Got %d texts, the %dth %q, want %q", d.len(), i, d.text(int32(i)), want)
				}
			}
		}
	})
}
