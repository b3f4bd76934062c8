package parquetfile

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"sluice/jobs/columnar"
)

// cutBelow returns a bound that is not above b: its first n bytes, n being 4 or more; of
// text, whole characters of them.
func cutBelow(b []byte, n int, text bool) []byte {
	if len(b) <= n {
		return b
	}
	b = b[:n]
	if text {
		b = wholeCharacters(b)
	}
	return b
}

// cutAbove returns a bound that is not below b, of about n bytes: what cutBelow keeps,
// with the last byte, or character of text, that can be raised raised by one. Where none
// can, as all are the highest, it is b.
func cutAbove(b []byte, n int, text bool) []byte {
	if len(b) <= n {
		return b
	}
	if !text {
		cut := bytes.Clone(b[:n])
		for i := n - 1; i >= 0; i-- {
			if cut[i]++; cut[i] != 0 {
				return cut
			}
		}
		return b
	}
	for cut := wholeCharacters(b[:n]); len(cut) > 0; {
		last, size := utf8.DecodeLastRune(cut)
		cut = cut[:len(cut)-size]
		switch {
		case last == utf8.RuneError && size == 1:
			return b // no text
		case last == utf8.MaxRune:
			continue
		case last == 0xD7FF:
			last = 0xDFFF // of surrogates UTF-8 has none
		}
		return utf8.AppendRune(slices.Clip(cut), last+1)
	}
	return b
}

// wholeCharacters returns b without the beginning of a character at its end.
func wholeCharacters(b []byte) []byte {
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax); i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return b[:i]
			}
			break
		}
	}
	return b
}

// cut returns the bounds of a page or a chunk, those of bytes and text in about n bytes
// each.
func (k *chunk) cut(least, greatest parquet.Value, n int) (lo, hi parquet.Value) {
	if k.typ.Kind() != parquet.ByteArray {
		return least, greatest
	}
	text := k.leaf.typ != columnar.Bytes
	return parquet.ByteArrayValue(cutBelow(least.ByteArray(), n, text)), parquet.ByteArrayValue(cutAbove(greatest.ByteArray(), n, text))
}
