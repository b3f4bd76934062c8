package registry_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/decode"
	"sluice/pipeline/decode/registry"
)

// server is a registry in memory; what it does not know it refuses as Confluent's
// does.
type server struct {
	mu      sync.Mutex
	answers map[string]string // by path and query
	asked   []string
	auth    []string
	before  func(w http.ResponseWriter, r *http.Request) (done bool)
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.URL.RequestURI())
	s.auth = append(s.auth, r.Header.Get("Authorization"))
	if s.before != nil && s.before(w, r) {
		return
	}
	if answer, ok := s.answers[r.URL.RequestURI()]; ok {
		fmt.Fprint(w, answer)
		return
	}
	code := 40403
	if strings.Contains(r.URL.Path, "/subjects/") {
		code = 40402
	}
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprintf(w, `{"error_code":%d,"message":"Schema not found"}`, code)
}

// RoundTrip serves without a network, so that time can be the bubble's.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

func newClient(t *testing.T, o registry.Options) *registry.Client {
	t.Helper()
	c, err := registry.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestFetch(t *testing.T) {
	t.Parallel()
	descriptor := base64.StdEncoding.EncodeToString([]byte{10, 1, 'f'})
	s := &server{answers: map[string]string{
		"/sr/schemas/ids/1": `{"schema":"\"string\""}`,
		"/sr/schemas/ids/2": `{"schema":"{}","schemaType":"JSON"}`,
		"/sr/schemas/ids/3": `{"schema":"main","references":[{"name":"b.B","subject":"b/v","version":2},{"name":"c.C","subject":"c","version":1}]}`,
		// b references c, too
		"/sr/subjects/b%2Fv/versions/2?deleted=true":               `{"subject":"b/v","schema":"text of b","references":[{"name":"c.C","subject":"c","version":1}]}`,
		"/sr/subjects/c/versions/1?deleted=true":                   `{"schema":"text of c"}`,
		"/sr/schemas/ids/4":                                        `{"schema":"message M {}","schemaType":"PROTOBUF","references":[{"name":"f.proto","subject":"f","version":1}]}`,
		"/sr/schemas/ids/4?format=serialized":                      `{"schema":` + quote(descriptor) + `,"schemaType":"PROTOBUF"}`,
		"/sr/subjects/f/versions/1?deleted=true":                   `{"schema":"message F {}","schemaType":"PROTOBUF"}`,
		"/sr/subjects/f/versions/1?deleted=true&format=serialized": `{"schema":` + quote(descriptor) + `,"schemaType":"PROTOBUF"}`,
		"/sr/schemas/ids/5":                                        `{"schema":"x","schemaType":"OTHER"}`,
		"/sr/schemas/ids/6":                                        `{"schema":"x","references":[{"name":"gone","subject":"g","version":1}]}`,
	}}
	srv := httptest.NewServer(s)
	defer srv.Close()
	c := newClient(t, registry.Options{URLs: []string{srv.URL + "/sr/"}, User: "u", Password: "p"})
	for _, want := range []*decode.Schema{
		{ID: 1, Type: "AVRO", Text: []byte(`"string"`)},
		{ID: 2, Type: "JSON", Text: []byte(`{}`)},
		{ID: 3, Type: "AVRO", Text: []byte("main"), References: []decode.Reference{{Name: "c.C", Text: []byte("text of c")}, {Name: "b.B", Text: []byte("text of b")}}},
		{ID: 5, Type: "OTHER", Text: []byte("x")},
		{ID: 4, Type: "PROTOBUF", Text: []byte("\n\x01f"), References: []decode.Reference{{Name: "f.proto", Text: []byte("\n\x01f")}}},
	} {
		if got, err := c.Schema(want.ID); got != nil || err != nil {
			t.Errorf("schema %d before it is fetched: got %v, %v", want.ID, got, err)
		}
		if err := c.Fetch(t.Context(), want.ID); err != nil {
			t.Error(err)
		}
		got, err := c.Schema(want.ID)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("schema %d: %v (-want +got):\n%s", want.ID, err, diff)
		}
	}
	for id, want := range map[int]string{
		6: `schema 6: reference gone (version 1 of g): the schema registry has no such schema (40402: "Schema not found")`,
		7: `schema 7: the schema registry has no such schema (40403: "Schema not found")`,
	} {
		if err := c.Fetch(t.Context(), id); err != nil {
			t.Error(err)
		}
		if got, err := c.Schema(id); got != nil || !errors.Is(err, decode.ErrNoSchema) || err.Error() != want {
			t.Errorf("schema %d: got %v, %v, want %s", id, got, err, want)
		}
	}
	asked := len(s.asked)
	for id := range 8 {
		if err := c.Fetch(t.Context(), id); err != nil && id > 0 {
			t.Error(err)
		}
	}
	if len(s.asked) != asked+1 { // 0 was new
		t.Errorf("what is known was asked for again: %v", s.asked[asked:])
	}
	for _, a := range s.auth {
		if a != "Basic "+base64.StdEncoding.EncodeToString([]byte("u:p")) {
			t.Errorf("a request with authorization %q", a)
		}
	}
}

// A registry that has the source of Protobuf schemas only is no word on their records: who
// asks waits, until it is one that has their descriptors.
func TestSourceIsNoDescriptor(t *testing.T) {
	t.Parallel()
	const source = `{"schema":"syntax = \"proto3\"; message M {}","schemaType":"PROTOBUF"}`
	descriptor := `{"schema":` + quote(base64.StdEncoding.EncodeToString([]byte{10, 1, 'f'})) + `,"schemaType":"PROTOBUF"}`
	importing := `{"schema":"syntax = \"proto3\";","schemaType":"PROTOBUF","references":[{"name":"f.proto","subject":"f","version":1}]}`
	s := &server{answers: map[string]string{
		"/schemas/ids/5":                                        source,
		"/schemas/ids/5?format=serialized":                      source,
		"/schemas/ids/6":                                        importing,
		"/schemas/ids/6?format=serialized":                      descriptor,
		"/subjects/f/versions/1?deleted=true":                   source,
		"/subjects/f/versions/1?deleted=true&format=serialized": source,
	}}
	c := newClient(t, registry.Options{URLs: []string{"http://registry"}, Transport: s})
	for id := 5; id <= 6; id++ {
		err := c.Fetch(t.Context(), id)
		if !errors.Is(err, decode.ErrNoDescriptor) || !errors.Is(err, decode.ErrUnavailable) || !strings.Contains(err.Error(), "format=serialized") {
			t.Errorf("schema %d: got %v, want %v", id, err, decode.ErrNoDescriptor)
		}
		if got, err := c.Schema(id); got != nil || err != nil {
			t.Errorf("schema %d: then got %v, %v", id, got, err)
		}
	}
	for path, answer := range s.answers {
		if answer == source && strings.HasSuffix(path, "format=serialized") {
			s.answers[path] = descriptor
		}
	}
	for id := 5; id <= 6; id++ {
		if err := c.Fetch(t.Context(), id); err != nil {
			t.Error(err)
		}
		if got, err := c.Schema(id); got == nil || string(got.Text) != "\n\x01f" || err != nil {
			t.Errorf("schema %d: afterwards got %v, %v", id, got, err)
		}
	}
}

// An outage is never an answer: whatever goes wrong beside the registry's own word
// is tried again and then ErrUnavailable.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		answer func(w http.ResponseWriter)
		want   string
	}{
		{"500", func(w http.ResponseWriter) { w.WriteHeader(500) }, "500 Internal Server Error"},
		{"503", func(w http.ResponseWriter) {
			w.WriteHeader(503)
			fmt.Fprint(w, `{"error_code":50301,"message":"no leader"}`)
		}, `503: "no leader"`},
		{"a proxy's 404", func(w http.ResponseWriter) {
			w.WriteHeader(404)
			fmt.Fprint(w, `<html>`)
		}, "404 that is not the registry's own"},
		{"a path's 404", func(w http.ResponseWriter) {
			w.WriteHeader(404)
			fmt.Fprint(w, `{"error_code":404,"message":"HTTP 404 Not Found"}`)
		}, "404 that is not the registry's own"},
		{"401", func(w http.ResponseWriter) {
			w.WriteHeader(401)
			fmt.Fprint(w, `{"error_code":40101,"message":"who?"}`)
		}, "the registry refuses the credentials"},
		{"another page", func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") }, "answers no schema"},
		{"no schema", func(w http.ResponseWriter) { fmt.Fprint(w, "{}") }, "answers no schema"},
		{"a redirect", func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://elsewhere/")
			w.WriteHeader(302)
		}, "302 Found"},
		{"too much", func(w http.ResponseWriter) {
			_, _ = io.Copy(w, io.LimitReader(endless{}, 9<<20))
		}, "answers more than 8454144 bytes"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{before: func(w http.ResponseWriter, _ *http.Request) bool { tt.answer(w); return true }}
			c := newClient(t, registry.Options{URLs: []string{"http://registry", "http://other"}, Password: "secret", Transport: s})
			err := c.Fetch(t.Context(), 1)
			if !errors.Is(err, decode.ErrUnavailable) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
			}
			if got, err := c.Schema(1); got != nil || err != nil {
				t.Errorf("%s: then %v, %v", tt.name, got, err)
			}
			if len(s.asked) != 6 {
				t.Errorf("%s: asked %d times, want 3 at each of two addresses", tt.name, len(s.asked))
			}
			// The registry comes back.
			s.before, s.answers = nil, map[string]string{"/schemas/ids/1": `{"schema":"x"}`}
			if err := c.Fetch(t.Context(), 1); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			if got, err := c.Schema(1); got == nil || err != nil {
				t.Errorf("%s: afterwards %v, %v", tt.name, got, err)
			}
		})
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return copy(b, bytes.Repeat([]byte{' '}, len(b))), nil }

// The first address is down and the second knows; or the first, a follower, does
// not know yet.
func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, down := range []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { w.WriteHeader(502) },
		func(w http.ResponseWriter) {
			w.WriteHeader(404)
			fmt.Fprint(w, `{"error_code":40403}`)
		},
	} {
		s := &server{answers: map[string]string{"/schemas/ids/1": `{"schema":"x"}`}}
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Host != "first" {
				return false
			}
			down(w)
			return true
		}
		c := newClient(t, registry.Options{URLs: []string{"http://first", "https://second"}, Token: "t", Transport: s})
		if err := c.Fetch(t.Context(), 1); err != nil {
			t.Error(err)
		}
		if got, err := c.Schema(1); got == nil || err != nil || len(s.asked) != 2 || s.auth[1] != "Bearer t" {
			t.Errorf("got %v, %v after %v with %v", got, err, s.asked, s.auth)
		}
	}
}

// That there is no schema counts for some seconds: it may be registered a little late, or be
// on its way to a replica of the registry, and a pipeline with the policy retry tries a record
// again for 26 s.
func TestMissingExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := newClient(t, registry.Options{URLs: []string{"http://registry"}, Transport: s})
		if err := c.Fetch(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		if _, err := c.Schema(1); !errors.Is(err, decode.ErrNoSchema) {
			t.Errorf("after 4 s: got %v", err)
		}
		s.answers = map[string]string{"/schemas/ids/1": `{"schema":"x"}`}
		time.Sleep(time.Second)
		if got, err := c.Schema(1); got != nil || err != nil {
			t.Errorf("after 5 s: got %v, %v, want that it is to be fetched", got, err)
		}
		if err := c.Fetch(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Schema(1); got == nil || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

// A schema that is there and cannot be used stays so: its answer is large, and counts for
// longer.
func TestUnusableExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: map[string]string{"/schemas/ids/1": `{"schema":"` + strings.Repeat("x", decode.MaxSchemaBytes+1) + `"}`}}
		c := newClient(t, registry.Options{URLs: []string{"http://registry"}, Transport: s})
		if err := c.Fetch(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(29 * time.Second)
		if _, err := c.Schema(1); !errors.Is(err, registry.ErrUnusable) {
			t.Errorf("after 29 s: got %v", err)
		}
		time.Sleep(time.Second)
		if got, err := c.Schema(1); got != nil || err != nil {
			t.Errorf("after 30 s: got %v, %v, want that it is to be fetched", got, err)
		}
	})
}

// Many ask for one id: one request. One of them gives up: the others do not.
func TestFetchTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: map[string]string{"/schemas/ids/1": `{"schema":"x"}`}}
		slow := slowly{s, 2 * time.Second}
		c := newClient(t, registry.Options{URLs: []string{"http://registry"}, Transport: slow})
		var wg sync.WaitGroup
		first, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wg.Go(func() {
			if err := c.Fetch(first, 1); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, decode.ErrUnavailable) {
				t.Errorf("the one that gives up: got %v", err)
			}
		})
		synctest.Wait()
		for range 10 {
			wg.Go(func() {
				if err := c.Fetch(t.Context(), 1); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(s.asked) != 1 {
			t.Errorf("asked %d times, want 1 beside the one that was given up", len(s.asked))
		}
	})
}

// TestFetchesAreBounded: answers may be large, so that few ids are asked for at once; who
// waits for a turn can give up.
func TestFetchesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: map[string]string{}}
		for id := range 10 {
			s.answers[fmt.Sprintf("/schemas/ids/%d", id)] = `{"schema":"x"}`
		}
		c := newClient(t, registry.Options{URLs: []string{"http://registry"}, Transport: slowly{s, 2 * time.Second}})
		start := time.Now()
		var wg sync.WaitGroup
		for id := range 10 {
			wg.Go(func() {
				if err := c.Fetch(t.Context(), id); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		waits, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Fetch(waits, 10); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the one that gives up its turn: got %v", err)
		}
		wg.Wait()
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("10 fetches of 2 s took %v, want 10 s: two at once", took)
		}
	})
}

// slowly serves after a while, unless the request is given up.
type slowly struct {
	*server
	wait time.Duration
}

func (s slowly) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(s.wait):
		return s.server.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// A registry that says nothing is given up after the timeout.
func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, registry.Options{URLs: []string{"http://registry"}, Timeout: time.Second, Attempts: 2, Transport: slowly{&server{}, time.Hour}})
		start := time.Now()
		if err := c.Fetch(t.Context(), 1); !errors.Is(err, decode.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took != 2100*time.Millisecond {
			t.Errorf("took %v, want two timeouts and 100 ms", took)
		}
	})
}

// What is kept is bounded, whatever ids records name.
func TestManyIDs(t *testing.T) {
	t.Parallel()
	s := &server{answers: map[string]string{"/schemas/ids/1": `{"schema":"x"}`}}
	c := newClient(t, registry.Options{URLs: []string{"http://registry"}, Transport: s})
	for id := 1; id <= 5000; id++ {
		if err := c.Fetch(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Schema(id); (err == nil) != (id == 1) {
			t.Fatalf("schema %d: %v", id, err)
		}
	}
	if got, err := c.Schema(1); got == nil || err != nil {
		t.Errorf("the one that exists was forgotten for those that do not: %v, %v", got, err)
	}
	if got, err := c.Schema(2); got != nil || err != nil {
		t.Errorf("the oldest that does not exist: got %v, %v, want it forgotten", got, err)
	}
}

// What is kept is bounded in bytes, too: the last schema is there, and those before it as far as
// they fit.
func TestLargeSchemasAreForgotten(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("reads 72 MiB of JSON")
	}
	answer := fmt.Sprintf(`{"schema":%q}`, strings.Repeat("x", 3<<20))
	s := &server{answers: map[string]string{}}
	c := newClient(t, registry.Options{URLs: []string{"http://registry"}, Transport: s})
	const all, most = 24, 64 / 3
	for id := range all {
		s.answers[fmt.Sprintf("/schemas/ids/%d", id+1)] = answer
		if err := c.Fetch(t.Context(), id+1); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Schema(id + 1); got == nil || err != nil {
			t.Fatalf("the one that was fetched last: %v, %v", got, err)
		}
	}
	kept := 0
	for id := range all {
		if got, _ := c.Schema(id + 1); got != nil {
			kept++
		}
	}
	if kept != most {
		t.Errorf("Got %d schemas of 3 MiB kept, want %d", kept, most)
	}
}

func TestReferencesAreBounded(t *testing.T) {
	t.Parallel()
	s := &server{answers: map[string]string{"/schemas/ids/1": `{"schema":"x","references":[{"name":"0","subject":"0","version":1}]}`}}
	for i := range 1000 {
		s.answers[fmt.Sprintf("/subjects/%d/versions/1?deleted=true", i)] = fmt.Sprintf(`{"schema":"x","references":[{"name":"%d","subject":"%d","version":1}]}`, i+1, i+1)
	}
	// A circle is no schema, but it must not go on for ever.
	s.answers["/schemas/ids/2"] = `{"schema":"x","references":[{"name":"a","subject":"a","version":1}]}`
	s.answers["/subjects/a/versions/1?deleted=true"] = `{"schema":"x","references":[{"name":"a","subject":"a","version":1}]}`
	c := newClient(t, registry.Options{URLs: []string{"http://registry"}, Transport: s})
	for id, want := range map[int]string{1: "it references more than 256 others", 2: ""} {
		if err := c.Fetch(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Schema(id); want != "" && (err == nil || !strings.Contains(err.Error(), want)) || want == "" && err != nil {
			t.Errorf("schema %d: got %v, want %q", id, err, want)
		}
	}
}

// TestTooLargeIsRefused: a schema is what it is for ever, so that one that is too large
// is the record's fault, and no reason to wait.
func TestTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	large := func(n int) string { return fmt.Sprintf(`{"schema":%q}`, strings.Repeat("x", n)) }
	escaped := fmt.Sprintf(`{"schema":%q}`, strings.Repeat(`"`, 4<<20))
	s := &server{answers: map[string]string{
		"/schemas/ids/1":                      escaped,
		"/schemas/ids/2":                      large(4<<20 + 1),
		"/schemas/ids/3":                      large(9 << 20),
		"/schemas/ids/4":                      `{"schema":"x","references":[{"name":"a","subject":"a","version":1},{"name":"b","subject":"b","version":1}]}`,
		"/schemas/ids/5":                      `{"schema":"x","references":[{"name":"a","subject":"a","version":1}]}`,
		"/subjects/a/versions/1?deleted=true": large(3 << 20),
		"/subjects/b/versions/1?deleted=true": large(2 << 20),
	}}
	for _, typ := range []string{"application/vnd.schemaregistry.v1+json", ""} {
		s.before = func(w http.ResponseWriter, _ *http.Request) bool {
			if typ != "" {
				w.Header().Set("Content-Type", typ)
			}
			return false
		}
		c := newClient(t, registry.Options{URLs: []string{"http://registry"}, Attempts: 1, Transport: s})
		for id, want := range map[int]string{1: "", 2: "more than 4194304 bytes", 3: "more than 8454144 bytes", 4: "reference b (version 1 of b): ", 5: ""} {
			if err := c.Fetch(t.Context(), id); err != nil {
				t.Fatalf("content type %q: schema %d: %v", typ, id, err)
			}
			got, err := c.Schema(id)
			if want == "" && (got == nil || err != nil) || want != "" && (!errors.Is(err, registry.ErrUnusable) || !strings.Contains(err.Error(), want)) {
				t.Errorf("content type %q: schema %d: got %v, want %q", typ, id, err, want)
			}
		}
	}
}

// TestChainIsBounded: what a schema references by way of others is counted on the way
// there, where the answers so far are in memory, and not on the way back.
func TestChainIsBounded(t *testing.T) {
	t.Parallel()
	s := &server{answers: map[string]string{"/schemas/ids/1": `{"schema":"x","references":[{"name":"0","subject":"0","version":1}]}`}}
	text := quote(strings.Repeat("x", 3<<20))
	for i := range 30 {
		s.answers[fmt.Sprintf("/subjects/%d/versions/1?deleted=true", i)] = fmt.Sprintf(`{"schema":%s,"references":[{"name":"%d","subject":"%d","version":1}]}`, text, i+1, i+1)
	}
	c := newClient(t, registry.Options{URLs: []string{"http://registry"}, Transport: s})
	if err := c.Fetch(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Schema(1); !errors.Is(err, registry.ErrUnusable) || !strings.Contains(err.Error(), "more than 16908288 bytes") || !strings.HasPrefix(err.Error(), "schema 1: reference 0 (version 1 of 0): ") {
		t.Errorf("got %.500v", err)
	}
	if n := len(s.asked); n > 7 {
		t.Errorf("asked %d times, each answer of 3 MiB in memory, want 7 at most", n)
	}
}

func TestCredentialsAreNotPrinted(t *testing.T) {
	t.Parallel()
	o := registry.Options{URLs: []string{"http://u:hunter2@registry"}, User: "u", Password: "hunter2", Token: "hunter2"}
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "options", o, "pointer", &o)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "options", o, "pointer", &o)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s %q", o, o, o, o, o), fmt.Sprintf("%v %+v %#v", &o, &o, &o), out.String()} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("a secret is in %s", text)
		}
	}
	for _, o := range []registry.Options{{User: "u", Password: "hunter2"}, {Token: "hunter2"}} {
		o.URLs = []string{"http://registry"}
		c := newClient(t, o)
		if text := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(text, "hunter2") {
			t.Errorf("a secret is in %s", text)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		o    registry.Options
		want string
	}{
		{registry.Options{}, "registry: no address"},
		{registry.Options{URLs: []string{"registry:8081"}}, "registry: not the address of a registry: write http://host:port or https://host:port"},
		{registry.Options{URLs: []string{"http://u:secret@registry"}}, "registry: the address of a registry has no user and password in it: write them apart"},
		{registry.Options{URLs: []string{"http://registry/?a=b"}}, "registry: the address of a registry has no ? and no #"},
		{registry.Options{URLs: []string{"http://registry"}, User: "u", Token: "t"}, "registry: a user and a token: one of them authenticates"},
		{registry.Options{URLs: []string{"http://registry"}, Timeout: -1}, "registry: a negative timeout or number of attempts"},
	} {
		if _, err := registry.New(&tt.o); err == nil || err.Error() != tt.want {
			t.Errorf("%v: got %v, want %s", tt.o.URLs, err, tt.want)
		}
	}
}

// A connection trusts the CAs, and a request has the password, of when it is made.
func TestCredentialsOfNow(t *testing.T) {
	t.Parallel()
	s := &server{answers: map[string]string{"/schemas/ids/1": `{"schema":"x"}`, "/schemas/ids/2": `{"schema":"x"}`}}
	srv := httptest.NewUnstartedServer(s)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	good := x509.NewCertPool()
	good.AddCert(srv.Certificate())
	var roots atomic.Pointer[x509.CertPool]
	roots.Store(x509.NewCertPool())
	var password atomic.Int64
	c := newClient(t, registry.Options{
		URLs: []string{srv.URL}, Attempts: 1, User: "u", Password: "0", PasswordNow: func() string { return strconv.FormatInt(password.Load(), 10) },
		TLS: &tls.Config{RootCAs: good, MinVersion: tls.VersionTLS12}, RootCAs: roots.Load,
	})
	if err := c.Fetch(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("Got %v without the CA, want that the certificate is not trusted", err)
	}
	roots.Store(good)
	for id := range 2 {
		password.Store(int64(id) + 1)
		if err := c.Fetch(t.Context(), id+1); err != nil {
			t.Error(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	basic := func(password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+password))
	}
	if diff := cmp.Diff([]string{basic("1"), basic("2")}, s.auth); diff != "" {
		t.Errorf("credentials (-want +got):\n%s", diff)
	}
}
