package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"sluice/cell"
	"sluice/serve"
	"sluice/serve/api"
	"sluice/store"
	"sluice/store/memstore"
)

// parts counts what is written at a time.
type parts struct {
	*httptest.ResponseRecorder
	largest int
}

func (p *parts) Write(b []byte) (int, error) {
	p.largest = max(p.largest, len(b))
	return p.ResponseRecorder.Write(b)
}

// failing is an engine whose scans fail after so many parts of rows.
type failing struct {
	*memstore.Store
	after int
}

type failingScanner struct {
	store.Scanner
	left int
}

func (e *failing) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	return &failingScanner{e.Store.Scan(ctx, s), e.after}
}

func (s *failingScanner) Next() bool { s.left--; return s.left >= 0 && s.Scanner.Next() }

func (s *failingScanner) Err() error {
	if s.left < 0 {
		return errors.New("a bad block")
	}
	return s.Scanner.Err()
}

// TestPages: rows and letters of any size are sent a page at a time, and what cannot be read
// to its end is cut off.
func TestPages(t *testing.T) {
	t.Parallel()
	engine, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	if err := engine.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f"), store.NewFamily("g")}}, nil); err != nil {
		t.Fatal(err)
	}
	wide := cell.Mutation{Table: "t", Row: []byte("wide")}
	for i := range 400 {
		wide.Put([]string{"f", "g"}[i%2], fmt.Appendf(nil, "%03d", i), 5, bytes.Repeat([]byte{byte(i)}, 4000))
	}
	all := []cell.Mutation{wide}
	for i := range 40 {
		letter := cell.Mutation{Table: store.OutboxTable, Row: fmt.Appendf(nil, "p\x00\x01t%02d", i)}
		letter.Put(store.OutboxFamily, []byte("raw"), 1, bytes.Repeat([]byte{byte(i)}, 40_000))
		all = append(all, letter)
	}
	for i := range all {
		if _, err := engine.MutateRow(t.Context(), nil, &all[i]); err != nil {
			t.Fatal(err)
		}
	}
	get := func(e store.Engine, path string, to any) (*parts, error) {
		s, err := serve.New(&serve.Options{Engine: e, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1/api/v1"+path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := &parts{ResponseRecorder: httptest.NewRecorder()}
		s.Handler().ServeHTTP(w, r)
		return w, json.Unmarshal(w.Body.Bytes(), to)
	}
	var row api.Row
	if w, err := get(engine, "/tables/t/rows/wide", &row); err != nil || len(row.Cells) != 400 || w.largest > 300_000 {
		t.Errorf("a wide row: Got %d cells, %d bytes at once, %v", len(row.Cells), w.largest, err)
	}
	for i, c := range row.Cells {
		if n := 2*i%400 + i/200; c.Family != []string{"f", "g"}[i/200] || string(c.Qualifier) != fmt.Sprintf("%03d", n) || !bytes.Equal(c.Value, bytes.Repeat([]byte{byte(n)}, 4000)) {
			t.Fatalf("cell %d: Got %s:%s", i, c.Family, c.Qualifier)
		}
	}
	var box api.OutboxResponse
	if w, err := get(engine, "/outbox?limit=10000", &box); err != nil || len(box.Rows) != 40 || w.largest > 300_000 || len(box.Rows[39].Columns["raw"]) != 40_000 {
		t.Errorf("large letters: Got %d, %d bytes at once, %v", len(box.Rows), w.largest, err)
	}
	for _, path := range []string{"/tables/t/rows/wide", "/outbox"} {
		if w, err := get(&failing{engine, 0}, path, &row); w.Code != http.StatusInternalServerError || err != nil {
			t.Errorf("%s fails at once: Got %d, %v", path, w.Code, err)
		}
		func() {
			defer func() {
				if got := recover(); got != http.ErrAbortHandler {
					t.Errorf("%s fails amid its answer: Got %v, want that it is cut off", path, got)
				}
			}()
			_, _ = get(&failing{engine, 5}, path, &row)
		}()
	}
}
