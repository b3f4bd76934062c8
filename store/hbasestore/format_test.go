package hbasestore

import (
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/counters"
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
		if !ok || lines[0] == "" {
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
	vectors("distinct", 2, func(in []string) []byte {
		s := new(counters.Sketch)
		for _, e := range strings.Split(in[1], ",") {
			s.Add([]byte(e))
		}
		return appendSketch(nil, cell.Timestamp(number(in[0])), s)
	})
	vectors("states", 5, func(in []string) []byte {
		s := state{source: uint32(number(in[0])), revision: uint64(number(in[1])), next: number(in[2]), until: number(in[3]), version: in[4]}
		return s.encode()
	})
	vectors("switching", 6, func(in []string) []byte {
		s := state{source: uint32(number(in[0])), revision: uint64(number(in[1])), next: number(in[2]), until: number(in[3]), becomes: uint32(number(in[4])), version: in[5]}
		b := s.encode()
		if back, err := decodeState(b); err != nil || back != s {
			t.Errorf("Got %+v, %v of %+v", back, err, s)
		}
		return b
	})
	removing := func(at string) string {
		return floors{{span{"t", "n", "a", "b", "c", ""}, number(at)}}.encode()
	}
	vectors("removing", 1, func(in []string) []byte {
		s := state{source: 1, revision: 6, next: 10, until: 10, floors: removing(in[0]), version: "v1"}
		b := s.encode()
		if back, err := decodeState(b); err != nil || back != s {
			t.Errorf("Got %+v, %v of %+v", back, err, s)
		}
		return b
	})
	vectors("removingjournals", 1, func(in []string) []byte {
		s := journalState{source: 1, revision: 6, nonce: 9, floors: removing(in[0])}
		b := s.encode()
		if back, err := decodeJournalState(b); err != nil || back != s {
			t.Errorf("Got %+v, %v of %+v", back, err, s)
		}
		return b
	})
	vectors("journals", 3, func(in []string) []byte {
		s := journalState{source: uint32(number(in[0])), revision: uint64(number(in[1])), nonce: uint64(number(in[2]))}
		return s.encode()
	})
	put, increment := cell.Mutation{Table: "t", Row: []byte("r")}, cell.Mutation{Table: "t", Row: []byte("r")}
	put.Put("f", []byte("q"), 5, []byte("v"))
	increment.Increment("n", []byte("c"), -3)
	increment.Ops[0].Time = 6
	element := cell.Mutation{Table: "t", Row: []byte("r")}
	element.Append("u", []byte("c"), []byte("a"))
	element.Ops[0].Time = 7
	entry := []cell.Mutation{put, increment, element}
	vectors("entry", 0, func([]string) []byte {
		defer func() { entry = entry[1:] }()
		return appendEntry(nil, entry[:1])
	})
}
