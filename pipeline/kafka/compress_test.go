package kafka

import (
	"bytes"
	"encoding/base64"
	"errors"
	"testing"
)

// A record batch of zstd's own library, which Java's clients use, may unfold to much more than
// those before it: its frame does not tell its size, and its blocks are other ones than those
// of Go's encoder.
func TestZstdOfTheReferenceEncoder(t *testing.T) {
	t.Parallel()
	// head -c 3000000 /dev/zero | tr '\0' x | zstd -q --no-check | base64
	frame, err := base64.StdEncoding.DecodeString("KLUv/QBYVAAAEHh4AQD7/znAAgIAEHgCABB4AgAQeAIAEHgCABB4AgAQeAIAEHgCABB4AgAQeAIAEHgCABB4AgAQeAIAEHgCABB4AgAQeAIAEHgCABB4AgAQeAIAEHgCABB4AgAQeAM2Dng=")
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{3_000_000, 64 << 20} {
		cs, err := newCodecs(limit)
		if err != nil {
			t.Fatal(err)
		}
		defer cs.close()
		if got, err := cs.decompress(testMemoryBatch(fetchMemoryOf(nil)), codecZstd, frame, 1); err != nil || !bytes.Equal(got, bytes.Repeat([]byte("x"), 3_000_000)) {
			t.Errorf("limit %d: got %d bytes, %v, want 3,000,000", limit, len(got), err)
		}
	}
	cs, err := newCodecs(2_999_999)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.close()
	if _, err := cs.decompress(testMemoryBatch(fetchMemoryOf(nil)), codecZstd, frame, 1); !errors.Is(err, errBomb) {
		t.Errorf("Got %v, want errBomb", err)
	}
}
