package hbasestore

import (
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"

	"sluice/cell"
)

// TestFormat checks the vectors of docs/format/hbase.md, which is stored for ever.
func TestFormat(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/format/hbase.md")
	if err != nil {
		t.Fatal(err)
	}
	vectors := func(name string, fields int, f func(in []string) []byte) {
		t.Helper()
		_, rest, ok := strings.Cut(string(page), "```"+name+"\n")
		block, _, _ := strings.Cut(rest, "```")
		lines := strings.Split(strings.TrimSpace(block), "\n")
		if !ok || len(lines) < 2 {
			t.Errorf("%d vectors of %s", len(lines), name)
		}
		for _, line := range lines {
			in := strings.Fields(strings.Replace(line, "- ", "\"\" ", 1))
			if got, want := hex.EncodeToString(f(in[:fields])), strings.Join(in[fields:], ""); got != want {
				t.Errorf("%s, %s: Got %s, want %s", name, line, got, want)
			}
		}
	}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	vectors("qualifiers", 3, func(in []string) []byte {
		return appendCounter(nil, []byte(strings.Trim(in[0], `"`)), uint32(number(in[1])), int32(number(in[2])))
	})
	vectors("values", 2, func(in []string) []byte {
		return appendCount(nil, count{number(in[0]), cell.Timestamp(number(in[1]))})
	})
	vectors("states", 5, func(in []string) []byte {
		s := state{source: uint32(number(in[0])), revision: uint64(number(in[1])), next: number(in[2]), until: number(in[3]), version: in[4]}
		return s.encode()
	})
}
