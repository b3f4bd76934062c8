package config_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sluice/config"
	"sluice/pipeline/kafka"
	"sluice/pipeline/memory"
)

// Every bound of a record batch that the file takes can be met: what is larger has no
// memory. The memory that a refusal asks for is enough, and bounds that are not given
// are no smaller than what memory has.
func TestBoundsFitMemory(t *testing.T) {
	t.Parallel()
	file := func(megabytes int64, bounds, fetch string) (*config.Config, error) {
		return config.Parse("f.yaml", fmt.Appendf(nil, `memory: %dMiB
kafka: {%s}
tables: {t: {families: {f: {}}}}
pipelines:
  p:
    topics: [a]
    group: g
    decode: {format: raw}
    fetch: {%s}
    map: [{table: t, row: "key", put: {f: {q: "value"}}}]
`, megabytes, bounds, fetch), nil)
	}
	for _, megabytes := range []int64{16, 17, 64, 100, 384, 500} {
		budget, err := memory.New(megabytes << 20)
		if err != nil {
			t.Fatal(err)
		}
		stored, unfolded := kafka.LargestBatch(budget)
		decompressed := func(n int64) (string, string) { return fmt.Sprintf("max_decompressed: %d", n), "" }
		batch := func(n int64) (string, string) { return "", fmt.Sprintf("max_batch_bytes: %d", n) }
		for name, tc := range map[string]struct {
			most  int64
			bound func(n int64) (string, string)
		}{"decompressed": {unfolded, decompressed}, "batch": {stored, batch}} {
			tc.most &^= 1<<20 - 1
			at, fetch := tc.bound(tc.most)
			if _, err := file(megabytes, at, fetch); err != nil {
				t.Errorf("Got %v for %s %d of %dMiB, want none", err, name, tc.most, megabytes)
			}
			at, fetch = tc.bound(tc.most + 1)
			_, err := file(megabytes, at, fetch)
			need := regexp.MustCompile(`raise memory to (\d+)MiB`).FindStringSubmatch(fmt.Sprint(err))
			if need == nil {
				t.Fatalf("Got %v, want what memory is needed", err)
			}
			enough, err := strconv.ParseInt(need[1], 10, 64)
			if err != nil || enough <= megabytes || enough > 4*megabytes {
				t.Errorf("Got %d (%v) instead of %dMiB for %s", enough, err, megabytes, name)
			}
			if _, err := file(enough, at, fetch); err != nil {
				t.Errorf("Got %v for %s with the memory that was asked for", err, name)
			}
			if _, err := file(enough-1, at, fetch); err == nil {
				t.Errorf("Got no error for %s with less than the memory that was asked for", name)
			}
		}
		c, err := file(megabytes, "", "")
		if err != nil {
			t.Fatal(err)
		}
		k, err := c.KafkaOptions()
		if err != nil {
			t.Fatal(err)
		}
		o, err := c.PipelineOptions("p")
		if err != nil {
			t.Fatal(err)
		}
		if int64(k.MaxDecompressed) < unfolded || int64(o.Fetch.MaxBatchBytes) < stored {
			t.Errorf("Got bounds of %d and %d by default, below the %d and %d that %dMiB have", k.MaxDecompressed, o.Fetch.MaxBatchBytes, unfolded, stored, megabytes)
		}
	}
}

// What a payload may unfold to is bounded by memory: by default, and where the file says
// more, which is refused with the memory that is enough.
func TestPayloadsFitMemory(t *testing.T) {
	t.Parallel()
	for unfolding, share := range map[string]int{"format: raw, compression: zstd": 6, "format: avro, framing: container": 6, "format: avro, framing: container, compression: gzip": 12} {
		t.Run(unfolding, func(t *testing.T) { testPayloadsFitMemory(t, unfolding, share) })
	}
}

// testPayloadsFitMemory tests what has a part of memory for one payload.
func testPayloadsFitMemory(t *testing.T, unfolding string, part int) {
	file := func(megabytes int, bound string) (*config.Config, error) {
		return config.Parse("f.yaml", fmt.Appendf(nil, `memory: %dMiB
kafka: {brokers: ["b:1"]}
tables: {t: {families: {f: {}}}}
pipelines:
  p:
    topics: [a]
    group: g
    decode: {%s%s}
    map: [{table: t, row: "key", put: {f: {q: "value"}}}]
`, megabytes, unfolding, bound), nil)
	}
	versions := map[int]string{}
	for _, megabytes := range []int{16, 100, 1024, 2048} {
		c, err := file(megabytes, "")
		if err != nil {
			t.Fatal(err)
		}
		budget, err := c.NewMemory()
		if err != nil {
			t.Fatal(err)
		}
		o, err := c.PipelineOptions("p")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.Plan.NewMapperIn(budget.Unpacked()); err != nil || budget.Unpacked() == nil {
			t.Errorf("Got %v for the default bound with %d MiB", err, megabytes)
		}
		versions[megabytes] = o.Plan.Version()
	}
	if versions[1024] != versions[2048] || versions[16] == versions[1024] || versions[16] == versions[100] {
		t.Errorf("Got the versions %v, want one for each bound", versions)
	}
	for _, bound := range []int{1 << 20, 3 << 20, 64 << 20} {
		enough := max(part*bound>>20+1, 16)
		text := fmt.Sprintf(", max_bytes: %d", bound)
		if _, err := file(enough, text); err != nil {
			t.Errorf("Got %v for %d bytes with %d MiB", err, bound, enough)
		}
		want := fmt.Sprintf("raise memory to %dMiB", enough)
		if _, err := file(enough-1, text); enough > 16 && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("Got %v for %d bytes, want %q", err, bound, want)
		}
	}
}
